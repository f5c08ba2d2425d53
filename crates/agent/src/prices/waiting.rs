//! Sleeping, readiness, and bytes that go through the kernel.

use std::io::{self, Read, Write, pipe};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::prices::measure::{Bench, Price, nanoseconds};
use crate::prices::{Operation, operation};

const SLEEP: Duration = Duration::from_micros(100);
/// No byte on the loopback takes as long.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

pub const TABLE: &[Operation] = &[
    operation("sleep", "later than the 100 us asked for", 1.0, |bench| {
        bench.measure(|watch, count| {
            watch.time(|| (0..count).for_each(|_| std::thread::sleep(SLEEP)));
            watch.ns = watch.ns.saturating_sub(count * nanoseconds(SLEEP));
            Ok(count)
        })
    }),
    operation("poll", "one that is ready", 1.0, |bench| {
        let (input, mut output) = pipe()?;
        output.write_all(&[0])?;
        let mut ready = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        bench.each(|| poll(&mut ready, PollTimeout::ZERO))
    }),
    operation("epoll", "one that is ready", 1.0, |bench| {
        let (input, mut output) = pipe()?;
        output.write_all(&[0])?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&input, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let mut ready = [EpollEvent::empty()];
        bench.each(|| epoll.wait(&mut ready, EpollTimeout::ZERO))
    }),
    operation("pipe", "1 byte", 2.0, |bench| through(bench, pipe()?, 1)).of(1),
    operation("pipe", "4 KiB", 2.0, |bench| through(bench, pipe()?, 4096)).of(4096),
    operation("socket", "AF_UNIX, 1 byte", 2.0, |bench| {
        through(bench, UnixStream::pair()?, 1)
    })
    .of(1),
    operation("socket", "AF_UNIX, 4 KiB", 2.0, |bench| {
        through(bench, UnixStream::pair()?, 4096)
    })
    .of(4096),
    operation("tcp", "loopback, 1 byte", 2.0, |bench| {
        through(bench, loopback()?, 1)
    })
    .of(1),
    // As much as the smallest buffers of a socket hold.
    operation("tcp", "loopback, 16 KiB", 2.0, |bench| {
        through(bench, loopback()?, 16 << 10)
    })
    .of(16 << 10),
];

/// Write bytes and read them again at the other end.
fn through(bench: &Bench, ends: (impl Read, impl Write), bytes: usize) -> io::Result<Price> {
    let (mut from, mut to) = ends;
    let mut buffer = vec![0; bytes];
    bench.each(|| {
        to.write_all(&buffer)?;
        from.read_exact(&mut buffer)
    })
}

fn loopback() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = TcpStream::connect_timeout(&listener.local_addr()?, LONGEST_WAIT)?;
    to.set_nodelay(true)?;
    let (from, _) = listener.accept()?;
    from.set_read_timeout(Some(LONGEST_WAIT))?;
    Ok((from, to))
}
