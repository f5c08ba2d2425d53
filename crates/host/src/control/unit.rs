//! The unit for systemd.

use std::env;

use vtax_sys::terminal::Error;

/// The unit that runs this program with the options that it was given.
///
/// Fails when this program does not know its own file, and for options that are not text.
pub fn text() -> Result<String, Error> {
    let program = env::current_exe()
        .map_err(|error| Error::input_output("/proc/self/exe", &error, "mount /proc"))?;
    let mut words = vec![quoted(&program.to_string_lossy())];
    for word in env::args_os().skip(1) {
        let word = word
            .into_string()
            .map_err(|_| Error::misuse("options", "not text", "give names in UTF-8"))?;
        if word != "--print-unit" {
            words.push(quoted(&word));
        }
    }
    let command = words.join(" ");
    Ok(format!(
        "\
[Unit]
Description=Chooses the paging mode of this KVM host (vtax paging control)
After=local-fs.target

[Service]
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=10
# A switch that has begun is finished first.
TimeoutStopSec=120
# The QEMUs that a switch starts are the guests': they live on.
KillMode=process
RuntimeDirectory=vtax
RuntimeDirectoryMode=0755
RuntimeDirectoryPreserve=yes
# What a switch needs: modules, ptrace, the guests' files and users. Nothing more can be taken away
# without taking that away from the new QEMUs too.
UMask=0077

[Install]
WantedBy=multi-user.target
"
    ))
}

/// A word as systemd.service(5) reads it.
fn quoted(word: &str) -> String {
    let word = word.replace('%', "%%").replace('$', "$$");
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:@+%$".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word;
    }
    let escaped = word
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_systemd_reads_them() {
        assert_eq!(quoted("--window=1s"), "--window=1s");
        assert_eq!(quoted("my file"), "\"my file\"");
        assert_eq!(quoted("50%"), "50%%");
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\n\"");
        assert_eq!(quoted("$HOME"), "$$HOME");
        assert_eq!(quoted(""), "\"\"");
    }
}
