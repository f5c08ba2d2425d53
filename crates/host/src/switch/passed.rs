//! Descriptors that a guest's QEMU was given when it started: what the new QEMU gets for each.

use std::os::fd::AsFd;
use std::path::PathBuf;

use serde_json::Value;

use crate::switch::arguments::Arguments;
use crate::switch::sys;
use vtax_sys::process::Descriptor;

/// The number now of each descriptor that `-add-fd` gave, in the order of these options; `None`:
/// QEMU has closed it, as it does with a set that nothing uses.
///
/// QEMU copies such a descriptor and closes the one that the option names, whose number may soon
/// stand for something else. `found` is its answer to `query-fdsets`, which has a set's descriptors
/// in the order in which they were added.
///
/// Fails with the reason when a set is not as the options made it.
pub fn sets(arguments: &Arguments, found: &Value) -> Result<Vec<Option<i32>>, String> {
    let wanted = arguments.sets();
    let mut numbers = vec![None; wanted.len()];
    for set in found.as_array().into_iter().flatten() {
        let id = set.get("fdset-id").and_then(Value::as_i64);
        let fds = set.get("fds").and_then(Value::as_array);
        let fds = fds.map_or(&[][..], Vec::as_slice);
        let own = wanted
            .iter()
            .zip(&mut numbers)
            .filter(|(one, _)| **one == id);
        let own: Vec<_> = own.map(|(_, number)| number).collect();
        if own.len() != fds.len() {
            let id = id.unwrap_or_default();
            return Err(format!(
                "its set {id} of descriptors changed after its start"
            ));
        }
        for (number, fd) in own.into_iter().zip(fds) {
            let fd = fd.get("fd").and_then(Value::as_i64);
            *number = fd.and_then(|fd| i32::try_from(fd).ok());
        }
    }
    Ok(numbers)
}

/// The descriptors of vhost devices, and the files to open for the new QEMU.
///
/// The kernel lets only the process use them that used them first (`vhost_dev_check_owner`), and
/// gives no other one a copy that works.
pub fn vhosts(arguments: &Arguments, descriptors: &[Descriptor]) -> Vec<(i32, PathBuf)> {
    let named = arguments.vhosts();
    let own = descriptors
        .iter()
        .filter(|one| named.contains(&one.number) && one.target.starts_with("/dev/"));
    own.map(|one| (one.number, PathBuf::from(&one.target)))
        .collect()
}

/// The descriptors of which the new QEMU gets copies, ascending.
pub fn numbers(
    arguments: &Arguments,
    descriptors: &[Descriptor],
    sets: &[Option<i32>],
) -> Vec<i32> {
    let named = arguments.descriptors();
    // QEMU opens some devices, such as /dev/net/tun, without close-on-exec. A copy of such a
    // descriptor would keep the device busy when the new QEMU opens it.
    let own = |one: &Descriptor| one.number > 2 && one.target.starts_with("/dev/");
    let open = descriptors
        .iter()
        .filter(|one| named.contains(&one.number) || (one.inherited && !own(one)));
    let mut numbers: Vec<i32> = open.map(|one| one.number).collect();
    numbers.extend(sets.iter().flatten());
    let vhosts = vhosts(arguments, descriptors);
    let monitor = arguments.own_monitor();
    numbers.retain(|number| {
        Some(*number) != monitor && !vhosts.iter().any(|(vhost, _)| vhost == number)
    });
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The tap devices that vanish with the last process that has them open: names and descriptors of
/// process `pid`.
pub fn taps(pid: i32, descriptors: &[Descriptor]) -> Vec<(String, i32)> {
    let Ok(process) = sys::pidfd_open(pid) else {
        return Vec::new();
    };
    let open = descriptors
        .iter()
        .filter(|one| one.target == "/dev/net/tun");
    open.filter_map(|one| {
        let copy = sys::pidfd_getfd(process.as_fd(), one.number).ok()?;
        let (name, stays) = sys::tap(copy.as_fd()).ok()?;
        (!stays).then_some((name, one.number))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LINE: [&str; 8] = [
        "-add-fd",
        "fd=3,set=7",
        "-add-fd",
        "set=7,fd=4",
        "-add-fd",
        "fd=5,set=8",
        "-netdev",
        "tap,fd=6,vhostfd=9",
    ];

    fn descriptor(number: i32, target: &str, inherited: bool) -> Descriptor {
        Descriptor {
            number,
            target: target.into(),
            inherited,
        }
    }

    #[test]
    fn what_was_given_is_found_under_its_number_of_now() {
        let line = Arguments::parse(&LINE);
        let set = |id: i32, numbers: &[i32]| {
            let fds: Vec<_> = numbers.iter().map(|fd| json!({"fd": fd})).collect();
            json!({"fdset-id": id, "fds": fds})
        };
        let found = sets(&line, &json!([set(7, &[20, 21])])).unwrap();
        assert_eq!(found, [Some(20), Some(21), None]);
        assert!(sets(&line, &json!([set(7, &[20])])).is_err());
        assert!(sets(&line, &json!([set(9, &[20])])).is_err());
        let open = [
            descriptor(0, "/dev/null", true),
            descriptor(4, "anon_inode:kvm-vm", false),
            descriptor(6, "/dev/net/tun", false),
            descriptor(9, "/dev/vhost-net", true),
            descriptor(11, "/dev/net/tun", true),
            descriptor(12, "socket:[7]", true),
        ];
        assert_eq!(numbers(&line, &open, &found), [0, 6, 12, 20, 21]);
        assert_eq!(vhosts(&line, &open), [(9, "/dev/vhost-net".into())]);
    }
}
