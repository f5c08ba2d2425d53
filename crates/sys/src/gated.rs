//! A command whose process is made and set up before it may begin.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::wait::waitpid;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, pipe2, write};

use crate::calls::children::{ChildSetup, Image, fork_gated};

/// A command that is set up in its own process and waits to begin.
///
/// When it is dropped, the process ends without beginning.
#[derive(Debug)]
pub struct Gated {
    pub process: Pid,
    gate: OwnedFd,
    report: File,
}

/// A command that was released to begin.
#[derive(Debug)]
pub struct Released {
    pub process: Pid,
    report: File,
}

impl Gated {
    /// Make the process and hold it just before exec, with all of `setup` done.
    ///
    /// Fails with the errno of what could not be made or set up.
    pub fn hold(image: &Image, setup: &ChildSetup) -> Result<Self, Errno> {
        let (gate_read, gate) = pipe2(OFlag::O_CLOEXEC)?;
        let (report, report_write) = pipe2(OFlag::O_CLOEXEC)?;
        let process = fork_gated(
            image,
            (gate_read.as_fd(), gate.as_fd()),
            report_write.as_fd(),
            setup,
        )?;
        drop(report_write);
        let mut report = File::from(report);
        match reported(&mut report) {
            Some(0) => Ok(Self {
                process,
                gate,
                report,
            }),
            other => {
                let _ = waitpid(process, None);
                Err(other.map_or(Errno::ECHILD, Errno::from_raw))
            }
        }
    }

    /// CPU time that the process has used for its set-up; zero where the kernel does not say.
    pub fn used(&self) -> Duration {
        let clock = clock_getcpuclockid(self.process).and_then(clock_gettime);
        clock.map(Duration::from).unwrap_or_default()
    }

    /// Let the command begin.
    ///
    /// Fails with the errno of the system call.
    pub fn release(self) -> Result<Released, Errno> {
        write(&self.gate, &[1])?;
        Ok(Released {
            process: self.process,
            report: self.report,
        })
    }
}

impl Released {
    /// Why the command did not begin; `None` when it did. Waits until that is known.
    pub fn refusal(mut self) -> Option<Errno> {
        reported(&mut self.report).map(Errno::from_raw)
    }
}

/// The next number that the child reports; `None` when it has closed the pipe.
fn reported(pipe: &mut File) -> Option<i32> {
    let mut number = [0; 4];
    pipe.read_exact(&mut number).ok()?;
    Some(i32::from_ne_bytes(number))
}

/// A string for the kernel.
///
/// Fails with EINVAL when there is a zero byte in it.
pub fn c_string(text: impl AsRef<OsStr>) -> Result<CString, Errno> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;

    use nix::sys::wait::WaitStatus;

    use super::*;

    fn image(script: &str) -> Image {
        let words = ["sh", "-c", script].map(|word| c_string(word).unwrap());
        Image::new(c_string("/bin/sh").unwrap(), words.into(), Vec::new())
    }

    #[test]
    fn all_is_set_up_and_the_group_joined_before_the_command_begins() {
        let group = tempfile::NamedTempFile::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let out = File::create(folder.path().join("out")).unwrap();
        let setup = ChildSetup {
            file_limit_bytes: Some(1 << 20),
            cgroup_procs: vec![group.as_file().as_raw_fd()],
            apart: Some(crate::calls::children::Apart {
                folder: c_string(folder.path()).unwrap(),
                files: [
                    File::open("/dev/null").unwrap().into(),
                    out.try_clone().unwrap().into(),
                    out.into(),
                ],
            }),
            ..ChildSetup::default()
        };
        let held = Gated::hold(&image("echo ran"), &setup).unwrap();
        let process = format!("/proc/{}", held.process);
        assert_eq!(fs::read_to_string(group.path()).unwrap(), "0");
        assert_eq!(
            fs::read_link(format!("{process}/cwd")).unwrap(),
            folder.path()
        );
        assert_eq!(
            fs::read_link(format!("{process}/fd/1")).unwrap(),
            folder.path().join("out")
        );
        let limits = fs::read_to_string(format!("{process}/limits")).unwrap();
        let limit = limits
            .lines()
            .find(|line| line.starts_with("Max file size"));
        assert!(limit.unwrap().contains("1048576"), "{limits}");
        let own = nix::unistd::getpgid(Some(held.process)).unwrap();
        assert_eq!(own, held.process);
        // The command never began: the process is still a copy of this program.
        let program = fs::read_link(format!("{process}/exe")).unwrap();
        assert_eq!(program, std::env::current_exe().unwrap());
        assert_eq!(fs::read_to_string(folder.path().join("out")).unwrap(), "");
        let released = held.release().unwrap();
        let ended = waitpid(released.process, None).unwrap();
        assert_eq!(ended, WaitStatus::Exited(released.process, 0));
        assert_eq!(released.refusal(), None);
        assert_eq!(
            fs::read_to_string(folder.path().join("out")).unwrap(),
            "ran\n"
        );
    }

    #[test]
    fn what_cannot_be_set_up_or_begun_has_a_reason() {
        let setup = ChildSetup {
            cgroup_procs: vec![-1],
            ..ChildSetup::default()
        };
        let refused = Gated::hold(&image("exit 0"), &setup).unwrap_err();
        assert_eq!(refused, Errno::EBADF);
        let nothing = Image::new(c_string("/no/such").unwrap(), Vec::new(), Vec::new());
        let held = Gated::hold(&nothing, &ChildSetup::default()).unwrap();
        let released = held.release().unwrap();
        let process = released.process;
        assert_eq!(released.refusal(), Some(Errno::ENOENT));
        assert_eq!(waitpid(process, None), Ok(WaitStatus::Exited(process, 127)));
    }

    #[test]
    fn what_the_set_up_took_is_known_before_the_command_begins() {
        let held = Gated::hold(&image("exit 0"), &ChildSetup::default()).unwrap();
        let used = held.used();
        assert!(
            used > Duration::ZERO && used < Duration::from_secs(1),
            "{used:?}"
        );
        let mut usage = crate::calls::children::Usage {
            user: Duration::from_millis(5),
            system: Duration::from_millis(2),
            ..Default::default()
        };
        usage.subtract(Duration::from_millis(3));
        assert_eq!(usage.system, Duration::ZERO);
        assert_eq!(usage.user, Duration::from_millis(4));
    }

    #[test]
    fn a_command_that_is_dropped_never_begins() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let script = format!("> {}", mark.display());
        let held = Gated::hold(&image(&script), &ChildSetup::default()).unwrap();
        let process = held.process;
        drop(held);
        assert_eq!(waitpid(process, None), Ok(WaitStatus::Exited(process, 127)));
        assert!(!mark.exists());
    }
}
