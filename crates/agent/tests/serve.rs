//! `vtax-agent serve`, the real program, over a socket.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use common::{Agent, alive, groups};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

#[test]
fn hello_ping_facts_and_halt() {
    let mut agent = Agent::start(&[]);
    assert_eq!(agent.hello["agent"], env!("CARGO_PKG_VERSION"));
    assert_eq!(agent.hello["protocol"], 1);
    assert!(agent.hello["uptime_s"].as_f64().unwrap() > 0.0);
    assert_eq!(agent.request(json!({"op": "ping"}))["ok"], json!({}));
    let facts = agent.request(json!({"op": "facts"}));
    assert!(facts["ok"]["memory"]["total_bytes"].as_u64().unwrap() > 0);
    assert_eq!(agent.request(json!({"op": "halt"}))["ok"], json!({}));
    let (status, _folder) = agent.hang_up();
    assert!(status.success());
}

#[test]
fn a_command_runs_in_a_folder_that_is_there_and_its_output_goes_elsewhere() {
    let mut agent = Agent::start(&[]);
    let here = tempfile::tempdir().unwrap();
    let results = agent.folder.path().join("results");
    let folders = json!({"cwd": here.path(), "results": results});
    let answer = agent.run("pwd; echo err >&2", &folders);
    assert_eq!(answer["ok"]["exit_code"], 0, "{answer}");
    let said = std::fs::read_to_string(results.join("stdout")).unwrap();
    assert_eq!(said.trim_end(), here.path().to_str().unwrap());
    assert_eq!(
        std::fs::read_to_string(results.join("stderr")).unwrap(),
        "err\n"
    );
    assert_eq!(here.path().read_dir().unwrap().count(), 0);
    let missing = here.path().join("missing");
    let answer = agent.run("pwd", &json!({"cwd": missing, "results": results}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.ends_with("missing: it is not a folder here"),
        "{message}"
    );
    assert!(!missing.exists());
}

#[test]
fn a_command_is_run_as_asked_and_measured() {
    let mut agent = Agent::start(&[]);
    let script = "cat; echo out; echo err >&2; env; pwd; ulimit -f; exit 3";
    let answer = agent.run(
        script,
        &json!({"env": {"PATH": "/usr/bin:/bin", "A": "b c"}}),
    );
    let ok = &answer["ok"];
    assert_eq!(ok["exit_code"], 3, "{answer}");
    assert_eq!(ok["signal"], Value::Null);
    assert_eq!(ok["timed_out"], false);
    assert_eq!(ok["left_processes"], 0);
    assert!(ok["wall_s"].as_f64().unwrap() > 0.0);
    assert!(ok["tsc_ticks"].as_u64().unwrap() > 0);
    assert!(ok["max_rss_bytes"].as_u64().unwrap() > 100_000);
    assert_eq!(
        ok.as_object().unwrap().len(),
        17,
        "the fields of the protocol, no others"
    );
    let folder = agent.folder.path().join("run");
    let out = agent.text("stdout");
    assert!(
        out.starts_with("out\n") && out.contains("A=b c\n") && !out.contains("HOME="),
        "{out}"
    );
    assert!(out.contains(folder.to_str().unwrap()));
    // dash and bash count in units of 512 and 1024 bytes.
    assert!(
        out.ends_with("\n2048\n") || out.ends_with("\n1024\n"),
        "{out}"
    );
    assert_eq!(agent.text("stderr"), "err\n");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("stdout")), 0o600);
}

#[test]
fn beginning_and_end_are_announced_around_the_command() {
    let mut agent = Agent::start(&[]);
    // What the command leaves running is killed only after its end has been announced.
    let script = "sleep 300 & echo $! >&2; exit 3";
    let request = agent.shell(script, &json!({"announce": true}));
    let asked = Instant::now();
    agent.send(&request);
    assert_eq!(agent.receive(), json!({"id": 1000, "begins": true}));
    assert_eq!(agent.receive(), json!({"id": 1000, "ended": true}));
    let own = Duration::from_secs_f64(agent.receive()["ok"]["wall_s"].as_f64().unwrap());
    assert!(own <= asked.elapsed());
    assert!(!alive(agent.text("stderr").trim()));
    // A command that never began has no end.
    let none = agent.shell("", &json!({"announce": true, "argv": ["/no/such/program"]}));
    agent.send(&none);
    let frames: Vec<Value> = (0..3).map(|_| agent.receive()).collect();
    assert_eq!(frames[2]["error"]["kind"], "spawn", "{frames:?}");
    assert!(
        agent.run("exit 0", &json!({}))["ok"].is_object(),
        "not asked for"
    );
}

#[test]
fn commands_have_default_signals() {
    let mut agent = Agent::start_in("trap '' HUP INT USR1 PIPE", &[]);
    agent.run("grep -E '^Sig(Blk|Ign)' /proc/self/status", &json!({}));
    let none = "0000000000000000";
    assert_eq!(
        agent.text("stdout"),
        format!("SigBlk:\t{none}\nSigIgn:\t{none}\n")
    );
}

#[test]
fn a_time_out_kills_descendants_in_other_groups_and_sessions() {
    let mut agent = Agent::start(&[]);
    let script = "setsid sh -c 'echo $$ > far; trap \"\" TERM; sleep 1000; sleep 1000' & \
                  (sleep 1000 & echo $! > orphan) ; sleep 1000";
    let answer = agent.run(script, &json!({"timeout_s": 0.5}));
    assert_eq!(answer["ok"]["timed_out"], true, "{answer}");
    // The shell obeys the request to end; `far` ignores the request and is killed.
    assert_eq!(answer["ok"]["signal"], 15);
    assert_eq!(answer["ok"]["exit_code"], Value::Null);
    let wall = answer["ok"]["wall_s"].as_f64().unwrap();
    assert!((0.5..5.0).contains(&wall), "{wall}");
    for name in ["far", "orphan"] {
        assert!(!alive(&agent.wait_for_line(name)), "{name}");
    }
}

#[test]
fn what_a_command_leaves_running_is_killed_when_it_ends() {
    let mut agent = Agent::start(&[]);
    let answer = agent.run("setsid sleep 1000 & echo $! > left", &json!({}));
    assert_eq!(answer["ok"]["exit_code"], 0);
    assert!(!alive(&agent.wait_for_line("left")));
}

#[test]
fn what_is_left_by_request_outlives_later_commands_but_not_the_session() {
    let mut agent = Agent::start(&[]);
    let begin = Instant::now();
    let script = "(setsid sh -c 'sleep 1000 & echo $! > inner; sleep 1000' & echo $! > outer)";
    let answer = agent.run(script, &json!({"leave": true}));
    assert_eq!(answer["ok"]["exit_code"], 0, "{answer}");
    let left = [agent.wait_for_line("outer"), agent.wait_for_line("inner")];
    agent.run("setsid sleep 1000 & echo $! > other", &json!({}));
    assert!(!alive(&agent.wait_for_line("other")));
    let late = "setsid sleep 1000 & echo $! > late; exec sleep 1000";
    let answer = agent.run(late, &json!({"leave": true, "timeout_s": 0.2}));
    assert_eq!(answer["ok"]["timed_out"], true, "{answer}");
    assert!(!alive(&agent.wait_for_line("late")), "its time was up");
    assert!(left.iter().all(|process| alive(process)));
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "no kill waits for what was left"
    );
    let (status, _folder) = agent.hang_up();
    assert!(status.success());
    assert!(!left.iter().any(|process| alive(process)));
}

#[test]
fn the_end_of_the_channel_ends_everything() {
    let mut agent = Agent::start(&[]);
    let script = "(setsid sleep 1000 & echo $! > far); echo $$ > near; sleep 1000";
    let frame = agent.shell(script, &json!({"timeout_s": null}));
    agent.send(&frame);
    let processes = [agent.wait_for_line("far"), agent.wait_for_line("near")];
    let begin = Instant::now();
    let (status, _folder) = agent.hang_up();
    assert!(status.success() && begin.elapsed() < Duration::from_secs(5));
    for process in processes {
        assert!(!alive(&process), "{process}");
    }
}

#[test]
fn a_signal_ends_everything() {
    let mut agent = Agent::start(&[]);
    let frame = agent.shell(
        "(setsid sleep 1000 & echo $! > far); sleep 1000",
        &json!({}),
    );
    agent.send(&frame);
    let process = agent.wait_for_line("far");
    kill(
        Pid::from_raw(agent.process.id().cast_signed()),
        Signal::SIGTERM,
    )
    .unwrap();
    assert_eq!(agent.process.wait().unwrap().code(), Some(143));
    assert!(!alive(&process));
}

#[test]
fn a_command_does_not_outlive_an_agent_that_is_killed() {
    let mut agent = Agent::start(&[]);
    let frame = agent.shell("echo $$ > near; exec sleep 1000", &json!({}));
    agent.send(&frame);
    let process = agent.wait_for_line("near");
    agent.process.kill().unwrap();
    agent.process.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while alive(&process) {
        assert!(Instant::now() < deadline, "{process} lives");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_clock_is_this_machines() {
    let mut agent = Agent::start(&[]);
    let before = vtax_sys::clock::monotonic_ns();
    agent.send(&json!({"id": 1, "op": "time"}));
    let answer = agent.receive();
    let there = answer["ok"]["monotonic_ns"].as_u64().unwrap();
    assert!((before..=vtax_sys::clock::monotonic_ns()).contains(&there));
    assert!(answer["ok"]["tsc"].as_u64().unwrap() > 0);
}

#[test]
fn requests_that_come_during_a_run_are_answered_after_it() {
    let mut agent = Agent::start(&[]);
    let frame = agent.shell("sleep 0.2", &json!({"id": 1}));
    agent.send(&frame);
    agent.send(&json!({"id": 2, "op": "ping"}));
    assert_eq!(agent.receive()["id"], 1);
    assert_eq!(agent.receive(), json!({"id": 2, "ok": {}}));
}

#[test]
fn output_is_limited() {
    let mut agent = Agent::start(&[]);
    let script = "exec dd if=/dev/zero bs=4096 count=1000";
    let answer = agent.run(script, &json!({"output_limit_bytes": 10_000}));
    assert_eq!(answer["ok"]["signal"], 25, "SIGXFSZ: {answer}");
    assert_eq!(
        agent
            .folder
            .path()
            .join("run/stdout")
            .metadata()
            .unwrap()
            .len(),
        10_000
    );
}

#[test]
fn programs_that_cannot_be_started_are_named() {
    let mut agent = Agent::start(&[]);
    for (argv, reason) in [
        (
            json!(["no-such-program"]),
            "not found in PATH (/usr/bin:/bin)",
        ),
        (json!(["/no/such/program"]), "No such file or directory"),
        (json!(["/etc/passwd"]), "Permission denied"),
    ] {
        let answer = agent.run("", &json!({"argv": argv}));
        let message = format!("cannot start '{}': {reason}", argv[0].as_str().unwrap());
        assert_eq!(
            answer["error"],
            json!({"kind": "spawn", "message": message})
        );
    }
    assert_eq!(
        agent.run("true", &json!({}))["ok"]["exit_code"],
        0,
        "it goes on"
    );
}

#[test]
fn output_does_not_follow_links_or_wait_for_pipes() {
    let mut agent = Agent::start(&[]);
    let folder = agent.folder.path().join("run");
    std::fs::create_dir(&folder).unwrap();
    let target = agent.folder.path().join("precious");
    std::fs::write(&target, "precious").unwrap();
    symlink(&target, folder.join("stdout")).unwrap();
    nix::unistd::mkfifo(&folder.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in ["stdout", "pipe"] {
        let answer = agent.run("echo x", &json!({"stdout": name}));
        assert_eq!(answer["error"]["kind"], "system", "{answer}");
        assert!(
            answer["error"]["message"].as_str().unwrap().contains(name),
            "{answer}"
        );
    }
    assert_eq!(std::fs::read_to_string(target).unwrap(), "precious");
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_of_the_machine() {
    let mut agent = Agent::start(&[]);
    std::fs::write(agent.folder.path().join("file"), "").unwrap();
    let cwd = agent.folder.path().join("file/run");
    let answer = agent.run("true", &json!({"cwd": cwd}));
    let expected = format!("mkdir {}: Not a directory", cwd.display());
    assert_eq!(
        answer["error"],
        json!({"kind": "system", "message": expected})
    );
}

#[test]
fn bad_frames_are_answered_and_the_next_line_is_read() {
    let mut agent = Agent::start(&[]);
    for line in [&b"garbage\n"[..], b"[]\n", b"\xff\xfe\n", b"{\"id\": 1, \n"] {
        agent.send_bytes(line);
        let answer = agent.receive();
        assert_eq!(answer["id"], Value::Null);
        assert_eq!(answer["error"]["kind"], "frame", "{answer}");
    }
    agent.send_bytes(&vec![b'x'; (1 << 20) + 1]);
    // Neither the end of that line nor an empty line asks for anything.
    agent.send_bytes(b"\n\n");
    assert_eq!(
        agent.receive()["error"]["message"],
        "the line is longer than 1 MiB"
    );
    for (frame, kind) in [
        (json!({"op": "ping"}), "request"),
        (json!({"id": -1, "op": "ping"}), "request"),
        (json!({"id": 1}), "request"),
        (json!({"id": 1, "op": "run"}), "request"),
        (json!({"id": 1, "op": "dance"}), "op"),
    ] {
        agent.send(&frame);
        assert_eq!(agent.receive()["error"]["kind"], kind, "{frame}");
    }
    assert_eq!(agent.request(json!({"op": "ping"}))["ok"], json!({}));
}

#[test]
fn commands_run_on_the_cpus_asked_for() {
    let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0)).unwrap();
    let last = (0..1024)
        .rfind(|cpu| allowed.is_set(*cpu).unwrap())
        .unwrap()
        .to_string();
    let mut agent = Agent::start(&["--cpus", &last]);
    agent.run("grep Cpus_allowed_list /proc/self/status", &json!({}));
    assert_eq!(
        agent.text("stdout"),
        format!("Cpus_allowed_list:\t{last}\n")
    );
}

#[test]
fn memory_is_limited_and_the_group_is_removed() {
    let mut agent = Agent::start(&["--memory", "67108864"]);
    if let Some(reason) = agent.hello.get("memory_limit_error") {
        println!("skipped: {reason}");
        assert_eq!(
            agent.run("true", &json!({}))["ok"]["exit_code"],
            0,
            "it goes on"
        );
        return;
    }
    agent.run("cat /proc/self/cgroup", &json!({}));
    let name = format!("vtax-{}-", agent.process.id());
    assert!(agent.text("stdout").contains(&name));
    // dd touches its whole buffer.
    let small = agent.run("dd if=/dev/zero of=/dev/null bs=16M count=1", &json!({}));
    assert_eq!(small["ok"]["exit_code"], 0, "{small}");
    let large = agent.run(
        "exec dd if=/dev/zero of=/dev/null bs=256M count=1",
        &json!({}),
    );
    assert_eq!(large["ok"]["signal"], 9, "{large}");
    // Also when the command is busy at the end.
    let frame = agent.shell("echo $$ > near; sleep 1000", &json!({}));
    agent.send(&frame);
    agent.wait_for_line("near");
    kill(
        Pid::from_raw(agent.process.id().cast_signed()),
        Signal::SIGTERM,
    )
    .unwrap();
    assert_eq!(agent.process.wait().unwrap().code(), Some(143));
    assert_eq!(groups(&name), "");
}

#[test]
fn a_long_request_may_come_in_parts() {
    let mut agent = Agent::start(&[]);
    let mut frame = agent.shell("echo ${#LONG}", &json!({"id": 77}));
    frame["env"]["LONG"] = json!("é".repeat(20_000));
    let text: Vec<char> = frame.to_string().chars().collect();
    let (pieces, mut held) = (text.chunks(1000), 0);
    let count = pieces.len();
    for (number, piece) in pieces.enumerate() {
        let piece: String = piece.iter().collect();
        held += piece.len();
        let last = number + 1 == count;
        agent.send(&json!({"part": piece, "last": last}));
        if !last {
            assert_eq!(agent.receive(), json!({"part": held}));
        }
    }
    let answer = agent.receive();
    assert_eq!(
        (&answer["id"], &answer["ok"]["exit_code"]),
        (&json!(77), &json!(0)),
        "{answer}"
    );
    assert_eq!(agent.text("stdout"), "40000\n", "bytes in the C locale");
    agent.send(&json!({"part": "[1]", "last": true}));
    assert_eq!(agent.receive()["error"]["kind"], "frame");
}

#[test]
fn files_are_pushed_and_pulled_in_the_largest_pieces() {
    let mut agent = Agent::start(&[]);
    let path = agent.folder.path().join("folder/file");
    // In base64 this is the most that a frame of 1 MiB holds besides the other fields.
    let data = "AAAA".repeat(255 << 10);
    let pushed = agent.request(json!({"op": "push", "path": path, "data": data, "mode": 0o755}));
    assert_eq!(pushed["ok"], json!({"size": 765 << 10}));
    let pull = json!({"op": "pull", "path": path, "offset": 1, "limit": 512 << 10});
    let pulled = agent.request(pull);
    assert_eq!(
        (&pulled["ok"]["size"], &pulled["ok"]["eof"]),
        (&json!(765 << 10), &json!(false))
    );
    assert_eq!(pulled["ok"]["data"].as_str().unwrap().len(), 699_052);
    let answer = agent.request(json!({"op": "pull", "path": "/absent", "limit": 1}));
    let message = "open /absent: No such file or directory";
    assert_eq!(
        answer["error"],
        json!({"kind": "system", "message": message})
    );
    for request in [
        json!({"op": "enter"}),
        json!({"op": "clock", "realtime_s": 1e9}),
    ] {
        let answer = agent.request(request);
        assert_eq!(answer["error"]["kind"], "request", "no guest: {answer}");
    }
}

#[test]
fn without_a_frame_the_lease_ends_the_command_and_the_agent() {
    let mut agent = Agent::start(&["--lease", "0.5"]);
    let frame = agent.shell("echo $$ >pid; exec sleep 1000", &json!({}));
    agent.send(&frame);
    let pid = agent.wait_for_line("pid");
    // Empty lines hold the lease over several of its lengths.
    for _ in 0..10 {
        agent.send_bytes(b"\n");
        std::thread::sleep(Duration::from_millis(150));
    }
    assert!(alive(&pid));
    let begin = Instant::now();
    // The channel stays open, as for a peer behind a network that drops everything.
    assert!(agent.process.wait().unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(!alive(&pid));
}

#[test]
fn an_idle_agent_ends_with_its_lease() {
    let mut agent = Agent::start(&["--lease", "0.2"]);
    assert!(agent.process.wait().unwrap().success());
}

#[test]
fn a_list_names_regular_files_and_follows_no_link() {
    let mut agent = Agent::start(&[]);
    let folder = agent.folder.path().to_owned();
    std::fs::write(folder.join("five"), "12345").unwrap();
    std::fs::create_dir(folder.join("folder")).unwrap();
    std::fs::write(folder.join("folder/one"), "1").unwrap();
    symlink("five", folder.join("link")).unwrap();
    symlink(".", folder.join("loop")).unwrap();
    let answer = agent.request(json!({"op": "list", "path": folder}));
    assert_eq!(answer["ok"], json!({"files": {"five": 5, "folder/one": 1}}));
    let answer = agent.request(json!({"op": "list", "path": folder.join("five")}));
    assert_eq!(answer["error"]["kind"], "system", "{answer}");
}

#[test]
fn a_command_gets_its_input_and_a_home_of_its_own() {
    let mut agent = Agent::start(&[]);
    let folder = agent.folder.path().join("run");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("stdin"), "a\nb\nc\n").unwrap();
    let script = "wc -l; cd && ls -A && touch x && pwd; sleep 60 & sleep 60 &";
    for _ in 0..2 {
        let answer = agent.run(script, &json!({"home": true, "stdin": "stdin"}));
        assert_eq!(answer["ok"]["left_processes"], 2, "{answer}");
        let expected = format!("3\n{}\n", folder.join("home").display());
        assert_eq!(agent.text("stdout"), expected);
        assert!(!folder.join("home").exists());
    }
    let answer = agent.run("true", &json!({"stdin": "none"}));
    assert_eq!(answer["error"]["kind"], "system", "{answer}");
}
