//! Where a curve of latencies steps up.
//!
//! The curve is cut into plateaus by least squares on the logarithm (optimal partitioning: Jackson
//! et al., 2005), with a price for each cut. On a logarithmic scale a step has the same height at
//! every level, and relative noise is the same on every plateau.

use vtax_tuner::statistics::median;

/// Points of the shortest plateau: a step has to repeat, as ATLAS requires of its steps.
const SHORTEST: usize = 3;
/// What a cut costs, in squared logarithms: a step of 30 % that lasts for three points pays for it
/// (0.26^2 x 3 / 2), noise of 5 % does not.
const CUT: f64 = 0.1;
/// A slope has fewer points than this: two octaves of slowly rising latency in a cache that others
/// use too count as a plateau.
const LONG: usize = 8;

/// What counts as a plateau and as a step between two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Plateaus whose latencies differ by a smaller factor are merged.
    pub smallest_step: f64,
    /// Points that rise by a larger factor from first to last are a slope, not a plateau.
    pub steepest: f64,
}

/// Neighbouring points of nearly the same latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plateau {
    pub first: usize,
    pub last: usize,
    pub level: f64,
}

/// A step between two plateaus.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// Below the step.
    pub lower: Plateau,
    /// Above it.
    pub upper: Plateau,
    /// The last point that belongs to the lower plateau.
    pub at: usize,
}

/// The plateaus of a curve of positive latencies, from left to right.
pub fn plateaus(latencies: &[f64], rule: Rule) -> Vec<Plateau> {
    let logarithms: Vec<f64> = latencies.iter().map(|latency| latency.ln()).collect();
    let mut found: Vec<Plateau> = Vec::new();
    for (first, end) in cut(&logarithms) {
        let rise = (logarithms[end - 1] - logarithms[first]).abs();
        if rise > rule.steepest.ln() && end - first < LONG {
            continue;
        }
        let next = plateau(latencies, first, end - 1);
        match found.last_mut() {
            Some(last) if (next.level / last.level).ln().abs() < rule.smallest_step.ln() => {
                *last = plateau(latencies, last.first, next.last);
            }
            _ => found.push(next),
        }
    }
    found
}

fn plateau(latencies: &[f64], first: usize, last: usize) -> Plateau {
    let level = median(latencies[first..=last].to_vec()).unwrap_or(f64::NAN);
    Plateau { first, last, level }
}

/// The steps up between neighbouring plateaus of a curve.
pub fn edges(latencies: &[f64], rule: Rule) -> Vec<Edge> {
    let found = plateaus(latencies, rule);
    let pairs = found
        .windows(2)
        .filter(|pair| pair[0].level < pair[1].level);
    pairs
        .filter_map(|pair| {
            let at = crossing(latencies, &pair[0], &pair[1])?;
            Some(Edge {
                lower: pair[0],
                upper: pair[1],
                at,
            })
        })
        .collect()
}

/// The last point before the curve rises above the middle of two plateaus' logarithms.
///
/// The curve has to stay above for two points, so that one disturbed point makes no step. `None`:
/// the curve is never below the middle, or never above.
pub fn crossing(latencies: &[f64], lower: &Plateau, upper: &Plateau) -> Option<usize> {
    let level = |of: &Plateau| median(latencies[of.first..=of.last].to_vec());
    let middle = (level(lower)? * level(upper)?).sqrt();
    let above = |at: usize| latencies.get(at).is_some_and(|latency| *latency > middle);
    let first = (lower.first..=upper.last).find(|at| above(*at) && above(at + 1))?;
    first.checked_sub(1).filter(|at| *at >= lower.first)
}

/// Cut a curve into the half-open ranges that together cost least.
fn cut(logarithms: &[f64]) -> Vec<(usize, usize)> {
    let n = logarithms.len();
    if n < SHORTEST {
        return Vec::new();
    }
    let sums = Sums::of(logarithms);
    let mut best = vec![(f64::INFINITY, 0); n + 1];
    best[0] = (-CUT, 0);
    for end in SHORTEST..=n {
        for begin in 0..=end - SHORTEST {
            let cost = best[begin].0 + sums.cost(begin, end) + CUT;
            if cost < best[end].0 {
                best[end] = (cost, begin);
            }
        }
    }
    let mut ranges = Vec::new();
    let mut end = n;
    while end > 0 {
        ranges.push((best[end].1, end));
        end = best[end].1;
    }
    ranges.reverse();
    ranges
}

/// Sums up to each point, so that the cost of any range takes one step.
struct Sums(Vec<(f64, f64)>);

impl Sums {
    fn of(values: &[f64]) -> Self {
        let mut sums = vec![(0.0, 0.0)];
        for value in values {
            let (sum, squares) = sums[sums.len() - 1];
            sums.push((sum + value, squares + value * value));
        }
        Self(sums)
    }

    /// The sum of squared distances from the mean of a range.
    #[allow(clippy::cast_precision_loss, reason = "a number of points")]
    fn cost(&self, begin: usize, end: usize) -> f64 {
        let (sum, squares) = (
            self.0[end].0 - self.0[begin].0,
            self.0[end].1 - self.0[begin].1,
        );
        (squares - sum * sum / (end - begin) as f64).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMALL: Rule = Rule {
        smallest_step: 1.15,
        steepest: 1.3,
    };

    /// A curve of plateaus of these lengths and levels, each point multiplied by its own noise.
    fn curve(parts: &[(usize, f64)], noise: &[f64]) -> Vec<f64> {
        let flat = parts.iter().flat_map(|(count, level)| vec![*level; *count]);
        flat.enumerate()
            .map(|(at, level)| level * noise.get(at).copied().unwrap_or(1.0))
            .collect()
    }

    fn places(latencies: &[f64]) -> Vec<usize> {
        edges(latencies, SMALL).iter().map(|edge| edge.at).collect()
    }

    #[test]
    fn edges_are_where_they_were_put() {
        let latencies = curve(&[(13, 1.0), (20, 3.5), (16, 15.0), (8, 90.0)], &[]);
        assert_eq!(places(&latencies), [12, 32, 48]);
        let levels: Vec<f64> = plateaus(&latencies, SMALL)
            .iter()
            .map(|one| one.level)
            .collect();
        assert_eq!(levels, [1.0, 3.5, 15.0, 90.0]);
    }

    #[test]
    fn a_slope_between_plateaus_is_no_plateau() {
        let mut latencies = curve(&[(10, 4.0), (10, 40.0)], &[]);
        latencies.splice(10..10, [7.0, 12.0, 22.0]);
        let found = edges(&latencies, SMALL);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].at, 11, "12.0 is below the middle, 12.6");
    }

    #[test]
    fn one_disturbed_point_is_no_edge() {
        let mut latencies = curve(&[(20, 4.0)], &[]);
        latencies[9] = 5.2;
        assert!(places(&latencies).is_empty());
    }

    #[test]
    fn steps_smaller_than_asked_for_are_none() {
        let latencies = curve(&[(13, 4.0), (8, 14.0), (8, 19.0), (8, 60.0)], &[]);
        let at = |smallest_step| {
            let rule = Rule {
                smallest_step,
                ..SMALL
            };
            let found = edges(&latencies, rule);
            found.iter().map(|edge| edge.at).collect::<Vec<_>>()
        };
        let found = [at(1.15), at(1.5)];
        assert_eq!(found, [vec![12, 20, 28], vec![12, 28]]);
    }

    #[test]
    fn a_flat_or_short_curve_has_no_edge() {
        assert!(places(&curve(&[(40, 2.0)], &[])).is_empty());
        assert!(places(&[]).is_empty());
        assert!(places(&[1.0, 9.0]).is_empty());
    }

    proptest! {
        #[test]
        fn edges_are_found_in_noise(
            lengths in prop::collection::vec(4_usize..20, 2..5),
            ratios in prop::collection::vec(1.6_f64..8.0, 5),
            noise in prop::collection::vec(0.97_f64..1.03, 80),
        ) {
            let mut level = 1.0;
            let mut parts = Vec::new();
            for (length, ratio) in lengths.iter().zip(&ratios) {
                parts.push((*length, level));
                level *= ratio;
            }
            let mut end = 0;
            let mut expected: Vec<usize> = lengths.iter().map(|length| { end += length; end - 1 }).collect();
            expected.pop();
            prop_assert_eq!(places(&curve(&parts, &noise)), expected);
        }

        #[test]
        fn plateaus_are_in_order_and_apart(
            latencies in prop::collection::vec(0.5_f64..200.0, 0..60)
        ) {
            let found = plateaus(&latencies, SMALL);
            for pair in found.windows(2) {
                prop_assert!(pair[0].last < pair[1].first);
            }
            prop_assert!(found.iter().all(|one| one.first <= one.last && one.last < latencies.len()));
            for edge in edges(&latencies, SMALL) {
                prop_assert!(edge.at >= edge.lower.first && edge.at < edge.upper.last);
            }
        }
    }
}
