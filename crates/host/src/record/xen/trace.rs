//! The records of a trace buffer, as `xentrace` writes them to its file (Xen's public/trace.h).
//!
//! A record is a word (event: 28 bits, number of extra words: 3, whether a time stamp follows: 1),
//! the time stamp counter in two words if so, and the extra words. A record that names the CPU
//! comes before the CPU's records. The file has no header.

use std::io::{self, Read};

use thiserror::Error;

/// No Xen has more CPUs; a larger number means that the file is something else.
const MOST_CPUS: u32 = 8192;
// Events of the class TRC_GEN.
pub(super) const LOST_RECORDS: u32 = 0x0001_f001;
const WRAP_BUFFER: u32 = 0x0001_f002;
const CPU_CHANGE: u32 = 0x0001_f003;
const CYCLES_INCLUDED: u32 = 1 << 31;

/// Why a file cannot be read to its end.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The input cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The file does not begin with the number of a CPU.
    #[error("it is not an output of xentrace: it does not begin with the record of a CPU")]
    NotATrace,
    /// A CPU number that cannot exist.
    #[error("it is not an output of xentrace, or it is damaged: it names CPU {0}")]
    Cpu(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The CPU on which it was made.
    pub cpu: u32,
    /// The event's number.
    pub event: u32,
    /// The time stamp counter; `None` where the record has none.
    pub tsc: Option<u64>,
    words: [u32; 7],
    used: usize,
}

impl Record {
    /// The extra words.
    pub fn extra(&self) -> &[u32] {
        self.words.get(..self.used).unwrap_or_default()
    }

    /// The loss just before this record, if this record reports one.
    pub fn lost(&self) -> Option<Lost> {
        let &[records, who, low, high] = self
            .extra()
            .first_chunk::<4>()
            .filter(|_| self.event == LOST_RECORDS)?;
        Some(Lost {
            records,
            // Here the halves are the other way round than in the scheduler's records.
            domain: who & 0xffff,
            vcpu: who >> 16,
            first_tsc: u64::from(low) | u64::from(high) << 32,
        })
    }
}

/// Records for which Xen had no room, on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    pub records: u32,
    /// The domain that runs on the CPU at this moment.
    pub domain: u32,
    /// Its virtual CPU.
    pub vcpu: u32,
    /// The time stamp counter when the first one was lost.
    pub first_tsc: u64,
}

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 18;

/// Reads records one after the other, and keeps only a part of the file in memory.
#[derive(Debug)]
pub struct Records<R> {
    input: R,
    read: Vec<u8>,
    /// How far `read` is used.
    used: usize,
    cpu: Option<u32>,
    /// Did the file end in the middle of a record?
    pub cut_off: bool,
}

impl<R: Read> Records<R> {
    pub fn new(input: R) -> Self {
        Self {
            input,
            read: Vec::new(),
            used: 0,
            cpu: None,
            cut_off: false,
        }
    }

    /// The next record of an event, `None` at the end; records that only structure the file are
    /// skipped.
    ///
    /// Fails with `NotATrace` when the first record names no CPU, with `Cpu` when a CPU's number is
    /// too large, and with `Read` when the input cannot be read.
    pub fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            let Some(mut record) = self.read_one()? else {
                return match self.cpu {
                    None => Err(TraceError::NotATrace),
                    Some(_) => Ok(None),
                };
            };
            match record.event {
                CPU_CHANGE => {
                    let cpu = record.extra().first().copied().unwrap_or(u32::MAX);
                    if cpu >= MOST_CPUS {
                        return Err(TraceError::Cpu(cpu));
                    }
                    self.cpu = Some(cpu);
                }
                _ if self.cpu.is_none() => return Err(TraceError::NotATrace),
                WRAP_BUFFER => {}
                _ => {
                    record.cpu = self.cpu.unwrap_or(0);
                    return Ok(Some(record));
                }
            }
        }
    }

    fn read_one(&mut self) -> Result<Option<Record>, TraceError> {
        let Some(&[head]) = self.words::<1>(1)?.as_ref() else {
            return Ok(None);
        };
        let mut record = Record {
            cpu: 0,
            event: head & 0x0fff_ffff,
            tsc: None,
            words: [0; 7],
            used: (head >> 28 & 7) as usize,
        };
        let timed = head & CYCLES_INCLUDED != 0;
        let Some(rest) = self.words::<9>(record.used + if timed { 2 } else { 0 })? else {
            // The head has been read.
            self.cut_off = true;
            return Ok(None);
        };
        let (time, extra) = rest.split_at(if timed { 2 } else { 0 });
        if let &[low, high] = time {
            record.tsc = Some(u64::from(low) | u64::from(high) << 32);
        }
        for (word, extra) in record.words.iter_mut().zip(extra) {
            *word = *extra;
        }
        Ok(Some(record))
    }

    /// The next words, `count` of `N`; `None` at the end of the file.
    fn words<const N: usize>(&mut self, count: usize) -> io::Result<Option<[u32; N]>> {
        let bytes = 4 * count;
        if self.read.len() - self.used < bytes && !self.read_more(bytes)? {
            self.cut_off |= self.used < self.read.len();
            return Ok(None);
        }
        let mut words = [0; N];
        let end = self.used + bytes;
        let given = self.read.get(self.used..end).unwrap_or_default();
        for (word, bytes) in words.iter_mut().zip(given.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        self.used = end;
        Ok(Some(words))
    }

    /// Read until `bytes` bytes are there; false when the file ends before.
    fn read_more(&mut self, bytes: usize) -> io::Result<bool> {
        self.read.drain(..self.used);
        self.used = 0;
        let mut filled = self.read.len();
        self.read.resize(READ_BYTES, 0);
        while let Some(room) = self.read.get_mut(filled..).filter(|_| filled < bytes) {
            match self.input.read(room) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.read.truncate(filled);
                    return Err(error);
                }
            }
        }
        self.read.truncate(filled);
        Ok(filled >= bytes)
    }
}

/// Writes records by the same specification; replaces `xentrace` in tests.
#[cfg(test)]
pub(crate) mod encoder {
    #[derive(Default)]
    pub(crate) struct Encoder(pub Vec<u8>);

    impl Encoder {
        pub(crate) fn record(&mut self, event: u32, tsc: Option<u64>, extra: &[u32]) -> &mut Self {
            let count = u32::try_from(extra.len()).unwrap();
            let head = event | count << 28 | u32::from(tsc.is_some()) << 31;
            self.0.extend(head.to_le_bytes());
            self.0.extend(tsc.into_iter().flat_map(u64::to_le_bytes));
            self.0
                .extend(extra.iter().flat_map(|word| word.to_le_bytes()));
            self
        }

        pub(crate) fn cpu(&mut self, cpu: u32) -> &mut Self {
            self.record(super::CPU_CHANGE, None, &[cpu, 4096])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::encoder::Encoder;
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> (Result<Vec<Record>, TraceError>, bool) {
        let mut records = Records::new(bytes);
        let mut found = Vec::new();
        let result = loop {
            match records.next_record() {
                Ok(Some(record)) => found.push(record),
                Ok(None) => break Ok(found),
                Err(error) => break Err(error),
            }
        };
        (result, records.cut_off)
    }

    #[test]
    fn records_have_their_cpu_their_time_and_their_words() {
        let mut file = Encoder::default();
        file.cpu(3).record(0x81002, Some(1 << 40), &[7, 8]);
        file.record(WRAP_BUFFER, None, &[0, 0]);
        file.cpu(0).record(0x82013, None, &[]);
        file.record(LOST_RECORDS, Some(5), &[42, 0x0001_0003, 4, 1]);
        file.record(LOST_RECORDS, Some(5), &[42]);
        let (records, cut_off) = all(&file.0);
        let records = records.unwrap();
        assert!(!cut_off);
        assert_eq!(records.len(), 4);
        assert_eq!((records[0].cpu, records[0].event), (3, 0x81002));
        assert_eq!(
            (records[0].tsc, records[0].extra()),
            (Some(1 << 40), &[7, 8][..])
        );
        assert_eq!(
            (records[1].cpu, records[1].tsc, records[1].lost()),
            (0, None, None)
        );
        let lost = records[2].lost().unwrap();
        assert_eq!(
            (lost.records, lost.domain, lost.vcpu, lost.first_tsc),
            (42, 3, 1, 1 << 32 | 4)
        );
        assert_eq!(records[3].lost(), None, "it is too short");
    }

    #[test]
    fn what_is_no_trace_is_refused_and_a_cut_end_is_told() {
        assert!(matches!(
            all(b"PAR1 and so on").0,
            Err(TraceError::NotATrace)
        ));
        let mut file = Encoder::default();
        file.cpu(9999);
        assert!(matches!(all(&file.0).0, Err(TraceError::Cpu(9999))));
        let mut file = Encoder::default();
        file.cpu(0).record(0x81001, Some(5), &[]);
        file.record(0x81002, Some(6), &[1, 2]);
        for cut in 1..20 {
            let (records, cut_off) = all(&file.0[..file.0.len() - cut]);
            assert_eq!((records.unwrap().len(), cut_off), (1, true), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..400), named: bool) {
            let mut file = Encoder::default();
            if named {
                file.cpu(1);
            }
            file.0.extend(&bytes);
            let (records, _) = all(&file.0);
            // Each record has at least one word.
            prop_assert!(records.map_or(0, |records| records.len()) <= bytes.len() / 4);
        }

        #[test]
        fn what_is_written_is_read(
            written in proptest::collection::vec(
                (0_u32..64, 0x2_0000_u32..0x0fff_ffff, any::<Option<u64>>(),
                 proptest::collection::vec(any::<u32>(), 0..=7)), 1..50),
        ) {
            let mut file = Encoder::default();
            for (cpu, event, tsc, extra) in &written {
                file.cpu(*cpu).record(*event, *tsc, extra);
            }
            let read = all(&file.0).0.unwrap();
            prop_assert_eq!(read.len(), written.len());
            for (record, (cpu, event, tsc, extra)) in read.iter().zip(&written) {
                prop_assert_eq!((record.cpu, record.event, record.tsc), (*cpu, *event, *tsc));
                prop_assert_eq!(record.extra(), &extra[..]);
            }
        }
    }
}
