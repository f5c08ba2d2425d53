//! The layout of one row as the overflow program writes it (`struct row` in `bpf/recorder.h`).

/// Words of 64 bits before the counters; the C side asserts the same size.
pub const HEADER_WORDS: usize = 11;
/// Words of the thread's name, the last ones of the header.
const COMM_WORDS: usize = 2;
/// The most counters of one row; `MAX_SLOTS` of the C side.
pub const MAX_SLOTS: usize = 224;
/// The most counters that are read (perf events, steal clock); `MAX_ABSOLUTE` of the C side.
pub const MAX_ABSOLUTE: usize = 32;

/// What the CPU ran when the overflow came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layer {
    /// A program of the host.
    HostUser,
    HostKernel,
    /// The idle task.
    Idle,
    /// The monitor's program, such as QEMU.
    VmmUser,
    /// KVM, between an exit and the next entry.
    VmmKernel,
    /// The guest; the processor does not tell which level.
    Guest,
    /// A program of the guest.
    GuestUser,
    GuestKernel,
}

impl Layer {
    fn from_code(code: u32) -> Option<Self> {
        // `enum layer` in recorder.h. The monitor's program is only known in user space.
        Some(match code {
            0 => Self::HostUser,
            1 => Self::HostKernel,
            2 => Self::Idle,
            3 => Self::VmmKernel,
            4 => Self::Guest,
            5 => Self::GuestUser,
            6 => Self::GuestKernel,
            _ => return None,
        })
    }

    pub fn is_guest(self) -> bool {
        matches!(self, Self::Guest | Self::GuestUser | Self::GuestKernel)
    }

    /// The name in the column `mode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::HostUser => "host user",
            Self::HostKernel => "host kernel",
            Self::Idle => "idle",
            Self::VmmUser => "vmm user",
            Self::VmmKernel => "vmm kernel",
            Self::Guest => "guest",
            Self::GuestUser => "guest user",
            Self::GuestKernel => "guest kernel",
        }
    }
}

/// One row; its counters and running times are cumulative.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Overflows on this CPU before this one.
    pub seq: u64,
    /// Whole periods of the reference event before this row.
    pub interval: u64,
    /// `CLOCK_MONOTONIC` of the row.
    pub time_ns: u64,
    /// Time counted on this CPU, up to this row.
    pub run_ns: u64,
    /// How long the reference event was enabled.
    pub enabled_ns: u64,
    /// How long the reference event counted.
    pub running_ns: u64,
    pub cpu: u32,
    /// Process (thread group).
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Process number of the virtual machine, or 0.
    pub vm: u32,
    /// vCPU, or -1.
    pub vcpu: i32,
    /// What ran; `None`: a code that this program does not know.
    pub layer: Option<Layer>,
    /// Name of the thread.
    pub comm: String,
    /// One value for each slot.
    pub values: Vec<u64>,
    /// The stack as the programs write it; empty: it was not taken.
    pub stack: Vec<u64>,
}

impl Row {
    /// Parse a row without a stack; `None` when there are fewer words than a header.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let (header, values) = words.split_at_checked(HEADER_WORDS)?;
        let [
            seq,
            interval,
            time_ns,
            run_ns,
            enabled_ns,
            running_ns,
            ids,
            task,
            vcpu,
            comm @ ..,
        ] = header
        else {
            return None;
        };
        let (cpu, pid) = halves(*ids);
        let (tid, vm) = halves(*task);
        let (vcpu, layer) = halves(*vcpu);
        Some(Self {
            seq: *seq,
            interval: *interval,
            time_ns: *time_ns,
            run_ns: *run_ns,
            enabled_ns: *enabled_ns,
            running_ns: *running_ns,
            cpu,
            pid,
            tid,
            vm,
            vcpu: vcpu.cast_signed(),
            layer: Layer::from_code(layer),
            comm: text(comm),
            values: values.to_vec(),
            stack: Vec::new(),
        })
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the halves of a word")]
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// A name that ends with a zero byte or fills its words.
fn text(words: &[u64]) -> String {
    let mut bytes = [0; 8 * COMM_WORDS];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word(low: u32, high: u32) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }

    #[test]
    fn each_field_is_where_the_program_writes_it() {
        let comm = u64::from_le_bytes(*b"make\0xyz");
        let words = [
            7,
            8,
            9,
            10,
            11,
            12,
            word(3, 1000),
            word(1001, 2000),
            word(u32::MAX, 4),
            comm,
            0,
            41,
            42,
        ];
        let row = Row::from_words(&words).unwrap();
        assert_eq!(
            (row.seq, row.interval, row.time_ns, row.run_ns),
            (7, 8, 9, 10)
        );
        assert_eq!((row.cpu, row.pid, row.tid, row.vm), (3, 1000, 1001, 2000));
        assert_eq!((row.vcpu, row.layer), (-1, Some(Layer::Guest)));
        assert_eq!((row.comm.as_str(), row.values), ("make", vec![41, 42]));
    }

    proptest! {
        #[test]
        fn any_words_are_answered(words in proptest::collection::vec(any::<u64>(), 0..40)) {
            let row = Row::from_words(&words);
            prop_assert_eq!(row.is_some(), words.len() >= HEADER_WORDS);
        }
    }
}
