//! The text of `xenperf`: software counters of a Xen that was built with them.
//!
//! Xen's tools/misc/xenperf.c prints a line for each counter: its name, `T=` and the sum of its
//! values. If that is not 0, the values follow: with `-f` or `-p` always, else if there are at most
//! four. The values belong to the CPUs, or to the elements of an array; the text does not say
//! which. With `-p` the values of `hypercalls` are on separate lines, each with the name of the
//! hypercall, or `[number]`; values of 0 are left out.

use std::collections::BTreeMap;

use serde::Serialize;

/// The most counters that are read.
const MOST: usize = 65_536;
/// The counter whose values have names with `-p`.
const HYPERCALLS: &str = "hypercalls";

/// Counters by their names: sums as `name`, values as `name[index]`.
pub type Perf = BTreeMap<String, u64>;

/// The growth of counters.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// Counters whose growth is known.
    pub counters: Perf,
    /// Counters that went back: they were reset, or their 32 bits overflowed.
    pub went_back: Vec<String>,
}

/// The counters of a text; lines without a counter are ignored.
pub fn parse(text: &str) -> Perf {
    let mut perf = Perf::new();
    let mut named = false;
    for line in text.lines() {
        let found = match line.split_once("T=") {
            Some((name, rest)) => {
                let name = name.trim();
                named = name == HYPERCALLS;
                counter(name, rest)
            }
            None if named => hypercall(line).into_iter().collect(),
            None => Vec::new(),
        };
        let room = MOST.saturating_sub(perf.len());
        perf.extend(found.into_iter().take(room));
    }
    perf
}

/// The sum, and the values if all of them are numbers.
fn counter(name: &str, rest: &str) -> Vec<(String, u64)> {
    let mut words = rest.split_whitespace();
    let sum = words.next().and_then(|word| word.parse().ok());
    let Some(sum) = sum.filter(|_| !name.is_empty()) else {
        return Vec::new();
    };
    let values: Result<Vec<u32>, _> = words.map(str::parse).collect();
    let values = values.unwrap_or_default();
    let values = values
        .into_iter()
        .enumerate()
        .map(|(at, value)| (format!("{name}[{at}]"), value.into()));
    std::iter::once((name.to_owned(), sum))
        .chain(values)
        .collect()
}

fn hypercall(line: &str) -> Option<(String, u64)> {
    let mut words = line.split_whitespace();
    let (name, value, None) = (words.next()?, words.next()?, words.next()) else {
        return None;
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let value: u32 = value.parse().ok()?;
    Some((format!("{HYPERCALLS}[{name}]"), value.into()))
}

/// The growth between two texts; the growth of a value that only the second text has is known if
/// its first value must have been 0.
pub fn growth(before: &Perf, after: &Perf) -> Growth {
    let mut growth = Growth::default();
    for (name, now) in after {
        let Some(then) = value_then(before, name) else {
            continue;
        };
        match now.checked_sub(then) {
            Some(grown) => {
                growth.counters.insert(name.clone(), grown);
            }
            None => growth.went_back.push(name.clone()),
        }
    }
    growth
}

fn value_then(before: &Perf, name: &str) -> Option<u64> {
    let left_out = || {
        let (counter, _) = name.strip_suffix(']')?.rsplit_once('[')?;
        let sum = *before.get(counter)?;
        // Values of hypercalls that are 0 are left out one by one.
        let of_many = counter == HYPERCALLS
            && before
                .keys()
                .any(|name| name.starts_with(HYPERCALLS) && name.ends_with(']'));
        (sum == 0 || of_many).then_some(0)
    };
    before.get(name).copied().or_else(left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn perf(counters: &[(&str, u64)]) -> Perf {
        let owned = |(name, value): &(&str, u64)| ((*name).to_owned(), *value);
        counters.iter().map(owned).collect()
    }

    /// A line as xenperf's format strings produce it.
    fn line(name: &str, values: &[u32], shown: bool) -> String {
        let sum: u64 = values.iter().copied().map(u64::from).sum();
        let mut line = format!("{name:<35} T={sum:10} ");
        if shown {
            line.extend(values.iter().map(|value| format!(" {value:10}")));
        }
        line + "\n"
    }

    #[test]
    fn sums_and_values_are_taken() {
        let text = line("exceptions", &[1000, 234], true)
            + &line("calls to multicall", &[0, 0], false)
            + &line("#interrupts", &[u32::MAX, 7], true)
            + "Error: no counter here 5\n"
            + "broken T= many\n";
        let expected = perf(&[
            ("exceptions", 1234),
            ("exceptions[0]", 1000),
            ("exceptions[1]", 234),
            ("calls to multicall", 0),
            ("#interrupts", 4_294_967_302),
            ("#interrupts[0]", 4_294_967_295),
            ("#interrupts[1]", 7),
        ]);
        assert_eq!(parse(&text), expected);
    }

    #[test]
    fn hypercalls_have_their_names() {
        let text = line("hypercalls", &[3, 5], false)
            + &format!("{:<35} {:12}\n", "mmu_update", 3)
            + &format!("{:<35} {:12}\n", "[44]", 5)
            + &line("page faults", &[9], true)
            + "alone 4\n";
        let expected = perf(&[
            ("hypercalls", 8),
            ("hypercalls[mmu_update]", 3),
            ("hypercalls[44]", 5),
            ("page faults", 9),
            ("page faults[0]", 9),
        ]);
        assert_eq!(parse(&text), expected);
    }

    #[test]
    fn what_cannot_be_known_is_no_growth() {
        let before = perf(&[("a", 5), ("b", 7), ("c", 0), ("d", 1)]);
        let after = perf(&[
            ("a", 9),
            ("b", 6),
            ("c", 2),
            ("c[0]", 2),
            ("d", 2),
            ("d[0]", 2),
            ("e", 1),
        ]);
        let found = growth(&before, &after);
        let known = perf(&[("a", 4), ("c", 2), ("c[0]", 2), ("d", 1)]);
        assert_eq!(found.counters, known);
        assert_eq!(found.went_back, ["b"]);
    }

    #[test]
    fn a_hypercall_that_was_not_made_before_was_0() {
        let before = perf(&[("hypercalls", 3), ("hypercalls[iret]", 3)]);
        let after = perf(&[
            ("hypercalls", 8),
            ("hypercalls[iret]", 4),
            ("hypercalls[argo_op]", 4),
        ]);
        let found = growth(&before, &after);
        assert_eq!(found.counters["hypercalls[argo_op]"], 4);
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "([a-z]{0,5}|hypercalls|T=|\\[|\\]|[0-9]{0,25}| |\n){0,60}") {
            let perf = parse(&text);
            let none = growth(&perf, &perf);
            prop_assert!(none.went_back.is_empty());
            prop_assert!(none.counters.values().all(|grown| *grown == 0));
        }
    }
}
