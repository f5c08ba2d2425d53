//! Parses the argument of `--events`.

use std::collections::BTreeSet;

use super::Event;
use vtax_sys::terminal::Error;

/// The word for the events that are recorded by default.
const DEFAULT: &str = "default";
/// How similar a name must be, from 0 to 1, to be suggested.
const ALIKE: f64 = 0.7;
/// The most suggestions shown.
const SHOWN: usize = 3;

/// One event that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub event: Event,
    /// Asked for by its own name, so that it must be available.
    pub by_name: bool,
}

/// The events of a list of names: an event, a layer or part of a name before a dot, or `default`.
///
/// Fails when a word matches no event, or when the list has no word.
pub fn select(all: &[Event], list: &str) -> Result<Vec<Choice>, Error> {
    let mut chosen = vec![None; all.len()];
    for word in list
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        let mut found = false;
        for (event, mark) in all.iter().zip(&mut chosen) {
            if matches(event, word) {
                found = true;
                let by_name = event.name == word || *mark == Some(true);
                *mark = Some(by_name);
            }
        }
        if !found {
            return Err(unknown(all, word));
        }
    }
    let chosen: Vec<Choice> = all
        .iter()
        .zip(chosen)
        .filter_map(|(event, mark)| {
            mark.map(|by_name| Choice {
                event: event.clone(),
                by_name,
            })
        })
        .collect();
    if chosen.is_empty() {
        return Err(Error::misuse(
            "--events",
            "no event is named",
            "see vtax record --list",
        ));
    }
    Ok(chosen)
}

/// Does a word of the list name the event?
pub(super) fn matches(event: &Event, word: &str) -> bool {
    let inside = |rest: &str| rest.starts_with('.');
    event.name == word
        || (word == DEFAULT && event.default)
        || event.name.strip_prefix(word).is_some_and(inside)
}

fn unknown(all: &[Event], word: &str) -> Error {
    let reason = unlike(all, word);
    Error::misuse(format!("event {word}"), reason, "see vtax record --list")
}

/// That no event has this name, and which names are near.
pub fn unlike(all: &[Event], word: &str) -> String {
    let mut names: BTreeSet<&str> = all.iter().map(|event| event.name.as_str()).collect();
    names.extend(all.iter().map(Event::layer));
    let mut near: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(name, word), name))
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let near: Vec<&str> = near.into_iter().take(SHOWN).map(|(_, name)| name).collect();
    if near.is_empty() {
        "no such event".to_owned()
    } else {
        format!("no such event; the nearest: {}", near.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::sources;
    use proptest::prelude::*;

    fn names(list: &str) -> Vec<String> {
        let chosen = select(&sources::all(), list).unwrap();
        chosen.into_iter().map(|choice| choice.event.name).collect()
    }

    #[test]
    fn layers_and_names_are_taken_once() {
        let irq = names("irq");
        assert_eq!(irq[0], "irq.device");
        assert_eq!(names("irq,irq.device"), irq);
        assert!(
            names("kvm.exit")
                .iter()
                .all(|name| name.starts_with("kvm.exit."))
        );
        assert!(names("default").contains(&"sched.switches".to_owned()));
    }

    #[test]
    fn an_unknown_event_names_the_nearest() {
        let error = select(&sources::all(), "kvm.exit.nfp").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("kvm.exit.npf"), "{error}");
        let error = select(&sources::all(), "shced").unwrap_err().to_string();
        assert!(error.contains("sched"), "{error}");
        assert!(select(&sources::all(), ",").is_err());
    }

    proptest! {
        #[test]
        fn any_list_is_answered(list in ".{0,30}") {
            let _ = select(&sources::all(), &list);
        }
    }
}
