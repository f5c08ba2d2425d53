//! Lists of CPU numbers as the kernel writes them: `0-3,8`.

use thiserror::Error;

/// Linux builds allow 8192 CPUs at most (`NR_CPUS` of x86-64).
const MAX_CPU: usize = 8191;

/// Why a text is not a list of CPUs.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CpuListError {
    /// The text names no CPU.
    #[error("it names no CPU")]
    Empty,
    /// A part that is neither a number nor a range.
    #[error("'{0}' is not a CPU number or a range such as 0-3")]
    Part(String),
}

/// The CPUs of a list such as `0,2-4`, sorted, each once.
///
/// Fails with `Empty` when the list names no CPU, and with `Part` when a part is neither a number
/// up to 8191 nor an ascending range of them.
pub fn parse(text: &str) -> Result<Vec<usize>, CpuListError> {
    let mut cpus = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (first, last) = range(part).ok_or_else(|| CpuListError::Part(part.into()))?;
        cpus.extend(first..=last);
    }
    if cpus.is_empty() {
        return Err(CpuListError::Empty);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

fn range(part: &str) -> Option<(usize, usize)> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last <= MAX_CPU).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_and_ranges() {
        assert_eq!(parse("0"), Ok(vec![0]));
        assert_eq!(parse("4,0-2,1"), Ok(vec![0, 1, 2, 4]));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert_eq!(parse(""), Err(CpuListError::Empty));
        assert_eq!(parse(" , "), Err(CpuListError::Empty));
        for bad in ["x", "3-1", "-1", "1-", "0-99999999999", "9000"] {
            assert_eq!(parse(bad), Err(CpuListError::Part(bad.into())), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "[0-9,-]{0,20}") {
            let _ = parse(&text);
        }
    }
}
