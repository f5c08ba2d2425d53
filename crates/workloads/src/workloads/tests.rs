//! Every workload of the table runs, repeats itself, and refuses what it cannot do.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::bound::Bound;
use crate::job::Context;
use crate::options::{Kind, OptionSpec, Parameters, Value};
use crate::report::{Report, run};
use vtax_sys::calls::children::Program;
use vtax_sys::terminal::Error;

/// The context of the tests: a shell is the trivial program.
pub(super) fn context() -> Context<'static> {
    Context {
        trivial_program: Program {
            path: c"/bin/sh".into(),
            arguments: vec![c"sh".into(), c"-c".into(), c"exit $0".into()],
        },
        available_bytes: None,
        announce: &|_| {},
    }
}

/// The workloads that end by themselves without a peer or a folder.
fn alone() -> impl Iterator<Item = &'static dyn Workload> {
    let others = ["round-trip", "echo"];
    let workloads = WORKLOADS.iter().copied();
    workloads.filter(move |workload| !others.contains(&workload.description().name))
}

fn parameters(workload: &dyn Workload, seed: u64, mem: u64) -> Parameters {
    let given = |option: &OptionSpec| match option.name {
        "seed" => Some(Value::Number(seed)),
        "mem" => Some(Value::Number(mem)),
        "size" => Some(Value::Number(70)),
        _ => None,
    };
    Parameters::new(workload.description().options, given).unwrap()
}

fn small(workload: &dyn Workload, seed: u64, count: u64) -> Report {
    let parameters = parameters(workload, seed, 256 << 10);
    run(workload, &parameters, Bound::Count(count), &context()).unwrap()
}

#[test]
fn same_seed_and_count_give_the_same_checksum_and_others_do_not() {
    for workload in alone() {
        let name = workload.description().name;
        let first = small(workload, 1, 40);
        assert!(first.verified, "{name}: {:?}", first.details);
        assert_eq!(first.operations, 40, "{name}");
        assert_eq!(first.checksum, small(workload, 1, 40).checksum, "{name}");
        if first.checksum.is_some() {
            assert_ne!(first.checksum, small(workload, 2, 40).checksum, "{name}");
            // Every multiplication has the same product.
            if name != "dgemm" {
                assert_ne!(first.checksum, small(workload, 1, 41).checksum, "{name}");
            }
        }
    }
}

#[test]
fn time_bounds_every_workload() {
    for workload in alone() {
        let parameters = parameters(workload, 1, 256 << 10);
        let bound = Bound::Time(Duration::from_millis(60));
        let report = run(workload, &parameters, bound, &context()).unwrap();
        let name = workload.description().name;
        assert!(report.verified && report.operations > 0, "{name}");
        assert!(report.wall_s >= 0.06 && report.wall_s < 5.0, "{name}");
    }
}

#[test]
fn more_memory_than_there_is_is_refused_with_a_remedy() {
    for workload in WORKLOADS {
        let description = workload.description();
        if !description
            .options
            .iter()
            .any(|option| option.name == "mem")
        {
            continue;
        }
        let parameters = parameters(*workload, 1, 1 << 30);
        let context = Context {
            available_bytes: Some(1 << 20),
            ..context()
        };
        let error = run(*workload, &parameters, Bound::Count(1), &context).unwrap_err();
        assert!(matches!(error, Error::Failure { .. }), "{error}");
        assert!(error.to_string().contains("--mem"), "{error}");
    }
}

#[test]
fn descriptions_are_usable() {
    let names: BTreeSet<_> = WORKLOADS.iter().map(|w| w.description().name).collect();
    assert_eq!(names.len(), WORKLOADS.len());
    for name in names {
        let description = find(name).unwrap().description();
        for option in description.options {
            let default = option.default.map(|text| option.kind.parse(text));
            assert!(
                default.is_none_or(|value| value.is_ok()),
                "{name} {option:?}"
            );
            assert!(
                option.kind != Kind::Flag || option.default.is_none(),
                "{name}"
            );
        }
        assert!(!description.summary.contains("  ") && !description.stresses.contains("  "));
    }
    assert!(find("no-such-workload").is_none());
}
