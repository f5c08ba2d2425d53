//! The kinds of cores of this machine: one classification for every part that makes plans
//! (docs/place-format.md).
//!
//! [`read`] reads what Linux says, [`cut`] turns numbers into kinds, [`classify`] decides which
//! numbers to believe, and [`choose`] takes what a user names instead.

pub mod choose;
mod classify;
pub mod cut;
pub mod read;

use serde::Serialize;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::place::cores::classify::Found;
use crate::place::cores::cut::{count, median};
use crate::place::cores::read::{Core, cores};
use crate::place::cpus::{isolated, online, written};

/// What a second hardware thread adds, as a share of a core: Linux's own estimate until 2018
/// (`smt_gain` = 1178 of 1024, kernel/sched/topology.c).
const SIBLING: f64 = 0.15;
/// A core is favoured when its number is this much above most of its kind.
const FAVOURED: f64 = 1.02;

/// Cores of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kind {
    /// `fast`, `slow`; between them `medium`, or `medium-1` and so on.
    pub name: String,
    /// Speed in percent of the fastest kind; `None`: unknown.
    pub speed_percent: Option<f64>,
    /// The CPUs, in the kernel's list format.
    #[serde(serialize_with = "as_list")]
    pub cpus: Vec<usize>,
    /// CPUs with a higher number than most of the kind: the kernel prefers them for a single
    /// thread.
    #[serde(serialize_with = "as_list")]
    pub favoured: Vec<usize>,
    pub cores: usize,
    /// How many cores they are worth, with each further hardware thread counted as 0.15 of a core.
    pub worth: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cores {
    /// The fastest kind first; one kind where all cores are alike, none where the kernel lists no
    /// CPU.
    pub kinds: Vec<Kind>,
    /// How the kinds are known; `None` where all cores are alike.
    pub source: Option<String>,
    /// CPUs that are kept free of other work (`isolcpus`): they are in no kind, unless a user names
    /// them.
    #[serde(serialize_with = "as_list")]
    pub isolated: Vec<usize>,
    /// CPUs of unknown kind.
    #[serde(serialize_with = "as_list")]
    pub unknown: Vec<usize>,
    /// The CPUs of each core that has several online CPUs.
    #[serde(serialize_with = "as_lists")]
    pub siblings: Vec<Core>,
    /// What a second hardware thread is worth, as a share of a core.
    pub sibling: f64,
    /// What to know before believing the result.
    pub notes: Vec<String>,
}

fn as_list<S: serde::Serializer>(cpus: &[usize], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&written(cpus))
}

fn as_lists<S: serde::Serializer>(cores: &[Core], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(cores.iter().map(|core| written(core)))
}

impl Cores {
    /// The cores of this machine, as Linux shows them.
    pub fn of(tree: &Tree) -> Self {
        let on = online(tree);
        let all = cores(tree, &on);
        let isolated = set_apart(tree, &on);
        let mut found = Found::of(tree, &all);
        let groups: Vec<Group> = (0..count(&found.of))
            .map(|kind| Group::of(&found, &all, Some(kind), &isolated))
            .filter(|group| !group.cores.is_empty())
            .collect();
        let unknown = sorted(&Group::of(&found, &all, None, &isolated).cores);
        for (cpus, what) in [
            (&unknown, "its kind is unknown, so no plan uses it"),
            (
                &isolated,
                "isolated (isolcpus), so no plan uses it unless you name it",
            ),
        ] {
            if !cpus.is_empty() {
                found.notes.push(format!("CPU {}: {what}", written(cpus)));
            }
        }
        Self {
            source: found.source.filter(|_| groups.len() > 1),
            kinds: kinds(&groups),
            isolated,
            unknown,
            siblings: all.into_iter().filter(|core| core.len() > 1).collect(),
            sibling: SIBLING,
            notes: found.notes,
        }
    }

    /// Two kinds that a user names; the other CPUs are not planned for. Speeds are set where they
    /// are known.
    pub fn named(tree: &Tree, pair: &choose::Pair) -> Self {
        let kind = |name: &str, cpus: &[usize], speed_percent| Kind {
            name: name.into(),
            speed_percent,
            ..Kind::new(&cores(tree, cpus), &[])
        };
        let here = Self::of(tree);
        let named = |cpu: &usize| pair.fast.contains(cpu) || pair.slow.contains(cpu);
        let rest = |cpus: Vec<usize>| cpus.into_iter().filter(|cpu| !named(cpu)).collect();
        Self {
            kinds: vec![
                kind("fast", &pair.fast, Some(100.0)),
                kind("slow", &pair.slow, pair.speed_percent),
            ],
            source: Some("named by --fast and --slow".into()),
            isolated: rest(here.isolated),
            unknown: Vec::new(),
            siblings: here.siblings,
            sibling: SIBLING,
            notes: Vec::new(),
        }
    }

    /// With the slow cores' speed as a user gives it.
    ///
    /// Fails where there are more than two kinds.
    pub fn with_speed(mut self, percent: Option<f64>) -> Result<Self, Error> {
        let kinds = self.kinds.len();
        if percent.is_some() && kinds > 2 {
            let reason = format!("this machine has {kinds} kinds of cores");
            let remedy = "name two with --fast and --slow";
            return Err(Error::misuse("--slow-speed", reason, remedy));
        }
        if let Some(slow) = self.kinds.get_mut(1) {
            slow.speed_percent = percent.or(slow.speed_percent);
        }
        Ok(self)
    }

    /// Are there different kinds of cores?
    pub fn differ(&self) -> bool {
        self.kinds.len() > 1
    }
}

impl Kind {
    fn new(cores: &[Core], favoured: &[Core]) -> Self {
        let cpus = sorted(cores);
        Self {
            name: String::new(),
            speed_percent: None,
            cpus,
            favoured: sorted(favoured),
            cores: cores.len(),
            worth: worth(cores),
        }
    }
}

/// Cores of one kind.
struct Group {
    /// The cores, without isolated CPUs.
    cores: Vec<Core>,
    favoured: Vec<Core>,
    /// The median of their numbers.
    middle: Option<f64>,
}

impl Group {
    fn of(found: &Found, all: &[Core], kind: Option<usize>, isolated: &[usize]) -> Self {
        let own: Vec<(&Core, Option<f64>)> = all
            .iter()
            .zip(&found.numbers)
            .zip(&found.of)
            .filter(|(_, of)| **of == kind)
            .map(|((core, number), _)| (core, *number))
            .collect();
        let middle = median(own.iter().filter_map(|(_, number)| *number));
        let planned = |above: Option<f64>| -> Vec<Core> {
            let some = own.iter().filter(|(_, number)| {
                above.is_none_or(|least| number.is_some_and(|one| one > least))
            });
            some.map(|(core, _)| {
                let free = core.iter().filter(|cpu| !isolated.contains(cpu));
                free.copied().collect()
            })
            .filter(|core: &Core| !core.is_empty())
            .collect()
        };
        Self {
            cores: planned(None),
            favoured: planned(Some(FAVOURED * middle.unwrap_or(f64::INFINITY))),
            middle,
        }
    }
}

/// The online isolated CPUs; empty where all are isolated, which means nothing.
fn set_apart(tree: &Tree, on: &[usize]) -> Vec<usize> {
    let mut cpus = isolated(tree);
    cpus.retain(|cpu| on.contains(cpu));
    if cpus.len() < on.len() {
        cpus
    } else {
        Vec::new()
    }
}

/// Kinds with names, and with speeds relative to the fastest where the numbers give them.
fn kinds(groups: &[Group]) -> Vec<Kind> {
    let fastest = groups.first().and_then(|group| group.middle);
    let speed = |rank: usize, group: &Group| {
        if rank == 1 {
            return Some(100.0);
        }
        let both = group.middle.zip(fastest);
        let speed = both.map(|(own, fastest)| 100.0 * own / fastest);
        speed.filter(|speed| *speed < 100.0)
    };
    let ranked = (1..).zip(groups);
    ranked
        .map(|(rank, group)| Kind {
            name: name(rank, groups.len()),
            speed_percent: speed(rank, group),
            ..Kind::new(&group.cores, &group.favoured)
        })
        .collect()
}

fn name(rank: usize, last: usize) -> String {
    match rank {
        1 => "fast".into(),
        _ if rank == last => "slow".into(),
        _ if last == 3 => "medium".into(),
        _ => format!("medium-{}", rank - 1),
    }
}

/// How many cores these are worth; see [`Kind::worth`].
pub fn worth(cores: &[Core]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "cores are few")]
    let threads = |core: &Core| core.len() as f64;
    let of = |core: &Core| 1.0 + SIBLING * (threads(core) - 1.0);
    cores.iter().map(of).sum()
}

/// The CPUs of all these cores, sorted.
fn sorted(cores: &[Core]) -> Vec<usize> {
    let mut cpus: Vec<usize> = cores.iter().flatten().copied().collect();
    cpus.sort_unstable();
    cpus
}
