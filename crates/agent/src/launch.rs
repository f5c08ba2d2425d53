//! Starting one command: finding the program, opening the output, preparing the child.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{AccessFlags, access};

use vtax_sys::calls::children::{Apart, ChildSetup, Image};
use vtax_sys::confine::Confinement;
use vtax_sys::gated::{Gated, c_string};

/// The kernel looks at this much of a script (`BINPRM_BUF_SIZE`).
const FIRST_LINE_BYTES: u64 = 256;

/// A command that is ready to be started.
#[derive(Debug)]
pub struct Launch {
    /// Program and arguments; never empty.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Working folder, which exists.
    pub cwd: PathBuf,
    /// The standard input.
    pub stdin: OwnedFd,
    /// Where the standard output goes.
    pub stdout: OwnedFd,
    /// Where the standard error goes.
    pub stderr: OwnedFd,
    /// Largest file that the command may write, in bytes.
    pub file_limit_bytes: Option<u64>,
}

impl Launch {
    /// Why the kernel would not find the program's interpreter; `None`: it would, or none is
    /// needed.
    pub fn missing_interpreter(&self) -> Option<String> {
        let program = self.argv.first()?;
        let found = find_program(program, search_path(&self.env), &self.cwd).ok()?;
        missing_interpreter(&self.cwd.join(found))
    }

    /// Make the command's process in its own process group; the process waits to begin. `mounts` is
    /// the mount namespace to be in. The error says what failed.
    pub fn hold(
        self,
        confinement: &Confinement,
        mounts: Option<&OwnedFd>,
    ) -> Result<Gated, String> {
        let Some(program) = self.argv.first() else {
            return Err("the command is empty".into());
        };
        let found = find_program(program, search_path(&self.env), &self.cwd)?;
        let file_limit_bytes = self.file_limit_bytes.map(within_hard_limit).transpose()?;
        let held = || {
            let environment = self.env.iter().map(|(name, value)| {
                let sign = OsStr::new("=");
                c_string([name, sign, value].into_iter().collect::<OsString>())
            });
            let image = Image::new(
                c_string(found)?,
                self.argv.iter().map(c_string).collect::<Result<_, _>>()?,
                environment.collect::<Result<_, _>>()?,
            );
            let setup = ChildSetup {
                file_limit_bytes,
                user_processes: confinement.user_processes(),
                cgroup_procs: confinement.procs(),
                mounts: mounts.map(AsRawFd::as_raw_fd),
                apart: Some(Apart {
                    folder: c_string(&self.cwd)?,
                    files: [self.stdin, self.stdout, self.stderr],
                }),
            };
            Gated::hold(&image, &setup)
        };
        held().map_err(|errno: Errno| errno.desc().to_owned())
    }
}

/// The interpreter that a script's first line names and that does not exist.
///
/// The kernel gives the same reason as for a program that is missing.
fn missing_interpreter(program: &Path) -> Option<String> {
    let mut first = Vec::new();
    let file = File::open(program).ok()?;
    file.take(FIRST_LINE_BYTES).read_to_end(&mut first).ok()?;
    let line = first
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let blank = |byte: &u8| matches!(*byte, b' ' | b'\t');
    let name = line.split(blank).find(|word| !word.is_empty())?;
    let interpreter = Path::new(OsStr::from_bytes(name));
    let ending = if name.ends_with(b"\r") {
        ": its lines end with CR LF"
    } else {
        ""
    };
    (!interpreter.exists()).then(|| {
        let shown = name.escape_ascii();
        format!("its interpreter {shown} does not exist{ending}")
    })
}

/// A limit above the agent's own cannot be set without privilege.
fn within_hard_limit(limit: u64) -> Result<u64, String> {
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE)
        .map_err(|errno| format!("getrlimit: {}", errno.desc()))?;
    Ok(limit.min(hard))
}

fn search_path(env: &[(OsString, OsString)]) -> Option<&OsStr> {
    env.iter()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value.as_os_str())
}

/// The program as execvp(3) would find it, but with the reason when it is not found.
pub fn find_program(program: &OsStr, path: Option<&OsStr>, cwd: &Path) -> Result<PathBuf, String> {
    if program.as_bytes().contains(&b'/') {
        return Ok(cwd.join(program));
    }
    let Some(path) = path else {
        return Err("its environment has no PATH to find it in".into());
    };
    let mut not_executable = None;
    for folder in std::env::split_paths(path) {
        let candidate = cwd.join(folder).join(program);
        if !candidate.is_file() {
            continue;
        }
        if access(&candidate, AccessFlags::X_OK).is_ok() {
            return Ok(candidate);
        }
        not_executable = Some(candidate);
    }
    Err(match not_executable {
        Some(candidate) => format!("{} is not executable", candidate.display()),
        None => format!("not found in PATH ({})", path.display()),
    })
}

/// Make a working folder and its missing parents, with permissions 0700.
///
/// Fails with the error of the file or descriptor.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Create a file for output in `folder`, empty, with permissions 0600.
///
/// Fails when the file cannot be made, and when a link, pipe or device has its name: somebody else
/// may have prepared it.
pub fn output_file(folder: &Path, name: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        // NONBLOCK: opening a pipe must not wait for its reader.
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
        .open(folder.join(name))?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    fcntl(file.as_fd(), FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn find(program: &str, path: Option<&str>) -> Result<PathBuf, String> {
        find_program(program.as_ref(), path.map(OsStr::new), Path::new("/tmp"))
    }

    #[test]
    fn programs_are_found_in_the_commands_own_path() {
        assert_eq!(find("sh", Some("/nonexistent:/bin")), Ok("/bin/sh".into()));
        assert_eq!(find("./x", None), Ok("/tmp/./x".into()));
        assert_eq!(
            find("sh", None),
            Err("its environment has no PATH to find it in".into())
        );
        assert_eq!(
            find("sh", Some("/etc")),
            Err("not found in PATH (/etc)".into())
        );
        assert_eq!(
            find("passwd", Some("/etc")),
            Err("/etc/passwd is not executable".into())
        );
    }

    #[test]
    fn an_interpreter_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        for (first, named) in [
            ("#!/bin/sh\r\n", Some("/bin/sh\\r")),
            ("#! /no/such -x\n", Some("/no/such")),
            ("#!/bin/sh -e\n", None),
            ("#!", None),
            ("echo\n", None),
        ] {
            std::fs::write(&script, first).unwrap();
            let found = missing_interpreter(&script);
            let named = named.map(|name| format!("its interpreter {name} does not exist"));
            assert_eq!(
                found.map(|text| text.replace(": its lines end with CR LF", "")),
                named
            );
        }
        assert_eq!(missing_interpreter(Path::new("/none")), None);
    }

    #[test]
    fn output_goes_to_regular_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = output_file(folder.path(), "out").unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        symlink("/tmp/elsewhere", folder.path().join("link")).unwrap();
        assert!(output_file(folder.path(), "link").is_err());
        nix::unistd::mkfifo(&folder.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(output_file(folder.path(), "pipe").is_err());
        assert!(output_file(folder.path(), ".").is_err());
    }
}
