//! `compiler-like`: phases of a compiler.

mod arena;
mod symbols;
mod tree;

use serde_json::Map;

use crate::bound::Bound;
use crate::checksum::Checksum;
use crate::meter::Meter;
use crate::options::{SEED, mem};
use crate::workload::{Description, Job, Outcome, Workload};
use crate::workloads::process::{FORK_REMEDY, wait};
use symbols::Symbols;
use tree::Tree;
use vtax_sys::calls::children::fork_and_run;
use vtax_sys::terminal::Error;

/// A child is forked once for this many functions, as a compiler's driver starts an assembler.
const FUNCTIONS_PER_FORK: u64 = 16;

/// The number of leaves of a function's tree.
const LEAVES: std::ops::Range<usize> = 100..4000;

/// Compiles made-up functions.
#[derive(Debug)]
pub struct CompilerLike;

static DESCRIPTION: Description = Description {
    name: "compiler-like",
    summary: "Phases of a compiler: a tree of small nodes is built in memory pools, its symbols \
              are looked up in a hash table, it is folded, and its pools are unmapped; now and \
              then a forked child folds it too",
    stresses: "Pointers followed over scattered pages (dTLB misses that do not overlap), fresh \
               pools (faults, page tables made and freed), forks (copy-on-write)",
    unit: "functions",
    default_bound: Bound::Count(400),
    options: &[mem("4M", "The table of symbols"), SEED],
};

impl Workload for CompilerLike {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        let seed = job.parameters.number("seed");
        let mut compiler = Compiler {
            random: fastrand::Rng::with_seed(seed),
            symbols: Symbols::new(job, seed)?,
            nodes: 0,
            forks: 0,
            wrong: 0,
            checksum: Checksum::new(),
        };
        let meter = Meter::start();
        while job.limit.grant(1).is_some() {
            compiler.compile(job.limit.done())?;
        }
        let usage = meter.stop();
        let mut details = Map::new();
        details.insert("symbols".into(), compiler.symbols.len().into());
        details.insert("nodes".into(), compiler.nodes.into());
        details.insert("forks".into(), compiler.forks.into());
        details.insert("wrong_values".into(), compiler.wrong.into());
        Ok(Outcome {
            usage,
            operations: job.limit.done(),
            checksum: Some(compiler.checksum.value()),
            verified: compiler.wrong == 0,
            details,
        })
    }
}

struct Compiler {
    random: fastrand::Rng,
    symbols: Symbols,
    nodes: u64,
    forks: u64,
    wrong: u64,
    checksum: Checksum,
}

impl Compiler {
    fn compile(&mut self, number: u64) -> Result<(), Error> {
        let leaves = self.random.usize(LEAVES);
        let (mut tree, expected) = Tree::parse(leaves, &mut self.random, &self.symbols)?;
        let unknown = tree.resolve(&self.symbols);
        let value = tree.fold();
        self.wrong += unknown + u64::from(value != expected);
        self.nodes += tree.len();
        self.checksum.add(value);
        if number.is_multiple_of(FUNCTIONS_PER_FORK) {
            self.fold_in_child(&tree, expected)?;
        }
        Ok(())
    }

    fn fold_in_child(&mut self, tree: &Tree, expected: u64) -> Result<(), Error> {
        let child = fork_and_run(|| low_byte(tree.fold()))
            .map_err(|errno| Error::system("fork", errno, FORK_REMEDY))?;
        self.forks += 1;
        self.wrong += u64::from(wait(child)? != Some(i32::from(low_byte(expected))));
        Ok(())
    }
}

fn low_byte(value: u64) -> u8 {
    let [low, ..] = value.to_le_bytes();
    low
}
