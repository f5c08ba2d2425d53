//! Requests and answers of PROTOCOL.md, checked before the agent acts on them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::clock::ClockRequest;
use crate::supervise::Step;
use crate::transfer::{ListRequest, PullRequest, PushRequest};

/// The version of the protocol in `hello`.
pub const PROTOCOL: u32 = 1;
/// The operations, in the order in which messages list them.
const OPERATIONS: &str = "ping, facts, run, push, pull, list, enter, clock, time, counters, halt";

/// Why a request is answered with an error; the variant is the answer's `kind`.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RequestError {
    /// The line is not a JSON object.
    #[error("{0}")]
    Frame(String),
    #[error("unknown operation '{0}'; known: {OPERATIONS}")]
    Op(String),
    /// A field is missing or wrong.
    #[error("{0}")]
    Request(String),
    /// The program cannot be started.
    #[error("cannot start '{program}': {reason}")]
    Spawn {
        /// The program as the request names it.
        program: String,
        /// The kernel's reason, or that the program is not in `PATH`.
        reason: String,
    },
    /// A system call of the agent failed.
    #[error("{0}")]
    System(String),
}

impl RequestError {
    fn kind(&self) -> &'static str {
        match self {
            Self::Frame(_) => "frame",
            Self::Op(_) => "op",
            Self::Request(_) => "request",
            Self::Spawn { .. } => "spawn",
            Self::System(_) => "system",
        }
    }

    /// The answer's frame.
    pub fn frame(&self, id: Option<u64>) -> Value {
        json!({"id": id, "error": {"kind": self.kind(), "message": self.to_string()}})
    }
}

/// The frame that says how far the command of a request is.
pub fn progress(id: u64, step: Step) -> Value {
    match step {
        Step::Begins => json!({"id": id, "begins": true}),
        Step::Ended => json!({"id": id, "ended": true}),
    }
}

/// The frame of a successful answer.
pub fn success(id: u64, answer: &Value) -> Value {
    json!({"id": id, "ok": answer})
}

/// A checked request.
#[derive(Debug, PartialEq)]
pub enum Operation {
    /// Are you there?
    Ping,
    /// What machine is this?
    Facts,
    /// Run a command.
    Run(RunRequest),
    /// Write a piece of a file.
    Push(PushRequest),
    /// Read a piece of a file.
    Pull(PullRequest),
    /// Which files are in a folder?
    List(ListRequest),
    /// Mount what was deferred.
    Enter,
    /// Set the guest's wall clock.
    Clock(ClockRequest),
    /// What does KVM count here?
    Counters,
    /// What time is it here?
    Time,
    /// End.
    Halt,
}

/// The fields of `run`.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a field of the protocol"
)]
#[derive(Debug, PartialEq, Deserialize)]
pub struct RunRequest {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The command's whole environment.
    pub env: BTreeMap<String, String>,
    /// Working folder, absolute.
    pub cwd: PathBuf,
    /// Folder of the output, absolute, made if it does not exist; `None`: `cwd`.
    ///
    /// With `results`, `cwd` must exist: it is the user's folder, not the run's.
    #[serde(default)]
    pub results: Option<PathBuf>,
    /// Make a folder in `results` for the command's `HOME`, and remove it afterwards.
    #[serde(default)]
    pub home: bool,
    /// Name of a file in `results` for the standard input; `None`: the input is empty.
    #[serde(default)]
    pub stdin: Option<String>,
    /// Name of a file in `results` for the standard output.
    pub stdout: String,
    /// Name of a file in `results` for the standard error.
    pub stderr: String,
    /// Seconds after which the command is killed; `None`: never.
    pub timeout_s: Option<f64>,
    /// Largest file that the command may write.
    pub output_limit_bytes: u64,
    /// Processes that the command leaves running live until the end of the session.
    #[serde(default)]
    pub leave: bool,
    /// Count its instructions and cycles.
    #[serde(default)]
    pub count: bool,
    /// Say when the command begins and when it has ended, for a clock outside this machine.
    #[serde(default)]
    pub announce: bool,
}

impl RunRequest {
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_s
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}

/// The `id` of a request.
///
/// Fails when the field is missing or not an unsigned integer.
pub fn id(object: &Map<String, Value>) -> Result<u64, RequestError> {
    match object.get("id") {
        Some(value) => value.as_u64().ok_or_else(|| {
            RequestError::Request(format!("id: {value} is not an unsigned integer"))
        }),
        None => Err(RequestError::Request("missing field `id`".into())),
    }
}

/// The operation that a request asks for, with every field checked.
///
/// Fails with `Op` when no operation has the name, and with `Request` when a field is missing or
/// wrong.
pub fn operation(object: Map<String, Value>) -> Result<Operation, RequestError> {
    let name = match object.get("op") {
        Some(Value::String(name)) => name.clone(),
        Some(other) => {
            return Err(RequestError::Request(format!(
                "op: {other} is not a string"
            )));
        }
        None => return Err(RequestError::Request("missing field `op`".into())),
    };
    match name.as_str() {
        "ping" => Ok(Operation::Ping),
        "facts" => Ok(Operation::Facts),
        "run" => fields(object, check).map(Operation::Run),
        "push" => fields(object, PushRequest::check).map(Operation::Push),
        "pull" => fields(object, PullRequest::check).map(Operation::Pull),
        "list" => fields(object, ListRequest::check).map(Operation::List),
        "enter" => Ok(Operation::Enter),
        "clock" => fields(object, ClockRequest::check).map(Operation::Clock),
        "counters" => Ok(Operation::Counters),
        "time" => Ok(Operation::Time),
        "halt" => Ok(Operation::Halt),
        _ => Err(RequestError::Op(name)),
    }
}

/// Read the fields of a request and check them; the error names the field.
pub fn fields<T: DeserializeOwned>(
    object: Map<String, Value>,
    check: impl FnOnce(&T) -> Result<(), String>,
) -> Result<T, RequestError> {
    let request = serde_path_to_error::deserialize(Value::Object(object))
        .map_err(|error| RequestError::Request(describe(&error)))?;
    check(&request).map_err(RequestError::Request)?;
    Ok(request)
}

fn describe(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    match error.path().to_string().as_str() {
        // For a missing field, the message itself names the field.
        "." => error.inner().to_string(),
        path => format!("{path}: {}", error.inner()),
    }
}

fn check(request: &RunRequest) -> Result<(), String> {
    check_command(request)?;
    let folders = [
        ("cwd", Some(&request.cwd)),
        ("results", request.results.as_ref()),
    ];
    for (field, folder) in folders {
        if let Some(folder) = folder
            && (!folder.is_absolute() || holds_nul(&folder.to_string_lossy()))
        {
            return Err(format!(
                "{field}: '{}' is not an absolute path",
                folder.display()
            ));
        }
    }
    let names = [
        ("stdin", request.stdin.as_ref()),
        ("stdout", Some(&request.stdout)),
        ("stderr", Some(&request.stderr)),
    ];
    for (field, name) in names {
        if let Some(name) = name
            && !is_file_name(name)
        {
            return Err(format!("{field}: {name:?} is not the name of a file"));
        }
    }
    if request.timeout_s.is_some() && request.timeout().is_none_or(|limit| limit.is_zero()) {
        return Err("timeout_s: not a positive number of seconds".into());
    }
    Ok(())
}

fn check_command(request: &RunRequest) -> Result<(), String> {
    if request.argv.first().is_none_or(String::is_empty) {
        return Err("argv: it names no program".into());
    }
    if let Some(index) = request.argv.iter().position(|text| holds_nul(text)) {
        return Err(format!("argv[{index}]: it holds a NUL character"));
    }
    for (name, value) in &request.env {
        if name.is_empty() || name.contains('=') || holds_nul(name) || holds_nul(value) {
            return Err(format!("env: {name:?} cannot be an environment variable"));
        }
    }
    Ok(())
}

fn holds_nul(text: &str) -> bool {
    text.contains('\0')
}

fn is_file_name(name: &str) -> bool {
    // The last component of a path is a file name only if nothing comes before it.
    Path::new(name).file_name().is_some_and(|last| last == name) && !holds_nul(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::frame::{self, Line};

    fn valid() -> Value {
        json!({"id": 9, "op": "run", "argv": ["true"], "env": {"PATH": "/bin"}, "cwd": "/tmp/x",
               "stdout": "stdout", "stderr": "stderr", "timeout_s": null,
               "output_limit_bytes": 1000})
    }

    fn parsed(value: Value) -> Result<Operation, RequestError> {
        operation(serde_json::from_value(value).unwrap())
    }

    fn message(field: &str, value: Value) -> String {
        let mut request = valid();
        request[field] = value;
        match parsed(request) {
            Err(RequestError::Request(message)) => message,
            other => panic!("{field}: {other:?}"),
        }
    }

    #[test]
    fn a_valid_run_is_taken() {
        assert!(matches!(parsed(valid()), Ok(Operation::Run(_))));
        let mut limited = valid();
        limited["timeout_s"] = json!(0.5);
        let Ok(Operation::Run(request)) = parsed(limited) else {
            panic!("refused");
        };
        assert_eq!(request.timeout(), Some(Duration::from_millis(500)));
    }

    #[test]
    fn messages_name_the_field() {
        for (field, value) in [
            ("argv", json!([])),
            ("argv", json!("true")),
            ("argv", json!(["a", 1])),
            ("argv", json!(["a\0b"])),
            ("env", json!({"A=B": "c"})),
            ("env", json!({"A": 1})),
            ("cwd", json!("relative")),
            ("results", json!("relative")),
            ("results", json!("/a\0b")),
            ("stdout", json!("../x")),
            ("stdout", json!("..")),
            ("stderr", json!("a/b")),
            ("stderr", json!("a/")),
            ("stderr", json!("")),
            ("timeout_s", json!(0)),
            ("timeout_s", json!(-1)),
            ("timeout_s", json!(1e300)),
            ("output_limit_bytes", json!(-1)),
            ("output_limit_bytes", json!(1.5)),
            ("leave", json!("yes")),
        ] {
            let message = message(field, value);
            assert!(message.starts_with(field), "{field}: {message}");
        }
    }

    #[test]
    fn a_missing_field_is_named() {
        for field in [
            "argv",
            "env",
            "cwd",
            "stdout",
            "stderr",
            "output_limit_bytes",
        ] {
            let mut request = valid();
            request.as_object_mut().unwrap().remove(field);
            let error = parsed(request).unwrap_err();
            assert_eq!(
                error,
                RequestError::Request(format!("missing field `{field}`"))
            );
        }
    }

    #[test]
    fn an_unknown_operation_is_answered_with_the_known_ones() {
        let error = parsed(json!({"op": "dance"})).unwrap_err();
        assert_eq!(
            error.frame(Some(8)),
            json!({"id": 8, "error": {"kind": "op",
                "message": "unknown operation 'dance'; known: ping, facts, run, push, pull, list, enter, clock, time, counters, halt"}})
        );
    }

    #[test]
    fn messages_of_transfers_name_the_field() {
        for (field, value) in [
            ("path", json!("relative")),
            ("path", json!("/a\0b")),
            ("data", json!("not base64!")),
            ("data", json!("YQ")),
            ("data", json!(1)),
            ("mode", json!(0o10000)),
            ("offset", json!(-1)),
            ("limit", json!(0)),
            ("limit", json!((512 << 10) + 1)),
        ] {
            let op = if field == "limit" { "pull" } else { "push" };
            let mut request = json!({"op": op, "path": "/x", "data": "YQ==", "limit": 1});
            request[field] = value;
            match parsed(request) {
                Err(RequestError::Request(message)) => {
                    assert!(message.starts_with(field), "{field}: {message}");
                }
                other => panic!("{field}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_id_is_an_unsigned_integer() {
        let id_of = |value: Value| id(&serde_json::from_value(value).unwrap());
        assert_eq!(id_of(json!({"id": 7})), Ok(7));
        for bad in [
            json!({}),
            json!({"id": -1}),
            json!({"id": "7"}),
            json!({"id": 1.5}),
        ] {
            assert!(id_of(bad).is_err());
        }
    }

    /// One valid request of every operation with fields.
    fn examples() -> Vec<String> {
        let push = json!({"id": 1, "op": "push", "path": "/x", "data": "YQ==", "mode": 420,
                          "offset": 1});
        let pull = json!({"id": 1, "op": "pull", "path": "/x", "offset": 0, "limit": 9});
        [valid(), push, pull].iter().map(Value::to_string).collect()
    }

    proptest! {
        #[test]
        fn mutated_and_truncated_requests_are_taken_or_refused(
            example in proptest::sample::select(examples()),
            changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 0..6),
            length in any::<Index>(),
            cut in any::<bool>(),
        ) {
            let mut bytes = example.into_bytes();
            for (index, value) in changes {
                let index = index.index(bytes.len());
                bytes[index] = value;
            }
            if cut {
                bytes.truncate(length.index(bytes.len()));
            }
            let Ok(object) = frame::object(&Line::Whole(bytes)) else {
                return Ok(());
            };
            let _ = id(&object);
            match operation(object) {
                Ok(Operation::Run(run)) => prop_assert_eq!(check(&run), Ok(())),
                Ok(Operation::Push(push)) => prop_assert_eq!(push.check(), Ok(())),
                Ok(Operation::Pull(pull)) => prop_assert_eq!(pull.check(), Ok(())),
                Ok(_) => {}
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
