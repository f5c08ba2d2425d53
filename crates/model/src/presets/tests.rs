use std::collections::BTreeMap;

use super::*;
use crate::model::machine::{CacheLevel, WalkCache};

/// The words with which a source states its kind: see `docs/paging.md`.
const KINDS: [&str; 5] = [
    "published: ",
    "published, unchecked: ",
    "measured: ",
    "derived: ",
    "assumption: ",
];

/// Every leaf that is a number or a boolean, by its dotted path.
fn leaves(path: &str, value: &toml::Value, found: &mut Vec<String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                leaves(&path, value, found);
            }
        }
        toml::Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                leaves(&format!("{path}[{at}]"), value, found);
            }
        }
        toml::Value::String(_) | toml::Value::Datetime(_) => {}
        _ => found.push(path.to_owned()),
    }
}

fn leaves_of(name: &str) -> Vec<String> {
    let mut table: toml::Table = description(name).unwrap().parse().unwrap();
    table.remove("sources");
    let mut found = Vec::new();
    leaves("", &toml::Value::Table(table), &mut found);
    found
}

fn covers(key: &str, path: &str) -> bool {
    path.strip_prefix(key)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn uncovered(paths: &[String], sources: &BTreeMap<String, String>) -> Vec<String> {
    let is_covered = |path: &String| sources.keys().any(|key| covers(key, path));
    paths
        .iter()
        .filter(|path| !is_covered(path))
        .cloned()
        .collect()
}

#[test]
fn every_number_of_every_preset_has_a_source() {
    for name in names() {
        let machine = by_name(name).unwrap();
        let paths = leaves_of(name);
        assert!(paths.len() > 40, "{name}: {} numbers", paths.len());
        assert_eq!(
            uncovered(&paths, &machine.sources),
            Vec::<String>::new(),
            "{name}"
        );
    }
}

#[test]
fn the_search_for_sources_finds_what_has_none() {
    let paths = ["tlb.l1[0].ways", "tlb.l2_latency", "costs.exit"].map(str::to_owned);
    let sources = [("tlb.l1", ""), ("tlb.l2", ""), ("costs", "")]
        .map(|(key, source)| (key.to_owned(), source.to_owned()));
    assert_eq!(
        uncovered(&paths, &sources.into_iter().collect()),
        ["tlb.l2_latency"]
    );
}

#[test]
fn every_source_says_its_kind_and_belongs_to_a_field() {
    for name in names() {
        let machine = by_name(name).unwrap();
        let mut paths = leaves_of(name);
        paths.push("host_tables".to_owned());
        for (key, source) in &machine.sources {
            assert!(
                KINDS.iter().any(|kind| source.starts_with(kind)),
                "{name}: {key}: {source}"
            );
            assert!(
                paths.iter().any(|path| covers(key, path)),
                "{name}: {key} is not a field"
            );
        }
    }
}

#[test]
fn names_are_the_files_own() {
    for name in names() {
        let machine = by_name(name).unwrap();
        assert_eq!(machine.name, name);
        assert!(machine.title.contains("GHz"), "{name}: {}", machine.title);
    }
    assert_eq!(
        by_name("zen3").unwrap_err().to_string(),
        "machine: no machine is called \"zen3\"; did you mean zen4?"
    );
}

#[test]
fn latencies_and_capacities_rise_from_level_to_level() {
    for name in names() {
        let machine = by_name(name).unwrap();
        let rising = |of: &dyn Fn(&CacheLevel) -> u64| {
            machine
                .caches
                .windows(2)
                .all(|pair| of(&pair[0]) < of(&pair[1]))
        };
        assert!(rising(&|level| u64::from(level.latency)), "{name}");
        assert!(rising(&|level| level.bytes), "{name}");
        let last = machine.caches.last().unwrap();
        assert!(last.latency < machine.memory_latency, "{name}");
        assert!(machine.walk.latency < machine.caches[0].latency, "{name}");
        let entries = |arrays: &[crate::model::machine::TlbArray]| -> u32 {
            arrays.iter().map(|array| array.entries).sum()
        };
        assert!(
            entries(&machine.tlb.l1) < entries(&machine.tlb.l2),
            "{name}"
        );
    }
}

#[test]
fn page_table_lines_get_a_quarter_of_each_cache() {
    for name in names() {
        for level in by_name(name).unwrap().caches {
            let quarter = f64::from(level.ways) / 4.0;
            let off = (f64::from(level.pte_ways) - quarter).abs();
            assert!(off <= 0.5, "{name}: {level:?}");
        }
    }
}

#[test]
fn costs_keep_the_order_that_publications_give() {
    for name in names() {
        let machine = by_name(name).unwrap();
        let costs = &machine.costs;
        // The DAV2M paper, section 2: an exit and entry take more than 1,000 cycles.
        assert!(costs.exit > 1000, "{name}");
        // The DAV2M paper, figure 6: shadow to nested takes about half of the reverse.
        assert_eq!(costs.switch_to_nested * 2, costs.switch_to_shadow, "{name}");
        // Section 5: at most 100 ms with its transients, so less without them.
        let switch_s = f64::from(costs.switch_to_shadow) / machine.clock_hz;
        assert!(switch_s < 0.1, "{name}: {switch_s} s");
    }
}

#[test]
fn only_the_dav2m_papers_machines_run_without_tlb_tags() {
    let untagged: Vec<_> = names()
        .into_iter()
        .filter(|name| !by_name(name).unwrap().tlb.tagged)
        .collect();
    assert_eq!(untagged, ["opteron2350", "phenom2x550"]);
}

#[test]
fn the_opteron_is_the_one_of_figure_1() {
    let machine = by_name("opteron2350").unwrap();
    let shape: Vec<_> = machine
        .tlb
        .l1
        .iter()
        .chain(&machine.tlb.l2)
        .map(|array| (array.entries, array.ways))
        .collect();
    assert_eq!(shape, [(48, 48), (512, 4), (128, 2), (16, 8)]);
    let caches: Vec<_> = machine
        .caches
        .iter()
        .map(|level| (level.bytes >> 10, level.ways))
        .collect();
    assert_eq!(caches, [(512, 16), (2048, 32)]);
    let entries = |cache: &WalkCache| cache.entries;
    assert_eq!(machine.walk.nested_tlb.as_ref().map(entries), Some(16));
}

/// The single costs are the solution for PVM's published times, at 2.5 cycles a nanosecond.
#[test]
fn the_costs_of_the_xeon_solve_pvms_equations() {
    let machine = by_name("xeon8269cy").unwrap();
    let costs = &machine.costs;
    let cycles = |microseconds: f64| microseconds * machine.clock_hz / 1e6;
    let near = |sum: u32, microseconds: f64| {
        let expected = cycles(microseconds);
        assert!(
            (f64::from(sum) - expected).abs() <= 3.0,
            "{sum}, not {expected}"
        );
    };
    near(costs.exit, 0.46);
    near(costs.system_call, 0.06);
    near(costs.system_call + 2 * costs.guest_load_cr3, 0.22);
    near(2 * (costs.exit + costs.load_cr3), 2.09 - 0.22);
    near(costs.exit + costs.shadow_fill, 0.93 - 0.15);
    near(costs.exit + costs.other, 0.87);
    near(costs.exit + costs.table_write, 1.66);
    let loads = 2 * (costs.exit + costs.load_cr3);
    near(costs.exit + costs.reflect_fault + loads, 3.17 - 0.66);
}
