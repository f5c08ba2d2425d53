//! Which CPUs there are.

use vtax_sys::cpu_list;
use vtax_sys::tree::Tree;

/// The online CPUs, and how many numbers CPUs can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// Numbers of the online CPUs.
    pub online: Vec<u32>,
    /// One more than the highest possible number.
    pub possible: u32,
}

impl Cpus {
    /// Read a machine's tree; `None` where it does not tell.
    pub fn find(tree: &Tree) -> Option<Self> {
        let list = |name: &str| -> Option<Vec<u32>> {
            let text = tree.text(&format!("/sys/devices/system/cpu/{name}"))?;
            let cpus = cpu_list::parse(&text).ok()?.into_iter();
            cpus.map(|cpu| u32::try_from(cpu).ok()).collect()
        };
        let online = list("online")?;
        let highest = list("possible")?
            .into_iter()
            .chain(online.iter().copied())
            .max()?;
        Some(Self {
            online,
            possible: highest.checked_add(1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cpus() {
        let cpus = Cpus::find(&Tree::host()).unwrap();
        assert!(!cpus.online.is_empty());
        assert!(cpus.online.iter().all(|cpu| *cpu < cpus.possible));
    }
}
