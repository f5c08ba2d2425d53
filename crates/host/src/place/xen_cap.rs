//! Domain 0's cap under Xen's scheduler credit2, as Xen's tool sets it (xl(1), `sched-credit2`).

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The cap among the files of a journal, although it is none: percent of one CPU, 0 for no cap.
pub const SETTING: &str = "xen:Domain-0/cap";

/// The path of Xen's tool `xl`.
pub fn xl() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join("xl"))
        .find(|file| file.is_file())
}

/// The cap that is set.
///
/// Fails with what xl says.
pub fn read() -> Result<String, String> {
    let said = run(&[])?;
    parse(&said).ok_or_else(|| format!("xl names no cap of domain 0: {}", said.trim_end()))
}

/// Set the cap.
///
/// Fails with what xl says.
pub fn write(percent: &str) -> Result<(), String> {
    run(&["-c", percent]).map(drop)
}

fn run(options: &[&str]) -> Result<String, String> {
    let program = xl().ok_or("xl is not on the PATH")?;
    let done = Command::new(program)
        .args(["sched-credit2", "-d", "0"])
        .args(options)
        .output()
        .map_err(|error| format!("xl: {}", vtax_sys::reason(&error)))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!(
        "xl: {}",
        said.lines().next_back().unwrap_or("failed")
    ))
}

/// The cap in a table with the columns name, number, weight and cap.
fn parse(table: &str) -> Option<String> {
    let row = table.lines().nth(1)?;
    let columns: Vec<&str> = row.split_whitespace().collect();
    let [_, "0", _, cap] = columns[..] else {
        return None;
    };
    cap.parse::<u32>().ok().map(|cap| cap.to_string())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_cap_is_the_last_column_of_domain_0() {
        let table = "Name                                ID Weight  Cap\n\
                     Domain-0                             0    256   50\n";
        assert_eq!(parse(table), Some("50".into()));
    }

    #[test]
    fn other_text_has_no_cap() {
        for text in [
            "",
            "Name ID Weight Cap\n",
            "Name ID Weight Cap\nguest0 1 256 0\n",
            "a\n0 0 0 x\n",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
