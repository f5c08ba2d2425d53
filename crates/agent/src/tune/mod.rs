//! `vtax-agent tune`: finds the parameters of matrix kernels that are best on this machine.
//!
//! The crate `vtax-tuner` generates and searches; this module takes a user's options, divides the
//! time, and gives the answer. docs/tune.md describes the search.

mod answer;
mod bench;
mod caches;
pub mod cli;
mod extent;
mod progress;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use vtax_sys::pinning::stay_on_last;
use vtax_sys::terminal::Error;
use vtax_tuner::cache_edge::{CacheEdge, sweep};
use vtax_tuner::log::{FORMAT, Header, Log, LogError};
use vtax_tuner::search::Space;
use vtax_tuner::search::gemm::GemmSpace;
use vtax_tuner::search::trial::Budget;
use vtax_tuner::trials::{FormName, GemmTrial, Routine};
use vtax_tuner::tuned::{Routines, Tuned as File};
use vtax_tuner::{Element, Parameters, Precision, Processor, Vector};

use crate::VERSION;
use crate::tune::bench::Bench;
use crate::tune::extent::extent;
use crate::tune::progress::Shown;

pub use answer::Answer;
pub use table::describe;
pub use vtax_tuner::search::Strategy;

/// GEMM's share of the time, where the share of each routine of level 2 is 1.
const GEMM_WEIGHT: u32 = 6;

#[derive(Debug, Clone)]
pub struct TuneOptions {
    /// How candidates are chosen.
    pub strategy: Strategy,
    /// The time for everything.
    pub budget: Duration,
    /// The file that records trials, for a search that continues.
    pub log: Option<PathBuf>,
    /// Single, double or both.
    pub precisions: Vec<Precision>,
    pub forms: &'static [FormName],
    /// The routines of level 2 to tune.
    pub level2: Vec<Routine>,
    /// Rows and columns of the timed problems.
    pub size: usize,
    /// Threads of the products.
    pub threads: usize,
    /// A file of parameters to measure instead of a search.
    pub given: Option<PathBuf>,
    /// Where the result is written.
    pub export: Option<PathBuf>,
    /// Only these instruction sets.
    pub vectors: Option<Vec<Vector>>,
    /// Instead of the search: sweep cache edges with this many runs.
    pub cache_edge_runs: Option<usize>,
}

/// A routine in one precision, and its share of the time.
#[derive(Debug, Clone, Copy)]
struct Job {
    precision: Precision,
    /// `None`: GEMM.
    level2: Option<Routine>,
    weight: u32,
}

/// Tune, or measure the given parameters.
///
/// Fails when an instruction set is not there, and when a file cannot be read or written or belongs
/// to another search.
pub fn tune(options: &TuneOptions) -> Result<Answer, Error> {
    let begin = Instant::now();
    let clock = || begin.elapsed();
    let processor = Processor::this();
    let vectors = vectors(options, &processor)?;
    let given = given(options, &processor)?;
    let mut log = open_log(options, &processor, &vectors)?;
    let caches = caches::start(options, &processor, &mut log);
    let (caches, doubt) = caches.map_err(|error| log_failed(options, error))?;
    let with_caches = caches.map_or_else(|| processor.clone(), |it| caches::with(&processor, it));
    let start = start(options, &with_caches, &vectors);
    let extent = extent(options, &with_caches, start, &mut log);
    let (size, reduced) = extent.map_err(|error| log_failed(options, error))?;
    let mut notes = notes(options, &vectors, &processor, given.as_ref());
    notes.extend(doubt.into_iter().chain(reduced));
    let mut shown = Shown::new(options.budget);
    let mut bench = Bench {
        processor: &with_caches,
        vectors: &vectors,
        size,
        threads: options.threads,
        forms: options.forms,
        strategy: options.strategy,
        clock: &clock,
        log: &mut log,
        progress: &mut |progress| shown.show(progress, begin.elapsed()),
        complete: true,
        resumed: 0,
        routines: Vec::new(),
        notes,
    };
    let mut file = File::new(VERSION, processor.clone());
    let mut cache_edge = None;
    if let Some(runs) = options.cache_edge_runs {
        cache_edge = Some(edges(options, &mut bench, given.as_ref(), start, runs)?);
    } else {
        let done = carry_out(options, &mut bench, given.as_ref(), &mut file);
        done.map_err(|error| log_failed(options, error))?;
    }
    let (complete, resumed) = (bench.complete, bench.resumed);
    let (mut routines, notes) = (bench.routines, bench.notes);
    // GEMM was tuned last, but a reader looks for it first.
    routines.sort_by_key(|one| !one.routine.contains("gemm"));
    shown.clear();
    export(options, &file)?;
    Ok(Answer {
        agent: VERSION,
        processor,
        start: caches,
        threads: options.threads,
        size,
        seconds: begin.elapsed().as_secs_f64(),
        budget_s: options.budget.as_secs_f64(),
        complete,
        resumed,
        routines,
        cache_edge,
        notes,
    })
}

/// The routines one after the other: each has its share of the remaining time.
fn carry_out(
    options: &TuneOptions,
    bench: &mut Bench,
    given: Option<&File>,
    file: &mut File,
) -> Result<(), LogError> {
    let jobs = jobs(options);
    for (at, job) in jobs.iter().enumerate() {
        let weights: u32 = jobs[at..].iter().map(|job| job.weight).sum();
        let now = (bench.clock)();
        let left = options.budget.saturating_sub(now);
        let end = now + left * job.weight / weights;
        let given = given.map(|given| given.of(job.precision));
        let routines = file.of_mut(job.precision);
        match job.precision {
            Precision::Double => one::<f64>(bench, *job, given, end, routines)?,
            Precision::Single => one::<f32>(bench, *job, given, end, routines)?,
        }
    }
    Ok(())
}

fn jobs(options: &TuneOptions) -> Vec<Job> {
    let each = options.precisions.iter().flat_map(|precision| {
        let job = |level2, weight| Job {
            precision: *precision,
            level2,
            weight,
        };
        // GEMM comes last and gets the time that the short searches leave.
        let level2 = options.level2.iter().map(move |it| job(Some(*it), 1));
        let gemm = !options.forms.is_empty();
        level2.chain(gemm.then(|| job(None, GEMM_WEIGHT)))
    });
    each.collect()
}

fn one<T: Element>(
    bench: &mut Bench,
    job: Job,
    given: Option<&Routines>,
    end: Duration,
    found: &mut Routines,
) -> Result<(), LogError> {
    let Some(routine) = job.level2 else {
        let only = given.map(|given| given.gemm);
        if only != Some(None) {
            found.gemm = bench.gemm::<T>(only.flatten(), end)?;
        }
        return Ok(());
    };
    let only = given.map(|given| given.level2(routine));
    // A file need not contain all routines.
    if only != Some(None) {
        *found.level2_mut(routine) = bench.level2::<T>(routine, only.flatten(), end)?;
    }
    Ok(())
}

fn edges(
    options: &TuneOptions,
    bench: &mut Bench,
    given: Option<&File>,
    start: Option<Parameters>,
    runs: usize,
) -> Result<CacheEdge, Error> {
    let precision = options.precisions[0];
    let given = given.and_then(|given| given.of(precision).gemm);
    if given.is_none() {
        let note = "parameters of the model, not tuned ones: name a file with --use";
        bench.notes.push(note.into());
    }
    let at = given
        .or(start)
        .ok_or_else(|| "no parameters fit this processor".to_owned());
    let budget = Budget::until(bench.clock, options.budget);
    let (processor, size, threads) = (bench.processor, bench.size, bench.threads);
    let found = at.and_then(|at| {
        let of = (processor, precision);
        let what = (size, runs);
        match precision {
            Precision::Double => {
                let mut trial = GemmTrial::<f64>::new(processor, size, threads);
                sweep(&at, of, &mut trial, &budget, what)
            }
            Precision::Single => {
                let mut trial = GemmTrial::<f32>::new(processor, size, threads);
                sweep(&at, of, &mut trial, &budget, what)
            }
        }
    });
    let found = found.map_err(|why| Error::failure("--cache-edge", why, "try --vectors scalar"))?;
    bench.complete = found.chosen.len() == runs;
    Ok(found)
}

/// The instruction sets to try: portable code only where there is no other, or when asked for.
fn vectors(options: &TuneOptions, processor: &Processor) -> Result<Vec<Vector>, Error> {
    let all = processor.vectors();
    let Some(asked) = &options.vectors else {
        let generated = all.iter().filter(|vector| **vector != Vector::Portable);
        let generated: Vec<Vector> = generated.copied().collect();
        return Ok(if generated.is_empty() { all } else { generated });
    };
    if let Some(missing) = asked.iter().find(|vector| !all.contains(vector)) {
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        let remedy = format!("this processor can: {}", names.join(", "));
        let reason = "this processor, or its kernel, has no such instructions";
        return Err(Error::misuse(
            format!("--vectors {missing}"),
            reason,
            &remedy,
        ));
    }
    Ok(all
        .into_iter()
        .filter(|vector| asked.contains(vector))
        .collect())
}

fn given(options: &TuneOptions, processor: &Processor) -> Result<Option<File>, Error> {
    let Some(path) = &options.given else {
        return Ok(None);
    };
    let read = File::read(path, processor).map_err(|error| {
        let remedy =
            "name a file that tune --export wrote, for a processor with these instructions";
        Error::misuse(format!("--use {}", path.display()), error, remedy)
    });
    read.map(Some)
}

fn start(options: &TuneOptions, processor: &Processor, vectors: &[Vector]) -> Option<Parameters> {
    let space = GemmSpace {
        processor,
        precision: options.precisions[0],
        vectors: vectors.to_vec(),
        size: 0,
    };
    space.starts().first().copied()
}

fn open_log(
    options: &TuneOptions,
    processor: &Processor,
    vectors: &[Vector],
) -> Result<Log, Error> {
    let Some(path) = &options.log else {
        return Ok(Log::none());
    };
    let search = json!({
        "search": if options.strategy == Strategy::Lines { "lines" } else { "exhaustive" },
        "precision": options.precisions,
        "size": options.size,
        "threads": options.threads,
        "vectors": vectors,
    });
    let header = Header {
        format: FORMAT,
        agent: VERSION.into(),
        processor: processor.clone(),
        search: search.as_object().cloned().unwrap_or_default(),
    };
    Log::open(path, &header).map_err(|error| log_failed(options, error))
}

fn log_failed(options: &TuneOptions, error: LogError) -> Error {
    let path = options.log.as_deref().unwrap_or_else(|| Path::new(""));
    let thing = format!("--log {}", path.display());
    Error::failure(thing, error, "name another file")
}

fn export(options: &TuneOptions, file: &File) -> Result<(), Error> {
    let Some(path) = &options.export else {
        return Ok(());
    };
    let failed = |reason: String| {
        let thing = format!("--export {}", path.display());
        Error::failure(thing, reason, "name a file that can be written")
    };
    let text = file.to_toml().map_err(|error| failed(error.to_string()))?;
    fs::write(path, text).map_err(|error| failed(vtax_sys::reason(&error)))
}

fn notes(
    options: &TuneOptions,
    vectors: &[Vector],
    processor: &Processor,
    given: Option<&File>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if vectors == [Vector::Portable] {
        let why = if processor.vectors().len() == 1 {
            "no kernels are generated for this processor"
        } else {
            "asked for"
        };
        notes.push(format!("portable Rust kernels: {why}"));
    }
    if let Some(difference) = given.and_then(|given| given.elsewhere(processor)) {
        notes.push(format!("parameters of another processor: {difference}"));
    }
    if options.threads > 1 && !options.level2.is_empty() {
        notes.push("GEMV and GER use one thread".into());
    }
    if options.threads == 1 {
        // Threads would inherit this CPU.
        let refused = stay_on_last().err();
        notes.extend(refused.map(|reason| format!("not pinned to a CPU: {reason}")));
    }
    notes
}
