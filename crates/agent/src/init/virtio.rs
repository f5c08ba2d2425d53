//! Finding a virtio-serial port by its name, as udev would.

use std::path::PathBuf;

use vtax_sys::tree::Tree;

const PORTS: &str = "/sys/class/virtio-ports";

/// The device of the port, once it exists.
pub(super) fn port(tree: &Tree, name: &str) -> Option<PathBuf> {
    let devices = tree.names(PORTS);
    let device = devices
        .iter()
        .find(|device| tree.text(&format!("{PORTS}/{device}/name")).as_deref() == Some(name))?;
    let path = tree.path(&format!("/dev/{device}"));
    path.exists().then_some(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_port_is_found_by_name_when_its_device_exists() {
        let root = tempfile::tempdir().unwrap();
        for (device, name) in [("vport0p1", "other\n"), ("vport0p2", "org.vtax.agent\n")] {
            let folder = root.path().join("sys/class/virtio-ports").join(device);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("name"), name).unwrap();
        }
        let tree = Tree::at(root.path());
        assert_eq!(port(&tree, "org.vtax.agent"), None);
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/vport0p2"), "").unwrap();
        assert_eq!(
            port(&tree, "org.vtax.agent"),
            Some(root.path().join("dev/vport0p2"))
        );
        assert_eq!(port(&tree, "absent"), None);
    }
}
