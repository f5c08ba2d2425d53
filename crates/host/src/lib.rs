//! What vtax does on a host of guests, as one program that needs no Python there.
//!
//! [`record`] makes rows of events of every layer. [`place`] finds the threads that work for
//! guests, slows them, and puts them on CPUs. [`switch`] moves running KVM guests to the other
//! paging mode, and [`control`] decides when. [`cli`] is the command line of all of them.

pub mod cli;
pub mod control;
pub mod place;
pub mod record;
pub mod switch;
