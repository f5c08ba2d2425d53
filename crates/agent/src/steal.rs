//! Time that a hypervisor took from this machine's CPUs.

use vtax_sys::tree::Tree;

/// Index of `steal` among the numbers of a `cpuN` line of `/proc/stat` (proc(5)).
const STEAL_FIELD: usize = 7;

/// The stolen time so far of `cpus` together, in clock ticks; `None` when the kernel does not say.
pub fn ticks(tree: &Tree, cpus: &[usize]) -> Option<u64> {
    let text = tree.text("/proc/stat")?;
    let mut sum = 0;
    for line in text.lines().take_while(|line| line.starts_with("cpu")) {
        let mut words = line.split_whitespace();
        let number = words
            .next()
            .and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        if number.is_some_and(|number| cpus.contains(&number)) {
            sum += words.nth(STEAL_FIELD)?.parse::<u64>().ok()?;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_cpus_asked_for_count() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        let text = "cpu  9 9 9 9 9 9 9 30 0 0\ncpu0 1 1 1 1 1 1 1 10 0 0\n\
                    cpu1 1 1 1 1 1 1 1 20 0 0\nintr 5\n";
        std::fs::write(root.path().join("proc/stat"), text).unwrap();
        let tree = Tree::at(root.path());
        assert_eq!(ticks(&tree, &[0]), Some(10));
        assert_eq!(ticks(&tree, &[0, 1]), Some(30));
        assert_eq!(ticks(&tree, &[7]), Some(0));
        assert_eq!(ticks(&Tree::at("/nonexistent"), &[0]), None);
    }
}
