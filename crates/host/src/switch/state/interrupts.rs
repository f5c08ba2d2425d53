//! Interrupts between the I/O APIC and the local APICs of a saved state.

use super::{Device, Incomplete, StateError};

/// Fields of `vmstate_apic_common` (`hw/intc/apic_common.c`): requested and in-service interrupts,
/// one bit each in 8 words.
const REQUESTED: &str = "irr";
const IN_SERVICE: &str = "isr";
/// A word for each pin in `vmstate_ioapic_common` (`hw/intc/ioapic_common.c`).
const ENTRIES: &str = "ioredtbl";
/// Bits of such a word (82093AA I/O APIC datasheet, section 3.2.4).
const VECTOR: u64 = 0xff;
const REMOTE_IRR: u64 = 1 << 14;
const LEVEL: u64 = 1 << 15;

/// What a state's interrupt controllers hold.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    /// A bit for each vector that some local APIC has as requested or in service.
    held: [u32; 8],
    /// Interrupts that were delivered and that the I/O APIC has not ended; the first pin comes
    /// last.
    delivered: Vec<(usize, u8)>,
}

impl Interrupts {
    pub(super) fn add_local(&mut self, device: &Device, content: &[u8]) -> Result<(), StateError> {
        for name in [REQUESTED, IN_SERVICE] {
            let (words, rest) = device.value(name, content)?.as_chunks();
            if words.len() != self.held.len() || !rest.is_empty() {
                return Err(device.wrong(&format!("{name} has another size")));
            }
            for (held, word) in self.held.iter_mut().zip(words) {
                *held |= u32::from_be_bytes(*word);
            }
        }
        Ok(())
    }

    pub(super) fn add_io(&mut self, device: &Device, content: &[u8]) -> Result<(), StateError> {
        let (entries, _) = device.value(ENTRIES, content)?.as_chunks();
        for (pin, entry) in entries.iter().enumerate().rev() {
            let entry = u64::from_be_bytes(*entry);
            if entry & REMOTE_IRR != 0 && entry & LEVEL != 0 {
                let [.., vector] = (entry & VECTOR).to_be_bytes();
                self.delivered.push((pin, vector));
            }
        }
        Ok(())
    }

    /// The first interrupt that the I/O APIC waits for and that no local APIC has any more.
    pub(super) fn without_end(&self) -> Option<Incomplete> {
        let ended = |vector: u8| {
            let word = self.held.get(usize::from(vector) / 32);
            word.is_none_or(|word| word & (1 << (vector % 32)) == 0)
        };
        let mut found = self.delivered.iter().rev();
        found
            .find(|(_, vector)| ended(*vector))
            .map(|&(pin, vector)| Incomplete::EndOfInterrupt { pin, vector })
    }
}
