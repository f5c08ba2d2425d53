//! The `vtax.*` parameters on the kernel's command line (PROTOCOL.md).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// Why the command line cannot be followed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ParameterError {
    /// A required parameter, without which there is no root or no channel.
    #[error("{0} is missing on the kernel's command line")]
    Missing(&'static str),
    /// A value in an unknown form.
    #[error("{0}={1} is not of a known form")]
    Form(&'static str, String),
}

/// A folder that the guest sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FolderSource {
    /// A host path, by user-mode Linux's hostfs.
    Hostfs(PathBuf),
    /// A 9p export of the host.
    Plan9(Export),
    /// A block device that has a root on it or on one of its partitions.
    Disk(PathBuf),
}

/// A 9p export, or a folder of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// How the kernel reaches it: the value of the mount option `trans`.
    pub transport: String,
    /// The export's tag.
    pub tag: String,
    /// The folder to use; `None`: the whole export. To use a folder that becomes a mount point
    /// later, export the folder above it.
    pub folder: Option<String>,
}

const USUAL_TRANSPORT: &str = "virtio";

impl Export {
    /// `TAG` or `TAG/FOLDER`.
    fn parse(transport: &str, text: &str) -> Option<Self> {
        let (tag, folder) = match text.split_once('/') {
            Some((tag, folder)) => (tag, Some(folder)),
            None => (text, None),
        };
        if tag.is_empty() || folder.is_some_and(str::is_empty) {
            return None;
        }
        Some(Self {
            transport: transport.into(),
            tag: tag.into(),
            folder: folder.map(Into::into),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelLocation {
    /// A device.
    Path(PathBuf),
    /// The name of a virtio-serial port.
    Virtio(String),
    /// A port of the host's, by vsock.
    Vsock(u32),
}

impl fmt::Display for ChannelLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(formatter, "{}", path.display()),
            Self::Virtio(name) => write!(formatter, "virtio:{name}"),
            Self::Vsock(port) => write!(formatter, "vsock:{port}"),
        }
    }
}

/// What the root is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lower {
    /// An overlay over this tree.
    Host(FolderSource),
    Initramfs,
}

/// A kernel module and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its file, uncompressed.
    pub path: PathBuf,
    /// Its parameters as the kernel takes them: `name=value name=value`.
    pub parameters: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    pub lower: Lower,
    /// The 9p export with the host's tree, mounted by the request `enter`; only with
    /// [`Lower::Initramfs`].
    pub host: Option<Export>,
    pub work: Option<FolderSource>,
    /// Kernel modules to load, in order.
    pub modules: Vec<Module>,
    /// Ask for the request `enter` before the root is made and requests are served.
    pub wait: bool,
    /// Where to serve.
    pub channel: ChannelLocation,
}

impl FromStr for Parameters {
    type Err = ParameterError;

    fn from_str(line: &str) -> Result<Self, ParameterError> {
        // As with the kernel's own parameters, the last of several wins.
        let value = |name: &'static str| {
            line.split_whitespace()
                .filter_map(|word| word.strip_prefix(name)?.strip_prefix('='))
                .next_back()
        };
        let required = |name| value(name).ok_or(ParameterError::Missing(name));
        let lower = lower(required("vtax.lower")?)?;
        Ok(Self {
            host: value("vtax.host")
                .map(|text| host(text, &lower))
                .transpose()?,
            work: value("vtax.work")
                .map(|text| source("vtax.work", text))
                .transpose()?,
            modules: modules(value("vtax.modules").unwrap_or_default())?,
            wait: wait(value("vtax.wait"))?,
            channel: channel(required("vtax.channel")?)?,
            lower,
        })
    }
}

/// `initramfs`, or a tree of the host.
fn lower(text: &str) -> Result<Lower, ParameterError> {
    match text {
        "initramfs" => Ok(Lower::Initramfs),
        _ => source("vtax.lower", text).map(Lower::Host),
    }
}

/// `hostfs`, `hostfs:PATH`, `disk:DEVICE`, or `9p:TAG`, `9p:TAG/FOLDER` and, by another transport than
/// virtio, `9p.TRANSPORT:TAG`.
fn source(name: &'static str, text: &str) -> Result<FolderSource, ParameterError> {
    let form = || ParameterError::Form(name, text.into());
    match text.split_once(':').unwrap_or((text, "")) {
        ("hostfs", "") if name == "vtax.lower" => Ok(FolderSource::Hostfs("/".into())),
        ("hostfs", path) if path.starts_with('/') => Ok(FolderSource::Hostfs(path.into())),
        ("disk", path) if name == "vtax.lower" && path.starts_with("/dev/") => {
            Ok(FolderSource::Disk(path.into()))
        }
        (kind, export) => transport(kind)
            .and_then(|transport| Export::parse(transport, export))
            .map(FolderSource::Plan9)
            .ok_or_else(form),
    }
}

/// What is between `9p` and the tag; a mount option, and so only of letters.
fn transport(kind: &str) -> Option<&str> {
    match kind.split_once('.') {
        None => (kind == "9p").then_some(USUAL_TRANSPORT),
        Some((name, transport)) => {
            let is_word =
                !transport.is_empty() && transport.bytes().all(|b| b.is_ascii_lowercase());
            (name == "9p" && is_word).then_some(transport)
        }
    }
}

/// `9p:TAG`; refused where the root is already made from the host's tree.
fn host(text: &str, lower: &Lower) -> Result<Export, ParameterError> {
    match source("vtax.host", text)? {
        FolderSource::Plan9(export) if *lower == Lower::Initramfs => Ok(export),
        _ => Err(ParameterError::Form("vtax.host", text.into())),
    }
}

/// `1` or `0`.
fn wait(text: Option<&str>) -> Result<bool, ParameterError> {
    match text {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(ParameterError::Form("vtax.wait", other.into())),
    }
}

/// `PATH[?NAME=VALUE[&NAME=VALUE...]]`, several separated by colons.
fn modules(text: &str) -> Result<Vec<Module>, ParameterError> {
    text.split(':')
        .filter(|word| !word.is_empty())
        .map(|word| module(word).ok_or_else(|| ParameterError::Form("vtax.modules", word.into())))
        .collect()
}

fn module(word: &str) -> Option<Module> {
    let Some((path, parameters)) = word.split_once('?') else {
        return Some(Module {
            path: word.into(),
            parameters: String::new(),
        });
    };
    let pairs: Vec<&str> = parameters.split('&').collect();
    let is_pair = |pair: &&str| matches!(pair.split_once('='), Some((name, _)) if !name.is_empty());
    (!path.is_empty() && pairs.iter().all(is_pair)).then(|| Module {
        path: path.into(),
        parameters: pairs.join(" "),
    })
}

fn channel(text: &str) -> Result<ChannelLocation, ParameterError> {
    let known = match text.split_once(':') {
        Some(("virtio", name)) if !name.is_empty() => Some(ChannelLocation::Virtio(name.into())),
        Some(("vsock", port)) => port.parse().ok().map(ChannelLocation::Vsock),
        _ if text.starts_with('/') => Some(ChannelLocation::Path(text.into())),
        _ => None,
    };
    known.ok_or_else(|| ParameterError::Form("vtax.channel", text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(tag: &str) -> FolderSource {
        FolderSource::Plan9(Export {
            transport: "virtio".into(),
            tag: tag.into(),
            folder: None,
        })
    }

    fn plain(path: &str) -> Module {
        Module {
            path: path.into(),
            parameters: String::new(),
        }
    }

    #[test]
    fn a_user_mode_linux_guest() {
        let line = "mem=256M quiet vtax.lower=hostfs vtax.work=hostfs:/run/vtax/work \
                    vtax.channel=/dev/ttyS0 vtax.modules=/a/overlay.ko";
        let parameters: Parameters = line.parse().unwrap();
        assert_eq!(
            parameters.lower,
            Lower::Host(FolderSource::Hostfs("/".into()))
        );
        assert_eq!(
            parameters.work,
            Some(FolderSource::Hostfs("/run/vtax/work".into()))
        );
        assert_eq!(parameters.modules, [plain("/a/overlay.ko")]);
        assert_eq!((parameters.wait, parameters.host), (false, None));
        assert_eq!(
            parameters.channel,
            ChannelLocation::Path("/dev/ttyS0".into())
        );
    }

    #[test]
    fn a_qemu_guest() {
        let line = "vtax.lower=9p:host vtax.work=9p:work vtax.modules=/a.ko:/b.ko \
                    vtax.channel=virtio:org.vtax.agent";
        let parameters: Parameters = line.parse().unwrap();
        assert_eq!(parameters.lower, Lower::Host(whole("host")));
        assert_eq!(parameters.modules.len(), 2);
        assert_eq!(
            parameters.channel,
            ChannelLocation::Virtio("org.vtax.agent".into())
        );
    }

    #[test]
    fn a_nested_guest() {
        let line = "vtax.lower=9p:host/tree vtax.work=9p:work/a/b vtax.wait=1 \
                    vtax.channel=virtio:org.vtax.agent";
        let parameters: Parameters = line.parse().unwrap();
        let part = |tag: &str, folder: &str| {
            FolderSource::Plan9(Export {
                transport: "virtio".into(),
                tag: tag.into(),
                folder: Some(folder.into()),
            })
        };
        assert_eq!(parameters.lower, Lower::Host(part("host", "tree")));
        assert_eq!(parameters.work, Some(part("work", "a/b")));
        let line = "vtax.lower=disk:/dev/vda vtax.channel=virtio:org.vtax.agent";
        let parameters: Parameters = line.parse().unwrap();
        let disk = FolderSource::Disk("/dev/vda".into());
        assert_eq!(parameters.lower, Lower::Host(disk));
    }

    #[test]
    fn a_paravirtualized_guest() {
        let line = "vtax.lower=9p.xen:host/a vtax.channel=/dev/hvc0";
        let parameters: Parameters = line.parse().unwrap();
        let export = Export {
            transport: "xen".into(),
            tag: "host".into(),
            folder: Some("a".into()),
        };
        assert_eq!(parameters.lower, Lower::Host(FolderSource::Plan9(export)));
    }

    #[test]
    fn a_guest_with_vsock() {
        let line = "vtax.lower=9p.vsock:tree vtax.work=9p.vsock:work vtax.channel=vsock:1024";
        let parameters: Parameters = line.parse().unwrap();
        let part = |tag: &str| {
            FolderSource::Plan9(Export {
                transport: "vsock".into(),
                tag: tag.into(),
                folder: None,
            })
        };
        assert_eq!(parameters.lower, Lower::Host(part("tree")));
        assert_eq!(parameters.work, Some(part("work")));
        assert_eq!(parameters.channel, ChannelLocation::Vsock(1024));
        assert_eq!(parameters.channel.to_string(), "vsock:1024");
    }

    #[test]
    fn an_emulated_host() {
        let line = "vtax.lower=initramfs vtax.host=9p:host vtax.work=9p:work vtax.wait=1 \
                    vtax.modules=/m/kvm.ko:/m/kvm_amd.ko?npt=0&avic=1:/m/tun.ko \
                    vtax.channel=virtio:org.vtax.agent";
        let parameters: Parameters = line.parse().unwrap();
        assert_eq!(parameters.lower, Lower::Initramfs);
        let host = parameters.host.unwrap();
        assert_eq!((host.tag.as_str(), host.folder), ("host", None));
        assert!(parameters.wait);
        let kvm_amd = Module {
            path: "/m/kvm_amd.ko".into(),
            parameters: "npt=0 avic=1".into(),
        };
        assert_eq!(
            parameters.modules,
            [plain("/m/kvm.ko"), kvm_amd, plain("/m/tun.ko")]
        );
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let parse = |line: &str| line.parse::<Parameters>().unwrap_err();
        assert_eq!(parse("quiet"), ParameterError::Missing("vtax.lower"));
        assert_eq!(
            parse("vtax.lower=hostfs"),
            ParameterError::Missing("vtax.channel")
        );
        for (line, name) in [
            ("vtax.lower=nfs:x vtax.channel=/dev/x", "vtax.lower"),
            ("vtax.lower=9p: vtax.channel=/dev/x", "vtax.lower"),
            ("vtax.lower=9p:host/ vtax.channel=/dev/x", "vtax.lower"),
            ("vtax.lower=9p:/tree vtax.channel=/dev/x", "vtax.lower"),
            ("vtax.lower=9p.:tree vtax.channel=/dev/x", "vtax.lower"),
            (
                "vtax.lower=9p.fd,rfdno=3:tree vtax.channel=/dev/x",
                "vtax.lower",
            ),
            ("vtax.lower=disk:vda vtax.channel=/dev/x", "vtax.lower"),
            (
                "vtax.lower=hostfs vtax.work=disk:/dev/vda vtax.channel=/dev/x",
                "vtax.work",
            ),
            (
                "vtax.lower=hostfs vtax.work=hostfs vtax.channel=/dev/x",
                "vtax.work",
            ),
            (
                "vtax.lower=hostfs vtax.host=9p:host vtax.channel=/dev/x",
                "vtax.host",
            ),
            (
                "vtax.lower=initramfs vtax.host=hostfs:/ vtax.channel=/dev/x",
                "vtax.host",
            ),
            (
                "vtax.lower=hostfs vtax.wait=yes vtax.channel=/dev/x",
                "vtax.wait",
            ),
            (
                "vtax.lower=hostfs vtax.modules=/a.ko?npt vtax.channel=/dev/x",
                "vtax.modules",
            ),
            (
                "vtax.lower=hostfs vtax.modules=?npt=1 vtax.channel=/dev/x",
                "vtax.modules",
            ),
            ("vtax.lower=hostfs vtax.channel=ttyS0", "vtax.channel"),
            ("vtax.lower=hostfs vtax.channel=virtio:", "vtax.channel"),
            ("vtax.lower=hostfs vtax.channel=vsock:", "vtax.channel"),
            ("vtax.lower=hostfs vtax.channel=vsock:-1", "vtax.channel"),
            (
                "vtax.lower=hostfs vtax.channel=vsock:4294967296",
                "vtax.channel",
            ),
        ] {
            assert!(
                matches!(parse(line), ParameterError::Form(found, _) if found == name),
                "{line}"
            );
        }
    }
}
