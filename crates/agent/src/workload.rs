//! Runs a built-in workload: `vtax-agent workload` (docs/environments.md).
//!
//! The command line is made from the table of `vtax-workloads`, so that a new workload needs
//! no line here.

use std::ffi::{CString, OsString};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value as Json, json};
use vtax_workloads as workloads;
use vtax_workloads::{
    Bound, Context, Description, Kind, OptionSpec, Parameters, Program, Report, Value, WORKLOADS,
    Workload,
};

use crate::facts;
use vtax_sys::terminal::{Error, output, units};
use vtax_sys::tree::Tree;

/// The word before the exit code in the hidden command that fork-exec-storm starts.
const NOOP: &str = "--noop";

#[derive(Debug)]
pub struct WorkloadArguments {
    json: bool,
    action: Action,
}

#[derive(Debug)]
enum Action {
    List,
    Run {
        name: String,
        bound: Option<Bound>,
        parameters: Parameters,
    },
}

/// The exit code of `workload --noop CODE`; `None`: another command was given.
///
/// Check this before anything else, so that the process is as small as possible.
pub fn noop_code(mut arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    if arguments.next()? != "workload" || arguments.next()? != NOOP {
        return None;
    }
    arguments.next()?.to_str()?.parse().ok()
}

impl Args for WorkloadArguments {
    fn augment_args(command: Command) -> Command {
        let list = Arg::new("list")
            .long("list")
            .action(ArgAction::SetTrue)
            .help("List the workloads");
        let json = Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .global(true)
            .help("Print JSON");
        command
            .about("Run a built-in workload that checks its own work")
            .after_help("Examples:\n  vtax-agent workload --list\n  vtax-agent workload random-touch --mem 64M --seconds 5 --json")
            .args([list, json])
            .subcommand_value_name("WORKLOAD")
            .subcommand_help_heading("Workloads")
            .disable_help_subcommand(true)
            .subcommands(WORKLOADS.iter().map(|workload| command_of(workload.description())))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn command_of(description: &'static Description) -> Command {
    let count = Arg::new("count")
        .long("count")
        .value_name("N")
        .value_parser(clap::value_parser!(u64).range(1..))
        .conflicts_with("seconds")
        .help(format!("End after this many {}", description.unit));
    let seconds = Arg::new("seconds")
        .long("seconds")
        .value_name("TIME")
        .value_parser(units::duration)
        .help("End after this time");
    Command::new(description.name)
        .about(description.summary)
        .after_help(format!(
            "Translation: {}.\nWithout --count and --seconds: {}.",
            description.stresses,
            bound_text(description)
        ))
        .args(description.options.iter().map(option_argument))
        .args([count, seconds])
}

fn option_argument(option: &'static OptionSpec) -> Arg {
    let argument = Arg::new(option.name).long(option.name).help(option.help);
    if option.kind == Kind::Flag {
        return argument.action(ArgAction::SetTrue);
    }
    let kind = option.kind;
    let argument = argument
        .value_name(value_name(kind))
        .value_parser(move |text: &str| kind.parse(text));
    match option.default {
        Some(default) => argument.default_value(default),
        None => argument,
    }
}

fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bytes => "SIZE",
        Kind::Number(..) | Kind::Flag => "NUMBER",
        Kind::Address => "HOST:PORT",
    }
}

impl FromArgMatches for WorkloadArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let action = match matches.subcommand() {
            Some((name, matches)) => run_action(name, matches)?,
            None if matches.get_flag("list") => Action::List,
            None => return Err(misuse("no workload is named; --list shows all workloads")),
        };
        let json = matches.get_flag("json");
        Ok(Self { json, action })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn run_action(name: &str, matches: &ArgMatches) -> Result<Action, clap::Error> {
    let workload = workloads::find(name).ok_or_else(|| misuse("no such workload"))?;
    let given = |option: &OptionSpec| match option.kind {
        Kind::Flag => Some(Value::Flag(matches.get_flag(option.name))),
        _ => matches.get_one::<Value>(option.name).cloned(),
    };
    let parameters =
        Parameters::new(workload.description().options, given).map_err(|text| misuse(&text))?;
    let count = matches.get_one("count").copied().map(Bound::Count);
    let time = matches.get_one("seconds").copied().map(Bound::Time);
    Ok(Action::Run {
        name: name.to_owned(),
        bound: count.or(time),
        parameters,
    })
}

fn misuse(text: &str) -> clap::Error {
    clap::Error::raw(
        clap::error::ErrorKind::MissingSubcommand,
        format!("{text}\n"),
    )
}

/// List the workloads, or run one and print its report.
///
/// Fails when no workload has the name, when the workload fails or its check finds wrong results,
/// and when the standard output cannot be written.
pub fn carry_out(arguments: &WorkloadArguments) -> Result<(), Error> {
    match &arguments.action {
        Action::List if arguments.json => output::json(&list_json()),
        Action::List => output::line(&list_text()),
        Action::Run {
            name,
            bound,
            parameters,
        } => {
            let report = run(name, *bound, parameters)?;
            if arguments.json {
                output::json(&report)?;
            } else {
                output::line(&report_text(&report))?;
            }
            if report.verified {
                Ok(())
            } else {
                Err(wrong(&report))
            }
        }
    }
}

fn run(name: &str, bound: Option<Bound>, parameters: &Parameters) -> Result<Report, Error> {
    let workload: &dyn Workload = workloads::find(name)
        .ok_or_else(|| Error::misuse(name, "no such workload", "see --list"))?;
    workloads::end_on_signals()
        .map_err(|errno| Error::failure("sigaction", errno.desc(), "report this as a bug"))?;
    let announce = |text: &str| eprintln!("vtax-agent: {name}: {text}");
    let context = Context {
        trivial_program: this_program(),
        available_bytes: facts::available_bytes(&Tree::host()),
        announce: &announce,
    };
    let bound = bound.unwrap_or(workload.description().default_bound);
    workloads::run(workload, parameters, bound, &context)
}

pub(crate) fn this_program() -> Program {
    let words = ["vtax-agent", "workload", NOOP];
    Program {
        path: c"/proc/self/exe".into(),
        arguments: words
            .iter()
            .filter_map(|word| CString::new(*word).ok())
            .collect(),
    }
}

fn wrong(report: &Report) -> Error {
    Error::failure(
        report.workload,
        "its check found wrong results, see the details",
        "no result of this machine can be trusted",
    )
}

fn bound_text(description: &Description) -> String {
    match description.default_bound {
        Bound::Count(count) => format!("--count {count}"),
        Bound::Time(time) => format!("--seconds {}", time.as_secs_f64()),
    }
}

fn list_text() -> String {
    let blocks = WORKLOADS.iter().map(|workload| {
        let description = workload.description();
        let options = description.options.iter().map(option_text);
        let options: Vec<String> = options.chain([bound_text(description)]).collect();
        format!(
            "{}\n  {}.\n  Translation: {}.\n  Options and defaults: {}",
            description.name,
            description.summary,
            description.stresses,
            options.join(", ")
        )
    });
    blocks.collect::<Vec<_>>().join("\n")
}

fn option_text(option: &OptionSpec) -> String {
    match option.default {
        Some(default) => format!("--{} {default}", option.name),
        None if option.kind == Kind::Flag => format!("[--{}]", option.name),
        None => format!("[--{} {}]", option.name, value_name(option.kind)),
    }
}

fn list_json() -> Json {
    let entries = WORKLOADS.iter().map(|workload| {
        let description = workload.description();
        let (count, seconds) = match description.default_bound {
            Bound::Count(count) => (Some(count), None),
            Bound::Time(time) => (None, Some(time.as_secs_f64())),
        };
        json!({
            "name": description.name,
            "summary": description.summary,
            "stresses": description.stresses,
            "unit": description.unit,
            "default_count": count,
            "default_seconds": seconds,
            "options": description.options.iter().map(option_json).collect::<Vec<_>>(),
        })
    });
    entries.collect()
}

fn option_json(option: &OptionSpec) -> Json {
    json!({
        "name": option.name,
        "value": (option.kind != Kind::Flag).then(|| value_name(option.kind)),
        "default": option.default,
        "help": option.help,
    })
}

fn report_text(report: &Report) -> String {
    let rate = report.operations_per_s.map_or_else(
        || "too fast to measure".to_owned(),
        |rate| format!("{rate:.1} per s"),
    );
    format!(
        "{}: {} {} in {:.6} s, {rate}, {}\n  \
         user {:.6} s, system {:.6} s, {} minor faults, checksum {}\n  \
         parameters: {}\n  details: {}",
        report.workload,
        report.operations,
        report.unit,
        report.wall_s,
        if report.verified { "verified" } else { "WRONG" },
        report.user_s,
        report.system_s,
        report.minor_faults,
        report.checksum.as_deref().unwrap_or("-"),
        pairs(&report.parameters),
        pairs(&report.details),
    )
}

fn pairs(fields: &Map<String, Json>) -> String {
    let pairs = fields.iter().map(|(name, value)| match value {
        Json::String(text) => format!("{name}={text}"),
        Json::Null => format!("{name}=-"),
        value => format!("{name}={value}"),
    });
    pairs.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noop(words: &[&str]) -> Option<u8> {
        noop_code(words.iter().map(OsString::from))
    }

    #[test]
    fn only_the_hidden_form_is_a_noop() {
        assert_eq!(noop(&["workload", "--noop", "7"]), Some(7));
        for words in [
            &["workload", "--noop"][..],
            &["workload", "--noop", "256"],
            &["workload", "--list"],
            &["run", "--noop", "7"],
            &[],
        ] {
            assert_eq!(noop(words), None, "{words:?}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        WorkloadArguments::augment_args(Command::new("workload")).debug_assert();
    }
}
