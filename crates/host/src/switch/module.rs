//! The vendor module of KVM: which one, its parameter, its file, unloading and loading.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use serde::{Deserialize, Serialize};

use crate::switch::error::{Failure, SwitchError};
use vtax_sys::kvm::{self, PagingMode, Vendor};
use vtax_sys::tree::Tree;

/// `MODULE_INIT_COMPRESSED_FILE` of linux/module.h: the kernel unpacks the file (6.0 on).
const COMPRESSED: u32 = 4;
/// KVM's device. The kernel makes it anew with the module, for root alone, and udev gives it to
/// others later: too late for the QEMU of another user.
const DEVICE: &str = "/dev/kvm";
/// Expedited RCU grace periods make unloading a module fast.
pub(crate) const EXPEDITED: &str = "/sys/kernel/rcu_expedited";
/// The pause between two tries to unload a module whose last user is just leaving.
const NAP: Duration = Duration::from_millis(1);

/// A loaded vendor module that can be loaded again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// `kvm_amd` or `kvm_intel`.
    pub name: String,
    /// `npt` or `ept`.
    pub parameter: String,
    /// The file that the module is loaded from.
    pub file: PathBuf,
    /// The other parameters that this host is configured to load the module with.
    pub options: Vec<String>,
    /// Owner, group and permissions of [`DEVICE`].
    #[serde(default)]
    pub device: Option<(u32, u32, u32)>,
}

impl Module {
    /// Find the loaded module and its file: `file` when given, else the system's.
    ///
    /// Fails with `Refused` when no vendor module is loaded, when it is built in or has no
    /// parameter for the mode, or when its file is not found.
    pub fn find(tree: &Tree, file: Option<&Path>) -> Result<Self, SwitchError> {
        let Some(Vendor {
            module: name,
            parameter,
        }) = kvm::vendor(tree)
        else {
            if cfg!(target_arch = "aarch64") {
                return Err(SwitchError::refused(
                    "KVM",
                    "on arm64 it has no shadow paging",
                    "switch on an x86-64 host",
                ));
            }
            return Err(SwitchError::refused(
                "KVM",
                "neither kvm_amd nor kvm_intel is loaded",
                "load one of them, or run this on the host that has the guests",
            ));
        };
        if !tree.exists(&format!("/sys/module/{name}/initstate")) {
            return Err(SwitchError::refused(
                name,
                "it is built into this kernel and cannot be loaded again",
                "use a kernel that has it as a module, or start with the parameter on the kernel \
                 command line",
            ));
        }
        if !tree.exists(&format!("/sys/module/{name}/parameters/{parameter}")) {
            return Err(SwitchError::refused(
                name,
                format!("it has no parameter {parameter}"),
                "use a kernel whose KVM has shadow paging",
            ));
        }
        let file = match file {
            Some(file) => tree.path(&file.to_string_lossy()),
            None => find_file(tree, name).ok_or_else(|| {
                SwitchError::refused(
                    name,
                    "its file is not in /lib/modules of this kernel nor in /modules",
                    "name it with --module-path, or install the modules of the running kernel",
                )
            })?,
        };
        if !file.is_file() {
            return Err(SwitchError::refused(
                file.display().to_string(),
                "no such file",
                "name the module's file with --module-path",
            ));
        }
        Ok(Self {
            name: name.into(),
            parameter: parameter.into(),
            file,
            options: other_parameters(tree, name, parameter),
            device: fs::metadata(tree.path(DEVICE))
                .ok()
                .map(|about| (about.uid(), about.gid(), about.mode() & 0o7777)),
        })
    }

    /// The mode of the loaded module; `None`: it is not loaded.
    pub fn mode(&self, tree: &Tree) -> Option<PagingMode> {
        kvm::paging_mode(tree, &self.name, &self.parameter)
    }

    /// How many users the kernel counts; `None`: it does not say.
    pub fn users(&self, tree: &Tree) -> Option<u64> {
        tree.text(&format!("/sys/module/{}/refcnt", self.name))?
            .parse()
            .ok()
    }

    /// Unload the module; waits for users that are just leaving.
    ///
    /// Fails when the module is still in use after `patience`, or when the kernel refuses. A module
    /// that is not loaded is no error.
    pub fn unload(&self, patience: Duration) -> Result<(), Failure> {
        let name = CString::new(self.name.as_str())
            .map_err(|_| Failure::Other("a module's name has no zero byte".into()))?;
        let deadline = Instant::now() + patience;
        loop {
            match delete_module(&name, DeleteModuleFlags::O_NONBLOCK) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                Err(Errno::EWOULDBLOCK | Errno::EBUSY) if Instant::now() < deadline => {
                    std::thread::sleep(NAP);
                }
                Err(errno) => return Err(Failure::Call(format!("unload {}", self.name), errno)),
            }
        }
    }

    /// Load the module in `mode`, and give [`DEVICE`] to whom it belonged.
    ///
    /// Fails when the file cannot be opened, when the kernel (`modprobe` for a file that the kernel
    /// cannot unpack) refuses the module, or when there is no device then. A module that is loaded
    /// already is no error.
    pub fn load(&self, mode: PagingMode) -> Result<(), Failure> {
        self.insert(mode)?;
        let Some((user, group, permissions)) = self.device else {
            return Ok(());
        };
        chown(DEVICE, Some(user), Some(group))
            .and_then(|()| fs::set_permissions(DEVICE, Permissions::from_mode(permissions)))
            .map_err(Failure::file(DEVICE))
    }

    fn insert(&self, mode: PagingMode) -> Result<(), Failure> {
        let mut parameters = self.options.clone();
        let flag = u8::from(mode == PagingMode::Nested);
        parameters.push(format!("{}={flag}", self.parameter));
        let text = CString::new(parameters.join(" "))
            .map_err(|_| Failure::Other("a module parameter has a zero byte".into()))?;
        let compressed = self.file.extension().is_some_and(|end| end != "ko");
        let flags = if compressed { COMPRESSED } else { 0 };
        let file = File::open(&self.file).map_err(Failure::file(&self.file))?;
        match finit_module(&file, &text, ModuleInitFlags::from_bits_retain(flags)) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            // This kernel does not unpack modules; modprobe does.
            Err(Errno::EOPNOTSUPP | Errno::EINVAL) if compressed => self.modprobe(&parameters),
            Err(errno) => Err(Failure::Call(format!("load {}", self.name), errno)),
        }
    }

    fn modprobe(&self, parameters: &[String]) -> Result<(), Failure> {
        let output = Command::new("modprobe")
            .arg(&self.name)
            .args(parameters)
            .stdin(Stdio::null())
            .output()
            .map_err(Failure::file("modprobe"))?;
        if output.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::Other(format!("modprobe {}: {reason}", self.name)))
    }
}

/// Where a kernel's modules are listed: by depmod, and by the kernel's build, whose list an unpacked
/// package has alone.
const LISTS: [&str; 2] = ["modules.dep", "modules.order"];

fn find_file(tree: &Tree, name: &str) -> Option<PathBuf> {
    let release = tree.text("/proc/sys/kernel/osrelease")?;
    let folder = format!("/lib/modules/{release}");
    let listed = LISTS.into_iter().find_map(|list| {
        let list = tree.text(&format!("{folder}/{list}"))?;
        let paths = list.lines().filter_map(|line| line.split(':').next());
        let mut of_name = paths.filter(|path| is_module(path, name));
        of_name.find_map(|path| existing(tree, &format!("{folder}/{path}")))
    });
    // An initramfs of vtax has its modules in this folder (docs/host.md).
    listed.or_else(|| {
        let path = tree.path(&format!("/modules/{name}.ko"));
        path.is_file().then_some(path)
    })
}

/// The file, or its compressed form, which `modules.order` does not name.
fn existing(tree: &Tree, path: &str) -> Option<PathBuf> {
    let forms = ["", ".xz", ".zst", ".gz"].map(|end| tree.path(&format!("{path}{end}")));
    forms.into_iter().find(|path| path.is_file())
}

/// Is this the module's file, with `-` or `_` in its name, compressed or not?
fn is_module(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split_once('.')
        .is_some_and(|(stem, end)| stem.replace('-', "_") == name && end.starts_with("ko"))
}

/// The parameters that modprobe.d(5) and the kernel's command line give the module, except
/// `parameter`.
fn other_parameters(tree: &Tree, name: &str, parameter: &str) -> Vec<String> {
    let mut found = Vec::new();
    // A file in /etc replaces files of the same name in the other folders.
    let mut seen: Vec<String> = Vec::new();
    for folder in [
        "/etc/modprobe.d",
        "/run/modprobe.d",
        "/usr/lib/modprobe.d",
        "/lib/modprobe.d",
    ] {
        for file in tree.names(folder) {
            if Path::new(&file).extension().is_none_or(|end| end != "conf") || seen.contains(&file)
            {
                continue;
            }
            let text = tree.text(&format!("{folder}/{file}")).unwrap_or_default();
            found.extend(text.lines().flat_map(|line| parameters_of(line, name)));
            seen.push(file);
        }
    }
    let line = tree.text("/proc/cmdline").unwrap_or_default();
    for word in line.split_ascii_whitespace() {
        if let Some((module, given)) = word.split_once('.')
            && module.replace('-', "_") == name
        {
            found.push(given.to_owned());
        }
    }
    found.retain(|given| given.split('=').next() != Some(parameter));
    found
}

fn parameters_of(line: &str, name: &str) -> Vec<String> {
    let mut words = line.split_ascii_whitespace();
    let found = words.next() == Some("options")
        && words
            .next()
            .is_some_and(|module| module.replace('-', "_") == name);
    if found {
        words.map(str::to_owned).collect()
    } else {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = Tree::at(folder.path());
        (folder, tree)
    }

    #[test]
    fn the_module_is_found_with_the_parameters_of_this_host() {
        let (_folder, tree) = tree(&[
            ("sys/module/kvm_amd/initstate", "live\n"),
            ("sys/module/kvm_amd/parameters/npt", "Y\n"),
            ("sys/module/kvm_amd/refcnt", "3\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-test\n"),
            (
                "proc/cmdline",
                "quiet kvm-amd.avic=1 kvm_amd.npt=1 kvm.x=y\n",
            ),
            (
                "etc/modprobe.d/kvm.conf",
                "options kvm_amd nested=0 npt=1\noptions kvm a=b\n",
            ),
            ("lib/modprobe.d/kvm.conf", "options kvm_amd sev=1\n"),
            (
                "lib/modules/6.1.0-test/modules.dep",
                "kernel/a/kvm-amd.ko.xz: kernel/a/kvm.ko.xz\n",
            ),
            ("lib/modules/6.1.0-test/kernel/a/kvm-amd.ko.xz", ""),
        ]);
        let module = Module::find(&tree, None).unwrap();
        assert_eq!(
            (module.name.as_str(), module.parameter.as_str()),
            ("kvm_amd", "npt")
        );
        assert!(module.file.ends_with("kernel/a/kvm-amd.ko.xz"));
        assert_eq!(module.options, ["nested=0", "avic=1"]);
        assert_eq!(module.mode(&tree), Some(PagingMode::Nested));
        assert_eq!(module.users(&tree), Some(3));
    }

    #[test]
    fn an_unpacked_package_is_enough() {
        let (_folder, tree) = tree(&[
            ("sys/module/kvm_intel/initstate", "live\n"),
            ("sys/module/kvm_intel/parameters/ept", "Y\n"),
            ("proc/sys/kernel/osrelease", "6.12\n"),
            (
                "lib/modules/6.12/modules.order",
                "kernel/a/kvm.ko\nkernel/a/kvm-intel.ko\n",
            ),
            ("lib/modules/6.12/kernel/a/kvm-intel.ko.xz", ""),
        ]);
        let module = Module::find(&tree, None).unwrap();
        assert!(module.file.ends_with("kernel/a/kvm-intel.ko.xz"));
    }

    #[test]
    fn what_cannot_be_loaded_again_is_refused() {
        let (_folder, none) = tree(&[("proc/cmdline", "")]);
        assert!(
            Module::find(&none, None)
                .unwrap_err()
                .to_string()
                .contains("neither")
        );
        let (_folder, built_in) = tree(&[("sys/module/kvm_amd/parameters/npt", "Y")]);
        let error = Module::find(&built_in, None).unwrap_err().to_string();
        assert!(error.contains("built into"), "{error}");
        let (_folder, no_file) = tree(&[
            ("sys/module/kvm_intel/initstate", "live"),
            ("sys/module/kvm_intel/parameters/ept", "N"),
        ]);
        let error = Module::find(&no_file, None).unwrap_err().to_string();
        assert!(error.contains("--module-path"), "{error}");
    }
}
