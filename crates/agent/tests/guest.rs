//! `vtax-agent guest`, the real program, on this machine instead of in a guest.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use vtax_sys::guest_page::{Publisher, Reader};

fn guest(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vtax-agent"));
    command.arg("guest").args(arguments);
    command.env("VTAX_APP_DIR", folder.join("app"));
    command
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn the_page_has_what_the_publisher_says_at_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page");
    let path = page.to_str().unwrap();
    let arguments = ["--page", path, "--every", "1ms", "--app", "x,app.y"];
    let child = guest(folder.path(), &arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !folder.path().join("app").exists() || Reader::open(&page).is_err() {
        assert!(Instant::now() < deadline, "no page");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Applications that begin after the page was made, one with a name that the page does not have.
    let own = folder.path().join("app/1.page");
    let mut application = Publisher::create(&own, &["app.x", "app.z"]).unwrap();
    application.publish(&[5, 6]).unwrap();
    let mut reader = Reader::open(&page).unwrap();
    let names = reader.names().to_vec();
    let index = names.iter().position(|name| name == "app.x").unwrap();
    while reader.sample().unwrap().unwrap().values[index] != 5 {
        assert!(Instant::now() < deadline, "the counter does not appear");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let said = json(&output);
    assert!(said["publications"].as_u64().unwrap() > 2);
    assert_eq!(said["left_out"], serde_json::json!(["app.z"]));
    let last = reader.sample().unwrap().unwrap();
    for (name, value) in names.iter().zip(last.values) {
        assert_eq!(said["counters"][name], value, "{name}");
    }
    assert_eq!(said["counters"]["app.y"], 0);
    assert!(said["counters"]["guest.publisher_ns"].as_u64().unwrap() > 0);
}

#[test]
fn it_ends_when_its_time_is_up() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page");
    let arguments = ["--page", page.to_str().unwrap(), "--for", "50ms"];
    let output = guest(folder.path(), &arguments).output().unwrap();
    assert!(output.status.success());
    assert!(json(&output)["publications"].as_u64().unwrap() >= 2);
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], code, words: &str| {
        let output = guest(folder.path(), arguments).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(
            message.contains(words) && message.lines().count() == 1,
            "{message}"
        );
    };
    refused(&["--every", "1us"], 2, "1ms to 10s");
    refused(&["--app", "Requests"], 2, "not a name of a counter");
    refused(&["--page", "/proc/self/nowhere"], 1, "--page");
    let many: Vec<String> = (0..63).map(|number| format!("n{number}")).collect();
    refused(&["--app", &many.join(",")], 2, "name at most");
    let has_device =
        std::fs::read_dir("/sys/bus/pci/devices").is_ok_and(|mut entries| entries.next().is_some());
    if !has_device {
        refused(
            &[],
            1,
            "ivshmem device: this machine has none; name a file with --page",
        );
    }
}
