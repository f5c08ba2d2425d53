use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Writes the sections with the fields that matter, as QEMU does, and the description after them.
struct Writer {
    stream: Vec<u8>,
    devices: Vec<Value>,
}

struct Vcpu {
    exception: i32,
    has_error_code: u8,
    carried: bool,
}

const WAITING: Vcpu = Vcpu {
    exception: 14,
    has_error_code: 1,
    carried: false,
};
const IDLE: Vcpu = Vcpu {
    exception: -1,
    // KVM does not clear the field when the exception has been injected.
    has_error_code: 1,
    carried: false,
};

impl Writer {
    fn new() -> Self {
        Self {
            // What comes before (configuration, memory) is not read.
            stream: b"QEVM\0\0\0\x03 any bytes \x06 ".to_vec(),
            devices: Vec::new(),
        }
    }

    fn section(&mut self, name: &str, instance: u32, content: &[u8]) {
        let number = u32::try_from(self.devices.len()).unwrap().to_be_bytes();
        self.stream.push(FULL_SECTION);
        self.stream.extend(number);
        self.stream.push(u8::try_from(name.len()).unwrap());
        self.stream.extend(name.as_bytes());
        self.stream.extend(instance.to_be_bytes());
        self.stream.extend(12_u32.to_be_bytes());
        self.stream.extend(content);
        self.stream.push(FOOTER);
        self.stream.extend(number);
    }

    fn device(mut self, name: &str, bytes: usize) -> Self {
        self.section(name, 0, &vec![7; bytes]);
        let field = json!({"name": "data", "size": bytes, "type": "buffer"});
        self.devices
            .push(json!({"name": name, "instance_id": 0, "fields": [field]}));
        self
    }

    fn vcpu(mut self, instance: u32, vcpu: &Vcpu) -> Self {
        let mut content = vec![9; 16 * 8];
        content.extend(vcpu.exception.to_be_bytes());
        content.push(vcpu.has_error_code);
        let mut subsections = vec![json!({"vmsd_name": "cpu/xss", "version": 1, "fields":
            [{"name": "env.xss", "type": "uint64", "size": 8}]})];
        content.extend(b"\x05\x07cpu/xss\0\0\0\x01\0\0\0\0\0\0\0\x07");
        if vcpu.carried {
            content.extend(b"\x05\x0ecpu/error_code\0\0\0\x01\0\0\0\x06");
            subsections.push(json!({"vmsd_name": ERROR_CODE, "version": 1, "fields":
                [{"name": "env.error_code", "type": "int32", "size": 4}]}));
        }
        self.section("cpu", instance, &content);
        self.devices.push(json!({
            "name": "cpu", "instance_id": instance, "vmsd_name": "cpu", "version": 12,
            "fields": [
                {"name": "env.regs", "array_len": 16, "type": "uint64", "size": 8},
                {"name": EXCEPTION, "type": "int32", "size": 4},
                {"name": HAS_ERROR_CODE, "type": "uint8", "size": 1},
            ],
            "subsections": subsections,
        }));
        self
    }

    fn end(mut self) -> Vec<u8> {
        let text = json!({"page_size": 4096, "devices": self.devices}).to_string();
        self.stream.extend([END_OF_SECTIONS, DESCRIPTION]);
        self.stream
            .extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        self.stream.extend(text.as_bytes());
        self.stream
    }
}

fn guest(first: &Vcpu, second: &Vcpu) -> Vec<u8> {
    let stream = Writer::new().device("timer", 20).vcpu(0, first);
    stream
        .device("i8254", 300)
        .vcpu(1, second)
        .device("rtc", 0)
        .end()
}

#[test]
fn a_waiting_exception_without_its_error_code_is_found_on_each_vcpu() {
    let found = |vcpu| {
        Ok(Some(Incomplete::ErrorCode {
            vcpu,
            exception: 14,
        }))
    };
    assert_eq!(incomplete(&guest(&IDLE, &IDLE)), Ok(None));
    assert_eq!(incomplete(&guest(&WAITING, &IDLE)), found(0));
    assert_eq!(incomplete(&guest(&IDLE, &WAITING)), found(1));
    assert_eq!(incomplete(&guest(&WAITING, &WAITING)), found(0));
}

#[test]
fn an_exception_that_is_saved_whole_is_not_found() {
    let carried = Vcpu {
        carried: true,
        ..WAITING
    };
    let without_code = Vcpu {
        has_error_code: 0,
        exception: 6,
        ..WAITING
    };
    assert_eq!(incomplete(&guest(&carried, &without_code)), Ok(None));
}

#[test]
fn a_stream_that_does_not_describe_itself_is_refused() {
    let whole = guest(&IDLE, &IDLE);
    let begin = whole.iter().rposition(|byte| *byte == DESCRIPTION).unwrap();
    assert_eq!(incomplete(&whole[..begin]), Err(StateError::NoDescription));
    assert_eq!(incomplete(b""), Err(StateError::NoDescription));
    let longer = [whole.as_slice(), b" "].concat();
    assert_eq!(incomplete(&longer), Err(StateError::NoDescription));
}

#[test]
fn a_stream_without_vcpus_or_with_other_fields_is_refused() {
    let none = Writer::new().device("timer", 20).end();
    assert!(matches!(incomplete(&none), Err(StateError::Description(_))));
    let text = String::from_utf8_lossy(&guest(&IDLE, &IDLE)).into_owned();
    assert!(text.contains(EXCEPTION));
    let mut renamed = guest(&IDLE, &IDLE);
    for at in 0..renamed.len() - EXCEPTION.len() {
        if &renamed[at..at + EXCEPTION.len()] == EXCEPTION.as_bytes() {
            renamed[at] = b'x';
        }
    }
    assert!(matches!(incomplete(&renamed), Err(StateError::Stream(_))));
}

/// Made in the lab by QEMU 7.2 on stock KVM under shadow paging: the stream from the vCPU's section
/// on.
const REAL: &[u8] = include_bytes!("../../../tests/data/switch/state-page-fault-waiting");

#[test]
fn a_real_state_with_a_waiting_page_fault_is_incomplete() {
    let expected = Incomplete::ErrorCode {
        vcpu: 0,
        exception: 14,
    };
    assert_eq!(incomplete(REAL), Ok(Some(expected)));
}

/// `REAL` with no exception waiting, with the vectors `held` in the local APIC, and these entries
/// for these pins of the I/O APIC.
fn real_with(held: &[u8], entries: &[(usize, u64)]) -> Vec<u8> {
    let mut stream = REAL.to_vec();
    let change = |stream: &mut Vec<u8>, part, name, bytes: &dyn Fn(usize, &mut [u8])| {
        let (at, length) = place(REAL, part, name);
        for (number, element) in stream[at..at + length]
            .chunks_mut(size(REAL, part, name))
            .enumerate()
        {
            bytes(number, element);
        }
    };
    change(&mut stream, Part::Vcpu, EXCEPTION, &|_, bytes| {
        bytes.copy_from_slice(&NO_EXCEPTION.to_be_bytes());
    });
    change(&mut stream, Part::LocalApic, "isr", &|_, bytes| {
        bytes.fill(0);
    });
    change(&mut stream, Part::LocalApic, "irr", &|number, bytes| {
        let of_word = held
            .iter()
            .filter(|vector| usize::from(**vector) / 32 == number);
        let word = of_word.fold(0_u32, |word, vector| word | 1 << (vector % 32));
        bytes.copy_from_slice(&word.to_be_bytes());
    });
    change(&mut stream, Part::IoApic, "ioredtbl", &|number, bytes| {
        let entry = entries.iter().find(|(pin, _)| *pin == number);
        bytes.copy_from_slice(&entry.map_or(0x10000, |(_, entry)| *entry).to_be_bytes());
    });
    stream
}

/// Where a field is in the stream, and its length.
fn place(stream: &[u8], part: Part, name: &str) -> (usize, usize) {
    let (mut rest, description) = split(stream).unwrap();
    for device in description.devices.iter().rev() {
        let (before, content) = device.cut_off(rest).unwrap();
        if device.part() == Some(part) {
            let value = device.value(name, content).unwrap();
            return (value.as_ptr().addr() - stream.as_ptr().addr(), value.len());
        }
        rest = before;
    }
    panic!("no {part:?}");
}

fn size(stream: &[u8], part: Part, name: &str) -> usize {
    let (_, description) = split(stream).unwrap();
    let mut devices = description.devices.iter();
    let device = devices.find(|device| device.part() == Some(part)).unwrap();
    let mut fields = device.content.fields.iter();
    let field = fields.find(|field| field.name == name).unwrap();
    usize::try_from(field.size).unwrap()
}

/// Found in the lab, with `info pic` and `info lapic`, in a guest whose network was dead after a
/// switch.
const DEAD: (usize, u64) = (22, 0xc025);

#[test]
fn an_interrupt_whose_end_only_kvm_knows_is_found() {
    let lacking = Ok(Some(Incomplete::EndOfInterrupt {
        pin: 22,
        vector: 0x25,
    }));
    assert_eq!(incomplete(&real_with(&[], &[DEAD])), lacking);
    assert_eq!(incomplete(&real_with(&[0x24, 0xec], &[DEAD])), lacking);
    // The error names the first pin.
    let other = [(23, 0xc026), DEAD];
    assert_eq!(incomplete(&real_with(&[], &other)), lacking);
}

#[test]
fn an_interrupt_that_a_local_apic_holds_or_that_needs_no_end_is_whole() {
    assert_eq!(incomplete(&real_with(&[0x25], &[DEAD])), Ok(None));
    // Not delivered, and edge-triggered.
    assert_eq!(
        incomplete(&real_with(&[], &[(22, 0x8025), (9, 0x4021)])),
        Ok(None)
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(stream in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = incomplete(&stream);
    }

    #[test]
    fn a_damaged_stream_never_passes_for_another_vcpus(
        at in 0_usize..4000, byte: u8, cut in 0_usize..400,
    ) {
        let mut stream = guest(&WAITING, &IDLE);
        let kept = stream.len() - cut.min(stream.len());
        stream.truncate(kept);
        if let Some(target) = stream.get_mut(at) {
            *target = byte;
        }
        let _ = incomplete(&stream);
    }

    #[test]
    fn any_description_is_read_or_refused(
        size: u64, length: Option<u64>, name in "[a-z_.]{0,20}", instance: u32,
    ) {
        let field = json!({"name": name, "size": size, "array_len": length});
        let device = json!({"name": "cpu", "vmsd_name": "cpu", "instance_id": instance,
            "fields": [field, field]});
        let mut stream = Writer::new().device("timer", 20);
        stream.devices.push(device);
        prop_assert!(incomplete(&stream.end()).is_err());
    }
}
