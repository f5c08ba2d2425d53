//! Files, by name and open.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open, renameat};
use nix::sys::stat::{Mode, stat};
use nix::unistd::{fsync, mkdir, symlinkat, unlink};

use crate::prices::calls_unsafe::{getdents, readlink};
use crate::prices::measure::{Bench, Price};
use crate::prices::tree::large;
use crate::prices::{Operation, operation};

/// Files that are open at a time.
const GROUP: u64 = 16;
/// Files that are made or deleted at a time, and batches of them. They are few: for minutes after
/// it deleted a file, ext4 looks at it each time that it makes one.
const NEW: u64 = 4;
const FEW: usize = 5;
/// The largest block that disks have.
const BLOCK: usize = 4096;
/// As the C library asks for.
const ENTRIES_BYTES: usize = 32 << 10;

pub const TABLE: &[Operation] = &[
    operation("stat", "short path", 1.0, |bench| bench.each(|| stat(c"/"))),
    operation("stat", "file of the system", 1.0, |bench| {
        let path = bench.tree()?.file().to_owned();
        bench.each(|| stat(path.as_c_str()))
    }),
    operation("stat", "files of the system in turn", 1.0, |bench| {
        let mut paths = bench.tree()?.in_turn();
        bench.each(|| stat(paths.next().unwrap_or_default()))
    }),
    operation("stat", "missing path in the system", 1.0, |bench| {
        bench.each(|| if_there(stat(c"/usr/lib/vtax-has-no-such-file").map(drop)))
    }),
    operation("stat", "own file, deep path", 1.0, |bench| {
        let path = bench.folder()?.deep()?;
        bench.each(|| stat(path.as_c_str()))
    }),
    operation("open", "file of the system", 1.0, |bench| {
        let path = bench.tree()?.file().to_owned();
        bench.making(GROUP, || Ok(open_old(&path)?))
    }),
    operation("open", "files of the system in turn", 1.0, |bench| {
        let mut paths = bench.tree()?.in_turn();
        bench.making(GROUP, || Ok(open_old(paths.next().unwrap_or_default())?))
    }),
    operation("open", "own file, deep path", 1.0, |bench| {
        let path = bench.folder()?.deep()?;
        bench.making(GROUP, || Ok(open_old(&path)?))
    }),
    operation("close", "file of the system", 1.0, |bench| {
        closing(bench, bench.tree()?.file())
    }),
    operation("close", "own file", 1.0, |bench| {
        closing(bench, &bench.folder()?.deep()?)
    }),
    operation("close_duplicate", "", 1.0, |bench| {
        let file = bench.file(1)?;
        let prepare = |(): &mut ()| (0..GROUP).map(|_| file.try_clone()).collect();
        bench.staged(GROUP, (), prepare, |(), files: &mut Vec<File>| {
            files.clear();
            Ok(())
        })
    }),
    // The size is the mean of the bytes that the calls for a folder return, of which the last
    // returns none.
    operation("getdents", "small folders of the system", 1.0, |bench| {
        entries(bench, 0)
    }),
    operation("getdents", "folders of the system", 1.0, |bench| {
        entries(bench, 1)
    }),
    operation("getdents", "large folders of the system", 1.0, |bench| {
        entries(bench, 2)
    }),
    operation(
        "readlink",
        "file of the system, which is no link",
        1.0,
        |bench| {
            let path = bench.tree()?.file().to_owned();
            let mut buffer = [0; 4096];
            bench.each(|| match readlink(&path, &mut buffer) {
                Err(Errno::EINVAL) => Ok(()),
                other => other.map(drop),
            })
        },
    ),
    operation("readlink", "own link", 1.0, |bench| {
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
    operation("read", "1 byte", 1.0, |bench| reading(bench, &large()?, 1)).of(1),
    operation("read", "4 KiB", 1.0, |bench| {
        reading(bench, &large()?, 4096)
    })
    .of(4096),
    operation("read", "64 KiB", 1.0, |bench| {
        reading(bench, &large()?, 65536)
    })
    .of(65536),
    operation("read", "4 KiB, the first of a file", 1.0, first_read).of(4096),
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
    operation("read_disk", "4 KiB, past the page cache", 1.0, |bench| {
        let file = direct(bench, OFlag::O_RDONLY)?;
        past_the_cache(bench, |buffer| file.read_exact_at(buffer, 0))
    })
    .of(4096),
    operation("write_disk", "4 KiB, through to the disk", 1.0, |bench| {
        let file = direct(bench, OFlag::O_WRONLY | OFlag::O_DSYNC)?;
        past_the_cache(bench, |buffer| file.write_all_at(buffer, 0))
    })
    .of(4096),
];

/// A file without a cache. A file system in memory may refuse.
fn direct(bench: &Bench, flags: OFlag) -> io::Result<File> {
    bench.file(BLOCK)?;
    let path = bench.folder()?.path("file")?;
    let flags = flags | OFlag::O_DIRECT | OFlag::O_CLOEXEC;
    Ok(File::from(open(path.as_c_str(), flags, Mode::empty())?))
}

/// Work on a block of memory that is aligned as disks want it.
fn past_the_cache(
    bench: &Bench,
    mut work: impl FnMut(&mut [u8]) -> io::Result<()>,
) -> io::Result<Price> {
    let mut space = vec![0; 2 * BLOCK];
    let start = space.as_ptr().align_offset(BLOCK).min(BLOCK);
    bench.each(|| work(&mut space[start..start + BLOCK]))
}

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

fn open_old(path: &CStr) -> nix::Result<OwnedFd> {
    open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

fn open_new(path: &CStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    open(path, flags, Mode::S_IRUSR | Mode::S_IWUSR)
}

fn closing(bench: &Bench, path: &CStr) -> io::Result<Price> {
    let prepare = |(): &mut ()| (0..GROUP).map(|_| Ok(open_old(path)?)).collect();
    bench.staged(GROUP, (), prepare, |(), files: &mut Vec<OwnedFd>| {
        files.clear();
        Ok(())
    })
}

/// The calls that read a folder to its end: each folder of a third of the system's in turn.
fn entries(bench: &Bench, third: usize) -> io::Result<Price> {
    let folders: Vec<&Path> = bench.tree()?.folders(third).collect();
    let mut in_turn = folders.iter().cycle();
    let (mut all_bytes, mut all_calls, mut buffer) = (0, 0, vec![0; ENTRIES_BYTES]);
    let price = bench.measure(|watch, count| {
        let mut calls = 0;
        while calls < count {
            let folder = File::open(in_turn.next().copied().unwrap_or(Path::new("/")))?;
            watch.time(|| {
                loop {
                    let bytes = getdents(&folder, &mut buffer)?;
                    (calls, all_bytes) = (calls + 1, all_bytes + bytes);
                    if bytes == 0 {
                        return io::Result::Ok(());
                    }
                }
            })?;
        }
        all_calls += calls;
        Ok(calls)
    })?;
    Ok(price.of(all_bytes / all_calls))
}

/// The first read of each file of the system in turn, after another reader has brought it to the
/// page cache.
fn first_read(bench: &mut Bench) -> io::Result<Price> {
    let mut paths = bench.tree()?.in_turn();
    let open = |buffer: &mut [u8; 4096]| {
        let path = paths.next().unwrap_or_default();
        File::from(open_old(path)?).read_at(buffer, 0)?;
        Ok(File::from(open_old(path)?))
    };
    bench.staged(1, [0; 4096], open, |buffer, file| {
        file.read_at(buffer, 0).map(drop)
    })
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
