//! The first process of a guest: makes a root over the host's read-only tree and serves.

mod mounts;
mod parameters;
mod virtio;

use std::fs::File;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::sys::reboot::{RebootMode, reboot};
use thiserror::Error;

use crate::channel::ChannelSpec;
use crate::error::{Error, reason};
use crate::init::parameters::{ChannelPlace, Parameters};
use crate::serve::{Options, serve};
use crate::sys;

const HOST_NAME: &str = "vtax-guest";
const CHANNEL_PATIENCE: Duration = Duration::from_secs(10);
const CHANNEL_ROUND: Duration = Duration::from_millis(5);

/// Which step failed, and why.
#[derive(Debug, Error)]
#[error("init: {step}: {reason}")]
pub struct InitError {
    step: String,
    reason: String,
}

impl InitError {
    fn new(step: impl Into<String>, reason: impl ToString) -> Self {
        Self {
            step: step.into(),
            reason: reason.to_string(),
        }
    }

    fn errno(step: impl Into<String>, errno: Errno) -> Self {
        Self::new(step, errno.desc())
    }
}

/// Be the first process; ends with the machine.
pub fn init() -> ! {
    let result = prepare().and_then(|options| {
        serve(&options)
            .map(drop)
            .map_err(|error| InitError::new("serve", error))
    });
    if let Err(error) = result {
        eprintln!("vtax-agent: {error}");
    }
    power_off()
}

/// `init` was asked for on a running machine.
pub fn refused() -> Error {
    let reason = "it is only for the first process of a guest";
    Error::misuse("init", reason, "boot a kernel with init=PATH-OF-VTAX-AGENT")
}

fn prepare() -> Result<Options, InitError> {
    let line = mounts::kernel_command_line()?;
    let parameters: Parameters = line
        .parse()
        .map_err(|error| InitError::new("parameters", error))?;
    parameters.modules.iter().try_for_each(load_module)?;
    mounts::enter_root(&parameters)?;
    sys::interface_up("lo").map_err(|errno| InitError::errno("loopback interface", errno))?;
    nix::unistd::sethostname(HOST_NAME).map_err(|errno| InitError::errno("host name", errno))?;
    let path = wait_for_channel(&parameters.channel)?;
    Ok(Options {
        channel: ChannelSpec::Path(path),
        cpus: None,
        memory_bytes: None,
    })
}

fn load_module(path: &PathBuf) -> Result<(), InitError> {
    let step = || format!("module {}", path.display());
    let file = File::open(path).map_err(|error| InitError::new(step(), reason(&error)))?;
    match finit_module(&file, c"", ModuleInitFlags::empty()) {
        // Built in, or loaded by the kernel itself.
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(InitError::errno(step(), errno)),
    }
}

/// Devices appear a moment after their driver.
fn wait_for_channel(place: &ChannelPlace) -> Result<PathBuf, InitError> {
    let deadline = Instant::now() + CHANNEL_PATIENCE;
    loop {
        let found = match place {
            ChannelPlace::Path(path) => path.exists().then(|| path.clone()),
            ChannelPlace::Virtio(name) => virtio::port(&crate::tree::Tree::host(), name),
        };
        if let Some(path) = found {
            return Ok(path);
        }
        if Instant::now() > deadline {
            return Err(InitError::new(
                format!("channel {place}"),
                "it does not exist after 10 s",
            ));
        }
        sleep(CHANNEL_ROUND);
    }
}

/// Write what is buffered and end the machine, in whichever way it can.
fn power_off() -> ! {
    nix::unistd::sync();
    // QEMU with -no-reboot ends on a restart as well, if the kernel cannot power off.
    for mode in [
        RebootMode::RB_POWER_OFF,
        RebootMode::RB_AUTOBOOT,
        RebootMode::RB_HALT_SYSTEM,
    ] {
        // It returns only if it failed.
        let Err(errno) = reboot(mode);
        eprintln!("vtax-agent: init: power off: {}", errno.desc());
    }
    // Ending is the last means: the kernel panics, and restarts if panic= says so.
    std::process::exit(1)
}
