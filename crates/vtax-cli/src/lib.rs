//! What vtax's programs share towards their users: errors, a wrong command line, output.

mod error;
mod explain;

pub use error::Error;
pub use explain::explain;
pub use vtax_sys::reason;
