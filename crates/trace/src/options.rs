//! What QEMU's command line tells the plugin: `file=libvtax_trace.so,out=FILE,...`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Most memory that lies in one piece from address 0 on (machine q35).
const MOST_MEMORY: u64 = 2 << 30;
/// Numbers of entries that a TLB may have.
const TLB: RangeInclusive<usize> = 1..=4096;

/// What to record, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// File for the trace.
    pub out: PathBuf,
    /// File for the totals.
    pub summary: PathBuf,
    pub memory_bytes: u64,
    /// Leave out the kernel's loads and stores.
    pub user_only: bool,
    /// Record the references of some intervals only.
    pub sampling: Option<Sampling>,
    /// Entries of the TLB for instructions, whose misses are counted.
    pub instruction_tlb: Option<usize>,
    /// Compress the trace; this is not worth it for a trace that is simulated while it is made.
    pub pack: bool,
}

/// Which part of a run is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Instructions of an interval.
    pub interval: u64,
    /// The number of intervals of which two are recorded.
    pub period: u64,
}

impl TraceOptions {
    /// Parse `KEY=VALUE` words. The error names the word.
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let (mut out, mut summary, mut memory) = (None, None, None);
        let (mut user_only, mut pack) = (false, true);
        let (mut interval, mut period) = (None, 2);
        let mut instruction_tlb = None;
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(format!("{word} is not KEY=VALUE"));
            };
            match key {
                "out" => out = Some(PathBuf::from(value)),
                "summary" => summary = Some(PathBuf::from(value)),
                "memory" => memory = value.parse().ok().filter(|bytes| *bytes <= MOST_MEMORY),
                "user" => user_only = value == "on",
                "pack" => pack = value == "on",
                "itlb" => {
                    let wanted = value.parse().ok().filter(|entries| TLB.contains(entries));
                    let wrong = || format!("itlb={value} is not from 1 to 4096");
                    instruction_tlb = Some(wanted.ok_or_else(wrong)?);
                }
                "interval" => interval = value.parse().ok().filter(|&length| length > 0),
                "period" => period = value.parse().unwrap_or(2),
                _ => {
                    return Err(format!(
                        "{key} is unknown: out, summary, memory, user, pack, itlb, interval and \
                         period are not"
                    ));
                }
            }
        }
        let missing = |key| format!("{key}= is missing or cannot be read");
        Ok(Self {
            out: out.ok_or_else(|| missing("out"))?,
            summary: summary.ok_or_else(|| missing("summary"))?,
            memory_bytes: memory.ok_or_else(|| missing("memory"))?,
            user_only,
            sampling: interval.map(|interval| Sampling { interval, period }),
            instruction_tlb,
            pack,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_named() {
        let words = [
            "out=/a",
            "summary=/b",
            "memory=1048576",
            "user=on",
            "pack=off",
            "itlb=32",
            "interval=1000000",
            "period=100",
        ];
        let expected = TraceOptions {
            out: "/a".into(),
            summary: "/b".into(),
            memory_bytes: 1 << 20,
            user_only: true,
            sampling: Some(Sampling {
                interval: 1_000_000,
                period: 100,
            }),
            instruction_tlb: Some(32),
            pack: false,
        };
        assert_eq!(TraceOptions::parse(words), Ok(expected));
        for (words, reason) in [
            (vec!["out"], "out is not KEY=VALUE"),
            (vec!["colour=red"], "colour is unknown"),
            (vec!["out=/a", "summary=/b"], "memory= is missing"),
            (vec!["itlb=0"], "itlb=0 is not"),
            (vec!["itlb=many"], "itlb=many is not"),
            (
                vec!["out=/a", "summary=/b", "memory=4294967296"],
                "memory= is",
            ),
        ] {
            let error = TraceOptions::parse(words).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
