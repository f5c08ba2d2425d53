//! Publishing this machine's counters in a page that the host samples: `vtax-agent guest`
//! (docs/record.md).

pub(crate) mod device;
mod kernel;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use vtax_sys::guest_page::applications::{self, Collector};
use vtax_sys::guest_page::{COUNTERS, PageError, Publisher};

use vtax_sys::clock;
use vtax_sys::reason;
use vtax_sys::signals::Signals;
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

/// The counter of the CPU time that publishing takes.
const OWN_TIME: &str = "guest.publisher_ns";

/// What to publish, and where.
#[derive(Debug, Clone)]
pub struct GuestOptions {
    /// A file; `None`: the memory of this machine's ivshmem device.
    pub page: Option<PathBuf>,
    /// Time from one publication to the next.
    pub every: Duration,
    /// Whole names of applications' counters; `None`: all that are registered at the start.
    pub applications: Option<Vec<String>>,
    /// End after this time.
    pub duration: Option<Duration>,
}

/// What was published.
#[derive(Debug, Serialize)]
pub struct Published {
    /// How often the page was published.
    pub publications: u64,
    /// Publications that were skipped because the one before took longer than `every`.
    pub late: u64,
    pub counters: BTreeMap<String, u64>,
    /// Registered counters that are not in the page, whose list of names is fixed.
    pub left_out: Vec<String>,
}

/// Publish until the time is up or a signal asks to end.
///
/// Fails when the folder of the applications' counters cannot be used, when the counters are too
/// many for a page, or when the page cannot be found, made or written.
pub fn guest(options: &GuestOptions) -> Result<Published, Error> {
    let signals = Signals::take(&[]).map_err(|errno| failed("signalfd", errno.desc()))?;
    let mut counters = Counters::begin(&Tree::host(), options.applications.clone())?;
    let mut publisher = begin(options, &counters.names)?;
    let start = Instant::now();
    let mut next = start;
    let (mut publications, mut late) = (0, 0);
    loop {
        let ended = signals
            .drain()
            .map_err(|errno| failed("signalfd", errno.desc()))?;
        let last = ended.is_some() || options.duration.is_some_and(|end| start.elapsed() >= end);
        publisher
            .publish(&counters.read()?)
            .map_err(|error| page_failed(options, &error))?;
        publications += 1;
        if last {
            break;
        }
        next += options.every;
        while next <= Instant::now() {
            next += options.every;
            late += 1;
        }
        wait(&signals, next);
    }
    let named = counters.names.iter().cloned().enumerate();
    Ok(Published {
        publications,
        late,
        counters: named
            .filter_map(|(index, name)| Some((name, publisher.value(index)?)))
            .collect(),
        left_out: counters.left_out(),
    })
}

fn begin(options: &GuestOptions, names: &[String]) -> Result<Publisher, Error> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if let Some(path) = &options.page {
        return Publisher::create(path, &names).map_err(|error| page_failed(options, &error));
    }
    let memory = device::find(&Tree::host())
        .map_err(|reason| Error::failure("ivshmem device", reason, "name a file with --page"))?;
    Publisher::device(&memory, &names).map_err(|error| page_failed(options, &error))
}

fn wait(signals: &Signals, until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    // poll(2) knows milliseconds: the rest is slept, which no signal cuts short.
    let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
    let mut entries = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    let _ = poll(&mut entries, timeout);
    if !entries.iter().any(|entry| entry.any() == Some(true)) {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

/// All published counters, in the order of their names.
struct Counters {
    names: Vec<String>,
    kernel: kernel::Kernel,
    applications: Collector,
    /// How many of the names are the kernel's counters.
    own: usize,
}

impl Counters {
    fn begin(tree: &Tree, applications: Option<Vec<String>>) -> Result<Self, Error> {
        let folder = applications::folder();
        let mut collector = Collector::begin(&folder)
            .map_err(|error| failed(&folder.display().to_string(), &reason(&error)))?;
        let mut kernel = kernel::Kernel::open(tree);
        let mut names: Vec<String> = kernel.read().into_keys().collect();
        names.push(OWN_TIME.into());
        let own = names.len();
        match applications {
            Some(wanted) => names.extend(wanted),
            None => names.extend(collect(&mut collector)?.keys().cloned()),
        }
        if names.len() > COUNTERS {
            return Err(Error::misuse(
                "--app",
                format!("{} counters do not fit beside {own}", names.len() - own),
                &format!("name at most {}", COUNTERS - own),
            ));
        }
        Ok(Self {
            names,
            kernel,
            applications: collector,
            own,
        })
    }

    fn read(&mut self) -> Result<Vec<u64>, Error> {
        let kernel = self.kernel.read();
        let sums = collect(&mut self.applications)?;
        let value = |name: &String| match name.as_str() {
            OWN_TIME => clock::process_time_ns(),
            // A counter that nobody has registered yet has counted nothing.
            _ => *kernel.get(name).or_else(|| sums.get(name)).unwrap_or(&0),
        };
        Ok(self.names.iter().map(value).collect())
    }

    fn left_out(&mut self) -> Vec<String> {
        let published = self.names.get(self.own..).unwrap_or_default();
        collect(&mut self.applications).map_or_else(
            |_| Vec::new(),
            |sums| {
                let names = sums.keys().filter(|name| !published.contains(name));
                names.cloned().collect()
            },
        )
    }
}

fn collect(collector: &mut Collector) -> Result<&BTreeMap<String, u64>, Error> {
    collector
        .collect()
        .map_err(|error| failed("counters of applications", &reason(&error)))
}

fn failed(thing: &str, reason: &str) -> Error {
    Error::failure(thing, reason, "try again")
}

fn page_failed(options: &GuestOptions, error: &PageError) -> Error {
    let page = options.page.as_ref();
    let page = page.map_or_else(
        || "ivshmem device".into(),
        |path| path.display().to_string(),
    );
    Error::failure(page, error, "name a file that can be written with --page")
}
