//! Searches on surfaces with a known optimum, with noise and a simulated clock.

use std::cell::Cell;
use std::time::Duration;

use super::contest::{Ground, Progress};
use super::gemm::GemmSpace;
use super::level2::Level2Space;
use super::trial::{Budget, Measured, Rejected};
use super::*;
use crate::log::{Header, Log};
use crate::parameters::{Level2, Parameters};
use crate::processor::Processor;
use crate::vector::{Precision, Vector};

/// A surface that is 100 at its top, with relative noise and timings of 10 ms.
struct Surface<'a, P> {
    top: P,
    distance: fn(&P, &P) -> f64,
    broken: fn(&P) -> bool,
    noise: f64,
    clock: &'a Cell<Duration>,
    seed: u64,
    timings: Vec<P>,
}

impl<P: Copy> Trial<P> for Surface<'_, P> {
    fn gflops(&mut self, candidate: &P) -> Result<Measured, Rejected> {
        if (self.broken)(candidate) {
            return Err(Rejected("wrong result".into()));
        }
        let seconds = 0.01;
        self.clock
            .set(self.clock.get() + Duration::from_secs_f64(seconds));
        self.timings.push(*candidate);
        // The sum of three random numbers is about normally distributed; one timing in ten is
        // disturbed.
        let normal = self.random() + self.random() + self.random() - 1.5;
        let disturbed = if self.random() < 0.1 { 0.8 } else { 1.0 };
        let noise = (1.0 + 2.0 * self.noise * normal) * disturbed;
        let gflops = 100.0 * (-(self.distance)(candidate, &self.top)).exp() * noise;
        Ok(Measured::undisturbed(gflops, seconds))
    }
}

impl<P> Surface<'_, P> {
    /// xorshift64* (Vigna 2016), from 0 to 1.
    fn random(&mut self) -> f64 {
        self.seed ^= self.seed >> 12;
        self.seed ^= self.seed << 25;
        self.seed ^= self.seed >> 27;
        let word = self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        f64::from(u32::try_from(word).unwrap()) / f64::from(u32::MAX)
    }
}

/// A processor with every feature, whatever this processor is.
fn processor() -> Processor {
    let features = ["sse2", "avx", "avx2", "fma", "avx512f", "avx512dq"];
    Processor {
        features: features.map(str::to_owned).to_vec(),
        l1_bytes: Some(48 << 10),
        l2_bytes: Some(1 << 20),
        registers: 32,
        ..Processor::this()
    }
}

fn space(processor: &Processor) -> GemmSpace<'_> {
    GemmSpace {
        processor,
        precision: Precision::Double,
        vectors: vec![Vector::Scalar, Vector::Sse2, Vector::Avx2, Vector::Avx512],
        size: 1000,
    }
}

/// An optimum that differs from the start in every parameter.
const TOP: Parameters = Parameters {
    vector: Vector::Avx2,
    muladd: true,
    lat: 2,
    nb: 192,
    mu: 8,
    nu: 4,
    ku: 8,
    ffetch: false,
    ifetch: 2,
    nfetch: 4,
    mc: 128,
    nc: 512,
};

fn log_distance(a: u32, b: u32) -> f64 {
    (f64::from(a.max(1)) / f64::from(b.max(1))).ln().abs()
}

/// Steep where real kernels are steep, flat where they are flat.
fn distance(a: &Parameters, b: &Parameters) -> f64 {
    let vector = if a.vector == b.vector { 0.0 } else { 0.5 };
    let form = if a.muladd == b.muladd { 0.0 } else { 0.3 };
    let fetch = if a.ffetch == b.ffetch { 0.0 } else { 0.05 };
    let block = log_distance(a.mu, b.mu) + log_distance(a.nu, b.nu);
    let loops = log_distance(a.ku, b.ku) + log_distance(a.lat, b.lat);
    let caches = log_distance(a.nb, b.nb) + log_distance(a.mc * a.nb, b.mc * b.nb);
    let ahead = log_distance(a.ifetch, b.ifetch) + log_distance(a.nfetch, b.nfetch);
    let panels = log_distance(a.nc.min(1000), b.nc);
    vector + form + fetch + 0.3 * block + 0.1 * (loops + caches + ahead + panels)
}

fn surface(clock: &Cell<Duration>, noise: f64) -> Surface<'_, Parameters> {
    Surface {
        top: TOP,
        distance,
        broken: |_| false,
        noise,
        clock,
        seed: 7,
        timings: Vec::new(),
    }
}

fn run<P: Candidate>(
    surface: &mut Surface<P>,
    space: &impl Space<P>,
    strategy: Strategy,
    seconds: u64,
    log: &mut Log,
) -> Found<P> {
    let clock = surface.clock;
    let now = || clock.get();
    let end = clock.get() + Duration::from_secs(seconds);
    let mut ground = Ground {
        budget: Budget::until(&now, end),
        log,
        progress: &mut |_: &Progress| (),
    };
    search("dgemm", surface, &mut ground, space, strategy).unwrap()
}

/// Search GEMM's space by lines, without a log.
fn lines(surface: &mut Surface<Parameters>, seconds: u64) -> Found<Parameters> {
    let processor = processor();
    let space = space(&processor);
    run(surface, &space, Strategy::Lines, seconds, &mut Log::none())
}

#[test]
fn without_noise_the_lines_end_at_the_top() {
    let clock = Cell::default();
    let mut surface = surface(&clock, 0.0);
    let found = lines(&mut surface, 60);
    assert!(found.complete && found.refused.is_empty());
    let winner = found.winner.unwrap();
    assert!(distance(&winner, &TOP) < 0.02, "{winner:?}");
    assert!(found.trials < 300, "{} trials", found.trials);
    assert_eq!(found.rivals.len(), RIVALS);
    assert!(!found.rivals.contains(&winner));
}

#[test]
fn noise_and_disturbances_cost_little_and_the_same_kernel_is_found() {
    let clock = Cell::default();
    for seed in [1, 2, 3, 5, 8] {
        let mut surface = Surface {
            seed,
            ..surface(&clock, 0.01)
        };
        let found = lines(&mut surface, 60);
        let winner = found.winner.unwrap();
        let kernel = (winner.vector, winner.muladd, winner.mu, winner.nu);
        assert_eq!(
            kernel,
            (Vector::Avx2, true, 8, 4),
            "seed {seed}: {winner:?}"
        );
        assert!(distance(&winner, &TOP) < 0.05, "seed {seed}: {winner:?}");
    }
}

#[test]
fn the_budget_is_kept_and_the_best_so_far_is_the_answer() {
    let clock = Cell::default();
    let mut surface = surface(&clock, 0.01);
    let found = lines(&mut surface, 1);
    assert!(!found.complete && found.winner.is_some());
    assert!(clock.get() <= Duration::from_secs(1), "{:?}", clock.get());
    assert!(
        clock.get() > Duration::from_millis(900),
        "{:?}",
        clock.get()
    );
}

#[test]
fn kernels_that_fail_are_rejected_with_the_reason_and_never_win() {
    let clock = Cell::default();
    let mut surface = Surface {
        broken: |one: &Parameters| one.mu == 8 && one.nu == 4 || one.vector == Vector::Avx512,
        ..surface(&clock, 0.0)
    };
    let found = lines(&mut surface, 60);
    let winner = found.winner.unwrap();
    assert!(!(surface.broken)(&winner), "{winner:?}");
    assert!(found.refused.iter().all(|one| one.why == "wrong result"));
    let tops = found.refused.iter();
    assert!(
        tops.clone()
            .any(|one| (one.candidate.mu, one.candidate.nu) == (8, 4))
    );
    assert!(
        tops.clone()
            .any(|one| one.candidate.vector == Vector::Avx512)
    );
}

#[test]
fn where_nothing_works_there_is_no_winner() {
    let clock = Cell::default();
    let mut surface = Surface {
        broken: |_| true,
        ..surface(&clock, 0.0)
    };
    let found = lines(&mut surface, 60);
    assert_eq!((found.winner, found.refused.len()), (None, 4));
}

#[test]
fn an_exhaustive_search_comes_near_the_top_in_part_of_its_grid() {
    let (processor, clock) = (processor(), Cell::default());
    let mut surface = surface(&clock, 0.0);
    let space = space(&processor);
    let exhaustive = Strategy::Exhaustive;
    let found = run(&mut surface, &space, exhaustive, 60, &mut Log::none());
    assert!(!found.complete && found.trials < space.grid().len());
    let winner = found.winner.unwrap();
    assert!(distance(&winner, &TOP) < 0.6, "{winner:?}");
}

#[test]
fn a_whole_grid_has_each_point_once() {
    for length in [0, 1, 2, 6, 10, 618, 1000] {
        let mut seen: Vec<usize> = mixed(length).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..length).collect::<Vec<_>>());
    }
}

#[test]
fn level_2_is_short_and_finds_its_top() {
    let (processor, clock) = (processor(), Cell::default());
    let top = Level2 {
        vector: Vector::Avx2,
        x_unroll: 1,
        y_unroll: 8,
    };
    let mut surface = Surface {
        top,
        distance: |a, b| {
            let vector = if a.vector == b.vector { 0.0 } else { 0.3 };
            let (x, y) = ((a.x_unroll, b.x_unroll), (a.y_unroll, b.y_unroll));
            vector + 0.1 * (log_distance(x.0, x.1) + log_distance(y.0, y.1))
        },
        broken: |_| false,
        noise: 0.0,
        clock: &clock,
        seed: 3,
        timings: Vec::new(),
    };
    let space = Level2Space {
        processor: &processor,
        vectors: vec![Vector::Sse2, Vector::Avx2],
    };
    for strategy in [Strategy::Lines, Strategy::Exhaustive] {
        let found = run(&mut surface, &space, strategy, 60, &mut Log::none());
        assert_eq!((found.winner, found.complete), (Some(top), true));
        assert!(found.trials < 130, "{}", found.trials);
    }
}

#[test]
fn a_search_that_was_killed_goes_on_and_times_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let header = Header {
        format: crate::log::FORMAT,
        agent: "1".into(),
        processor: processor(),
        search: serde_json::Map::new(),
    };
    let (processor, clock) = (processor(), Cell::default());
    let space = space(&processor);
    let mut first = surface(&clock, 0.01);
    let mut log = Log::open(&path, &header).unwrap();
    let begun = run(&mut first, &space, Strategy::Lines, 1, &mut log);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();

    let mut second = surface(&clock, 0.01);
    let mut log = Log::open(&path, &header).unwrap();
    let ended = run(&mut second, &space, Strategy::Lines, 60, &mut log);
    assert!(ended.complete);
    // The last line was incomplete.
    assert_eq!(ended.resumed, begun.trials - 1);
    let winner = begun.winner.unwrap();
    assert!(!second.timings.contains(&first.timings[0]) || winner == first.timings[0]);

    let mut third = surface(&clock, 0.01);
    let mut log = Log::open(&path, &header).unwrap();
    let again = run(&mut third, &space, Strategy::Lines, 60, &mut log);
    assert_eq!((again.winner, again.resumed), (ended.winner, ended.trials));
    assert!(third.timings.is_empty());
}
