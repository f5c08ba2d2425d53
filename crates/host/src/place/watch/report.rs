//! The lines that `watch` prints for a window.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use vtax_sys::clock::time_of_day;

use crate::place::domain::Member;
use crate::place::role::Role;
use crate::place::watch::controller::{Class, ThreadKey};

/// A thread, for a reader.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Named {
    pid: i32,
    tid: i32,
    name: Option<String>,
    role: Option<Role>,
    guest: Option<String>,
}

impl Named {
    /// Describe a thread; a thread that has ended is known only by its numbers.
    pub fn new(key: ThreadKey, member: Option<&Member>) -> Self {
        Self {
            pid: key.pid,
            tid: key.tid,
            name: member.map(|one| one.task.name.clone()),
            role: member.map(|one| one.role),
            guest: member.and_then(|one| one.guest.clone()),
        }
    }
}

/// A line of the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Seconds since 1970.
    pub time: f64,
    /// `move` or `hold`.
    pub decision: &'static str,
    /// The thread that moves or is let go.
    pub thread: Option<Named>,
    /// The class that it moves to.
    pub to: Option<&'static str>,
    pub reason: String,
    /// The number of service threads that are followed.
    pub threads: usize,
    /// The thread was moved, and its CPUs were read back.
    pub carried_out: bool,
    #[serde(skip)]
    slow: String,
}

impl Line {
    /// A line that says that nothing moves.
    pub fn hold(reason: &str, threads: usize, slow: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            time: now.map_or(0.0, |time| time.as_secs_f64()),
            decision: "hold",
            thread: None,
            to: None,
            reason: reason.to_owned(),
            threads,
            carried_out: false,
            slow: slow.to_owned(),
        }
    }

    /// The line is about this thread.
    #[must_use]
    pub fn about(mut self, thread: Named) -> Self {
        self.thread = Some(thread);
        self
    }

    /// The line says that a thread moves.
    #[must_use]
    pub fn moving(mut self, thread: Named, to: Class) -> Self {
        self.decision = "move";
        self.to = Some(match to {
            Class::Fast => "fast",
            Class::Slow => "slow",
        });
        self.about(thread)
    }

    /// The move was carried out.
    #[must_use]
    pub fn carried_out(mut self) -> Self {
        self.carried_out = true;
        self
    }

    /// The move was not carried out, for this reason.
    #[must_use]
    pub fn because(mut self, refused: &str) -> Self {
        self.reason = format!("{}; not done: {refused}", self.reason);
        self
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match (self.to, self.carried_out) {
            (None, _) => "hold".to_owned(),
            (Some("slow"), true) => format!("to slow CPUs {}", self.slow),
            (Some("slow"), false) => format!("would go to slow CPUs {}", self.slow),
            (Some(_), true) => "back".to_owned(),
            (Some(_), false) => "would go back".to_owned(),
        };
        write!(formatter, "{}  {verb}  ", time_of_day(self.time))?;
        if let Some(thread) = &self.thread {
            let name = thread.name.as_deref().unwrap_or("thread");
            write!(formatter, "{name} ({})", thread.tid)?;
            if let Some(role) = thread.role {
                write!(formatter, ", {}", role.name())?;
            }
            if let Some(guest) = &thread.guest {
                write!(formatter, " of {guest}")?;
            }
            write!(formatter, ": ")?;
        }
        write!(formatter, "{}", self.reason)
    }
}
