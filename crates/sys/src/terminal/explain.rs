//! What vtax's programs say when their command line is wrong: one line, exit code 2.

use std::process::ExitCode;

/// Print help where it was asked for; otherwise one line that says what is wrong with the command
/// line.
pub fn explain(program: &str, error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return if error.print().is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let reason = first_paragraph(&error.render().to_string());
    eprintln!("{program}: command line: {reason}; see {program} --help");
    ExitCode::from(2)
}

/// clap's first paragraph is the message, over several lines; usage and a hint at --help follow.
fn first_paragraph(text: &str) -> String {
    let words: Vec<&str> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .flat_map(str::split_whitespace)
        .collect();
    let reason = words.join(" ");
    reason.strip_prefix("error: ").unwrap_or(&reason).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_one_line_without_usage() {
        let text = "error: the argument was not given:\n  <SIZE>\n\nUsage: x <SIZE>\n";
        assert_eq!(first_paragraph(text), "the argument was not given: <SIZE>");
        assert_eq!(first_paragraph(""), "");
    }
}
