//! The means that slow threads: set up, measured, put to work, and removed when dropped.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use vtax_sys::calls::scheduling::set_affinity;
use vtax_sys::cgroup::locate::{locate, locate_of};
use vtax_sys::cgroup::quota::{self, QuotaGroup};
use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::place::backends::{self, Backend};
use crate::place::cores::choose::Pair;
use crate::place::cpus::{self, written};
use crate::place::domain::thread_folder;
use crate::place::journal::{self, Affinity, Before, Setting};
use crate::place::slow::hog::Hog;
use crate::place::slow::probe::{Obtained, Slowness, compare};
use crate::place::slow::{Request, Target};
use crate::place::xen_cap;

/// Full speed, in percent.
const FULL: f64 = 100.0;

#[derive(Debug)]
pub struct Means {
    share: f64,
    /// The CPU on which all threads run.
    cpu: Option<usize>,
    /// The group of the measuring thread, which gives it priority over all others. Absent where no
    /// such group is possible; the nice value must suffice then.
    probe: Option<QuotaGroup>,
    before: Before,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// Nothing is slowed: the control.
    Nothing,
    Quota(Quota),
    Hog {
        cpu: usize,
        hog: Option<Hog>,
    },
    /// A file that sets the speed of the CPU, or Xen's cap of domain 0, which holds no CPU.
    Setting {
        cpu: Option<usize>,
        full: Setting,
        slow: String,
    },
    CoreType {
        fast: usize,
        slow: usize,
    },
}

/// Groups with their threads' numbers, and their nice values.
#[derive(Debug)]
struct Quota(Vec<(QuotaGroup, Vec<(i32, i32)>)>);

impl Means {
    /// Choose how to do what is asked for; nothing is changed yet.
    ///
    /// Fails when it is not possible for these threads.
    pub fn choose(tree: &Tree, request: &Request, targets: &[Target]) -> Result<Self, Error> {
        let way = way(tree, request, targets)?;
        let cpu = match &way {
            Way::Nothing => None,
            Way::Quota(_) => request.cpu,
            Way::Hog { cpu, .. } => Some(*cpu),
            Way::Setting { cpu, .. } => *cpu,
            Way::CoreType { slow, .. } => Some(*slow),
        };
        let mut before = Before::now(tree);
        if let Some(cpu) = cpu {
            let moved = |one: &Target| Affinity {
                to: Some(cpu.to_string()),
                ..one.affinity.clone()
            };
            before.threads = targets.iter().map(moved).collect();
        }
        let own = quota::obstacle(tree).map_or_else(|| locate(tree, "cpu"), |_| None);
        let probe = own.map(|own| QuotaGroup::plan(tree, &own, 0));
        before
            .groups
            .extend(probe.iter().map(|group| group.folder().to_owned()));
        match &way {
            Way::Quota(quota) => before.groups.extend(quota.folders()),
            Way::Setting { full, .. } => before.settings = vec![full.clone()],
            _ => {}
        }
        Ok(Self {
            share: request.percent / FULL,
            cpu,
            probe,
            before,
            way,
        })
    }

    /// The state that must be restored at the end.
    pub fn before(&self) -> Before {
        self.before.clone()
    }

    /// Set up the means and measure the speed that it leaves; `None` at full speed, where there is
    /// nothing to measure.
    ///
    /// Fails with a reason when the kernel refuses.
    pub fn measure(&mut self, tree: &Tree) -> Result<Option<Obtained>, String> {
        let share = self.share;
        if share >= 1.0 {
            return Ok(None);
        }
        let probe = self.probe.as_ref();
        if let Some(group) = probe {
            group.make(&[-20])?;
        }
        let (even, uneven) = (Slowness::Even, Slowness::Uneven);
        let measured = match &mut self.way {
            Way::Nothing => compare(probe, None, even, || Ok(()), || Ok(())),
            Way::Quota(_) => {
                let limit = |share| probe.map_or(Ok(()), |group| group.limit(share));
                compare(
                    probe,
                    self.cpu,
                    uneven,
                    || limit(None),
                    || limit(Some(share)),
                )
            }
            Way::Hog { cpu, hog } => {
                let started = Hog::start(*cpu).map_err(|errno| errno.desc().to_owned())?;
                let hog = hog.insert(started);
                let leave = |share: f64| {
                    hog.leave(share);
                    Ok(())
                };
                compare(probe, Some(*cpu), uneven, || leave(1.0), || leave(share))
            }
            Way::Setting { cpu, full, slow } => {
                let set = |text: &str| journal::set(tree, &full.path, text);
                let slowness = if cpu.is_some() { even } else { uneven };
                compare(probe, *cpu, slowness, || set(&full.text), || set(slow))
            }
            Way::CoreType { fast, slow } => {
                let on = |cpu: usize| {
                    let moved = set_affinity(0, &[cpu]);
                    moved.map_err(|errno| format!("CPU {cpu}: {}", errno.desc()))
                };
                compare(probe, None, even, || on(*fast), || on(*slow))
            }
        };
        if let Some(group) = probe {
            // What remains after a failure is removed at the end.
            quota::release(group.folder());
        }
        measured.map(Some)
    }

    /// Slow the threads.
    ///
    /// Fails with a reason when the kernel refuses; a thread that has ended is skipped.
    pub fn engage(&mut self, tree: &Tree, targets: &[Target]) -> Result<(), String> {
        if let Some(cpu) = self.cpu {
            for one in targets {
                one.affinity.put(tree, &cpu.to_string())?;
            }
        }
        match &self.way {
            Way::Nothing | Way::CoreType { .. } => Ok(()),
            Way::Quota(quota) => quota.engage(tree, self.share, targets),
            Way::Hog { hog, .. } => {
                if let Some(hog) = hog {
                    hog.leave(self.share);
                }
                Ok(())
            }
            Way::Setting { full, slow, .. } => journal::set(tree, &full.path, slow),
        }
    }

    /// How long the threads were held back, in seconds.
    pub fn throttled_s(&self) -> Option<f64> {
        let Way::Quota(quota) = &self.way else {
            return None;
        };
        let each = quota.0.iter().map(|(group, _)| group.throttled_ns());
        let sum = each.sum::<Option<u64>>()?;
        Some(Duration::from_nanos(sum).as_secs_f64())
    }

    /// A description of what was set.
    pub fn how(&self) -> String {
        match &self.way {
            Way::Nothing => "nothing is slowed: a control".into(),
            Way::Quota(quota) => {
                let number = quota.0.len();
                let of = match self.cpu {
                    Some(cpu) => format!("all threads together, on CPU {cpu}"),
                    None if number == 1 => "the thread".into(),
                    None => format!("each of {number} threads"),
                };
                if self.share < 1.0 {
                    format!("a quota of {:.1} % of a CPU for {of}", self.share * FULL)
                } else {
                    format!("a control: a group without a quota for {of}")
                }
            }
            Way::Hog { cpu, .. } => format!(
                "a SCHED_FIFO thread that takes {:.1} % of CPU {cpu} in periods of 2 ms; all \
                 threads run there",
                FULL - self.share * FULL
            ),
            Way::Setting { full, slow, .. } => format!("{} is {slow}", full.path),
            Way::CoreType { slow, fast } => {
                format!("all threads run on CPU {slow}, of a slower type than CPU {fast}")
            }
        }
    }
}

fn way(tree: &Tree, request: &Request, targets: &[Target]) -> Result<Way, Error> {
    // A group has its own weight, so the control of a quota is in a group too, without a limit.
    if request.percent >= FULL && request.backend != Backend::Quota {
        return Ok(Way::Nothing);
    }
    let last = targets.first().map_or(0, |one| one.task.last_cpu as usize);
    let cpu = request.cpu.unwrap_or(last);
    match request.backend {
        Backend::Quota => quotas(tree, request, targets).map(Way::Quota),
        Backend::Hog => movable(targets, cpu).map(|()| Way::Hog { cpu, hog: None }),
        Backend::Cpufreq => {
            movable(targets, cpu)?;
            frequency(tree, cpu, request.percent / FULL)
        }
        Backend::Emulator => {
            movable(targets, cpu)?;
            let path = backends::emulated_speed(cpu);
            let text = tree
                .text(&path)
                .ok_or_else(|| refused(request.backend, "this CPU has no speed"))?;
            let slow = request.percent.to_string();
            let full = Setting { path, text };
            let cpu = Some(cpu);
            Ok(Way::Setting { cpu, full, slow })
        }
        Backend::CoreType => {
            let pair = Pair::choose(tree, None, None, None).ok();
            let firsts = pair
                .as_ref()
                .and_then(|pair| pair.fast.first().zip(pair.slow.first()));
            let Some((fast, slow)) = firsts else {
                return Err(refused(request.backend, "all cores are of one kind"));
            };
            let slow = request.cpu.unwrap_or(*slow);
            movable(targets, slow)?;
            Ok(Way::CoreType { fast: *fast, slow })
        }
        Backend::XenCap => domain_0(tree, request.percent),
    }
}

/// The cap is in percent of one CPU, for all of domain 0's CPUs together.
fn domain_0(tree: &Tree, percent: f64) -> Result<Way, Error> {
    let cpus = u32::try_from(cpus::online(tree).len()).unwrap_or(u32::MAX);
    let text = xen_cap::read().map_err(|reason| refused(Backend::XenCap, &reason))?;
    let path = xen_cap::SETTING.to_owned();
    Ok(Way::Setting {
        cpu: None,
        full: Setting { path, text },
        slow: format!("{:.0}", percent * f64::from(cpus)),
    })
}

fn refused(backend: Backend, reason: &str) -> Error {
    Error::failure(backend.name(), reason, "take another way")
}

/// Can all threads run on this CPU?
fn movable(targets: &[Target], cpu: usize) -> Result<(), Error> {
    let own = written(&[cpu]);
    let bound = targets
        .iter()
        .find(|one| one.task.bound && one.affinity.cpus != own);
    match bound {
        Some(one) => {
            let thing = format!("--tid {}", one.affinity.tid);
            let reason = format!("the kernel keeps it on CPU {}", one.affinity.cpus);
            Err(Error::misuse(
                thing,
                reason,
                "name that CPU with --cpu, or leave it out",
            ))
        }
        None => Ok(()),
    }
}

fn quotas(tree: &Tree, request: &Request, targets: &[Target]) -> Result<Quota, Error> {
    let mut groups: Vec<(QuotaGroup, Vec<(i32, i32)>)> = Vec::new();
    let mut above: BTreeMap<String, usize> = BTreeMap::new();
    for (one, number) in targets.iter().zip(1..) {
        let thing = format!("--tid {}", one.affinity.tid);
        // SCHED_FIFO, SCHED_RR and SCHED_DEADLINE.
        if [1, 2, 6].contains(&one.task.policy) {
            let reason = "a quota does not hold real-time threads";
            return Err(Error::misuse(thing, reason, "take another way"));
        }
        if one.task.kernel {
            let reason = "a quota does not hold threads of the kernel";
            return Err(Error::misuse(thing, reason, "use --backend hog"));
        }
        let folder = thread_folder(one.affinity.pid, one.affinity.tid);
        let location = locate_of(tree, &folder, "cpu").ok_or_else(|| {
            Error::failure(
                &thing,
                "its control group cannot be seen",
                "use --backend hog",
            )
        })?;
        let entry = (one.affinity.tid, one.task.nice);
        // One slow core: one quota for all threads on it. Otherwise each thread has its own quota.
        let shared = request.cpu.and_then(|_| above.get(&location.own).copied());
        if let Some((_, threads)) = shared.and_then(|index| groups.get_mut(index)) {
            threads.push(entry);
            continue;
        }
        above.insert(location.own.clone(), groups.len());
        groups.push((QuotaGroup::plan(tree, &location, number), vec![entry]));
    }
    if request.cpu.is_some() && groups.len() > 1 {
        return Err(Error::misuse(
            "--cpu",
            "the threads are in different control groups and cannot share one quota",
            "use --backend hog",
        ));
    }
    Ok(Quota(groups))
}

impl Quota {
    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.0.iter().map(|(group, _)| group.folder().to_owned())
    }

    fn engage(&self, tree: &Tree, share: f64, targets: &[Target]) -> Result<(), String> {
        for (group, threads) in &self.0 {
            let nice: Vec<i32> = threads.iter().map(|(_, nice)| *nice).collect();
            group.make(&nice)?;
            group.limit((share < 1.0).then_some(share))?;
            for (tid, _) in threads {
                let lives = || {
                    let own = targets.iter().find(|one| one.affinity.tid == *tid);
                    own.is_some_and(|one| one.affinity.lives(tree))
                };
                group
                    .take(*tid)
                    .or_else(|reason| if lives() { Err(reason) } else { Ok(()) })?;
            }
        }
        Ok(())
    }
}

/// Lower the upper limit of the clock: with every governor this holds a busy core.
fn frequency(tree: &Tree, cpu: usize, share: f64) -> Result<Way, Error> {
    let folder = format!("{}/cpufreq", cpus::folder(cpu));
    let path = format!("{folder}/scaling_max_freq");
    let absent = || refused(Backend::Cpufreq, "this CPU has no cpufreq");
    let text = tree.text(&path).ok_or_else(absent)?;
    let full: f64 = text.parse().map_err(|_| absent())?;
    let least: f64 = tree
        .number(&format!("{folder}/cpuinfo_min_freq"))
        .unwrap_or(0.0);
    let slow = (full * share).max(least);
    Ok(Way::Setting {
        cpu: Some(cpu),
        full: Setting { path, text },
        slow: format!("{slow:.0}"),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_clock_is_limited_and_never_below_its_least() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/devices/system/cpu/cpu1/cpufreq");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("scaling_max_freq"), "3000000\n").unwrap();
        fs::write(folder.join("cpuinfo_min_freq"), "1200000\n").unwrap();
        let tree = Tree::at(root.path());
        let slow = |share| match frequency(&tree, 1, share).unwrap() {
            Way::Setting { slow, full, .. } => (slow, full.text),
            other => panic!("{other:?}"),
        };
        assert_eq!(slow(0.5), ("1500000".into(), "3000000".into()));
        assert_eq!(slow(0.1).0, "1200000");
        assert!(frequency(&tree, 2, 0.5).is_err());
    }
}
