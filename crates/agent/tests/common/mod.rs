//! A client of `vtax-agent serve`, for tests.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than anything here takes; a hang becomes a failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running agent with the test's end of its channel and a folder to work in.
pub struct Agent {
    pub process: Child,
    pub folder: TempDir,
    pub hello: Value,
    socket: UnixStream,
    lines: BufReader<UnixStream>,
    next_id: u64,
}

impl Agent {
    /// Start `serve` with these options on standard input and output.
    pub fn start(options: &[&str]) -> Self {
        Self::start_in("", options)
    }

    /// Start it after a shell has run `preparation` in the agent's process.
    pub fn start_in(preparation: &str, options: &[&str]) -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let output: std::os::fd::OwnedFd = theirs.try_clone().unwrap().into();
        let input: std::os::fd::OwnedFd = theirs.into();
        let process = Command::new("sh")
            .args(["-c", &format!("{preparation}\nexec \"$@\""), "sh"])
            .args([env!("CARGO_BIN_EXE_vtax-agent"), "serve"])
            .args(options)
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .spawn()
            .unwrap();
        let lines = BufReader::new(socket.try_clone().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let mut agent = Self {
            process,
            folder,
            hello: Value::Null,
            socket,
            lines,
            next_id: 1,
        };
        agent.hello = agent.receive()["hello"].take();
        agent
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub fn send(&mut self, frame: &Value) {
        self.send_bytes(format!("{frame}\n").as_bytes());
    }

    pub fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    pub fn request(&mut self, mut frame: Value) -> Value {
        frame["id"] = json!(self.next_id);
        self.send(&frame);
        let answer = self.receive();
        assert_eq!(answer["id"], self.next_id);
        self.next_id += 1;
        answer
    }

    /// The request for a shell command; fields in `changes` replace the usual ones.
    pub fn shell(&self, script: &str, changes: &Value) -> Value {
        let mut frame = json!({
            "id": 1000, "op": "run", "argv": ["sh", "-c", script], "env": {"PATH": "/usr/bin:/bin"},
            "cwd": self.folder.path().join("run"), "stdout": "stdout", "stderr": "stderr",
            "timeout_s": 15.0, "output_limit_bytes": 1 << 20,
        });
        for (name, value) in changes.as_object().into_iter().flatten() {
            frame[name] = value.clone();
        }
        frame
    }

    /// Run a shell command; returns the whole answer.
    pub fn run(&mut self, script: &str, changes: &Value) -> Value {
        let frame = self.shell(script, changes);
        self.request(frame)
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join("run").join(name)).unwrap()
    }

    /// Wait until a file that a command writes has a line, and return it.
    pub fn wait_for_line(&self, name: &str) -> String {
        let path = self.folder.path().join("run").join(name);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(text) = std::fs::read_to_string(&path)
                && text.ends_with('\n')
            {
                return text.trim().to_owned();
            }
            assert!(Instant::now() < deadline, "no {name}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Close the channel; returns how the agent ended, and the folder for a last check.
    pub fn hang_up(self) -> (ExitStatus, TempDir) {
        let Self {
            mut process,
            folder,
            socket,
            lines,
            ..
        } = self;
        drop((socket, lines));
        let status = process.wait().unwrap();
        (status, folder)
    }
}

/// Does the process exist (and is not a zombie)?
pub fn alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| {
        stat.rsplit_once(')')
            .is_some_and(|(_, rest)| !rest.starts_with(" Z"))
    })
}

/// The control groups whose name begins with `name`.
pub fn groups(name: &str) -> String {
    let found = Command::new("find")
        .args(["/sys/fs/cgroup", "-maxdepth", "7", "-name"])
        .arg(format!("{name}*"))
        .output()
        .unwrap();
    String::from_utf8(found.stdout).unwrap()
}
