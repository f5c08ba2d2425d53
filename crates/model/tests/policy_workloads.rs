//! The policies on stylised workloads: which policy is best, by how much, and which ones oscillate.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

mod policy_world;

use policy_world::{Changes, WINDOW, Window, best_static, costs, oracle, run};
use vtax_model::policy::registry;

const WINDOWS: usize = 600;

/// Numbers from 0 to 1: a fixed linear congruential generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next()
    }

    /// A random number between `low` and `high`, as likely between 1 and 2 as between 10 and 20.
    fn scale(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.next())
    }
}

/// A million cycles a window plus the cost of paging, all with 3 % of noise.
fn noisy(windows: impl Iterator<Item = (f64, f64)>) -> Vec<Window> {
    let mut random = Random(12_345);
    let mut noise = move || random.between(0.97, 1.03);
    windows
        .map(|(exits, misses)| Window {
            base: 1e6 * noise(),
            exits: exits * noise(),
            misses: misses * noise(),
        })
        .collect()
}

/// Exits and TLB misses per window.
const SHADOW_BEST: (f64, f64) = (2.0, 5000.0);
const NESTED_BEST: (f64, f64) = (150.0, 2000.0);
const NEITHER: (f64, f64) = (3.0, 80.0);

/// Workloads by name, with the pair of values for each window.
fn workloads() -> Vec<(&'static str, Vec<Window>)> {
    let make = |pair: fn(usize) -> (f64, f64)| noisy((0..WINDOWS).map(pair));
    vec![
        ("swim-like", make(|_| SHADOW_BEST)),
        // Above DAV2M's threshold of exits, and yet 8 % better in shadow paging.
        ("zeusmp-like", make(|_| (15.0, 2000.0))),
        ("gzip-like", make(|_| NESTED_BEST)),
        (
            "gcc-like",
            make(|at| {
                if at % 33 < 30 {
                    NESTED_BEST
                } else {
                    (2.0, 6000.0)
                }
            }),
        ),
        ("indifferent", make(|_| NEITHER)),
        (
            "square, 40 windows",
            make(|at| {
                if at / 40 % 2 == 0 {
                    SHADOW_BEST
                } else {
                    NESTED_BEST
                }
            }),
        ),
        (
            "square, 5 windows",
            make(|at| {
                if at / 5 % 2 == 0 {
                    SHADOW_BEST
                } else {
                    NESTED_BEST
                }
            }),
        ),
        (
            "one change",
            make(|at| if at < 300 { SHADOW_BEST } else { NESTED_BEST }),
        ),
    ]
}

struct Row {
    workload: &'static str,
    policy: &'static str,
    /// Cycles divided by those of the best static mode.
    relative: f64,
    switches: usize,
}

fn table(counters: bool) -> Vec<Row> {
    // The refill takes 30 % of a window; the DAV2M paper's dearest refill took at most 100 ms
    // (section 5).
    let changes = Changes::of(0.3);
    let mut rows = Vec::new();
    for (workload, windows) in workloads() {
        let best = best_static(&windows, changes).total;
        let plan = oracle(&windows, changes).solve().unwrap();
        rows.push(Row {
            workload,
            policy: "oracle",
            relative: plan.total / best,
            switches: plan.switches,
        });
        for policy in registry::names() {
            if policy == "rpms" && !counters {
                continue;
            }
            let mut machine = registry::by_name(policy, None, &costs(), WINDOW).unwrap();
            let outcome = run(machine.as_mut(), &windows, changes, counters);
            rows.push(Row {
                workload,
                policy,
                relative: outcome.cycles / best,
                switches: outcome.switches,
            });
        }
    }
    for row in &rows {
        println!(
            "counters {counters} {:<20} {:<8} {:.4} {:>4}",
            row.workload, row.policy, row.relative, row.switches
        );
    }
    rows
}

fn of<'a>(rows: &'a [Row], workload: &str, policy: &str) -> &'a Row {
    rows.iter()
        .find(|row| row.workload == workload && row.policy == policy)
        .unwrap()
}

#[test]
fn policies_on_stylised_workloads() {
    for counters in [true, false] {
        let rows = table(counters);
        for (workload, _) in workloads() {
            let dav2m = of(&rows, workload, "dav2m");
            let vtax = of(&rows, workload, "vtax");
            assert!(
                vtax.relative <= dav2m.relative,
                "{workload}: vtax {} above dav2m {}",
                vtax.relative,
                dav2m.relative
            );
            // The DAV2M paper: virtually identical to the best static mode, few switches (section
            // 7). The paper says so for workloads with one best mode; square waves have none.
            let within = if workload.starts_with("square") {
                1.02
            } else {
                1.01
            };
            assert!(
                dav2m.relative < within && dav2m.switches <= 13,
                "{workload}"
            );
            assert!(vtax.relative < 1.004, "{workload}");
        }
        for oscillating in ["zeusmp-like", "gzip-like", "gcc-like"] {
            assert!(of(&rows, oscillating, "naive").switches > WINDOWS / 2);
        }
        for steady in [
            "swim-like",
            "zeusmp-like",
            "gzip-like",
            "indifferent",
            "one change",
        ] {
            assert!(of(&rows, steady, "vtax").switches <= 4, "{steady}");
        }
        // Where phases alternate, knowing them is better than any single mode.
        assert!(of(&rows, "square, 40 windows", "vtax").relative < 0.92);
        assert!(of(&rows, "gcc-like", "vtax").relative < 1.0);
    }
}

/// Two to four phases in any order, with run lengths that vary by half.
fn random_workload(seed: u64) -> (Vec<Window>, Changes) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    random.next();
    let phases: Vec<(f64, f64, f64)> = (0..2 + (random.next() * 3.0) as usize)
        .map(|_| {
            let exits = random.scale(1.0, 300.0);
            let misses = random.scale(50.0, 8000.0);
            (exits, misses, random.scale(2.0, 200.0))
        })
        .collect();
    let changes = Changes::of(random.scale(0.03, 3.0));
    let mut pairs = Vec::new();
    while pairs.len() < 2 * WINDOWS {
        let (exits, misses, run) = phases[(random.next() * phases.len() as f64) as usize];
        let run = (run * random.between(0.5, 1.5)).max(1.0) as usize;
        pairs.extend(std::iter::repeat_n((exits, misses), run));
    }
    (noisy(pairs.into_iter()), changes)
}

/// Cycles of vtax divided by those of the others.
#[derive(Debug)]
struct Ratios {
    dav2m: f64,
    oracle: f64,
    best_static: f64,
}

impl Ratios {
    fn of(seed: u64, counters: bool) -> Self {
        let (windows, changes) = random_workload(seed);
        let cycles = |name| {
            let mut policy = registry::by_name(name, None, &costs(), WINDOW).unwrap();
            run(policy.as_mut(), &windows, changes, counters).cycles
        };
        let vtax = cycles("vtax");
        Self {
            dav2m: vtax / cycles("dav2m"),
            oracle: vtax / oracle(&windows, changes).solve().unwrap().total,
            best_static: vtax / best_static(&windows, changes).total,
        }
    }
}

#[test]
fn policies_on_random_workloads() {
    const WORKLOADS: u64 = 150;
    for counters in [true, false] {
        let ratios: Vec<Ratios> = (1..=WORKLOADS)
            .map(|seed| Ratios::of(seed, counters))
            .collect();
        let mean = |of: fn(&Ratios) -> f64| ratios.iter().map(of).sum::<f64>() / WORKLOADS as f64;
        let most = |of: fn(&Ratios) -> f64| ratios.iter().map(of).fold(0.0, f64::max);
        let wins = ratios.iter().filter(|ratios| ratios.dav2m <= 1.0).count();
        println!("random, counters {counters}: vtax at most dav2m in {wins} of {WORKLOADS}");
        println!(
            "random, mean and most: over dav2m {:.4} {:.4}, oracle {:.4} {:.4}, static {:.4} {:.4}",
            mean(|ratios| ratios.dav2m),
            most(|ratios| ratios.dav2m),
            mean(|ratios| ratios.oracle),
            most(|ratios| ratios.oracle),
            mean(|ratios| ratios.best_static),
            most(|ratios| ratios.best_static),
        );
        // vtax does not win everywhere; where it loses, it confused two phases.
        assert!(wins as u64 * 10 >= WORKLOADS * 7);
        assert!(mean(|ratios| ratios.dav2m) < 0.99);
        assert!(most(|ratios| ratios.dav2m) < 1.07);
        assert!(mean(|ratios| ratios.oracle) < 1.01);
        assert!(most(|ratios| ratios.oracle) < 1.1);
    }
}

/// Prints the effect of each point that the paper leaves open.
#[test]
fn open_points_of_dav2m() {
    let changes = Changes::of(0.3);
    for choice in [
        "",
        "threshold_rise = 1.5",
        "threshold_rise = 4.0",
        "threshold_fall = 1.0",
        "prepaging = false",
        "window_prepaging = 2000000",
        "reset_outside_damping = false",
        "reset_at_switch = false",
        "smoothing_cpi = 10",
        "smooth_across_switch = true",
        "shadow_probe = \"window-vexit\"",
        "start = \"nested\"",
    ] {
        for (workload, windows) in workloads() {
            let parameters = Some(choice.parse().unwrap());
            let mut policy = registry::by_name("dav2m", parameters, &costs(), WINDOW).unwrap();
            let outcome = run(policy.as_mut(), &windows, changes, false);
            let relative = outcome.cycles / best_static(&windows, changes).total;
            let switches = outcome.switches;
            println!("open {choice:<32} {workload:<20} {relative:.4} {switches:>4}");
            // No choice makes DAV2M oscillate.
            assert!(switches <= 60, "{choice} {workload}");
        }
    }
}
