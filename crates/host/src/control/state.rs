//! What outlives the daemon: a file in its folder, written completely or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};
use vtax_sys::kvm::PagingMode;
use vtax_sys::state;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::control::guard::Guard;

/// The default folder.
pub const FOLDER: &str = "/run/vtax/control";
/// The layout that this version writes and reads.
const FORMAT: u32 = 1;
/// More bytes than any state has.
const MAX_BYTES: u64 = 1 << 20;
const STATE: &str = "state.json";
const STATUS: &str = "status.json";

/// What outlives the daemon.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The layout of the file; set when it is written.
    pub format: u32,
    /// The boot that its times belong to; set when the file is written.
    pub boot: Option<String>,
    /// The mode of the last window.
    pub mode: Option<PagingMode>,
    /// A switch to this mode has begun, and its end is not recorded.
    pub switching: Option<PagingMode>,
    /// What is known about earlier switches.
    pub guard: Guard,
}

/// The folder, locked against other daemons.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    boot: Option<String>,
    _lock: Flock<File>,
}

impl Folder {
    /// Make the folder if it is missing, and lock out other daemons.
    ///
    /// Fails when it cannot be made, and when another daemon has it.
    pub fn hold(path: &Path, tree: &Tree) -> Result<Self, Error> {
        let lock = state::try_hold_folder(path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::failure(
                path.display().to_string(),
                "another controller uses it",
                "end that one, or name another folder with --state-dir",
            ),
            _ => failed(path, &error),
        })?;
        Ok(Self {
            path: path.to_owned(),
            boot: tree.text("/proc/sys/kernel/random/boot_id"),
            _lock: lock,
        })
    }

    /// The saved state, and what to report about it.
    pub fn read(&self) -> (State, Vec<String>) {
        let path = self.path.join(STATE);
        let mut state = match read(&path) {
            Ok(Some(state)) => state,
            Ok(None) => return (State::default(), Vec::new()),
            Err(reason) => {
                let said = format!("{}: {reason}; beginning anew", path.display());
                return (State::default(), vec![said]);
            }
        };
        if state.boot != self.boot || self.boot.is_none() {
            state.guard.forget_times();
            state.switching = None;
            state.mode = None;
        }
        let said = format!("resumed from {}", path.display());
        (state, vec![said])
    }

    /// Replace the saved state; the new state is on disk when this returns.
    ///
    /// Fails when it cannot be written: the old state then stays.
    pub fn write(&self, state: &State) -> Result<(), Error> {
        let state = State {
            format: FORMAT,
            boot: self.boot.clone(),
            ..state.clone()
        };
        self.replace(STATE, &state, true)
    }

    /// Publish a status in the file for readers.
    ///
    /// Fails when it cannot be written.
    pub fn publish(&self, status: &impl Serialize) -> Result<(), Error> {
        self.replace(STATUS, status, false)
    }

    fn replace(&self, name: &str, value: &impl Serialize, sync: bool) -> Result<(), Error> {
        let path = self.path.join(name);
        let write = |file: &mut File| {
            let text = serde_json::to_string(value)?;
            writeln!(file, "{text}")
        };
        let written = if sync {
            state::replace_on_disk(&path, write)
        } else {
            state::replace(&path, 0o600, write)
        };
        written.map_err(|error| failed(&path, &error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // No reader may take the status for that of a live daemon.
        let _ = fs::remove_file(self.path.join(STATUS));
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let remedy = "run it as root, or name another folder with --state-dir";
    Error::input_output(&path.display().to_string(), error, remedy)
}

fn read(path: &Path) -> Result<Option<State>, String> {
    let Some(text) = state::read(path, MAX_BYTES).map_err(|error| vtax_sys::reason(&error))? else {
        return Ok(None);
    };
    let state: State = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if state.format != FORMAT {
        return Err(format!("its format is {}, not {FORMAT}", state.format));
    }
    Ok(Some(state))
}

/// The last status of the daemon that uses a folder; `None`: no daemon uses it.
///
/// Fails when the folder may not be read.
pub fn published(folder: &Path) -> Result<Option<String>, Error> {
    if !state::is_held(folder) {
        return Ok(None);
    }
    state::read(&folder.join(STATUS), MAX_BYTES).map_err(|error| failed(folder, &error))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(root: &Path, boot: &str) -> Tree {
        let folder = root.join("proc/sys/kernel/random");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("boot_id"), boot).unwrap();
        Tree::at(root)
    }

    fn state() -> State {
        let mut state = State {
            mode: Some(PagingMode::Nested),
            switching: Some(PagingMode::Shadow),
            ..State::default()
        };
        state.guard.switched(12.0, Some(99.5));
        state
    }

    #[test]
    fn a_state_comes_back_and_its_times_do_not_survive_a_boot() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run/control");
        let folder = Folder::hold(&path, &tree(root.path(), "one")).unwrap();
        assert_eq!(folder.read(), (State::default(), vec![]));
        folder.write(&state()).unwrap();
        let (read, said) = folder.read();
        assert_eq!(
            (read.guard, read.switching),
            (state().guard, state().switching)
        );
        assert!(said[0].starts_with("resumed from"));
        drop(folder);
        let folder = Folder::hold(&path, &tree(root.path(), "two")).unwrap();
        let (read, _) = folder.read();
        assert_eq!((read.switching, read.guard.changed_s), (None, None));
        assert_eq!(read.guard.pauses_ms, [99.5]);
    }

    #[test]
    fn a_broken_state_is_told_and_left() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::hold(root.path(), &Tree::host()).unwrap();
        for text in ["{", "{\"format\":9}", "\u{fffd}"] {
            fs::write(root.path().join(STATE), text).unwrap();
            let (read, said) = folder.read();
            assert_eq!(read, State::default());
            assert!(said[0].ends_with("beginning anew"), "{said:?}");
        }
    }

    #[test]
    fn one_daemon_has_the_folder_and_its_status_ends_with_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("control");
        let folder = Folder::hold(&path, &Tree::host()).unwrap();
        let second = Folder::hold(&path, &Tree::host()).unwrap_err().to_string();
        assert!(second.contains("another controller"), "{second}");
        folder.publish(&"hold").unwrap();
        assert_eq!(published(&path).unwrap().as_deref(), Some("\"hold\"\n"));
        drop(folder);
        assert_eq!(published(&path).unwrap(), None);
        // A killed daemon leaves its status, which readers ignore.
        fs::write(path.join(STATUS), "\"hold\"").unwrap();
        assert_eq!(published(&path).unwrap(), None);
    }

    proptest! {
        #[test]
        fn any_state_is_answered(text in "[{}\\[\\]\":,a-z0-9]{0,60}") {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join(STATE);
            fs::write(&path, text).unwrap();
            let _ = read(&path);
        }
    }
}
