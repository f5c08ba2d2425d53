//! Groups the intervals of a run by the code that they execute, as `SimPoint` does (Sherwood et al.,
//! ASPLOS 2002; Hamerly et al., JILP 2005): k-means on block vectors, and the smallest number of
//! clusters whose Bayesian information criterion reaches 90 % of its range.

use std::f64::consts::PI;

const MOST_CLUSTERS: usize = 10;
const ITERATIONS: usize = 30;
/// Intervals that clusters are made from; all others then go to the nearest cluster.
const FITTED: usize = 4096;
/// Samples that a stratum needs: fewer say little about its variance.
const FEWEST_SAMPLES: usize = 4;
const ENOUGH: f64 = 0.9;
/// The smallest variance of an element: block vectors are shares of 1.
const NO_VARIANCE: f64 = 1e-9;

/// A block vector whose elements add up to 1.
pub(super) type Shares = Vec<f64>;

/// The shares of `blocks`, in `elements` elements.
pub(super) fn shares(blocks: &[u64], elements: usize) -> Shares {
    let total = blocks.iter().sum::<u64>().max(1) as f64;
    let mut found: Shares = blocks.iter().map(|&each| each as f64 / total).collect();
    found.resize(elements, 0.0);
    found
}

/// The stratum of each interval, from 0 on without gaps. Each stratum has four samples, or was
/// sampled whole, or is the only one; an interval of another cluster belongs to the stratum nearest
/// to it.
pub(super) fn strata(intervals: &[Shares], measured: &[bool]) -> Vec<usize> {
    let stride = intervals.len().div_ceil(FITTED).max(1);
    let fitted: Vec<&Shares> = intervals.iter().step_by(stride).collect();
    let samples = measured.iter().filter(|each| **each).count();
    let most = (samples / FEWEST_SAMPLES).clamp(1, MOST_CLUSTERS);
    let mut centres = best(&fitted, most);
    loop {
        let found: Vec<usize> = intervals
            .iter()
            .map(|each| nearest(&centres, each).0)
            .collect();
        let mut counts = vec![(0, 0); centres.len()];
        for (&stratum, &taken) in found.iter().zip(measured) {
            let (samples, all) = &mut counts[stratum];
            (*samples, *all) = (*samples + usize::from(taken), *all + 1);
        }
        let poor = |at: &usize| {
            let (samples, all) = counts[*at];
            samples < FEWEST_SAMPLES && (samples < all || all == 0)
        };
        let poorest = (0..centres.len()).filter(poor).min_by_key(|&at| counts[at]);
        match poorest {
            Some(poorest) if centres.len() > 1 => drop(centres.remove(poorest)),
            _ => return found,
        }
    }
}

/// The centres of the clustering that is chosen.
fn best(points: &[&Shares], most: usize) -> Vec<Shares> {
    let most = most.min(points.len());
    let tried: Vec<_> = (1..=most)
        .map(|clusters| cluster(points, clusters))
        .collect();
    let scores: Vec<f64> = tried.iter().map(|centres| score(points, centres)).collect();
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let lowest = scores.iter().copied().fold(f64::INFINITY, f64::min);
    let enough = lowest + ENOUGH * (highest - lowest);
    let chosen = tried
        .into_iter()
        .zip(scores)
        .find(|(_, score)| *score >= enough);
    chosen.map_or_else(Vec::new, |(centres, _)| centres)
}

/// k-means from centres as far from each other as possible.
fn cluster(points: &[&Shares], clusters: usize) -> Vec<Shares> {
    let mut centres = vec![mean(points)];
    while centres.len() < clusters {
        let far = |point: &&&Shares| nearest(&centres, point).1;
        let next = points.iter().max_by(|a, b| far(a).total_cmp(&far(b)));
        centres.extend(next.map(|point| (*point).clone()));
    }
    for _ in 0..ITERATIONS {
        let mut members = vec![Vec::new(); centres.len()];
        for &point in points {
            members[nearest(&centres, point).0].push(point);
        }
        members.retain(|members| !members.is_empty());
        let moved: Vec<Shares> = members.iter().map(|members| mean(members)).collect();
        if moved == centres {
            break;
        }
        centres = moved;
    }
    centres
}

/// The Bayesian information criterion for spherical clusters of one variance (Pelleg and Moore,
/// ICML 2000).
fn score(points: &[&Shares], centres: &[Shares]) -> f64 {
    let mut sizes = vec![0.0_f64; centres.len()];
    let mut squares = 0.0;
    for point in points {
        let (at, square) = nearest(centres, point);
        sizes[at] += 1.0;
        squares += square;
    }
    let (count, clusters) = (points.len() as f64, centres.len() as f64);
    let elements = centres.first().map_or(0, Vec::len) as f64;
    let variance = (squares / (elements * (count - clusters)).max(1.0)).max(NO_VARIANCE);
    let shares: f64 = sizes
        .iter()
        .filter(|size| **size > 0.0)
        .map(|size| size * (size / count).ln())
        .sum();
    let likelihood =
        shares - count * elements / 2.0 * (2.0 * PI * variance).ln() - squares / (2.0 * variance);
    let parameters = clusters - 1.0 + elements * clusters + 1.0;
    likelihood - parameters / 2.0 * count.ln()
}

fn mean(points: &[&Shares]) -> Shares {
    let mut sum = vec![0.0; points.first().map_or(0, |point| point.len())];
    for point in points {
        for (sum, share) in sum.iter_mut().zip(*point) {
            *sum += share;
        }
    }
    sum.iter().map(|sum| sum / points.len() as f64).collect()
}

/// The nearest centre and the square of the distance to it.
fn nearest(centres: &[Shares], point: &Shares) -> (usize, f64) {
    let square =
        |centre: &Shares| -> f64 { centre.iter().zip(point).map(|(a, b)| (a - b).powi(2)).sum() };
    let found = centres.iter().map(square).enumerate();
    found
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
        .unwrap_or((0, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors around three corners, with a little noise that is the same in each run.
    fn three(count: usize) -> (Vec<Shares>, Vec<usize>) {
        let of = |at: usize| at * 7 % 10 / 4;
        let vector = |at: usize| {
            let mut blocks = [100_u64; 8];
            blocks[of(at)] += 2000;
            blocks[3 + at % 5] += (at * 37 % 30) as u64;
            shares(&blocks, 8)
        };
        (
            (0..count).map(vector).collect(),
            (0..count).map(of).collect(),
        )
    }

    #[test]
    fn intervals_of_the_same_code_are_one_stratum() {
        let (vectors, truth) = three(500);
        let sampled: Vec<bool> = (0..500).map(|at| at % 10 == at / 10 % 10).collect();
        let found = strata(&vectors, &sampled);
        assert_eq!(found.iter().max(), Some(&2));
        for (a, first) in found.iter().zip(&truth) {
            for (b, second) in found.iter().zip(&truth) {
                assert_eq!(a == b, first == second);
            }
        }
    }

    #[test]
    fn a_cluster_without_samples_joins_the_nearest() {
        let (vectors, truth) = three(500);
        let sampled: Vec<bool> = truth
            .iter()
            .enumerate()
            .map(|(at, of)| *of != 2 && at % 5 == 0)
            .collect();
        let found = strata(&vectors, &sampled);
        assert_eq!(found.iter().max(), Some(&1));
        assert_eq!(strata(&vectors, &[false; 500]), vec![0; 500]);
    }

    #[test]
    fn equal_intervals_are_one_stratum() {
        let vectors = vec![shares(&[3, 0, 1], 4); 50];
        assert_eq!(vectors[0], [0.75, 0.0, 0.25, 0.0]);
        assert_eq!(strata(&vectors, &[true; 50]), vec![0; 50]);
        assert_eq!(strata(&[], &[]), Vec::<usize>::new());
    }
}
