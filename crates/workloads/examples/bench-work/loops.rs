//! Work of a program without a guest: registers, memory, system calls.

use std::hint::black_box;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::unistd::{pipe, read, write};

/// Larger than current second-level caches, so that loads go further.
const CHASE_BYTES: usize = 64 << 20;
/// Words of a cache line; one word of each line is loaded.
const LINE_WORDS: usize = 8;

/// Rounds of a generator of pseudo-random numbers (xorshift64, Marsaglia 2003): no memory at all.
pub fn arithmetic(rounds: u64) {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// A cycle through memory in which each load gives the address of the next.
pub struct Chase {
    next: Vec<usize>,
    at: usize,
}

impl Chase {
    pub fn new() -> Self {
        let words = CHASE_BYTES / size_of::<usize>();
        let lines = words / LINE_WORDS;
        let mut next = vec![0; words];
        // A full cycle through all lines (Hull & Dobell 1962: the factor minus 1 is divisible by 4,
        // the step is odd, the number of lines a power of two), in no order that a prefetcher could
        // follow.
        let mut line = 0;
        for _ in 0..lines {
            let following = (line * 1_664_525 + 1_013_904_223) % lines;
            if let Some(word) = next.get_mut(line * LINE_WORDS) {
                *word = following * LINE_WORDS;
            }
            line = following;
        }
        Self { next, at: 0 }
    }

    pub fn follow(&mut self, loads: u64) {
        for _ in 0..loads {
            self.at = self.next.get(self.at).copied().unwrap_or(0);
        }
        black_box(self.at);
    }
}

/// A pipe from this process to itself.
pub struct Pipe {
    from: OwnedFd,
    to: OwnedFd,
}

impl Pipe {
    pub fn new() -> Result<Self, Errno> {
        let (from, to) = pipe()?;
        Ok(Self { from, to })
    }

    /// Pass `bytes` bytes, one at a time: two system calls for each.
    pub fn pass(&self, bytes: u64) -> Result<(), Errno> {
        let mut buffer = [0];
        for _ in 0..bytes {
            write(&self.to, &buffer)?;
            read(&self.from, &mut buffer)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chase_visits_every_line_once() {
        let mut chase = Chase::new();
        let lines = (CHASE_BYTES / size_of::<usize>() / LINE_WORDS) as u64;
        chase.follow(1);
        for _ in 1..lines {
            assert_ne!(chase.at, 0);
            chase.follow(1);
        }
        assert_eq!(chase.at, 0);
    }

    #[test]
    fn a_pipe_passes_more_than_it_holds() {
        Pipe::new().unwrap().pass(100_000).unwrap();
    }
}
