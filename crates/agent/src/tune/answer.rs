//! What `vtax-agent tune` answers.

use serde::Serialize;
use serde_json::{Map, Value};
use vtax_tuner::Processor;
use vtax_tuner::cache_edge::CacheEdge;
use vtax_tuner::log::Start;
use vtax_tuner::statistics::Spread;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    pub agent: &'static str,
    pub processor: Processor,
    /// The caches that the search of GEMM started from; `None`: there was no such search.
    pub start: Option<Start>,
    /// Threads of the products.
    pub threads: usize,
    /// Rows and columns of the timed problems.
    pub size: usize,
    pub seconds: f64,
    pub budget_s: f64,
    /// Did every search finish?
    pub complete: bool,
    /// Candidates whose result was already in the log.
    pub resumed: usize,
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
    /// Its best parameters, by name.
    pub fields: Map<String, Value>,
    /// Its performance after the search.
    #[serde(flatten)]
    pub spread: Spread,
    /// Candidates that took part, including rejected ones; 0: there was no search.
    pub trials: usize,
    /// Candidates that were not timed.
    pub rejected: Vec<Rejected>,
    /// The next best candidates, measured in turns with the winner.
    pub rivals: Vec<Rival>,
}

/// A candidate that was not timed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rejected {
    pub fields: Map<String, Value>,
    pub why: String,
}

/// A candidate that came near the winner.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rival {
    pub fields: Map<String, Value>,
    #[serde(flatten)]
    pub spread: Spread,
}
