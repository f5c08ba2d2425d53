//! The memory that a QEMU shares with its guest by an ivshmem device.

use std::fs;
use std::path::PathBuf;

use vtax_sys::reason;
use vtax_sys::tree::Tree;

const DEVICES: &str = "/sys/bus/pci/devices";
// QEMU's docs/specs/ivshmem-spec: PCI identity, and BAR 2 is the memory.
const VENDOR: &str = "0x1af4";
const DEVICE: &str = "0x1110";
const MEMORY: &str = "resource2";

/// Where the memory of the first such device is, ready to be mapped; else why not.
pub(crate) fn find(tree: &Tree) -> Result<PathBuf, String> {
    let folder = tree
        .names(DEVICES)
        .into_iter()
        .map(|name| format!("{DEVICES}/{name}"))
        .find(|folder| {
            let is = |file, id: &str| tree.text(&format!("{folder}/{file}")).as_deref() == Some(id);
            is("vendor", VENDOR) && is("device", DEVICE)
        })
        .ok_or("this machine has none")?;
    // Without a driver, the device does not answer at its addresses until the guest's init enables
    // it.
    let enable = format!("{folder}/enable");
    if tree
        .number::<u32>(&enable)
        .is_none_or(|enabled| enabled == 0)
    {
        fs::write(tree.path(&enable), "1").map_err(|error| reason(&error))?;
    }
    Ok(tree.path(&format!("{folder}/{MEMORY}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_found_among_others_and_enabled() {
        let root = tempfile::tempdir().unwrap();
        let tree = Tree::at(root.path());
        assert_eq!(find(&tree), Err("this machine has none".into()));
        for (name, device) in [("0000:00:01.0", "0x1000"), ("0000:00:02.0", "0x1110")] {
            let folder = tree.path(&format!("{DEVICES}/{name}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("vendor"), "0x1af4\n").unwrap();
            fs::write(folder.join("device"), format!("{device}\n")).unwrap();
            fs::write(folder.join("enable"), "0\n").unwrap();
        }
        let found = find(&tree).unwrap();
        assert!(found.ends_with("0000:00:02.0/resource2"));
        let enable = |name| tree.text(&format!("{DEVICES}/{name}/enable"));
        assert_eq!(enable("0000:00:02.0").as_deref(), Some("1"));
        assert_eq!(enable("0000:00:01.0").as_deref(), Some("0"));
    }
}
