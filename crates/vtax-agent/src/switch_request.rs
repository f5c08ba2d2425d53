//! The operation `switch` of `serve`: the subcommand of that name, run as a child.
//!
//! The subcommand is a child because the agent is the first process of the machine: whatever
//! happens to a switch, the machine must not end with it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::request::{RequestError, RunRequest, SwitchRequest};
use crate::run_answer::RunAnswer;

const FOLDER: &str = "/run/vtax/switch-request";
const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";
/// The limit of the child's output; a report has about 200 bytes per guest.
const OUTPUT_LIMIT_BYTES: u64 = 512 << 10;

/// The child's command; the new QEMUs that the child leaves must live on.
pub fn run(request: &SwitchRequest) -> RunRequest {
    let mut argv: Vec<String> = ["/proc/self/exe", "switch", "--json", "--to", &request.to]
        .map(String::from)
        .into();
    if request.dry_run {
        argv.push("--dry-run".into());
    }
    for (option, value) in [
        ("--state-dir", &request.state_dir),
        ("--fault", &request.fault),
    ] {
        argv.extend(value.iter().map(|text| format!("{option}={text}")));
    }
    RunRequest {
        argv,
        env: BTreeMap::from([("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())]),
        cwd: PathBuf::from(FOLDER),
        results: None,
        home: false,
        stdin: None,
        stdout: STDOUT.into(),
        stderr: STDERR.into(),
        // Each wait within a switch has its own limit.
        timeout_s: None,
        output_limit_bytes: OUTPUT_LIMIT_BYTES,
        leave: true,
        count: false,
        announce: false,
    }
}

/// The child's report.
///
/// Fails with `System`, in the child's words, when the child failed or its report cannot be read.
pub fn answer(ended: &RunAnswer) -> Result<Value, RequestError> {
    let failed = |message: String| RequestError::System(message);
    if ended.exit_code == Some(0) {
        let text = text(STDOUT).map_err(|error| failed(format!("switch: {error}")))?;
        return serde_json::from_str(&text).map_err(|error| failed(format!("switch: {error}")));
    }
    let said = text(STDERR).unwrap_or_default();
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Err(failed(match (last, ended.signal) {
        (_, Some(signal)) => format!("switch: killed by signal {signal}"),
        (Some(line), None) => line.trim_start_matches("vtax-agent: ").to_owned(),
        (None, None) => "switch: it failed without a message".into(),
    }))
}

fn text(name: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(Path::new(FOLDER).join(name))?
        .take(OUTPUT_LIMIT_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(to: &str) -> SwitchRequest {
        SwitchRequest {
            to: to.into(),
            dry_run: false,
            state_dir: None,
            fault: None,
        }
    }

    #[test]
    fn a_value_cannot_become_an_option() {
        let mut wanted = request("shadow");
        wanted.state_dir = Some("--fault".into());
        let argv = run(&wanted).argv;
        assert_eq!(argv.last().map(String::as_str), Some("--state-dir=--fault"));
    }
}
