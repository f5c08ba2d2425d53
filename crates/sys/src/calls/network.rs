//! Network interfaces.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::descriptors::made;

/// `IFF_PERSIST` and the two requests of `linux/if_tun.h` that libc lacks.
const IFF_PERSIST: libc::c_short = 0x0800;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNSETPERSIST: libc::c_ulong = 0x4004_54cb;

/// Bring a network interface up (SIOCGIFFLAGS, SIOCSIFFLAGS; netdevice(7)).
///
/// Fails with the errno of the system call.
pub fn interface_up(name: &str) -> Result<(), Errno> {
    // SAFETY: all-zero is a valid ifreq (plain data).
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(Errno::ENAMETOOLONG);
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: socket takes no pointer.
    let number = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let socket = made(number.into())?;
    // SAFETY: the request is a live ifreq, as both calls take.
    Errno::result(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request)
    })?;
    // SAFETY: SIOCGIFFLAGS has filled this member of the union; IFF_UP is bit 0.
    unsafe { request.ifr_ifru.ifru_flags |= 1 };
    // SAFETY: as for SIOCGIFFLAGS.
    let set = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    Errno::result(set).map(drop)
}

/// The name of a tap device and whether the device stays when its last user ends.
///
/// Fails with the errno of the system call.
pub fn tap(descriptor: BorrowedFd<'_>) -> Result<(String, bool), Errno> {
    // SAFETY: all-zero is a valid ifreq (plain data).
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the request is a live ifreq, as the call takes.
    Errno::result(unsafe { libc::ioctl(descriptor.as_raw_fd(), TUNGETIFF, &raw mut request) })?;
    let name: Vec<u8> = request
        .ifr_name
        .iter()
        .flat_map(|letter| letter.to_ne_bytes())
        .take_while(|letter| *letter != 0)
        .collect();
    // SAFETY: TUNGETIFF has filled this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok((
        String::from_utf8_lossy(&name).into_owned(),
        flags & IFF_PERSIST != 0,
    ))
}

/// Choose whether a tap device stays when its last user ends.
///
/// Fails with the errno of the system call.
pub fn set_tap_persistent(descriptor: BorrowedFd<'_>, stays: bool) -> Result<(), Errno> {
    // SAFETY: the request takes a number.
    let result = unsafe {
        libc::ioctl(
            descriptor.as_raw_fd(),
            TUNSETPERSIST,
            libc::c_ulong::from(stays),
        )
    };
    Errno::result(result).map(drop)
}
