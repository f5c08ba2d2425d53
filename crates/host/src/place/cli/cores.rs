//! `vtax place cores`, and the options that name cores.

use std::path::PathBuf;

use crate::place::cores::Cores;
use crate::place::cores::choose::Pair;
use clap::Args;
use vtax_sys::cpu_list;
use vtax_sys::terminal::{Error, output};
use vtax_sys::tree::Tree;

use crate::place::tables;

/// Print which cores are fast and which are slow, and how this is known
#[derive(Debug, Args)]
pub struct CoresArguments {
    #[command(flatten)]
    named: Named,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    /// Where /sys is
    #[arg(long, value_name = "FOLDER", hide = true, default_value = "/")]
    root: PathBuf,
}

/// Which CPUs are fast and which slow.
#[derive(Debug, Args)]
pub struct Named {
    /// The fast CPUs [default: those that are not slow; by the kinds of cores]
    #[arg(long, value_name = "CPUS")]
    fast: Option<String>,
    /// The slow CPUs [default: those that are not fast; by the kinds of cores]
    #[arg(long, value_name = "CPUS")]
    slow: Option<String>,
    /// Speed of the slow CPUs, relative to the fast ones [default: as the kernel says]
    #[arg(long, value_name = "PERCENT", value_parser = |text: &str| percent(text, 1.0, 99.9))]
    slow_speed: Option<f64>,
}

impl CoresArguments {
    /// Print the cores.
    pub fn carry_out(self) -> Result<(), Error> {
        let tree = Tree::at(self.root);
        let named = &self.named;
        let cores = if named.fast.is_some() || named.slow.is_some() {
            Cores::named(&tree, &named.choose(&tree)?)
        } else {
            Cores::of(&tree).with_speed(named.slow_speed)?
        };
        if self.json {
            return output::json(&cores);
        }
        tables::cores(&cores)
    }
}

impl Named {
    /// The two kinds of CPUs.
    pub fn choose(&self, tree: &Tree) -> Result<Pair, Error> {
        let fast = cpus("--fast", self.fast.as_deref())?;
        let slow = cpus("--slow", self.slow.as_deref())?;
        Pair::choose(tree, fast, slow, self.slow_speed)
    }
}

fn cpus(option: &str, text: Option<&str>) -> Result<Option<Vec<usize>>, Error> {
    let parsed = text.map(cpu_list::parse).transpose();
    parsed.map_err(|error| Error::misuse(option, error, "write for example 0-3,8"))
}

/// A number in a range, with or without the percent sign.
pub fn percent(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim_end().parse::<f64>().ok();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("not a percentage from {least} to {most}"))
}
