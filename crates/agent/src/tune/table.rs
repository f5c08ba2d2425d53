//! The answer for people.

use std::fmt::Write;

use serde_json::{Map, Value};
use vtax_tuner::cache_edge::CacheEdge;
use vtax_tuner::statistics::Spread;

use crate::tune::Answer;

/// A table of the routines, or of the cache edges, then the notes.
pub fn describe(answer: &Answer) -> String {
    let mut text = String::new();
    if !answer.routines.is_empty() {
        let _ = writeln!(
            text,
            "{:<10} {:>9}  {:<16} parameters",
            "routine", "GFLOP/s", "95 % interval"
        );
    }
    for routine in &answer.routines {
        let _ = writeln!(
            text,
            "{}",
            row(&routine.routine, &routine.spread, &routine.fields)
        );
        for rival in &routine.rivals {
            let _ = writeln!(text, "{}", row("  rival", &rival.spread, &rival.fields));
        }
        for rejected in &routine.rejected {
            let fields = named(&rejected.fields);
            let _ = writeln!(text, "  rejected: {fields}: {}", rejected.why);
        }
    }
    if let Some(found) = &answer.cache_edge {
        edges(&mut text, found);
    }
    for note in &answer.notes {
        let _ = writeln!(text, "note: {note}");
    }
    // The forms of GEMM share one search.
    let searches = answer.routines.iter();
    let searches = searches.filter(|one| !["_nt", "_tn", "_tt"].contains(&ending(&one.routine)));
    let trials: usize = searches.map(|one| one.trials).sum();
    let end = if answer.complete {
        ""
    } else {
        ", ended by the budget"
    };
    let threads = answer.threads;
    let _ = write!(
        text,
        "size {}, {threads} thread{}, {trials} candidates ({} from the log), {:.1} s{end}",
        answer.size,
        if threads == 1 { "" } else { "s" },
        answer.resumed,
        answer.seconds,
    );
    text
}

fn ending(name: &str) -> &str {
    name.find('_').map_or("", |at| &name[at..])
}

fn row(name: &str, spread: &Spread, fields: &Map<String, Value>) -> String {
    let interval = interval(spread);
    format!(
        "{name:<10} {:>9.2}  {interval:<16} {}",
        spread.gflops,
        named(fields)
    )
}

fn interval(spread: &Spread) -> String {
    match (spread.low, spread.high) {
        (Some(low), Some(high)) => format!("{low:.2} to {high:.2}"),
        _ => format!("{} runs", spread.runs),
    }
}

fn named(fields: &Map<String, Value>) -> String {
    let each = fields.iter().map(|(name, value)| match value {
        Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    });
    each.collect::<Vec<_>>().join(" ")
}

fn edges(text: &mut String, found: &CacheEdge) {
    let _ = writeln!(
        text,
        "{:>9} {:>9}  {:<16} chosen",
        "KiB", "GFLOP/s", "95 % interval"
    );
    let mut line = |name: &str, spread: &Spread, bytes: Option<u64>| {
        let times = found
            .chosen
            .iter()
            .filter(|chosen| **chosen == bytes)
            .count();
        let interval = interval(spread);
        let _ = writeln!(
            text,
            "{name:>9} {:>9.2}  {interval:<16} {times}",
            spread.gflops
        );
    };
    if let Some(alone) = &found.l1_only {
        line("L1 only", alone, None);
    }
    for point in &found.points {
        line(
            &(point.bytes >> 10).to_string(),
            &point.spread,
            Some(point.bytes),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tune::answer::{Rejected, Rival, Tuned};

    #[test]
    fn a_reader_sees_the_winner_its_rivals_and_why_something_was_rejected() {
        let fields = |nb: u32| {
            json!({"NB": nb, "VECTOR": "sse2"})
                .as_object()
                .unwrap()
                .clone()
        };
        let spread = |gflops: f64| Spread::of(&[gflops; 6]).unwrap();
        let answer = Answer {
            agent: "1",
            processor: vtax_tuner::Processor::this(),
            start: None,
            threads: 2,
            size: 320,
            seconds: 1.5,
            budget_s: 60.0,
            complete: false,
            resumed: 3,
            routines: vec![Tuned {
                routine: "dgemm_nn".into(),
                fields: fields(64),
                spread: spread(12.5),
                trials: 7,
                rejected: vec![Rejected {
                    fields: fields(1),
                    why: "wrong result".into(),
                }],
                rivals: vec![Rival {
                    fields: fields(96),
                    spread: Spread::of(&[12.0]).unwrap(),
                }],
            }],
            cache_edge: None,
            notes: vec!["something".into()],
        };
        let text = describe(&answer);
        for said in [
            "dgemm_nn       12.50  12.50 to 12.50   NB=64 VECTOR=sse2",
            "  rival        12.00  1 runs           NB=96",
            "rejected: NB=1 VECTOR=sse2: wrong result",
            "note: something",
            "size 320, 2 threads, 7 candidates (3 from the log), 1.5 s, ended by the budget",
        ] {
            assert!(text.contains(said), "{said} is not in\n{text}");
        }
    }
}
