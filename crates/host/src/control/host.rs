//! The host whose mode is controlled: queried, switched, recovered.

use std::path::PathBuf;

use crate::switch::{Observer, SwitchError, SwitchOptions, Target};
use vtax_sys::kvm::{self, PagingMode, Vendor};
use vtax_sys::tree::Tree;

/// A switch that was made.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Switched {
    /// The longest pause of a guest in milliseconds, including earlier attempts to save its state;
    /// `None`: no guest ran.
    pub pause_ms: Option<f64>,
    /// What guests lost, one line each.
    pub warnings: Vec<String>,
}

/// Something with a paging mode and guests.
pub trait Host {
    /// The current mode.
    ///
    /// Fails with the reason when the mode cannot be found out.
    fn mode(&self) -> Result<PagingMode, String>;

    /// Could the host be switched at this moment? Changes nothing.
    ///
    /// Fails with the reason, such as a guest that cannot be handed over.
    fn look(&mut self, to: PagingMode) -> Result<(), String>;

    /// Go through a switch as far as no guest pauses; returns what that took, in milliseconds.
    ///
    /// Fails with the reason.
    fn rehearse(&mut self, to: PagingMode) -> Result<f64, String>;

    /// Switch the host.
    ///
    /// Fails with the reason and the state of the guests.
    fn switch(&mut self, to: PagingMode) -> Result<Switched, String>;

    /// Finish a switch that a process began which is gone; returns what was found.
    ///
    /// Fails with the reason and what to do by hand.
    fn recover(&mut self) -> Result<String, String>;
}

/// This machine, through the library of `vtax paging switch`.
#[derive(Debug)]
pub struct Machine {
    tree: Tree,
    /// Where that library keeps its journal.
    state_dir: PathBuf,
    /// The module's file, where it is not the system's.
    module_path: Option<PathBuf>,
}

impl Machine {
    /// This machine.
    pub fn new(tree: Tree, module_path: Option<PathBuf>) -> Self {
        Self {
            tree,
            state_dir: PathBuf::from(crate::switch::STATE_DIR),
            module_path,
        }
    }

    fn options(&self, to: PagingMode) -> SwitchOptions {
        SwitchOptions {
            state_dir: self.state_dir.clone(),
            module_path: self.module_path.clone(),
            ..SwitchOptions::to(Target::Mode(to))
        }
    }
}

impl Host for Machine {
    fn mode(&self) -> Result<PagingMode, String> {
        let Vendor { module, parameter } =
            kvm::vendor(&self.tree).ok_or("neither kvm_amd nor kvm_intel is loaded")?;
        kvm::paging_mode(&self.tree, module, parameter)
            .ok_or_else(|| format!("{module} does not say its mode (parameter {parameter})"))
    }

    fn look(&mut self, to: PagingMode) -> Result<(), String> {
        crate::switch::plan(&self.options(to))
            .map(drop)
            .map_err(reason)
    }

    fn rehearse(&mut self, to: PagingMode) -> Result<f64, String> {
        crate::switch::rehearse(&self.options(to)).map_err(reason)
    }

    fn switch(&mut self, to: PagingMode) -> Result<Switched, String> {
        let mut warnings = Warnings::default();
        let report = crate::switch::switch(&self.options(to), &mut warnings).map_err(reason)?;
        let pause = |guest: &crate::switch::GuestReport| Some(guest.pause_ms? + guest.retries_ms);
        Ok(Switched {
            pause_ms: report.guests.iter().filter_map(pause).reduce(f64::max),
            warnings: warnings.0,
        })
    }

    fn recover(&mut self) -> Result<String, String> {
        let mut warnings = Warnings::default();
        let patience = crate::switch::PATIENCE;
        let report =
            crate::switch::recover(&self.state_dir, patience, &mut warnings).map_err(reason)?;
        Ok(match report.mode {
            Some(mode) => format!("recovered: {mode} paging, {} guests", report.guests.len()),
            None => "nothing to recover".to_owned(),
        })
    }
}

fn reason(error: SwitchError) -> String {
    error.to_string()
}

#[derive(Debug, Default)]
struct Warnings(Vec<String>);

impl Observer for Warnings {
    fn phase(&mut self, _name: &str) {}

    fn warning(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

/// The model's machine description that is nearest to this host's processor.
pub fn nearest_machine(tree: &Tree) -> &'static str {
    let cpus = tree.text("/proc/cpuinfo").unwrap_or_default();
    if cpus.contains("GenuineIntel") {
        "sapphirerapids"
    } else {
        "zen4"
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_mode_is_what_the_module_says() {
        let root = tempfile::tempdir().unwrap();
        let host = Machine::new(Tree::at(root.path()), None);
        assert!(host.mode().unwrap_err().contains("neither"));
        let folder = root.path().join("sys/module/kvm_amd/parameters");
        fs::create_dir_all(&folder).unwrap();
        assert!(host.mode().unwrap_err().contains("does not say"));
        for (text, mode) in [("Y\n", PagingMode::Nested), ("0\n", PagingMode::Shadow)] {
            fs::write(folder.join("npt"), text).unwrap();
            assert_eq!(host.mode(), Ok(mode));
        }
    }
}
