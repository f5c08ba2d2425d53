//! Two kinds of CPUs: fast ones and slow ones, as a user names them or as Linux shows them.

use vtax_sys::terminal::Error;
use vtax_sys::tree::Tree;

use crate::place::cores::cut::median;
use crate::place::cores::read::{SOURCES, cores, numbers};
use crate::place::cores::{Cores, worth};
use crate::place::cpus::{online, written};

#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Sorted, at least one.
    pub fast: Vec<usize>,
    /// Sorted, at least one, none of them fast.
    pub slow: Vec<usize>,
    /// Speed of the slow CPUs in percent of the fast ones; None: unknown.
    pub speed_percent: Option<f64>,
    /// How many cores the slow CPUs are worth; see [`crate::place::cores::Kind::worth`].
    pub slow_worth: f64,
    /// How the kinds are known, with caveats; empty for what a user names.
    pub notes: Vec<String>,
}

impl Pair {
    /// The CPUs as a user names them. A kind that is not named gets all online CPUs that are
    /// neither isolated nor in the other kind. With neither named, the fastest and the slowest
    /// kind.
    ///
    /// Fails where there is one kind, for a CPU that is not online, and for a CPU that is in both
    /// kinds.
    pub fn choose(
        tree: &Tree,
        fast: Option<Vec<usize>>,
        slow: Option<Vec<usize>>,
        speed_percent: Option<f64>,
    ) -> Result<Self, Error> {
        let online = online(tree);
        for (option, cpus) in [("--fast", &fast), ("--slow", &slow)] {
            let off = cpus.iter().flatten().find(|cpu| !online.contains(cpu));
            if let Some(cpu) = off {
                let reason = format!("CPU {cpu} is not online");
                let remedy = format!("online are {}", written(&online));
                return Err(Error::misuse(option, reason, &remedy));
            }
        }
        let found = Cores::of(tree);
        let rest = |named: &[usize]| -> Vec<usize> {
            let other = |cpu: &&usize| !named.contains(cpu) && !found.isolated.contains(cpu);
            online.iter().filter(other).copied().collect()
        };
        let (fast, slow) = match (fast, slow) {
            (Some(fast), Some(slow)) => (fast, slow),
            (Some(fast), None) => (fast.clone(), rest(&fast)),
            (None, Some(slow)) => (rest(&slow), slow),
            (None, None) => return Self::of_kinds(found, speed_percent),
        };
        let both: Vec<usize> = fast
            .iter()
            .filter(|cpu| slow.contains(cpu))
            .copied()
            .collect();
        if !both.is_empty() {
            let thing = format!("CPU {}", written(&both));
            let reason = "it is in --fast and in --slow";
            return Err(Error::misuse(thing, reason, "name it in one"));
        }
        for (option, cpus) in [("--fast", &fast), ("--slow", &slow)] {
            if cpus.is_empty() {
                return Err(Error::misuse(option, "no CPU is left for it", NAME_BOTH));
            }
        }
        let speed_percent = speed_percent.or_else(|| stated(tree, &fast, &slow));
        Ok(Self {
            slow_worth: worth(&cores(tree, &slow)),
            fast,
            slow,
            speed_percent,
            notes: Vec::new(),
        })
    }

    /// The fastest and the slowest kind.
    fn of_kinds(found: Cores, speed_percent: Option<f64>) -> Result<Self, Error> {
        let source = found.source;
        let mut notes = found.notes;
        let mut kinds = found.kinds.into_iter();
        let (fast, slow) = kinds.next().zip(kinds.next_back()).ok_or_else(|| {
            let alike = "all cores of this machine are of one kind".to_owned();
            let reason = if notes.is_empty() {
                alike
            } else {
                notes.join("; ")
            };
            Error::misuse("--fast and --slow", reason, NAME_BOTH)
        })?;
        let how = source.unwrap_or_default();
        let (fastest, slowest) = (written(&fast.cpus), written(&slow.cpus));
        notes.insert(
            0,
            format!("fast are CPU {fastest}, slow are {slowest}, {how}"),
        );
        Ok(Self {
            fast: fast.cpus,
            slow: slow.cpus,
            speed_percent: speed_percent.or(slow.speed_percent),
            slow_worth: slow.worth,
            notes,
        })
    }
}

const NAME_BOTH: &str = "name fast and slow CPUs, such as --fast 0-3 --slow 4-7";

/// The slow CPUs' speed by the first source that has a number for each CPU, and lower numbers for
/// the slow ones.
fn stated(tree: &Tree, fast: &[usize], slow: &[usize]) -> Option<f64> {
    SOURCES.iter().find_map(|source| {
        let middle = |cpus: &[usize]| {
            let all: Option<Vec<f64>> = numbers(tree, *source, &cores(tree, cpus))
                .into_iter()
                .collect();
            median(all?.into_iter())
        };
        let (fast, slow) = (middle(fast)?, middle(slow)?);
        (slow < fast).then(|| slow / fast * 100.0)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn machine(capacities: &[u32]) -> (tempfile::TempDir, Tree) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("sys/devices/system/cpu");
        for (cpu, capacity) in capacities.iter().enumerate() {
            let folder = folder.join(format!("cpu{cpu}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpu_capacity"), capacity.to_string()).unwrap();
        }
        let last = capacities.len() - 1;
        fs::write(folder.join("online"), format!("0-{last}\n")).unwrap();
        let tree = Tree::at(root.path());
        (root, tree)
    }

    #[test]
    fn by_the_types_of_the_machine() {
        let (_root, tree) = machine(&[1024, 1024, 700, 256]);
        let cores = Pair::choose(&tree, None, None, None).unwrap();
        assert_eq!((cores.fast, cores.slow), (vec![0, 1], vec![3]));
        assert_eq!(cores.speed_percent, Some(25.0));
        assert_eq!(
            cores.notes,
            ["fast are CPU 0-1, slow are 3, by cpu_capacity"]
        );
    }

    #[test]
    fn as_the_user_says() {
        let (_root, tree) = machine(&[1024; 4]);
        let choose = |fast: Option<&[usize]>, slow: Option<&[usize]>| {
            Pair::choose(
                &tree,
                fast.map(<[_]>::to_vec),
                slow.map(<[_]>::to_vec),
                None,
            )
        };
        let cores = choose(None, Some(&[2, 3])).unwrap();
        assert_eq!((cores.fast, cores.speed_percent), (vec![0, 1], None));
        let cores = choose(Some(&[0]), Some(&[2])).unwrap();
        assert_eq!((cores.fast, cores.slow), (vec![0], vec![2]));
        let cases = [
            (None, None, "one kind"),
            (Some([0, 1].as_slice()), Some([1, 2].as_slice()), "CPU 1"),
            (None, Some([7].as_slice()), "not online"),
            (Some([0, 1, 2, 3].as_slice()), None, "no CPU is left"),
        ];
        for (fast, slow, word) in cases {
            let error = choose(fast, slow).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
