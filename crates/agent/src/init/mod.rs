//! The first process of a guest: makes a root over the host's read-only tree and serves.

mod apart;
mod virtio;
mod waiting;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::sys::reboot::{RebootMode, reboot};
use vtax_sys::guest_page::applications;

use crate::channel::{Channel, ChannelSpec};
use crate::facts;
use crate::root::mounts::{self, Deferred};
use crate::root::parameters::{ChannelLocation, FolderSource, Lower, Module, Parameters};
use crate::root::{InitError, vsock};
use crate::serve::{Guest, serve_guest};
use vtax_sys::calls::network;
use vtax_sys::reason;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

const HOST_NAME: &str = "vtax-guest";
/// Where workloads find the agent: the file of the running agent is out of their reach.
const AGENT: &str = "/run/vtax/vtax-agent";
const CHANNEL_PATIENCE: Duration = Duration::from_secs(10);
const CHANNEL_ROUND: Duration = Duration::from_millis(5);

/// Be the first process; ends with the machine.
pub fn init() -> ! {
    let result = prepare().and_then(|prepared| match prepared {
        Some(guest) => serve_guest(guest)
            .map(drop)
            .map_err(|error| InitError::new("serve", error)),
        None => Ok(()),
    });
    if let Err(error) = result {
        tell(&error.to_string());
    }
    power_off()
}

/// The error for `init` on a running machine.
pub fn refused() -> Error {
    let reason = "it is only for the first process of a guest";
    Error::misuse("init", reason, "boot a kernel with init=PATH-OF-VTAX-AGENT")
}

/// Make the root and open the channel; `None` when the channel closed while the guest waited.
fn prepare() -> Result<Option<Guest>, InitError> {
    let line = mounts::kernel_command_line()?;
    let parameters: Parameters = line
        .parse()
        .map_err(|error| InitError::new("parameters", error))?;
    parameters.modules.iter().try_for_each(load_module)?;
    let has_devices = matches!(
        parameters.lower,
        Lower::Initramfs | Lower::Host(FolderSource::Disk(_))
    );
    if parameters.wait || has_devices {
        mounts::devices()?;
    }
    let waited = if parameters.wait {
        let mut channel = open_channel(&parameters.channel)?;
        if !waiting::until_entered(&mut channel, facts::uptime_s(&Tree::host())) {
            return Ok(None);
        }
        Some(channel)
    } else {
        None
    };
    let deferred = make_root(&parameters)?;
    // Applications register counters only where this folder is.
    applications::open_folder(Path::new(applications::FOLDER))
        .map_err(|error| InitError::new(applications::FOLDER, reason(&error)))?;
    fs::copy("/proc/self/exe", AGENT).map_err(|error| InitError::new(AGENT, reason(&error)))?;
    network::interface_up("lo").map_err(|errno| InitError::errno("loopback interface", errno))?;
    nix::unistd::sethostname(HOST_NAME).map_err(|errno| InitError::errno("host name", errno))?;
    let channel = match waited {
        Some(channel) => channel,
        None => open_channel(&parameters.channel)?,
    };
    // This machine hosts other guests and switches their paging mode, which needs all of root's
    // capabilities.
    let mounts = match parameters.host {
        None => Some(apart::keep()?),
        Some(_) => None,
    };
    Ok(Some(Guest {
        channel,
        deferred,
        mounts,
    }))
}

/// Returns what the request `enter` is to mount, if such a request is to come.
fn make_root(parameters: &Parameters) -> Result<Option<Deferred>, InitError> {
    match &parameters.lower {
        Lower::Host(tree) => {
            mounts::overlay_root(tree, parameters.work.as_ref())?;
            Ok(None)
        }
        Lower::Initramfs => {
            mounts::initramfs_root()?;
            let (host, work) = (parameters.host.clone(), parameters.work.clone());
            Ok(Some(Deferred::new(host, work)))
        }
    }
}

fn load_module(module: &Module) -> Result<(), InitError> {
    let Module { path, parameters } = module;
    let step = || format!("module {}", path.display());
    let file = File::open(path).map_err(|error| InitError::new(step(), reason(&error)))?;
    let arguments =
        CString::new(parameters.as_str()).map_err(|error| InitError::new(step(), error))?;
    match finit_module(&file, &arguments, ModuleInitFlags::empty()) {
        Ok(()) => Ok(()),
        // The module is built in, or the kernel loaded it itself: its parameters are unknown.
        Err(Errno::EEXIST) if parameters.is_empty() => Ok(()),
        Err(errno) => Err(InitError::errno(step(), errno)),
    }
}

fn open_channel(location: &ChannelLocation) -> Result<Channel, InitError> {
    if let ChannelLocation::Vsock(port) = location {
        return vsock::open(*port).map(Channel::on);
    }
    let path = wait_for_channel(location)?;
    let failed = |error: io::Error| InitError::new(format!("channel {location}"), reason(&error));
    let channel = Channel::open(&ChannelSpec::Path(path.clone())).map_err(failed)?;
    wait_for_peer(&channel, location)?;
    // The channel stays open; no workload may write answers into it.
    fs::remove_file(path).map_err(failed)?;
    Ok(channel)
}

/// Devices appear a moment after their driver.
fn wait_for_channel(location: &ChannelLocation) -> Result<PathBuf, InitError> {
    let deadline = Instant::now() + CHANNEL_PATIENCE;
    loop {
        let found = match location {
            ChannelLocation::Path(path) => path.exists().then(|| path.clone()),
            ChannelLocation::Virtio(name) => virtio::port(&Tree::host(), name),
            ChannelLocation::Vsock(_) => None,
        };
        if let Some(path) = found {
            return Ok(path);
        }
        if Instant::now() > deadline {
            return Err(InitError::new(
                format!("channel {location}"),
                "it does not exist after 10 s",
            ));
        }
        sleep(CHANNEL_ROUND);
    }
}

/// The host opens its end a moment after the device exists. If it was killed before, nobody ever
/// does, and a write to the port would wait for it without end.
fn wait_for_peer(channel: &Channel, location: &ChannelLocation) -> Result<(), InitError> {
    let deadline = Instant::now() + CHANNEL_PATIENCE;
    while channel.has_hung_up() {
        if Instant::now() > deadline {
            let reason = "nobody has opened its other end after 10 s";
            return Err(InitError::new(format!("channel {location}"), reason));
        }
        sleep(CHANNEL_ROUND);
    }
    Ok(())
}

/// Say it on the console or, where that cannot be written, in the kernel's log.
fn tell(message: &str) {
    let line = format!("vtax-agent: {message}\n");
    if io::stderr().write_all(line.as_bytes()).is_err() {
        // A second failure could not be reported to anybody.
        let _ = fs::write("/dev/kmsg", line);
    }
}

/// Write buffered data and end the machine, in whichever way works.
fn power_off() -> ! {
    nix::unistd::sync();
    // QEMU with -no-reboot ends on a restart as well, if the kernel cannot power off.
    for end in [
        RebootMode::RB_POWER_OFF,
        RebootMode::RB_AUTOBOOT,
        RebootMode::RB_HALT_SYSTEM,
    ] {
        // The call returns only if it failed.
        let Err(errno) = reboot(end);
        tell(&format!("init: power off: {}", errno.desc()));
    }
    // The last means is to exit: the kernel panics, and restarts if panic= says so.
    std::process::exit(1)
}
