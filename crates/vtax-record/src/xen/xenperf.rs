//! The text of `xenperf`: software counters of a Xen that was built with them.

use std::collections::BTreeMap;

/// Most counters that are taken.
const MOST: usize = 65_536;

/// Counters by their names: totals.
pub type Perf = BTreeMap<String, u64>;

/// Lines such as `exceptions   T=  1234  1000  234`: a name and the total over the CPUs, then each
/// CPU's, or each element's (`name[0]=12`, which become `name[0]`). Other lines are left out.
pub fn parse(text: &str) -> Perf {
    let mut perf = Perf::new();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once("T=") else {
            continue;
        };
        let (name, mut words) = (name.trim(), rest.split_whitespace());
        let total = words.next().and_then(|word| word.parse().ok());
        let (Some(total), false) = (total, name.is_empty() || perf.len() >= MOST) else {
            continue;
        };
        perf.insert(name.to_owned(), total);
        for word in words {
            let element = word.split_once("]=").and_then(|(at, value)| {
                let at = at.rsplit_once('[').map_or(at, |(_, at)| at);
                Some((at.parse::<u32>().ok()?, value.parse().ok()?))
            });
            if let (Some((at, value)), true) = (element, perf.len() < MOST) {
                perf.insert(format!("{name}[{at}]"), value);
            }
        }
    }
    perf
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn totals_and_elements_are_taken() {
        let text = "exceptions                 T=      1234        1000         234\n\
                    hypercalls   T=  30  arr[0]=10  arr[29]=20\n\
                    no counter here\n\
                    broken T= many\n";
        let expected = [
            ("exceptions", 1234),
            ("hypercalls", 30),
            ("hypercalls[0]", 10),
            ("hypercalls[29]", 20),
        ];
        assert_eq!(
            parse(text),
            expected
                .map(|(name, value)| (name.to_owned(), value))
                .into()
        );
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "([a-z]{0,5}|T=|\\[|\\]=|[0-9]{0,25}| |\n){0,60}") {
            let _ = parse(&text);
        }
    }
}
