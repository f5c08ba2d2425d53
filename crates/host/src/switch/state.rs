//! Reading a state that QEMU saved: is it complete for its stopped vCPUs?
//!
//! QEMU saves that an exception waits for injection and that it has an error code, but QEMU before
//! "target/i386: Add support for save/load of exception error code" (August 2025) does not save the
//! code itself: the restored guest gets 0, and a page fault of user code with code 0 ends the
//! process. The stream shows whether a QEMU has that change; its version does not.
//!
//! The end of an interrupt (EOI) can be missing too. With a split interrupt controller (microvm's
//! default) the I/O APIC is QEMU's and the local APICs are KVM's. When a vCPU ends a
//! level-triggered interrupt, KVM's local APIC is updated at once, and QEMU learns of it by a
//! separate exit (`KVM_REQ_IOAPIC_EOI_EXIT`, arch/x86/kvm/lapic.c). When a vCPU is stopped between
//! the two, the exit stays a pending request in KVM, which no call returns. The restored I/O APIC
//! waits for that EOI for ever, and the device never interrupts again. The stream then shows an I/O
//! APIC entry with Remote IRR set, whose vector no local APIC holds.
//!
//! The stream (QEMU's docs/devel/migration, migration/savevm.c) ends with a description of itself
//! in JSON, which gives the size of every field. So the sections are found from the end backwards,
//! and each is checked by its header and its footer.

use serde::Deserialize;
use thiserror::Error;

use interrupts::Interrupts;

/// Marks in the stream (migration/savevm.h).
const END_OF_SECTIONS: u8 = 0x00;
const FULL_SECTION: u8 = 0x04;
const DESCRIPTION: u8 = 0x06;
const FOOTER: u8 = 0x7e;
/// A section's header besides the device's name: its instance and its version.
const HEADER_BYTES: u64 = 1 + 4 + 1 + 4 + 4;
const FOOTER_BYTES: u64 = 1 + 4;
/// The names in `vmstate_x86_cpu` (target/i386/machine.c) of what is read of a vCPU.
const EXCEPTION: &str = "env.exception_nr";
const HAS_ERROR_CODE: &str = "env.has_error_code";
const ERROR_CODE: &str = "cpu/error_code";
/// `exception_nr` where no exception waits.
const NO_EXCEPTION: i32 = -1;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum StateError {
    /// The stream does not describe itself.
    #[error(
        "the saved state has no description (is suppress-vmdesc=on among its -machine options?)"
    )]
    NoDescription,
    /// The description is not as QEMU writes it.
    #[error("the saved state's description: {0}")]
    Description(String),
    /// The stream does not match its description.
    #[error("the saved state is not as it describes itself: {0}")]
    Stream(String),
}

/// What a saved state lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incomplete {
    /// The error code of an exception that waits on a vCPU, such as exception 14, a page fault.
    ErrorCode {
        /// The vCPU's number.
        vcpu: u32,
        /// The exception's number.
        exception: i32,
    },
    /// The end of an interrupt that this pin of an I/O APIC delivered.
    EndOfInterrupt {
        /// The pin's number, from 0.
        pin: usize,
        /// The interrupt's number in the vCPU.
        vector: u8,
    },
}

#[derive(Debug, Deserialize)]
struct Description {
    devices: Vec<Device>,
}

#[derive(Debug, Deserialize)]
struct Device {
    name: String,
    instance_id: u32,
    #[serde(default)]
    vmsd_name: String,
    #[serde(flatten)]
    content: Content,
}

#[derive(Debug, Deserialize)]
struct Content {
    #[serde(default)]
    fields: Vec<Field>,
    #[serde(default)]
    subsections: Vec<Subsection>,
}

#[derive(Debug, Deserialize)]
struct Subsection {
    vmsd_name: String,
    #[serde(flatten)]
    content: Content,
}

#[derive(Debug, Deserialize)]
struct Field {
    name: String,
    /// The size of one element.
    size: u64,
    array_len: Option<u64>,
}

/// What the guest would lose: first, a waiting exception's error code; second, an end of interrupt;
/// `None`: nothing.
///
/// # Errors
/// The stream or its description is not as QEMU writes them; nothing can be said about the state.
pub fn incomplete(stream: &[u8]) -> Result<Option<Incomplete>, StateError> {
    let (sections, description) = split(stream)?;
    let parts = description.devices.iter().filter_map(Device::part);
    if !parts.clone().any(|part| part == Part::Vcpu) {
        return Err(StateError::Description("no vCPU is in it".into()));
    }
    let mut left = parts.count();
    let mut error_code = None;
    let mut interrupts = Interrupts::default();
    let mut rest = sections;
    // The sections of devices that are saved early or in pieces come before all these sections.
    for device in description.devices.iter().rev() {
        if left == 0 {
            break;
        }
        let (before, content) = device.cut_off(rest)?;
        rest = before;
        let Some(part) = device.part() else { continue };
        left -= 1;
        match part {
            Part::Vcpu => error_code = device.error_code(content)?.or(error_code),
            Part::LocalApic => interrupts.add_local(device, content)?,
            Part::IoApic => interrupts.add_io(device, content)?,
        }
    }
    Ok(error_code.or_else(|| interrupts.without_end()))
}

/// Split a stream into the sections and the description after them.
fn split(stream: &[u8]) -> Result<(&[u8], Description), StateError> {
    // JSON text has no control characters, so the last one begins the description.
    let mark = stream.iter().rposition(|byte| *byte == DESCRIPTION);
    let (sections, described) = mark
        .and_then(|at| stream.split_at_checked(at))
        .ok_or(StateError::NoDescription)?;
    let text = described
        .get(1..)
        .and_then(<[u8]>::split_first_chunk)
        .filter(|(length, text)| u32::from_be_bytes(**length) as usize == text.len())
        .map(|(_, text)| text)
        .ok_or(StateError::NoDescription)?;
    let sections = sections
        .strip_suffix(&[END_OF_SECTIONS])
        .ok_or(StateError::NoDescription)?;
    let description =
        serde_json::from_slice(text).map_err(|error| StateError::Description(error.to_string()))?;
    Ok((sections, description))
}

/// A device that is read, by its `VMStateDescription`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Vcpu,
    LocalApic,
    IoApic,
}

impl Device {
    fn part(&self) -> Option<Part> {
        match self.vmsd_name.as_str() {
            "cpu" => Some(Part::Vcpu),
            "apic" => Some(Part::LocalApic),
            "ioapic" => Some(Part::IoApic),
            _ => None,
        }
    }

    fn wrong(&self, what: &str) -> StateError {
        StateError::Stream(format!("{} {}: {what}", self.name, self.instance_id))
    }

    /// Cut this device's section from the end of `sections`; returns what is before it, and its
    /// content.
    fn cut_off<'a>(&self, sections: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), StateError> {
        let shorter = || self.wrong("its section is shorter than described");
        let content = self.content.bytes().ok_or_else(shorter)?;
        let header = HEADER_BYTES + self.name.len() as u64;
        let length = header
            .checked_add(content)
            .and_then(|bytes| bytes.checked_add(FOOTER_BYTES))
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(shorter)?;
        let begin = sections.len().checked_sub(length).ok_or_else(shorter)?;
        let (before, section) = sections.split_at_checked(begin).ok_or_else(shorter)?;
        let mut bytes = Bytes(section);
        let is_headed = bytes.take(1) == Some(&[FULL_SECTION]);
        let number = bytes.take(4);
        let is_named = bytes.name() == Some(self.name.as_bytes());
        let is_instance = bytes.take(4) == Some(&self.instance_id.to_be_bytes());
        let version = bytes.take(4);
        let content = usize::try_from(content)
            .ok()
            .and_then(|content| bytes.take(content))
            .ok_or_else(shorter)?;
        let is_ended = bytes.take(1) == Some(&[FOOTER]) && bytes.take(4) == number;
        if is_headed && is_named && is_instance && version.is_some() && is_ended {
            Ok((before, content))
        } else {
            Err(self.wrong("its section is not where it was described to be"))
        }
    }

    /// The bytes of a field.
    fn value<'a>(&self, name: &str, content: &'a [u8]) -> Result<&'a [u8], StateError> {
        self.content
            .value(name, content)
            .ok_or_else(|| self.wrong(&format!("it has no {name}")))
    }

    fn error_code(&self, content: &[u8]) -> Result<Option<Incomplete>, StateError> {
        let exception = self
            .value(EXCEPTION, content)?
            .try_into()
            .map(i32::from_be_bytes)
            .map_err(|_| self.wrong(&format!("{EXCEPTION} has another size")))?;
        let has_error_code = self.value(HAS_ERROR_CODE, content)?;
        let waits = exception != NO_EXCEPTION && has_error_code.iter().any(|byte| *byte != 0);
        let mut carried = self.content.subsections.iter();
        Ok(
            (waits && !carried.any(|one| one.vmsd_name == ERROR_CODE)).then_some(
                Incomplete::ErrorCode {
                    vcpu: self.instance_id,
                    exception,
                },
            ),
        )
    }
}

impl Content {
    /// The field's length in the stream; `None`: longer than any stream.
    fn bytes(&self) -> Option<u64> {
        let fields = self.fields.iter().map(Field::bytes);
        let subsections = self.subsections.iter().map(|one| {
            let header = 1 + 1 + one.vmsd_name.len() as u64 + 4;
            header.checked_add(one.content.bytes()?)
        });
        fields
            .chain(subsections)
            .try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?))
    }

    /// The bytes of a field; for an array, of all its elements.
    fn value<'a>(&self, name: &str, content: &'a [u8]) -> Option<&'a [u8]> {
        let mut at = 0_u64;
        for field in &self.fields {
            let end = at.checked_add(field.bytes()?)?;
            if field.name == name {
                return content.get(usize::try_from(at).ok()?..usize::try_from(end).ok()?);
            }
            at = end;
        }
        None
    }
}

impl Field {
    fn bytes(&self) -> Option<u64> {
        self.size.checked_mul(self.array_len.unwrap_or(1))
    }
}

/// Bytes that are consumed from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A length and that many bytes.
    fn name(&mut self) -> Option<&'a [u8]> {
        let length = *self.take(1)?.first()?;
        self.take(length.into())
    }
}

mod interrupts;
#[cfg(test)]
mod tests;
