//! Reading a state that QEMU saved: does it hold all that its vCPUs were stopped with?
//!
//! QEMU saves that an exception waits for injection and that it has an error code, but QEMU before
//! "target/i386: Add support for save/load of exception error code" (August 2025) does not save
//! the code itself: the restored guest gets 0, and a page fault of user code with code 0 ends the
//! process. Whether a QEMU has that change is seen in the stream and not in its version.
//!
//! The stream (QEMU's docs/devel/migration, migration/savevm.c) ends with a description of itself
//! in JSON, which gives the size of every field. So the sections are found from the end backwards,
//! and each is checked by its header and its footer.

use serde::Deserialize;
use thiserror::Error;

/// Marks in the stream (migration/savevm.h).
const END_OF_SECTIONS: u8 = 0x00;
const FULL_SECTION: u8 = 0x04;
const DESCRIPTION: u8 = 0x06;
const FOOTER: u8 = 0x7e;
/// A device, its instance and its version in a section's header, beside the name.
const HEADER_BYTES: u64 = 1 + 4 + 1 + 4 + 4;
const FOOTER_BYTES: u64 = 1 + 4;
/// How `vmstate_x86_cpu` (target/i386/machine.c) calls a vCPU and what is read of it.
const CPU: &str = "cpu";
const EXCEPTION: &str = "env.exception_nr";
const HAS_ERROR_CODE: &str = "env.has_error_code";
const ERROR_CODE: &str = "cpu/error_code";
/// `exception_nr` where no exception waits.
const NO_EXCEPTION: i32 = -1;

/// Why a saved state could not be read.
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
    /// The stream is not as its description says.
    #[error("the saved state is not as it describes itself: {0}")]
    Stream(String),
}

/// A vCPU whose saved state is not all of its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incomplete {
    /// The vCPU's number.
    pub vcpu: u32,
    /// The exception that waits, such as 14 for a page fault.
    pub exception: i32,
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
    /// Of one element.
    size: u64,
    array_len: Option<u64>,
}

/// The first vCPU whose waiting exception would lose its error code; `None`: nothing is lost.
///
/// # Errors
/// The stream or its description is not as QEMU writes them; nothing can be said of the state.
pub fn incomplete(stream: &[u8]) -> Result<Option<Incomplete>, StateError> {
    let (sections, description) = split(stream)?;
    let mut left = description
        .devices
        .iter()
        .filter(|device| device.is_vcpu())
        .count();
    if left == 0 {
        return Err(StateError::Description("no vCPU is in it".into()));
    }
    let mut found = None;
    let mut rest = sections;
    // The sections of devices that are saved early or piece by piece come before all vCPUs'.
    for device in description.devices.iter().rev() {
        if left == 0 {
            break;
        }
        let (before, content) = device.cut_off(rest)?;
        rest = before;
        if device.is_vcpu() {
            left -= 1;
            found = device.incomplete(content)?.or(found);
        }
    }
    Ok(found)
}

/// The sections and the description that follows them.
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

impl Device {
    fn is_vcpu(&self) -> bool {
        self.vmsd_name == CPU
    }

    fn wrong(&self, what: &str) -> StateError {
        StateError::Stream(format!("{} {}: {what}", self.name, self.instance_id))
    }

    /// Cut this device's section from the end of `sections`: what is before it, and its content.
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

    fn incomplete(&self, content: &[u8]) -> Result<Option<Incomplete>, StateError> {
        let missing = |name: &str| self.wrong(&format!("it has no {name}"));
        let exception = self
            .content
            .value(EXCEPTION, content)
            .and_then(|bytes| bytes.try_into().ok())
            .map(i32::from_be_bytes)
            .ok_or_else(|| missing(EXCEPTION))?;
        let has_error_code = self
            .content
            .value(HAS_ERROR_CODE, content)
            .ok_or_else(|| missing(HAS_ERROR_CODE))?;
        let waits = exception != NO_EXCEPTION && has_error_code.iter().any(|byte| *byte != 0);
        let mut carried = self.content.subsections.iter();
        Ok(
            (waits && !carried.any(|one| one.vmsd_name == ERROR_CODE)).then_some(Incomplete {
                vcpu: self.instance_id,
                exception,
            }),
        )
    }
}

impl Content {
    /// Its length in the stream; `None`: longer than any stream.
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

    /// The bytes of a field that is not an array.
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

/// Bytes that are taken from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A length and so many bytes.
    fn name(&mut self) -> Option<&'a [u8]> {
        let length = *self.take(1)?.first()?;
        self.take(length.into())
    }
}

#[cfg(test)]
mod tests;
