//! What the user should know about a recording.

use super::{Column, Events, Facts, Rotation, rotation};
use crate::record::consumer::Consumer;
use crate::record::page_samples::PageSamples;
use crate::record::plan::Unavailable;
use crate::record::sources::counters::grouping::CROWDED;

/// All warnings, one line each.
pub(super) fn all(facts: &Facts<'_>, consumer: &Consumer, events: &Events<'_>) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    warnings.extend(consumer.samples().iter().filter_map(PageSamples::warning));
    warnings.extend(facts.no_instructions.clone());
    warnings.extend(facts.running.warning());
    let (times, stopped_ns) = facts.throttling.total();
    warnings.extend(throttled(times, stopped_ns, facts.max_sample_rate));
    warnings.extend(rate_changed(facts.max_sample_rate));
    warnings.extend(facts.unlimited.as_ref().map(|reason| {
        format!("the command's processes are not limited by a control group: {reason}")
    }));
    let away: std::collections::BTreeSet<u32> = facts.gaps.iter().map(|gap| gap.cpu).collect();
    for cpu in away {
        warnings.push(format!(
            "CPU {cpu} was away for a part of the recording and made no rows then"
        ));
    }
    let (_, lost, _) = consumer.rows();
    if lost > 0 {
        warnings.push(format!(
            "{lost} rows were lost; their counts are in the rows after them"
        ));
    }
    warnings.extend(crowded_out(events.unavailable));
    warnings.extend(turns_taken(rotation(facts, consumer).as_ref(), events));
    warnings.extend(events.columns.iter().filter_map(taken_by_others));
    warnings.extend(consumer.watched().warnings());
    warnings
}

/// The warning that the reference event stood still.
fn throttled(times: u64, stopped_ns: u64, rates: [Option<u64>; 2]) -> Option<String> {
    let rate = rates[1].map_or_else(String::new, |rate| format!(", now {rate}"));
    (times > 0).then(|| {
        format!(
            "perf's throttling stopped the reference event {times} times, for {} us together: rows \
             after it are longer (throttled_ns); take a longer interval, or raise \
             kernel.perf_event_max_sample_rate{rate}",
            stopped_ns / 1000
        )
    })
}

/// The warning that the kernel changed its limit, which it lowers when interrupts take too long.
fn rate_changed(rates: [Option<u64>; 2]) -> Option<String> {
    let [Some(begin), Some(end)] = rates else {
        return None;
    };
    (begin != end).then(|| {
        format!(
            "kernel.perf_event_max_sample_rate went from {begin} to {end} while it recorded: the \
             kernel lowers it when interrupts take more than kernel.perf_cpu_time_max_percent"
        )
    })
}

/// The warning about events that would have had columns at another time; events that the machine
/// never has need no warning.
fn crowded_out(unavailable: &[Unavailable]) -> Option<String> {
    let mut names = unavailable
        .iter()
        .filter(|event| event.reason == CROWDED)
        .map(|event| event.name.as_str());
    let first = names.next()?;
    let more = match names.count() {
        0 => "is".to_owned(),
        others => format!("and {others} more are"),
    };
    Some(format!("{first} {more} not recorded: {CROWDED}"))
}

/// The warning about the coverage of columns that took turns; none without a row.
fn turns_taken(rotation: Option<&Rotation>, events: &Events<'_>) -> Option<String> {
    let rotation = rotation?;
    let names: Vec<&String> = rotation.groups.iter().flatten().collect();
    let columns = events.columns.iter();
    let coverage = columns
        .filter(|column| names.iter().any(|name| *name == column.name))
        .filter_map(|column| Some(100.0 * column.coverage?));
    let range = coverage.fold(None, |range, one: f64| {
        let (least, most) = range.unwrap_or((one, one));
        Some((one.min(least), one.max(most)))
    });
    let (least, most) = range?;
    Some(format!(
        "{} events were more than the counters: {} groups took turns, each column has values in \
         {least:.1} to {most:.1} % of the time, and no sum of one is a total of the run",
        names.len(),
        rotation.groups.len()
    ))
}

/// The warning about a counter that was missing in its turn: its column has less coverage than its
/// group.
fn taken_by_others(column: &Column<'_>) -> Option<String> {
    let share = column.running.filter(|running| *running < 1.0)?;
    Some(format!(
        "{} had its counter in {:.1} % of the time that it needed it (others use the PMU too): no \
         sum of it is a total of the run",
        column.name,
        100.0 * share
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sources::Unit;
    use crate::record::summary::Kind;

    fn column(name: &str, coverage: Option<f64>, running: Option<f64>) -> Column<'_> {
        Column {
            name,
            about: "",
            source: "hw",
            unit: Unit::Count,
            kind: Kind::Delta,
            sum: 1,
            after_last_row: None,
            rows: 1,
            coverage,
            running,
        }
    }

    #[test]
    fn the_coverage_of_columns_that_took_turns_is_said() {
        let names = ["hw.a", "hw.b", "hw.c"].map(str::to_owned);
        let rotation = Rotation {
            groups: names.chunks(2).map(<[String]>::to_vec).collect(),
            turns: 7,
        };
        let events = Events {
            columns: vec![
                column("hw.a", Some(0.41), None),
                column("hw.b", Some(0.4), None),
                column("hw.c", Some(0.0), None),
                column("sched.switches", Some(1.0), None),
            ],
            unavailable: &[],
        };
        let said = turns_taken(Some(&rotation), &events).unwrap();
        assert!(said.starts_with("3 events were more"), "{said}");
        assert!(
            said.contains("2 groups") && said.contains("0.0 to 41.0 %"),
            "{said}"
        );
        assert_eq!(turns_taken(None, &events), None);
        let without_rows = Events {
            columns: vec![column("hw.a", None, None)],
            unavailable: &[],
        };
        assert_eq!(turns_taken(Some(&rotation), &without_rows), None);
    }

    #[test]
    fn events_without_a_counter_are_said_and_those_of_other_machines_are_not() {
        let events = |reasons: &[(&str, &str)]| -> Vec<Unavailable> {
            let named = reasons.iter().map(|(name, reason)| Unavailable {
                name: (*name).to_owned(),
                reason: (*reason).to_owned(),
            });
            named.collect()
        };
        assert_eq!(crowded_out(&events(&[("hw.a", "no such counter")])), None);
        let one = crowded_out(&events(&[("hw.b", CROWDED), ("hw.a", "no such counter")])).unwrap();
        assert!(one.starts_with("hw.b is not recorded: others"), "{one}");
        let two = crowded_out(&events(&[("hw.b", CROWDED), ("hw.c", CROWDED)])).unwrap();
        assert!(two.starts_with("hw.b and 1 more are not"), "{two}");
    }

    #[test]
    fn a_counter_that_others_take_is_named() {
        let taken = taken_by_others(&column("hw.a", Some(0.4), Some(0.5))).unwrap();
        assert!(
            taken.starts_with("hw.a had its counter in 50.0 %"),
            "{taken}"
        );
        for running in [None, Some(1.0)] {
            assert_eq!(taken_by_others(&column("hw.a", Some(0.4), running)), None);
        }
    }
}
