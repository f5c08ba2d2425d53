//! How a program in a guest tells an emulator where a trace begins and ends.
//!
//! A mark is CPUID with a leaf that no processor has: it needs no privilege and changes nothing,
//! and watching for it costs an emulator nothing while no mark is made. `vtax-agent traced`
//! executes it, `vtax-trace` watches for it.

use crate::calls::processor::cpuid;

/// A point of the guest's run; the value is the CPUID leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mark {
    /// The trace begins soon: code translated from here on is to be instrumented.
    Arm = 0x5654_4100,
    /// The trace begins here.
    Begin = 0x5654_4101,
    /// The trace ends here.
    End = 0x5654_4102,
    /// The next phase of the trace begins here.
    Phase = 0x5654_4103,
}

impl Mark {
    /// The mark of a leaf.
    pub fn of(leaf: u32) -> Option<Self> {
        [Self::Arm, Self::Begin, Self::End, Self::Phase]
            .into_iter()
            .find(|&mark| mark as u32 == leaf)
    }

    /// Make the mark. It does nothing where no emulator watches.
    pub fn set(self) {
        cpuid(self as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_and_no_leaf_of_a_processor_is_one() {
        for mark in [Mark::Arm, Mark::Begin, Mark::End, Mark::Phase] {
            assert_eq!(Mark::of(mark as u32), Some(mark));
            mark.set();
        }
        for leaf in [0, 1, 0x1f, 0x4000_0000, 0x8000_0008, 0x5654_4104] {
            assert_eq!(Mark::of(leaf), None);
        }
    }
}
