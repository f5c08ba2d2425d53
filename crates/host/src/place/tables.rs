//! What the program prints for people.

use crate::place::apply::Applied;
use crate::place::backends::Possibility;
use crate::place::cores::Cores;
use crate::place::cpus::written;
use crate::place::window::{Thread, Window};
use vtax_sys::terminal::{Error, output};

const HEAD: [&str; 11] = [
    "role",
    "guest",
    "pid",
    "tid",
    "name",
    "cpu %",
    "delay %",
    "switches/s",
    "wakeups/s",
    "softirq %",
    "cpus",
];

/// The threads of a window, as rates.
pub fn threads(window: &Window) -> Result<(), Error> {
    if window.threads.is_empty() {
        output::line("no thread of this machine works for a guest")?;
    } else {
        let rows = window.threads.iter().map(|thread| row(thread, window));
        columns(
            &std::iter::once(HEAD.map(str::to_owned))
                .chain(rows)
                .collect::<Vec<_>>(),
        )?;
    }
    window
        .notes
        .iter()
        .try_for_each(|note| output::line(&format!("note: {note}")))
}

fn row(thread: &Thread, window: &Window) -> [String; 11] {
    let percent =
        |time: Option<f64>| time.map(|time| format!("{:.1}", time / window.window_s * 100.0));
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate =
        |count: Option<u64>| count.map(|count| format!("{:.0}", count as f64 / window.window_s));
    let shown = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        thread.role.name().to_owned(),
        shown(thread.guest.clone()),
        thread.pid.to_string(),
        thread.tid.to_string(),
        thread.name.clone(),
        shown(percent(thread.cpu_s)),
        shown(percent(thread.run_delay_s)),
        shown(rate(thread.switches)),
        shown(rate(thread.wakeups)),
        shown(percent(thread.softirq_s)),
        shown(thread.cpus.clone()),
    ]
}

/// What a plan moved.
pub fn applied(applied: &Applied) -> Result<(), Error> {
    for one in &applied.threads {
        let name = output::plain(&one.name);
        output::line(&format!(
            "thread {} ({name}): {} -> {}",
            one.tid, one.before, one.cpus
        ))?;
    }
    for one in &applied.interrupts {
        output::line(&format!(
            "interrupt {}: {} -> {}",
            one.number, one.before, one.cpus
        ))?;
    }
    for one in &applied.skipped {
        let name = output::plain(&one.name);
        output::line(&format!(
            "thread {} ({name}): left out, {}",
            one.tid, one.reason
        ))?;
    }
    Ok(())
}

/// The ways to slow threads.
pub fn backends(all: &[Possibility]) -> Result<(), Error> {
    for one in all {
        let state = one.reason.as_deref().unwrap_or("possible");
        output::line(&format!("{:<10} {state}", one.name.name()))?;
        output::line(&format!("{:<10} does not reproduce {}", "", one.does_not))?;
    }
    Ok(())
}

/// The kinds of cores.
pub fn cores(found: &Cores) -> Result<(), Error> {
    for kind in &found.kinds {
        let speed = kind
            .speed_percent
            .map_or("unknown speed".to_owned(), |speed| format!("{speed:.1} %"));
        let favoured = match written(&kind.favoured) {
            none if none.is_empty() => none,
            some => format!(", favoured {some}"),
        };
        let (name, cpus, cores) = (&kind.name, written(&kind.cpus), kind.cores);
        output::line(&format!(
            "{name:<9} {speed:<13} {cores} cores: CPU {cpus}{favoured}"
        ))?;
    }
    let source = found
        .source
        .as_deref()
        .unwrap_or("nothing says that cores differ");
    output::line(source)?;
    found
        .notes
        .iter()
        .try_for_each(|note| output::line(&format!("note: {note}")))
}

fn columns<const N: usize>(rows: &[[String; N]]) -> Result<(), Error> {
    let width = |column: usize| {
        let texts = rows.iter().filter_map(|row| row.get(column));
        texts
            .map(|text| output::plain(text).chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    rows.iter().try_for_each(|row| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{:<width$}", output::plain(cell)))
            .collect();
        output::line(cells.join("  ").trim_end())
    })
}
