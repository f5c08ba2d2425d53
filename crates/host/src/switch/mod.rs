//! Moving the running KVM guests of a host between nested and shadow paging.
//!
//! Stock KVM has one paging mode per host, a parameter of its vendor module. So all guests are
//! saved with their memory left in place, the module is reloaded, and new QEMUs take the guests
//! over. A switch is a transaction: see [`switch`] and [`recover`]; [`plan`] only looks.

pub mod arguments;
pub mod cli;
pub mod error;
pub mod guest;
mod hold;
mod incoming;
mod inheritance;
pub mod journal;
pub mod module;
mod passed;
mod plan;
pub mod qmp;
mod recover;
mod rehearse;
mod report;
mod rollback;
mod saving;
mod state;
pub mod steps;
mod sys;
mod transaction;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use vtax_sys::kvm::PagingMode;

pub use error::SwitchError;
pub use plan::{SwitchPlan, plan};
pub use recover::recover;
pub use rehearse::rehearse;
pub use report::{GuestReport, PhaseReport, RecoveryReport, Report};
pub use saving::Lacked;
pub use steps::{Fault, Phase};
pub use transaction::switch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Mode(PagingMode),
    /// The mode that the host is not in.
    Other,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nested" => Ok(Self::Mode(PagingMode::Nested)),
            "shadow" => Ok(Self::Mode(PagingMode::Shadow)),
            "other" => Ok(Self::Other),
            _ => Err("not one of nested, shadow, other".into()),
        }
    }
}

#[derive(Debug, Clone)]
pub struct SwitchOptions {
    pub to: Target,
    /// The folder of the journal and the states. It should be on a tmpfs; otherwise the pause
    /// includes disk writes.
    pub state_dir: PathBuf,
    /// The module's file; `None`: the system's.
    pub module_path: Option<PathBuf>,
    /// How long each single wait may last.
    pub patience: Duration,
    /// A fault to inject, in tests.
    pub fault: Option<Fault>,
}

impl SwitchOptions {
    pub fn to(target: Target) -> Self {
        Self {
            to: target,
            state_dir: PathBuf::from(STATE_DIR),
            module_path: None,
            patience: PATIENCE,
            fault: None,
        }
    }
}

/// Default folder of the journal and the states.
pub const STATE_DIR: &str = "/run/vtax/switch";
/// Default limit of each single wait; long because an emulated host is slow.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Receives progress.
pub trait Observer {
    fn phase(&mut self, name: &str);
    /// Something is not as expected, but the work goes on.
    fn warning(&mut self, text: &str);
}

/// Ignores progress.
#[derive(Debug)]
pub struct Silent;

impl Observer for Silent {
    fn phase(&mut self, _name: &str) {}

    fn warning(&mut self, _text: &str) {}
}
