//! Following pointers through memory: each load needs the load before it.

#![allow(unsafe_code)]

use std::arch::asm;

/// Loads in one step of [`Cycle::follow`].
pub const LOADS: u64 = 16;

/// Words of memory, each with the address of the next; the last leads to the first.
#[derive(Debug)]
pub struct Cycle<'a> {
    /// Borrowed mutably, so that nothing else changes a link.
    #[allow(dead_code, reason = "what it borrows is used, by address")]
    memory: &'a mut [u64],
    at: u64,
}

impl<'a> Cycle<'a> {
    /// Link the words of `memory` at these indices in this order; `None` when there are no indices,
    /// or one is out of bounds.
    pub fn link(memory: &'a mut [u64], order: &[u32]) -> Option<Self> {
        let length = memory.len();
        let address = |index: u32| {
            let word = usize::try_from(index).ok().filter(|at| *at < length)?;
            Some((word, memory_address(word)))
        };
        let base = memory.as_ptr() as u64;
        let first = address(*order.first()?)?.1;
        let nexts = order.iter().skip(1).chain(order.first());
        for (this, next) in order.iter().zip(nexts) {
            let (word, target) = (address(*this)?.0, address(*next)?.1);
            memory[word] = base + target;
        }
        Some(Self {
            at: base + first,
            memory,
        })
    }

    /// Load `steps` times 16 links, one after the other.
    pub fn follow(&mut self, steps: u64) {
        // SAFETY: the address is that of a linked word, and so is every link: `link` wrote them,
        // and the memory has been borrowed mutably since. Nothing is written.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!(
                "2:", ".rept 16", "mov {at}, [{at}]", ".endr", "dec {steps}", "jnz 2b",
                at = inout(reg) self.at, steps = inout(reg) steps.max(1) => _,
                options(nostack, readonly),
            );
            #[cfg(target_arch = "aarch64")]
            asm!(
                "2:", ".rept 16", "ldr {at}, [{at}]", ".endr",
                "subs {steps}, {steps}, #1", "b.ne 2b",
                at = inout(reg) self.at, steps = inout(reg) steps.max(1) => _,
                options(nostack, readonly),
            );
        }
    }

    /// The index of the word that is loaded next.
    #[cfg(test)]
    fn index(&self) -> u64 {
        (self.at - self.memory.as_ptr() as u64) / 8
    }
}

/// Bytes from the beginning of the memory.
fn memory_address(word: usize) -> u64 {
    word as u64 * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_visits_its_words_in_order_and_comes_back() {
        let mut memory = vec![0; 100];
        let mut cycle = Cycle::link(&mut memory, &[7, 99, 0, 42, 8]).unwrap();
        assert_eq!(cycle.index(), 7);
        cycle.follow(1);
        assert_eq!(cycle.index(), 99, "16 loads are three rounds and one");
        cycle.follow(4);
        assert_eq!(cycle.index(), 7);
    }

    #[test]
    fn links_outside_the_memory_are_refused() {
        assert!(Cycle::link(&mut [0; 4], &[1, 4]).is_none());
        assert!(Cycle::link(&mut [0; 4], &[]).is_none());
    }
}
