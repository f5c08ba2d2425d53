//! Everything that vtax's programs need from the machine below them.
//!
//! [`calls`] has every system call and instruction that needs `unsafe` and is not tied to one
//! library. [`tree`] and [`process`] read `/proc` and `/sys` below a root that tests can fake.
//! [`guest_page`] is here because the agent writes such pages and the recorder reads them: in the
//! recorder's crate it would make the agent depend on libbpf, Arrow and Parquet.

pub mod calls;
pub mod cgroup;
pub mod clock;
pub mod confine;
pub mod cpu_list;
pub mod gated;
pub mod guest_page;
pub mod kvm;
pub mod owner;
pub mod pinning;
pub mod process;
pub mod program_counts;
pub mod signals;
pub mod state;
pub mod swap;
pub mod task;
pub mod terminal;
pub mod trace_mark;
pub mod tree;

use nix::errno::Errno;

/// The kernel's own words for an error, without the number that Rust appends.
pub fn reason(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_have_no_number() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(reason(&error), "No such file or directory");
    }
}
