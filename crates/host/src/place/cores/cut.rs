//! Cuts numbers of cores into kinds.

use crate::place::cores::read::Types;

/// Between the numbers of two kinds there is a gap: the slower kind's number is below this share of
/// the faster one's. Neighbours of one kind were seen at 0.85 and above (favoured cores, a cluster
/// with a higher clock), different kinds at 0.79 and below: this value is in the middle
/// (docs/place-format.md lists them).
pub const CUT: f64 = 0.815;

/// Types with different names whose numbers differ by less than this are one kind.
const ALIKE: f64 = 0.95;

/// The kind of each core, 0 for the fastest; `None`: not known.
pub type Kinds = Vec<Option<usize>>;

/// Kinds by numbers alone.
pub fn by_numbers(numbers: &[Option<f64>]) -> Kinds {
    let mut sorted: Vec<f64> = numbers.iter().flatten().copied().collect();
    sorted.sort_by(|one, other| other.total_cmp(one));
    // The least number of each kind.
    let mut ends: Vec<f64> = Vec::new();
    for number in sorted {
        match ends.last_mut() {
            Some(end) if number >= CUT * *end => *end = number,
            _ => ends.push(number),
        }
    }
    numbers
        .iter()
        .map(|number| {
            ends.iter()
                .position(|end| number.is_some_and(|one| one >= *end))
        })
        .collect()
}

/// Kinds by types, which numbers may divide further.
pub fn by_types(types: &Types, numbers: &[Option<f64>]) -> Kinds {
    let mut labels: Vec<u64> = types.of.iter().flatten().copied().collect();
    labels.sort_unstable();
    labels.dedup();
    // Each group: its cores, and how fast they are.
    let mut groups: Vec<(Vec<usize>, Option<f64>)> = Vec::new();
    for label in labels {
        let own: Vec<Option<f64>> = types
            .of
            .iter()
            .zip(numbers)
            .map(|(of, number)| number.filter(|_| *of == Some(label)))
            .collect();
        let inner = by_numbers(&own);
        let parts = count(&inner).max(1);
        for part in 0..parts {
            let of_part = |place: &usize| {
                let is_own = types.of.get(*place) == Some(&Some(label));
                // Where a type is one kind, a core of that type without a number is of that kind
                // too.
                is_own && (parts == 1 || inner.get(*place) == Some(&Some(part)))
            };
            let members: Vec<usize> = (0..numbers.len()).filter(of_part).collect();
            let speed = median(members.iter().filter_map(|place| *own.get(*place)?));
            groups.push((members, speed));
        }
    }
    if !types.ordered {
        order(&mut groups);
    }
    let find = |place| {
        groups
            .iter()
            .position(|(members, _)| members.contains(&place))
    };
    (0..numbers.len()).map(find).collect()
}

/// Put the fastest group first; a group that is as fast as the one before it joins its kind.
fn order(groups: &mut Vec<(Vec<usize>, Option<f64>)>) {
    groups.sort_by(|(_, one), (_, other)| {
        other
            .unwrap_or_default()
            .total_cmp(&one.unwrap_or_default())
    });
    let mut merged: Vec<(Vec<usize>, Option<f64>)> = Vec::new();
    for (members, speed) in groups.drain(..) {
        let before = merged.last_mut().filter(|(_, above)| match (above, speed) {
            (Some(above), Some(speed)) => speed >= ALIKE * *above,
            _ => true,
        });
        match before {
            Some((own, _)) => own.extend(members),
            None => merged.push((members, speed)),
        }
    }
    *groups = merged;
}

pub fn count(kinds: &[Option<usize>]) -> usize {
    kinds.iter().flatten().max().map_or(0, |last| last + 1)
}

/// The median; of an even number of values, the upper middle one.
pub fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds(numbers: &[u32]) -> Vec<usize> {
        let numbers: Vec<Option<f64>> = numbers.iter().map(|one| Some(f64::from(*one))).collect();
        by_numbers(&numbers).into_iter().flatten().collect()
    }

    #[test]
    fn rankings_of_one_kind_are_one_kind() {
        // Ryzen AI Max+ 395, in units of 100 MHz (CoreFreq, issue 561).
        let ladder = [47, 43, 46, 41, 42, 44, 47, 45, 38, 33, 40, 37, 35];
        assert_eq!(kinds(&ladder), [0; 13]);
        assert_eq!(
            kinds(&[166, 171, 176, 181, 226, 231, 236]),
            [1, 1, 1, 1, 0, 0, 0]
        );
        assert_eq!(kinds(&[1024, 870, 870, 870]), [0; 4]);
    }

    #[test]
    fn gaps_are_judged_relative_to_the_numbers() {
        assert_eq!(kinds(&[1024, 971, 617]), [0, 0, 1]);
        assert_eq!(kinds(&[236, 176]), [0, 1]);
        assert_eq!(kinds(&[1024, 700, 256]), [0, 1, 2]);
        assert_eq!(kinds(&[4, 3]), [0, 1]);
    }

    #[test]
    fn a_number_that_is_missing_has_no_kind() {
        let found = by_numbers(&[Some(1024.0), None, Some(400.0)]);
        assert_eq!(found, [Some(0), None, Some(1)]);
    }

    #[test]
    fn parts_are_ordered_by_their_numbers_and_alike_ones_joined() {
        let types = Types {
            source: "",
            of: vec![Some(5), Some(3), Some(9), Some(9), Some(7)],
            ordered: false,
        };
        let numbers = [Some(300.0), Some(1024.0), Some(880.0), None, Some(870.0)];
        let found = by_types(&types, &numbers);
        assert_eq!(found, [Some(2), Some(0), Some(1), Some(1), Some(1)]);
    }

    proptest! {
        #[test]
        fn every_gap_is_a_boundary_and_nothing_else(numbers in proptest::collection::vec(1_u32..4096, 1..40)) {
            let found = kinds(&numbers);
            let mut pairs: Vec<(u32, usize)> = numbers.iter().copied().zip(found).collect();
            pairs.sort_unstable_by(|one, other| other.cmp(one));
            for (above, below) in pairs.iter().zip(pairs.iter().skip(1)) {
                let gap = f64::from(below.0) < CUT * f64::from(above.0);
                prop_assert_eq!(below.1, above.1 + usize::from(gap));
            }
        }
    }
}
