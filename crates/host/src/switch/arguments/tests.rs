use proptest::prelude::*;

use super::*;

const OLD: &str = "-name guest=db,debug-threads=on -S -machine q35,memory-backend=ram \
    -object memory-backend-memfd,id=ram,size=1G,share=on,hugetlb=on,prealloc=on \
    -chardev file,id=log,path=/var/log/a,,b -serial file:/tmp/console -daemonize \
    -netdev tap,id=n0,ifname=tap0,script=/etc/up -netdev tap,id=n1,fd=7,vhostfd=8 \
    -add-fd set=2,fd=3,opaque=a,,b -add-fd fd=4,set=5 -add-fd fd=5,set=2 \
    -chardev socket,id=vtax-switch,fd=12 -mon chardev=vtax-switch,mode=control \
    -qmp unix:/run/q,server=on,wait=off -incoming defer";
const NEW: &str = "-name guest=db,debug-threads=on -machine q35,memory-backend=ram \
    -object memory-backend-file,mem-path=/proc/self/fd/9,share=on,id=ram,size=1G,prealloc=on \
    -chardev file,id=log,path=/var/log/a,,b,append=on \
    -chardev file,id=vtax-console8,path=/tmp/console,append=on -serial chardev:vtax-console8 \
    -netdev tap,id=n0,ifname=tap0,script=no -netdev tap,id=n1,fd=7,vhostfd=8 \
    -add-fd fd=21,set=2,opaque=a,,b -add-fd fd=20,set=2 \
    -qmp unix:/run/q,server=on,wait=off \
    -chardev socket,id=vtax-switch,fd=13 -mon chardev=vtax-switch,mode=control \
    -incoming defer -S";

fn words(text: &str) -> Vec<&str> {
    text.split_ascii_whitespace().collect()
}

fn incoming(old: &Arguments) -> Arguments {
    old.incoming(&Additions {
        monitor: Some(13),
        memory: &[("ram".into(), 9)],
        sets: &[Some(21), None, Some(20)],
    })
}

#[test]
fn the_successor_has_the_same_machine() {
    let old = Arguments::parse(&words(OLD));
    let new = incoming(&old).words().join(" ");
    // The console's number is its position among the words.
    let number = new
        .split("vtax-console")
        .nth(1)
        .and_then(|rest| rest.split(',').next());
    let expected = words(NEW)
        .join(" ")
        .replace("console8", &format!("console{}", number.unwrap()));
    assert_eq!(new, expected);
}

#[test]
fn json_is_read_as_the_other_form() {
    let line = [
        "-object",
        r#"{"id":"ram","qom-type":"memory-backend-memfd","size":1048576,"share":true}"#,
        "-netdev",
        r#"{"id":"n","fd":"7","type":"tap","vhost":true}"#,
    ];
    let old = Arguments::parse(&line);
    assert!(old.has_id("ram") && old.has_id("n"));
    assert_eq!(old.descriptors(), [7]);
    assert_eq!(old.taps(), []);
    assert_eq!(old.backends()[0].bytes, Some(1 << 20));
    let new = incoming(&old).words();
    assert_eq!(
        new[1],
        "memory-backend-file,mem-path=/proc/self/fd/9,share=on,id=ram,size=1048576"
    );
}

#[test]
fn what_a_switch_needs_is_read() {
    let old = Arguments::parse(&words(OLD));
    assert_eq!(old.name().as_deref(), Some("db"));
    assert_eq!(old.qmp_sockets(), [PathBuf::from("/run/q")]);
    assert_eq!((old.descriptors(), old.vhosts()), (vec![7, 8], vec![8]));
    assert_eq!(old.sets(), [Some(2), Some(5), Some(2)]);
    assert_eq!(old.own_monitor(), Some(12));
    assert_eq!(old.taps(), [Some("tap0".to_owned())]);
    assert_eq!(old.backends()[0].bytes, Some(1 << 30));
    assert!(old.has_id("n1") && !old.has_id("n2"));
    let chardev = "-chardev socket,path=/run/m,server=on,id=m -mon m,mode=control";
    let sockets = Arguments::parse(&words(chardev)).qmp_sockets();
    assert_eq!(sockets, [PathBuf::from("/run/m")]);
    let snapshot = Arguments::parse(&["--snapshot"]);
    assert_eq!(
        snapshot.not_again().map(|(option, _)| option),
        Some("snapshot")
    );
}

#[test]
fn what_ends_with_a_qemu_is_named() {
    let line = "-netdev user,id=a -nic tap,ifname=t -netdev socket,id=b,fd=3 -net socket,listen=:1 \
        -chardev socket,id=c,path=/c,server=on -chardev socket,id=d,fd=4 \
        -chardev socket,id=m,path=/m,server=on -mon chardev=m,mode=control -chardev null,id=e";
    let arguments = Arguments::parse(&words(line));
    assert_eq!(arguments.inner_networks(), ["-netdev user", "-net socket"]);
    assert_eq!(arguments.own_sockets(), ["c"]);
}

proptest! {
    #[test]
    fn a_successor_of_a_successor_is_the_same(
        // As QEMU expects: every option has its value.
        words in proptest::collection::vec(("--?[a-zA-Z]{1,9}", "[,=:a-z0-9]{0,20}"), 0..20),
    ) {
        let words: Vec<String> = words.into_iter().flat_map(|(a, b)| [a, b]).collect();
        let first = incoming(&Arguments::parse(&words));
        let again = incoming(&Arguments::parse(&first.words()));
        prop_assert_eq!(first.words(), again.words());
    }

    #[test]
    fn words_that_are_not_changed_come_back(
        words in proptest::collection::vec("[a-zA-Z0-9,=:./]{1,20}", 0..20),
    ) {
        prop_assert_eq!(Arguments::parse(&words).words(), words);
    }
}
