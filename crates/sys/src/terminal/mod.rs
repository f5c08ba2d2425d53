//! What the programs share for their users: errors, values of options, output.

mod error;
#[cfg(feature = "clap")]
mod explain;
pub mod output;
pub mod units;

pub use error::Error;
#[cfg(feature = "clap")]
pub use explain::explain;
