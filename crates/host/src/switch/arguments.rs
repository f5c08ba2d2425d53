//! A QEMU command line: what it says about the control socket and memory, and the command line for
//! the QEMU that takes the guest over.

use std::path::{Path, PathBuf};

mod values;

use values::{add, bytes, escaped, first, key, pairs};

/// Options without a value (qemu-options.hx, 5.2 to 10.1).
const WITHOUT_VALUE: [&str; 31] = [
    "S",
    "alt-grab",
    "async-teardown",
    "ctrl-grab",
    "daemonize",
    "enable-kvm",
    "full-screen",
    "h",
    "help",
    "mem-prealloc",
    "no-acpi",
    "no-fd-bootchk",
    "no-hpet",
    "no-quit",
    "no-reboot",
    "no-shutdown",
    "no-user-config",
    "nodefaults",
    "nographic",
    "old-param",
    "only-migratable",
    "portrait",
    "preconfig",
    "s",
    "singlestep",
    "snapshot",
    "usb",
    "version",
    "win2k-hack",
    "xen-attach",
    "xen-domid-restrict",
];
/// Options with which a second start does not give the same machine, and why.
const NOT_AGAIN: [(&str, &str); 7] = [
    (
        "snapshot",
        "its disk changes are in a temporary file that ends with this QEMU",
    ),
    ("preconfig", "it was configured over QMP before it started"),
    (
        "readconfig",
        "a part of its options is in a file that may have changed",
    ),
    ("chroot", "its files are not where its options say"),
    ("runas", "it gave up the user that started it"),
    ("sandbox", "it may not be watched while it starts"),
    ("mem-path", "its memory cannot be shared"),
];
/// What a switch leaves in a command line and the next switch takes out.
const MONITOR: &str = "vtax-switch";

/// One option, or another word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The option's name without dashes; empty for a word that is not an option (a disk image).
    pub option: String,
    pub value: Option<String>,
}

impl Word {
    fn new(option: &str, value: impl Into<String>) -> Self {
        Self {
            option: option.into(),
            value: Some(value.into()),
        }
    }

    fn is(&self, option: &str) -> bool {
        self.option == option
    }

    fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }
}

/// A command line, without the program's own name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    words: Vec<Word>,
}

/// A memory backend whose memory another process can map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    pub id: String,
    /// The file; `None`: a memfd.
    pub file: Option<PathBuf>,
    /// The object's `size`, in bytes, when it can be parsed.
    pub bytes: Option<u64>,
}

/// What the new command line has and the old one did not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Additions<'a> {
    /// The descriptor of the private monitor; `None`: there is no such monitor.
    pub monitor: Option<i32>,
    /// The descriptor of each memfd backend's memory, in the order of the command line.
    pub memory: &'a [(String, i32)],
    /// The descriptor for each `-add-fd`, in the order of the command line; `None`: it is closed.
    pub sets: &'a [Option<i32>],
}

impl Arguments {
    /// Read a command line without the program's own name.
    pub fn parse<S: AsRef<str>>(arguments: &[S]) -> Self {
        let mut words = Vec::new();
        let mut rest = arguments.iter().map(AsRef::as_ref);
        while let Some(word) = rest.next() {
            let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
            words.push(match name {
                Some(name) if WITHOUT_VALUE.contains(&name) => Word {
                    option: name.into(),
                    value: None,
                },
                Some(name) if !name.is_empty() => Word {
                    option: name.into(),
                    value: rest.next().map(str::to_owned),
                },
                _ => Word::new("", word),
            });
        }
        Self { words }
    }

    /// The words as a process gets them.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        for word in &self.words {
            if !word.option.is_empty() {
                words.push(format!("-{}", word.option));
            }
            words.extend(word.value.clone());
        }
        words
    }

    fn values<'a>(&'a self, option: &'a str) -> impl Iterator<Item = &'a str> {
        self.words
            .iter()
            .filter(move |word| word.is(option))
            .map(Word::text)
    }

    /// The guest's name, when it has one.
    pub fn name(&self) -> Option<String> {
        let value = self.values("name").last()?;
        let name = key(value, "guest").unwrap_or_else(|| first(value));
        (!name.is_empty()).then_some(name)
    }

    /// An option that keeps the guest from being started a second time, and why.
    pub fn not_again(&self) -> Option<(&'static str, &'static str)> {
        NOT_AGAIN
            .into_iter()
            .find(|(option, _)| self.words.iter().any(|word| word.is(option)))
    }

    /// Does an option have `id=ID`?
    pub fn has_id(&self, id: &str) -> bool {
        self.words
            .iter()
            .any(|word| key(word.text(), "id").as_deref() == Some(id))
    }

    /// The paths of Unix sockets that speak QMP, as the command line gives them.
    pub fn qmp_sockets(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = ["qmp", "qmp-pretty"]
            .into_iter()
            .flat_map(|option| self.values(option))
            .filter_map(|value| first(value).strip_prefix("unix:").map(PathBuf::from))
            .collect();
        for monitor in self.values("mon") {
            if key(monitor, "mode").as_deref() == Some("control") {
                let id = key(monitor, "chardev").unwrap_or_else(|| first(monitor));
                paths.extend(self.chardev_socket(&id));
            }
        }
        paths
    }

    fn chardev_socket(&self, id: &str) -> Option<PathBuf> {
        let value = self
            .values("chardev")
            .find(|value| key(value, "id").as_deref() == Some(id) && first(value) == "socket")?;
        key(value, "path").map(PathBuf::from)
    }

    /// The memory backends that another process can map.
    pub fn backends(&self) -> Vec<Backend> {
        self.values("object").filter_map(backend).collect()
    }

    /// Descriptors that options name as `fd=N` or `fds=N:M`, ascending; not those of `-add-fd`,
    /// which QEMU copies and closes.
    pub fn descriptors(&self) -> Vec<i32> {
        self.numbers(&["fd", "fds", "vhostfd", "vhostfds", "sock-fd"])
    }

    /// Descriptors of vhost devices, which serve only the process that first used them.
    pub fn vhosts(&self) -> Vec<i32> {
        self.numbers(&["vhostfd", "vhostfds"])
    }

    /// The set of each `-add-fd`, in the order of the command line.
    pub fn sets(&self) -> Vec<Option<i64>> {
        let set = |value| key(value, "set")?.parse().ok();
        self.values("add-fd").map(set).collect()
    }

    fn numbers(&self, keys: &[&str]) -> Vec<i32> {
        let mut numbers: Vec<i32> = self
            .words
            .iter()
            .filter(|word| !word.is_monitor() && !word.is("add-fd"))
            .flat_map(|word| keys.iter().filter_map(|name| key(word.text(), name)))
            .flat_map(|value| {
                value
                    .split(':')
                    .filter_map(|number| number.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The descriptor of the monitor that the last switch used, if there was one.
    pub fn own_monitor(&self) -> Option<i32> {
        let word = self.words.iter().find(|word| word.is_monitor())?;
        key(word.text(), "fd")?.parse().ok()
    }

    /// Names of tap devices that this command line opens itself; `None` for one without a name.
    pub fn taps(&self) -> Vec<Option<String>> {
        ["netdev", "nic", "net"]
            .into_iter()
            .flat_map(|option| self.values(option))
            .filter(|value| first(value) == "tap")
            .filter(|value| key(value, "fd").is_none() && key(value, "fds").is_none())
            .map(|value| key(value, "ifname"))
            .collect()
    }

    /// Network devices whose connections are inside QEMU and end with it: their kinds.
    pub fn inner_networks(&self) -> Vec<String> {
        ["netdev", "nic", "net"]
            .into_iter()
            .flat_map(|option| self.values(option).map(move |value| (option, value)))
            .filter(|(_, value)| {
                let kind = first(value);
                let has_fd = key(value, "fd").is_some() || key(value, "addr.str").is_some();
                ["user", "socket", "stream"].contains(&kind.as_str()) && !has_fd
            })
            .map(|(option, value)| format!("-{option} {}", first(value)))
            .collect()
    }

    /// Character devices for which QEMU itself makes sockets, except monitors.
    pub fn own_sockets(&self) -> Vec<String> {
        let monitors: Vec<String> = self
            .values("mon")
            .map(|value| key(value, "chardev").unwrap_or_else(|| first(value)))
            .collect();
        self.values("chardev")
            .filter(|value| first(value) == "socket" && key(value, "fd").is_none())
            .filter_map(|value| key(value, "id"))
            .filter(|id| !monitors.contains(id))
            .collect()
    }

    /// The CPU model with its features.
    pub fn cpu(&self) -> Option<&str> {
        self.values("cpu").last()
    }

    /// The command line of the QEMU that takes the guest over.
    ///
    /// The new QEMU runs in the foreground, waits for a saved state, stays stopped after reading
    /// it, and does not truncate the files of the guest's consoles.
    #[must_use]
    pub fn incoming(&self, additions: &Additions<'_>) -> Self {
        let mut words = Vec::new();
        let mut sets = additions.sets.iter();
        for word in self.words.iter().filter(|word| !word.is_dropped()) {
            match word.option.as_str() {
                "add-fd" => {
                    let number = sets.next().copied().flatten();
                    words.extend(number.map(|number| renumbered(word, number)));
                }
                "object" => words.push(Word::new(
                    "object",
                    with_memory(word.text(), additions.memory),
                )),
                "chardev" => words.push(Word::new("chardev", appending(word.text()))),
                "netdev" | "nic" | "net" if first(word.text()) == "tap" => {
                    words.push(Word::new(&word.option, without_script(word.text())));
                }
                "serial" | "parallel" | "debugcon" => {
                    words.extend(appending_legacy(word, words.len()));
                }
                _ => words.push(word.clone()),
            }
        }
        if let Some(number) = additions.monitor {
            words.push(Word::new(
                "chardev",
                format!("socket,id={MONITOR},fd={number}"),
            ));
            words.push(Word::new("mon", format!("chardev={MONITOR},mode=control")));
        }
        words.push(Word::new("incoming", "defer"));
        words.push(Word {
            option: "S".into(),
            value: None,
        });
        Self { words }
    }
}

impl Word {
    fn is_monitor(&self) -> bool {
        let names = |name| key(self.text(), name).as_deref() == Some(MONITOR);
        (self.is("chardev") && names("id")) || (self.is("mon") && names("chardev"))
    }

    fn is_dropped(&self) -> bool {
        ["S", "daemonize", "incoming", "loadvm"].contains(&self.option.as_str())
            || self.is_monitor()
    }
}

fn backend(value: &str) -> Option<Backend> {
    let id = key(value, "id")?;
    let bytes = key(value, "size").and_then(|size| bytes(&size));
    match first(value).as_str() {
        "memory-backend-memfd" => Some(Backend {
            id,
            file: None,
            bytes,
        }),
        "memory-backend-file" => Some(Backend {
            id,
            file: Some(key(value, "mem-path")?.into()),
            bytes,
        }),
        _ => None,
    }
}

/// A memfd backend becomes a file backend of the same memory.
fn with_memory(value: &str, memory: &[(String, i32)]) -> String {
    let id = key(value, "id").unwrap_or_default();
    let number = memory.iter().find(|(name, _)| *name == id);
    match (first(value).as_str(), number) {
        ("memory-backend-memfd", Some((_, number))) => {
            let kept = pairs(value).into_iter().filter(|(name, _)| {
                // Properties that a file backend does not have; huge pages are a property of the
                // descriptor.
                !["qom-type", "", "seal", "hugetlb", "hugetlbsize", "share"]
                    .contains(&name.as_str())
            });
            let mut text = format!("memory-backend-file,mem-path=/proc/self/fd/{number},share=on");
            for (name, value) in kept {
                add(&mut text, &name, &value);
            }
            text
        }
        _ => value.to_owned(),
    }
}

fn renumbered(word: &Word, number: i32) -> Word {
    let mut text = format!("fd={number}");
    for (name, value) in pairs(word.text()) {
        if name != "fd" {
            add(&mut text, &name, &value);
        }
    }
    Word::new(&word.option, text)
}

fn appending(value: &str) -> String {
    if first(value) == "file" && key(value, "append").is_none() {
        format!("{value},append=on")
    } else {
        value.to_owned()
    }
}

/// `-serial file:PATH` cannot append; a separate character device can.
fn appending_legacy(word: &Word, number: usize) -> Vec<Word> {
    let Some(path) = word.text().strip_prefix("file:") else {
        return vec![word.clone()];
    };
    let id = format!("vtax-console{number}");
    vec![
        Word::new(
            "chardev",
            format!("file,id={id},path={},append=on", escaped(path)),
        ),
        Word::new(&word.option, format!("chardev:{id}")),
    ]
}

/// The device is up already; running the script again would fail on a bridge that already has the
/// device.
fn without_script(value: &str) -> String {
    if key(value, "fd").is_some() || key(value, "fds").is_some() {
        return value.to_owned();
    }
    let mut text = first(value);
    for (name, value) in pairs(value).into_iter().skip(1) {
        if name != "script" {
            add(&mut text, &name, &value);
        }
    }
    text + ",script=no"
}

/// A path of the command line, resolved from the process's working folder.
pub fn resolve(cwd: &Path, path: &Path) -> PathBuf {
    cwd.join(path)
}

#[cfg(test)]
mod tests;
