//! Restoring what a killed program has changed.
//!
//! A second process waits for the end of the first, whatever ends it. Where both are killed, the
//! next sweep restores: `vtax-agent sweep` restores the control groups, `vtax-host place sweep`
//! everything.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use vtax_sys::owner;
use vtax_sys::state::make_folder;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::place::apply::recover;
use crate::place::journal::{self, Before, Restored};

const PREFIX: &str = "slow-";
const SUFFIX: &str = ".json";

/// What is to be restored at the end, by dropping this or else by the guardian.
#[derive(Debug)]
pub struct Held {
    tree: Tree,
    before: Before,
    path: PathBuf,
    guardian: Child,
    done: bool,
}

impl Held {
    /// Write the journal and start the guardian, before anything is changed.
    ///
    /// Fails when either is not possible; then nothing is left behind.
    pub fn begin(tree: &Tree, state: &Path, before: Before) -> Result<Self, Error> {
        make_folder(state).map_err(|error| journal::failed(state, &error))?;
        sweep(tree, state);
        let path = state.join(format!("{PREFIX}{}{SUFFIX}", owner::name(tree)));
        journal::begin(&path, &before)?;
        match guardian(&path) {
            Ok(guardian) => Ok(Self {
                tree: tree.clone(),
                before,
                path,
                guardian,
                done: false,
            }),
            Err(error) => {
                journal::remove(&path);
                Err(Error::input_output("the guardian", &error, "free memory"))
            }
        }
    }

    /// Restore the state at this point.
    ///
    /// Fails when the kernel refuses; the journal then stays for the next sweep.
    pub fn end(mut self) -> Result<Restored, Error> {
        let restored = self.restore();
        match restored.failed.first() {
            Some(reason) => Err(Error::failure(
                "restoring",
                reason,
                "fix this and run `vtax-host place sweep`",
            )),
            None => Ok(restored),
        }
    }

    fn restore(&mut self) -> Restored {
        let restored = self.before.restore(&self.tree);
        if restored.failed.is_empty() {
            journal::remove(&self.path);
        }
        self.done = true;
        // The guardian finds no journal any more, or tries once more.
        drop(self.guardian.stdin.take());
        let _ = self.guardian.wait();
        restored
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.done {
            self.restore();
        }
    }
}

/// The guardian is in its own process group: Ctrl-C must not end it too.
fn guardian(path: &Path) -> io::Result<Child> {
    Command::new(env::current_exe()?)
        .args(["place", "guard"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

/// Run the guardian: wait until standard input ends, and restore what is in the journal, if the
/// journal still exists.
///
/// Fails when the journal cannot be read.
pub fn guard(tree: &Tree, path: &Path) -> Result<(), Error> {
    let _ = io::stdin().read_to_end(&mut Vec::new());
    if let Some(before) = journal::read(path)?
        && before.restore(tree).failed.is_empty()
    {
        journal::remove(path);
    }
    Ok(())
}

/// Restore what dead programs have changed; returns how many programs.
pub fn sweep(tree: &Tree, state: &Path) -> usize {
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let dead = names.filter(|name| {
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_suffix(SUFFIX));
        owner.is_some_and(|owner| owner::is_dead(tree, owner).unwrap_or(false))
    });
    let slowed = dead.filter(|name| {
        let path = state.join(name);
        let before = journal::read(&path).ok().flatten();
        let restored = before.is_some_and(|before| before.restore(tree).failed.is_empty());
        if restored {
            journal::remove(&path);
        }
        restored
    });
    slowed.count() + usize::from(recover(tree, state))
}
