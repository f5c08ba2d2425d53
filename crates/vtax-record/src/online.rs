//! Which CPUs there are.

use std::path::Path;

/// CPUs that run now, and how many numbers there can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// Numbers of those that are online.
    pub online: Vec<u32>,
    /// One more than the highest possible number.
    pub possible: u32,
}

impl Cpus {
    /// Look at a machine's tree; `None` where it does not tell.
    pub fn find(root: &Path) -> Option<Self> {
        let list = |name: &str| {
            let path = root.join("sys/devices/system/cpu").join(name);
            parse(std::fs::read_to_string(path).ok()?.trim())
        };
        let online = list("online")?;
        let highest = list("possible")?
            .into_iter()
            .chain(online.iter().copied())
            .max()?;
        Some(Self {
            online,
            possible: highest.checked_add(1)?,
        })
    }
}

/// No kernel has more (`CONFIG_NR_CPUS` with MAXSMP); bounds what a range makes.
const MOST: u32 = 8192;

/// A list such as `0,2-3`.
fn parse(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST || first > last {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_and_numbers_are_listed() {
        assert_eq!(parse("0,2-4"), Some(vec![0, 2, 3, 4]));
        assert_eq!(parse("3-1"), None);
        assert_eq!(parse(""), None);
        let cpus = Cpus::find(Path::new("/")).unwrap();
        assert!(cpus.online.iter().all(|cpu| *cpu < cpus.possible));
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "[0-9,-]{0,20}") {
            let _ = parse(&text);
        }
    }
}
