//! The names that the program goes by: its own, `vtax`, and those of earlier versions.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Command;

const HOST: &str = "vtax-host";
const VTAX: &str = "vtax";

/// The name for messages, and the words as this version has them.
pub fn as_host(mut words: Vec<OsString>) -> (&'static str, Vec<OsString>) {
    let program = words.first().map(Path::new).and_then(Path::file_name);
    let program = program.and_then(OsStr::to_str).unwrap_or(HOST).to_owned();
    let first = words.get(1).and_then(|word| word.to_str());
    let replaced: Option<&[&str]> = match (program.as_str(), first) {
        ("vtax-recorder", Some("list")) => Some(&["events"]),
        ("vtax-control", Some("run")) => Some(&["paging", "control"]),
        ("vtax-control", Some("watch")) => Some(&["paging", "watch"]),
        _ => None,
    };
    if let Some(replaced) = replaced {
        words.splice(1..2, replaced.iter().map(OsString::from));
    } else if program == "vtax-place" {
        words.insert(1, "place".into());
    }
    (if program == VTAX { VTAX } else { HOST }, words)
}

/// The verb that these words name, with the program's name: `vtax paging switch`.
pub fn verb(command: &Command, words: &[OsString]) -> String {
    let mut name = command.get_name().to_owned();
    let mut at = command;
    for word in words.iter().skip(1) {
        let Some(next) = at.find_subcommand(word) else {
            break;
        };
        name = format!("{name} {}", next.get_name());
        at = next;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(words: &[&str]) -> (String, Vec<String>) {
        let (name, words) = as_host(words.iter().map(OsString::from).collect());
        let words = words.iter().skip(1);
        let words = words.map(|word| word.to_string_lossy().into_owned());
        (name.to_owned(), words.collect())
    }

    #[test]
    fn earlier_names_mean_the_same_verbs() {
        for (words, now) in [
            (
                &["/x/vtax-recorder", "list", "--json"][..],
                &["events", "--json"][..],
            ),
            (
                &["vtax-recorder", "record", "--", "run"],
                &["record", "--", "run"],
            ),
            (&["vtax-place", "undo"], &["place", "undo"]),
            (
                &["vtax-control", "run", "--json"],
                &["paging", "control", "--json"],
            ),
            (&["vtax-control", "watch"], &["paging", "watch"]),
            (&["vtax-host", "paging", "watch"], &["paging", "watch"]),
        ] {
            assert_eq!(
                host(words),
                (
                    HOST.to_owned(),
                    now.iter().map(ToString::to_string).collect()
                )
            );
        }
    }

    #[test]
    fn vtax_is_called_as_the_user_called_it() {
        assert_eq!(host(&["vtax", "record"]).0, VTAX);
    }
}
