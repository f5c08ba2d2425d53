//! Swap that an agent makes for the commands that it limits, and that ends with the agent.
//!
//! Each file in a folder names its owner, so the folder records what killed agents left. No other
//! swap device is ever turned off.

pub mod file;
mod header;
pub mod zram;

use std::io;
use std::path::Path;
use std::str::FromStr;

use nix::errno::Errno;

use crate::swap::file::SwapFile;
use crate::swap::zram::Zram;
use crate::tree::Tree;
use crate::{owner, reason};

/// What the swap is on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    File,
    /// Compressed memory.
    Zram,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "file" => Ok(Self::File),
            "zram" => Ok(Self::Zram),
            _ => Err("neither file nor zram".into()),
        }
    }
}

/// Swap in use. Dropping it turns it off and removes it.
#[derive(Debug)]
pub enum Swap {
    File(SwapFile),
    Zram(Zram),
}

/// Why there is no swap, and what to do.
#[derive(Debug)]
pub struct Refused {
    /// What failed, in the kernel's own words.
    pub reason: String,
    /// What may help.
    pub remedy: &'static str,
}

impl Refused {
    fn new(thing: &str, error: &io::Error, remedy: &'static str) -> Self {
        let remedy = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EPERM | Errno::EACCES) => "only root may turn swap on",
            _ => remedy,
        };
        Self {
            reason: format!("{thing}: {}", reason(error)),
            remedy,
        }
    }
}

impl Swap {
    /// Make `bytes` of swap, recorded in `folder`, and use it before all other swap devices.
    ///
    /// Fails when it cannot be made, and without the capability `SYS_ADMIN`.
    pub fn on(tree: &Tree, folder: &Path, bytes: u64, kind: Kind) -> Result<Self, Refused> {
        let name = owner::name(tree);
        Ok(match kind {
            Kind::File => Self::File(SwapFile::on(folder, &name, bytes)?),
            Kind::Zram => Self::Zram(Zram::on(tree, folder, &name, bytes)?),
        })
    }
}

/// Turn off and remove the swap in `folder` that belongs to dead agents; returns how many there
/// were.
pub fn sweep(tree: &Tree, folder: &Path) -> usize {
    let names = Tree::at(folder).names("/");
    let left = names.iter().filter(|name| {
        let Some((own, extension)) = name.rsplit_once('.') else {
            return false;
        };
        let remove = match extension {
            file::EXTENSION => file::remove,
            zram::EXTENSION => zram::remove,
            _ => return false,
        };
        owner::is_dead(tree, own) == Some(true) && remove(&folder.join(name))
    });
    left.count()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_what_dead_agents_left_goes() {
        let root = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self/ns/pid")).unwrap();
        let tree = Tree::at(root.path());
        let own = owner::pid_namespace(&tree).unwrap();
        let dead = [
            format!("vtax-8-500-{own}.swap"),
            format!("vtax-9-500-{own}.zram"),
        ];
        let kept = ["other.swap".to_owned(), format!("vtax-8-500-{own}")];
        for name in kept.iter().chain(&dead) {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(sweep(&tree, folder.path()), dead.len());
        assert_eq!(Tree::at(folder.path()).names("/"), kept);
    }
}
