//! What `vtax-agent tune` answers.

use serde::Serialize;
use serde_json::{Map, Value};
use vtax_tune::Processor;
use vtax_tune::cache_edge::CacheEdge;
use vtax_tune::log::Start;
use vtax_tune::statistics::Spread;

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The agent's version.
    pub agent: &'static str,
    /// The processor.
    pub processor: Processor,
    /// The caches that the search of GEMM started from; `None`: there was none.
    pub start: Option<Start>,
    /// Threads of the products.
    pub threads: usize,
    /// Rows and columns of the problems that were timed.
    pub size: usize,
    /// The time taken.
    pub seconds: f64,
    /// The time given.
    pub budget_s: f64,
    /// Did every search come to its end?
    pub complete: bool,
    /// Candidates that a log already had.
    pub resumed: usize,
    /// What was found for each routine.
    pub routines: Vec<Tuned>,
    /// The sweep of cache edges, where it was asked for.
    pub cache_edge: Option<CacheEdge>,
    /// What a reader has to know of this run.
    pub notes: Vec<String>,
}

/// One routine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tuned {
    /// Such as `dgemm_nn`.
    pub routine: String,
    /// Its best parameters by their names.
    pub fields: Map<String, Value>,
    /// Its performance when the search was over.
    #[serde(flatten)]
    pub spread: Spread,
    /// Candidates that took part, the rejected ones too; 0: there was no search.
    pub trials: usize,
    /// Candidates that were not timed.
    pub rejected: Vec<Rejected>,
    /// Those that come next, measured in turns with the winner.
    pub rivals: Vec<Rival>,
}

/// A candidate that was not timed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rejected {
    /// Its parameters.
    pub fields: Map<String, Value>,
    /// The reason.
    pub why: String,
}

/// A candidate that came near the winner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rival {
    /// Its parameters.
    pub fields: Map<String, Value>,
    /// Its performance.
    #[serde(flatten)]
    pub spread: Spread,
}
