//! Connections from a guest to its host by vsock (vsock(7)).

use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, VsockAddr, connect, socket};

use crate::root::InitError;

/// The address of the host (`VMADDR_CID_HOST`).
const HOST: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(10);
const ROUND: Duration = Duration::from_millis(5);

/// Connect to a port of the host's.
///
/// The device appears a moment after its driver, and who listens may begin later still: fails with
/// the last attempt's error after 10 s.
pub(crate) fn open(port: u32) -> Result<OwnedFd, InitError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt(port) {
            Err(_) if Instant::now() < deadline => sleep(ROUND),
            done => {
                return done.map_err(|errno| InitError::errno(format!("vsock:{port}"), errno));
            }
        }
    }
}

fn attempt(port: u32) -> nix::Result<OwnedFd> {
    let kind = SockType::Stream;
    let opened = socket(AddressFamily::Vsock, kind, SockFlag::SOCK_CLOEXEC, None)?;
    connect(opened.as_raw_fd(), &VsockAddr::new(HOST, port))?;
    Ok(opened)
}
