//! What a switch has done so far, on disk, so that a killed switch can be finished.
//!
//! `plan.json` is written whole before anything is touched; `log` gets a line before and after each
//! action that cannot be seen from outside. An incomplete line counts as absent.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::switch::error::{Failure, SwitchError};
use crate::switch::guest::GuestPlan;
use crate::switch::module::Module;
use vtax_sys::kvm::PagingMode;
use vtax_sys::state;

/// More bytes than any journal has.
const MAX_BYTES: u64 = 64 << 20;
const RECOVER: &str = "run `vtax paging recover` first";

/// A switch that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// The mode before the switch.
    pub from: PagingMode,
    pub to: PagingMode,
    /// The module that is reloaded.
    pub module: Module,
    /// The guests, in the order of their numbers.
    pub guests: Vec<GuestPlan>,
    /// The text of `/sys/kernel/rcu_expedited` before the switch; absent where the kernel has no
    /// such file.
    pub rcu_expedited: Option<String>,
}

/// One line of the log. Guests are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The process that keeps a guest's descriptors: number and start.
    Keeper(usize, i32, u64),
    /// A new QEMU of a guest was made: number and start.
    Started(usize, i32, u64),
    /// A guest's whole state is in this file.
    Saved(usize, PathBuf),
    /// The guests' last saved states are stale: the guests have run since, or are about to.
    Resuming(Vec<usize>),
}

/// The state folder, locked.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    log: Option<File>,
    #[expect(dead_code, reason = "held for its effect")]
    lock: Flock<File>,
}

impl Journal {
    /// Make and lock the folder.
    ///
    /// Fails with `Refused` when the folder cannot be made or written, when other users have access
    /// to it, or when another switch or recovery has locked it.
    pub fn open(folder: &Path) -> Result<Self, SwitchError> {
        let refused = |error: io::Error| {
            SwitchError::refused(
                folder.display().to_string(),
                error,
                "name a folder that root can write with --state-dir",
            )
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(refused)?;
        let about = fs::symlink_metadata(folder).map_err(refused)?;
        let ours = about.is_dir()
            && about.uid() == nix::unistd::geteuid().as_raw()
            && about.mode().trailing_zeros() >= 6;
        if !ours {
            return Err(SwitchError::refused(
                folder.display().to_string(),
                "it is not a folder that only this user can use",
                "remove it or name another with --state-dir",
            ));
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join("lock"))
            .map_err(refused)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            SwitchError::refused(
                folder.display().to_string(),
                "another switch or recovery is running",
                "wait until it has ended",
            )
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            log: None,
            lock,
        })
    }

    /// Where a guest's state goes; `round` distinguishes several states of one guest.
    pub fn state_file(&self, guest: usize, round: usize) -> PathBuf {
        self.folder
            .join(format!("guest-{}.{round}.state", guest + 1))
    }

    /// Check that there is no unfinished switch.
    ///
    /// Fails with `Refused` when there is a plan.
    pub fn must_be_empty(&self) -> Result<(), SwitchError> {
        if self.folder.join("plan.json").exists() {
            return Err(SwitchError::refused(
                self.folder.display().to_string(),
                "a switch was begun and not ended",
                RECOVER,
            ));
        }
        Ok(())
    }

    /// Begin: write the plan.
    ///
    /// Fails when the plan or the empty log cannot be written to the disk.
    pub fn begin(&mut self, transaction: &Transaction) -> Result<(), Failure> {
        let log = self.folder.join("log");
        // A log without a plan belongs to a switch that was finished.
        self.log = Some(create(&log).map_err(Failure::file(&log))?);
        let plan = self.folder.join("plan.json");
        let text = serde_json::to_vec_pretty(transaction)
            .map_err(|error| Failure::Other(format!("the plan: {error}")))?;
        state::replace_on_disk(&plan, |file| file.write_all(&text)).map_err(Failure::file(&plan))
    }

    /// Add a line, which is on disk when this returns.
    ///
    /// Fails when the log cannot be opened, or when the line cannot be written to the disk.
    pub fn add(&mut self, entry: &Entry) -> Result<(), Failure> {
        let path = self.folder.join("log");
        let mut line = serde_json::to_vec(entry)
            .map_err(|error| Failure::Other(format!("the journal: {error}")))?;
        line.push(b'\n');
        if self.log.is_none() {
            let log = OpenOptions::new().append(true).open(&path);
            self.log = Some(log.map_err(Failure::file(&path))?);
        }
        let Some(log) = &mut self.log else {
            return Err(Failure::Other("the journal is not open".into()));
        };
        log.write_all(&line)
            .and_then(|()| log.sync_data())
            .map_err(Failure::file(&path))
    }

    /// What an unfinished switch left; `None`: there is no plan, or it cannot be opened.
    ///
    /// Fails with `Refused` when this version cannot read the plan.
    pub fn read(&self) -> Result<Option<(Transaction, Vec<Entry>)>, SwitchError> {
        let path = self.folder.join("plan.json");
        let Some(text) = read(&path) else {
            return Ok(None);
        };
        let transaction = serde_json::from_slice(&text).map_err(|error| {
            SwitchError::refused(
                path.display().to_string(),
                format!("no plan of a switch: {error}"),
                "use the version of vtax that wrote it",
            )
        })?;
        let log = read(&self.folder.join("log")).unwrap_or_default();
        Ok(Some((transaction, entries(&log))))
    }

    /// End: nothing is left to recover. Removes the plan, the log and the states.
    ///
    /// Fails when the folder cannot be listed, or when one of these files cannot be removed.
    pub fn end(mut self) -> Result<(), Failure> {
        self.log = None;
        let path = self.folder.join("plan.json");
        remove(&path).map_err(Failure::file(&path))?;
        let listed = fs::read_dir(&self.folder).map_err(Failure::file(&self.folder))?;
        for entry in listed.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let ours = name.ends_with(".state") || name == "log" || name == "plan.json.draft";
            if ours {
                remove(&entry.path()).map_err(Failure::file(entry.path()))?;
            }
        }
        Ok(())
    }
}

/// The complete lines of a log; lines after an unreadable line are ignored.
pub fn entries(log: &[u8]) -> Vec<Entry> {
    log.split_inclusive(|byte| *byte == b'\n')
        .take_while(|line| line.ends_with(b"\n"))
        .map_while(|line| serde_json::from_slice(line).ok())
        .collect()
}

fn create(path: &Path) -> io::Result<File> {
    remove(path)?;
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)
        .ok()?
        .take(MAX_BYTES)
        .read_to_end(&mut text)
        .ok()?;
    Some(text)
}
