//! The `vtax.*` parameters on the kernel's command line (docs/agent-protocol.md).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// Why the command line cannot be followed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ParameterError {
    /// A parameter without which there is no root or no channel.
    #[error("{0} is missing on the kernel's command line")]
    Missing(&'static str),
    /// A value of a form that is not known.
    #[error("{0}={1} is not of a known form")]
    Form(&'static str, String),
}

/// A host folder that the guest sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A host path, by user-mode Linux's hostfs.
    Hostfs(PathBuf),
    /// The tag of a 9p export.
    Plan9(String),
}

/// Where the channel is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelPlace {
    /// A device.
    Path(PathBuf),
    /// The name of a virtio-serial port.
    Virtio(String),
}

impl fmt::Display for ChannelPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(formatter, "{}", path.display()),
            Self::Virtio(name) => write!(formatter, "virtio:{name}"),
        }
    }
}

/// All parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// The host's tree.
    pub lower: Source,
    /// The writable folder, if there is one.
    pub work: Option<Source>,
    /// Kernel modules to load, in order.
    pub modules: Vec<PathBuf>,
    /// Where to serve.
    pub channel: ChannelPlace,
}

impl FromStr for Parameters {
    type Err = ParameterError;

    fn from_str(line: &str) -> Result<Self, ParameterError> {
        // As for the kernel itself, the last of several wins.
        let value = |name: &'static str| {
            line.split_whitespace()
                .filter_map(|word| word.strip_prefix(name)?.strip_prefix('='))
                .next_back()
        };
        let required = |name| value(name).ok_or(ParameterError::Missing(name));
        let paths = value("vtax.modules").unwrap_or_default().split(':');
        Ok(Self {
            lower: source("vtax.lower", required("vtax.lower")?)?,
            work: value("vtax.work")
                .map(|text| source("vtax.work", text))
                .transpose()?,
            modules: paths
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
                .collect(),
            channel: channel(required("vtax.channel")?)?,
        })
    }
}

/// `hostfs`, `hostfs:PATH` or `9p:TAG`.
fn source(name: &'static str, text: &str) -> Result<Source, ParameterError> {
    match text.split_once(':').unwrap_or((text, "")) {
        ("hostfs", "") if name == "vtax.lower" => Ok(Source::Hostfs("/".into())),
        ("hostfs", path) if path.starts_with('/') => Ok(Source::Hostfs(path.into())),
        ("9p", tag) if !tag.is_empty() => Ok(Source::Plan9(tag.into())),
        _ => Err(ParameterError::Form(name, text.into())),
    }
}

fn channel(text: &str) -> Result<ChannelPlace, ParameterError> {
    match text.strip_prefix("virtio:") {
        Some(name) if !name.is_empty() => Ok(ChannelPlace::Virtio(name.into())),
        None if text.starts_with('/') => Ok(ChannelPlace::Path(text.into())),
        _ => Err(ParameterError::Form("vtax.channel", text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_mode_linux_guest() {
        let line = "mem=256M quiet vtax.lower=hostfs vtax.work=hostfs:/run/vtax/work \
                    vtax.channel=/dev/ttyS0 vtax.modules=/a/overlay.ko";
        let parameters: Parameters = line.parse().unwrap();
        assert_eq!(parameters.lower, Source::Hostfs("/".into()));
        assert_eq!(
            parameters.work,
            Some(Source::Hostfs("/run/vtax/work".into()))
        );
        assert_eq!(parameters.modules, [PathBuf::from("/a/overlay.ko")]);
        assert_eq!(parameters.channel, ChannelPlace::Path("/dev/ttyS0".into()));
    }

    #[test]
    fn a_qemu_guest() {
        let line = "vtax.lower=9p:host vtax.work=9p:work vtax.modules=/a.ko:/b.ko \
                    vtax.channel=virtio:org.vtax.agent";
        let parameters: Parameters = line.parse().unwrap();
        assert_eq!(parameters.lower, Source::Plan9("host".into()));
        assert_eq!(parameters.modules.len(), 2);
        assert_eq!(
            parameters.channel,
            ChannelPlace::Virtio("org.vtax.agent".into())
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
            (
                "vtax.lower=hostfs vtax.work=hostfs vtax.channel=/dev/x",
                "vtax.work",
            ),
            ("vtax.lower=hostfs vtax.channel=ttyS0", "vtax.channel"),
            ("vtax.lower=hostfs vtax.channel=virtio:", "vtax.channel"),
        ] {
            assert!(
                matches!(parse(line), ParameterError::Form(found, _) if found == name),
                "{line}"
            );
        }
    }
}
