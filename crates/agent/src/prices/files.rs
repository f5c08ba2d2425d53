//! Files, by name and open.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open, renameat};
use nix::sys::stat::{Mode, stat};
use nix::unistd::{Whence, fsync, lseek, mkdir, symlinkat, unlink};

use crate::prices::calls_unsafe::{getdents, readlink};
use crate::prices::measure::{Bench, Price};
use crate::prices::{Operation, operation};

/// Files that are open at a time.
const GROUP: u64 = 16;
/// Files that are made or deleted at a time, and batches of them. They are few: for minutes after
/// it deleted a file, ext4 looks at it each time that it makes one.
const NEW: u64 = 4;
const FEW: usize = 5;
/// Entries of the largest folder here take a third of it.
const ENTRIES_BYTES: usize = 32 << 10;

pub const TABLE: &[Operation] = &[
    operation("stat", "short path", 1.0, |bench| bench.each(|| stat(c"/"))),
    operation("stat", "deep path", 1.0, |bench| {
        let path = bench.folder()?.deep()?;
        bench.each(|| stat(path.as_c_str()))
    }),
    operation("stat", "missing path", 1.0, |bench| {
        let path = bench.folder()?.path("missing")?;
        bench.each(|| if_there(stat(path.as_c_str()).map(drop)))
    }),
    operation("stat", "this program", 1.0, |bench| {
        let path = this_program()?;
        bench.each(|| stat(path.as_c_str()))
    }),
    operation("open", "short path", 1.0, |bench| {
        bench.file(1)?;
        opening(bench, &bench.folder()?.path("file")?)
    }),
    operation("open", "deep path", 1.0, |bench| {
        opening(bench, &bench.folder()?.deep()?)
    }),
    operation("open", "this program", 1.0, |bench| {
        opening(bench, &this_program()?)
    }),
    operation("close", "", 1.0, |bench| {
        let path = bench.folder()?.deep()?;
        let prepare = |(): &mut ()| (0..GROUP).map(|_| Ok(open_old(&path)?)).collect();
        bench.staged(GROUP, (), prepare, |(), files: &mut Vec<OwnedFd>| {
            files.clear();
            Ok(())
        })
    }),
    // The size is in bytes of entries; the last call for a folder returns none.
    operation("getdents", "at the end", 1.0, |bench| entries(bench, 0)),
    operation("getdents", "8 entries", 1.0, |bench| entries(bench, 8)),
    operation("getdents", "64 entries", 1.0, |bench| entries(bench, 64)),
    operation("getdents", "256 entries", 1.0, |bench| entries(bench, 256)),
    operation("readlink", "", 1.0, |bench| {
        let path = bench.folder()?.path("link")?;
        symlinkat(c"somewhere/else", AT_FDCWD, path.as_c_str())?;
        let mut buffer = [0; 4096];
        bench.each(|| readlink(&path, &mut buffer))
    }),
    operation("read", "/dev/zero", 1.0, |bench| {
        reading(bench, &File::open("/dev/zero")?, 1)
    })
    .structural()
    .of(1),
    operation("read", "1 byte", 1.0, |bench| read(bench, 1)).of(1),
    operation("read", "4 KiB", 1.0, |bench| read(bench, 4096)).of(4096),
    operation("read", "64 KiB", 1.0, |bench| read(bench, 65536)).of(65536),
    operation("write", "/dev/null", 1.0, |bench| {
        writing(bench, &File::options().write(true).open("/dev/null")?, 1)
    })
    .structural()
    .of(1),
    operation("write", "1 byte", 1.0, |bench| write(bench, 1)).of(1),
    operation("write", "4 KiB", 1.0, |bench| write(bench, 4096)).of(4096),
    operation("write", "64 KiB", 1.0, |bench| write(bench, 65536)).of(65536),
    operation("create", "", 1.0, |bench| {
        bench.most = FEW;
        let folder = bench.folder()?;
        let prepare = |made: &mut u64| Ok((folder.more("created", made, NEW)?, Vec::new()));
        bench.staged(NEW, 0, prepare, |_, (paths, files)| {
            let made: nix::Result<Vec<OwnedFd>> = paths.iter().map(|path| open_new(path)).collect();
            *files = made?;
            Ok(())
        })
    }),
    operation("mkdir", "", 1.0, |bench| {
        bench.most = FEW;
        let folder = bench.folder()?;
        let prepare = |made: &mut u64| folder.more("folder", made, NEW);
        bench.staged(NEW, 0, prepare, |_, paths| {
            over(paths, |path| mkdir(path, Mode::S_IRWXU))
        })
    }),
    operation("unlink", "", 1.0, |bench| {
        bench.most = FEW;
        let paths = bench.folder()?.more("unlinked", &mut 0, NEW)?;
        let prepare = |(): &mut ()| over(&paths, |path| open_new(path).map(drop));
        bench.staged(NEW, (), prepare, |(), ()| over(&paths, unlink))
    }),
    operation("rename", "", 1.0, |bench| {
        bench.file(1)?;
        let mut from = bench.folder()?.path("file")?;
        let mut to = bench.folder()?.path("renamed")?;
        bench.each(|| {
            renameat(AT_FDCWD, from.as_c_str(), AT_FDCWD, to.as_c_str())?;
            std::mem::swap(&mut from, &mut to);
            Ok::<_, Errno>(())
        })
    }),
    operation("fsync", "after 4 KiB written", 1.0, |bench| {
        let file = bench.file(4096)?;
        let prepare = |(): &mut ()| file.write_all_at(&[2; 4096], 0);
        bench.staged(1, (), prepare, |(), ()| Ok(fsync(&file)?))
    })
    .of(4096),
];

fn over(paths: &[CString], call: impl Fn(&CStr) -> nix::Result<()>) -> io::Result<()> {
    paths.iter().try_for_each(|path| Ok(call(path)?))
}

/// A missing path is no failure.
fn if_there(result: nix::Result<()>) -> nix::Result<()> {
    result.or_else(|errno| {
        if errno == Errno::ENOENT {
            Ok(())
        } else {
            Err(errno)
        }
    })
}

fn this_program() -> io::Result<CString> {
    let path = fs::read_link("/proc/self/exe")?;
    Ok(CString::new(path.into_os_string().into_vec())?)
}

fn open_old(path: &CStr) -> nix::Result<OwnedFd> {
    open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

fn open_new(path: &CStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    open(path, flags, Mode::S_IRUSR | Mode::S_IWUSR)
}

fn opening(bench: &Bench, path: &CStr) -> io::Result<Price> {
    bench.making(GROUP, || Ok(open_old(path)?))
}

/// One call that returns all of this many entries; 0: one behind them.
fn entries(bench: &Bench, count: u64) -> io::Result<Price> {
    let folder = bench.folder()?.with_entries(count.max(1))?;
    let mut buffer = vec![0; ENTRIES_BYTES];
    let bytes = getdents(&folder, &mut buffer)?;
    if getdents(&folder, &mut buffer)? > 0 {
        return Err(io::Error::other("one call does not return all entries"));
    }
    let end = lseek(&folder, 0, Whence::SeekCur)?;
    let offset = if count > 0 { 0 } else { end };
    let price = bench.staged(
        1,
        buffer,
        |_| Ok(lseek(&folder, offset, Whence::SeekSet)?),
        |buffer, _| Ok(getdents(&folder, buffer).map(drop)?),
    )?;
    Ok(price.of(if count > 0 { bytes } else { 0 }))
}

fn read(bench: &Bench, bytes: usize) -> io::Result<Price> {
    reading(bench, &bench.file(bytes)?, bytes)
}

fn reading(bench: &Bench, file: &File, bytes: usize) -> io::Result<Price> {
    let mut buffer = vec![0; bytes];
    bench.each(|| file.read_exact_at(&mut buffer, 0))
}

fn write(bench: &Bench, bytes: usize) -> io::Result<Price> {
    writing(bench, &bench.file(bytes)?, bytes)
}

fn writing(bench: &Bench, file: &File, bytes: usize) -> io::Result<Price> {
    let buffer = vec![3; bytes];
    bench.each(|| file.write_all_at(&buffer, 0))
}
