//! What `watch` moves: it is in the journal before it moves, and back in its place at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vtax_sys::cpu_list::parse;
use vtax_sys::owner;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::place::apply::{JOURNAL, check_cpus, check_cpuset, in_force};
use crate::place::cpus::written;
use crate::place::domain::thread_folder;
use crate::place::journal::{self, Affinity, Before, Restored};
use crate::place::watch::controller::ThreadKey;

/// The moved threads. Dropping this undoes all moves.
#[derive(Debug)]
pub struct Moves {
    tree: Tree,
    state: PathBuf,
    /// The journal of an empty set of moves.
    begun: Before,
    moved: BTreeMap<ThreadKey, Move>,
    done: bool,
}

#[derive(Debug)]
struct Move {
    before: Affinity,
    /// The CPUs that it was put on.
    cpus: Vec<usize>,
}

/// What happened to a moved thread without `watch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It has ended.
    Ended,
    /// A CPU that it was put on is not online.
    Offline(usize),
    /// It was put somewhere else.
    Elsewhere(String),
}

impl Moves {
    /// Begin a journal, which keeps every other plan out.
    ///
    /// Fails when there is one, or it cannot be written.
    pub fn begin(tree: &Tree, state: &Path) -> Result<Self, Error> {
        let _lock = journal::lock(state)?;
        let mut moves = Self {
            tree: tree.clone(),
            state: state.to_owned(),
            begun: Before {
                owner: Some(owner::name(tree)),
                ..Before::now(tree)
            },
            moved: BTreeMap::new(),
            done: true,
        };
        if !journal::begin(&moves.path(), &moves.journal(None))? {
            return Err(in_force(tree, &moves.path(), "watch"));
        }
        moves.done = false;
        Ok(moves)
    }

    /// Put a thread on these CPUs, and read them back; false when the thread has ended.
    ///
    /// Fails with a line when the thread cannot be there, or the kernel refuses: the thread is then
    /// where it was.
    pub fn put(
        &mut self,
        key: ThreadKey,
        cpus: &[usize],
        online: &[usize],
    ) -> Result<bool, String> {
        let (tree, thing) = (&self.tree, format!("thread {}", key.tid));
        let line = |error: Error| error.to_string();
        check_cpus(&thing, cpus, online).map_err(line)?;
        check_cpuset(tree, &thing, &thread_folder(key.pid, key.tid), cpus).map_err(line)?;
        let now = Affinity::read(tree, key.pid, key.tid);
        let Some(before) = now.filter(|now| now.start_ticks == key.start_ticks) else {
            return Ok(false);
        };
        let before = Affinity {
            to: Some(written(cpus)),
            ..before
        };
        self.write(Some(&before)).map_err(line)?;
        let put = before.put(tree, &written(cpus));
        let cpus = cpus.to_vec();
        if put != Ok(true) && before.put(tree, &before.cpus).is_ok() {
            self.write(None).map_err(line)?;
            return put;
        }
        // Where the undo failed too, the thread counts as moved: the end tries again.
        self.moved.insert(key, Move { before, cpus });
        put
    }

    /// Put a thread back where it was, with everything that it has started since; false when the
    /// thread has ended.
    ///
    /// Fails with a line when the kernel refuses.
    pub fn back(&mut self, key: ThreadKey) -> Result<bool, String> {
        let Some(one) = self.moved.get(&key) else {
            return Ok(false);
        };
        let only = Before {
            threads: vec![one.before.clone()],
            ..self.begun.clone()
        };
        let restored = only.restore(&self.tree);
        if let Some(reason) = restored.failed.first() {
            return Err(reason.clone());
        }
        self.forget(key)?;
        Ok(restored.threads > 0)
    }

    /// Leave a thread to whoever moved it.
    ///
    /// Fails with a line when the journal cannot be written.
    pub fn forget(&mut self, key: ThreadKey) -> Result<(), String> {
        self.moved.remove(&key);
        self.write(None).map_err(|error| error.to_string())
    }

    /// The moved threads.
    pub fn threads(&self) -> Vec<ThreadKey> {
        self.moved.keys().copied().collect()
    }

    /// Moved threads that are not where they were put.
    pub fn look(&self, online: &[usize]) -> Vec<(ThreadKey, Found)> {
        let one = |(key, one): (&ThreadKey, &Move)| Some((*key, one.look(&self.tree, online)?));
        self.moved.iter().filter_map(one).collect()
    }

    /// Undo all moves, and end the journal.
    ///
    /// Fails when the kernel refuses: the journal then stays.
    pub fn end(mut self) -> Result<Restored, Error> {
        let restored = self.restore();
        match restored.failed.first() {
            Some(reason) => Err(Error::failure(
                "taking all back",
                reason,
                "fix this and run `vtax place apply --undo`",
            )),
            None => Ok(restored),
        }
    }

    fn restore(&mut self) -> Restored {
        self.done = true;
        let restored = self.journal(None).restore(&self.tree);
        if restored.failed.is_empty() {
            journal::remove(&self.path());
        }
        restored
    }

    fn path(&self) -> PathBuf {
        self.state.join(JOURNAL)
    }

    fn write(&self, more: Option<&Affinity>) -> Result<(), Error> {
        journal::replace(&self.path(), &self.journal(more))
    }

    fn journal(&self, more: Option<&Affinity>) -> Before {
        let moved = self.moved.values().map(|one| &one.before);
        Before {
            threads: moved.chain(more).cloned().collect(),
            ..self.begun.clone()
        }
    }
}

impl Move {
    fn look(&self, tree: &Tree, online: &[usize]) -> Option<Found> {
        let now = Affinity::read(tree, self.before.pid, self.before.tid);
        let Some(now) = now.filter(|now| now.start_ticks == self.before.start_ticks) else {
            return Some(Found::Ended);
        };
        let off = self.cpus.iter().find(|cpu| !online.contains(cpu));
        match off {
            // The kernel may then have moved the thread by itself.
            Some(cpu) => Some(Found::Offline(*cpu)),
            None if parse(&now.cpus).as_ref() == Ok(&self.cpus) => None,
            None => Some(Found::Elsewhere(now.cpus)),
        }
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        if !self.done {
            self.restore();
        }
    }
}
