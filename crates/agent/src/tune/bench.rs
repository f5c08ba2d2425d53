//! The search and the measurement of each routine, in one precision.

use std::time::Duration;

use vtax_tuner::log::{Log, LogError};
use vtax_tuner::search::contest::{Candidate, Ground, Progress};
use vtax_tuner::search::gemm::GemmSpace;
use vtax_tuner::search::level2::Level2Space;
use vtax_tuner::search::measure::{Sample, in_turns};
use vtax_tuner::search::trial::{Budget, Trial};
use vtax_tuner::search::{Found, Space, Strategy, search};
use vtax_tuner::statistics::Spread;
use vtax_tuner::trials::{Form, FormName, GemmTrial, Level2Trial, Routine};
use vtax_tuner::{Element, Level2, Parameters, Precision, Processor, Vector, fields};

use crate::tune::answer::{Rejected, Rival, Tuned};

/// The share of a routine's time for its search; the rest is for the measurement.
const SEARCH_PERCENT: u32 = 85;
/// Runs of each winner and rival: an interval needs 6.
const RUNS: usize = 9;
/// Runs of parameters from a file, which have all the time.
const RUNS_OF_GIVEN: usize = 20;

pub struct Bench<'a> {
    pub processor: &'a Processor,
    /// Instruction sets to try, the narrowest first.
    pub vectors: &'a [Vector],
    /// Rows and columns of the problems.
    pub size: usize,
    pub forms: &'static [FormName],
    /// Threads of the products.
    pub threads: usize,
    /// How candidates are chosen.
    pub strategy: Strategy,
    /// The time since the start of the program.
    pub clock: &'a dyn Fn() -> Duration,
    /// What was timed earlier.
    pub log: &'a mut Log,
    /// Called for each candidate.
    pub progress: &'a mut dyn FnMut(&Progress),
    /// Did all searches finish?
    pub complete: bool,
    /// Candidates whose result was already in the log.
    pub resumed: usize,
    pub routines: Vec<Tuned>,
    pub notes: Vec<String>,
}

impl Bench<'_> {
    /// Tune GEMM until this time, or measure the given parameters; returns the winner.
    pub fn gemm<T: Element>(
        &mut self,
        given: Option<Parameters>,
        end: Duration,
    ) -> Result<Option<Parameters>, LogError> {
        let mut trial = GemmTrial::<T>::new(self.processor, self.size, self.threads);
        let space = GemmSpace {
            processor: self.processor,
            precision: T::PRECISION,
            vectors: self.vectors.to_vec(),
            size: u32::try_from(self.size).unwrap_or(u32::MAX),
        };
        let name = format!("{}gemm", letter(T::PRECISION));
        let found = self.search(&name, &mut trial, &space, given, end)?;
        let form = |parameters, (_, transpose_a, transpose_b): FormName| Form {
            parameters,
            transpose_a,
            transpose_b,
        };
        let Some(winner) = found.winner else {
            self.nothing(&name, &found);
            return Ok(None);
        };
        let own = self.forms.iter();
        let own = own.map(|each| (format!("{name}_{}", each.0), form(winner, *each)));
        let own: Vec<_> = own.collect();
        let rivals = found.rivals.iter();
        let rivals = rivals.map(|one| (own[0].0.clone(), form(*one, Form::NAMES[0])));
        let entries = own.iter().cloned().chain(rivals).collect::<Vec<_>>();
        let shown = |form: &Form| form.parameters;
        let samples = self.measure(&entries, &mut trial, shown, end, given.is_some())?;
        let names: Vec<String> = own.into_iter().map(|(name, _)| name).collect();
        self.put(&found, &names, &samples);
        Ok(Some(winner))
    }

    /// Tune or measure a routine of level 2.
    pub fn level2<T: Element>(
        &mut self,
        routine: Routine,
        given: Option<Level2>,
        end: Duration,
    ) -> Result<Option<Level2>, LogError> {
        let mut trial = Level2Trial::<T>::new(self.processor, routine, self.size);
        let space = Level2Space {
            processor: self.processor,
            vectors: self.vectors.to_vec(),
        };
        let name = format!("{}{}", letter(T::PRECISION), routine.name());
        let found = self.search(&name, &mut trial, &space, given, end)?;
        let Some(winner) = found.winner else {
            self.nothing(&name, &found);
            return Ok(None);
        };
        let all = [winner].into_iter().chain(found.rivals.iter().copied());
        let entries = all.map(|one| (name.clone(), one)).collect::<Vec<_>>();
        let samples = self.measure(&entries, &mut trial, |one| *one, end, given.is_some())?;
        self.put(&found, &[name], &samples);
        Ok(Some(winner))
    }

    fn search<P: Candidate, T: Trial<P>>(
        &mut self,
        name: &str,
        trial: &mut T,
        space: &impl Space<P>,
        given: Option<P>,
        end: Duration,
    ) -> Result<Found<P>, LogError> {
        if let Some(given) = given {
            return Ok(Found::given(given));
        }
        let now = (self.clock)();
        let budget = end.saturating_sub(now) * SEARCH_PERCENT / 100;
        let mut ground = Ground {
            budget: Budget::until(self.clock, now + budget),
            log: self.log,
            progress: self.progress,
        };
        let found = search(name, trial, &mut ground, space, self.strategy)?;
        self.complete &= found.complete;
        self.resumed += found.resumed;
        Ok(found)
    }

    /// Measure in turns, unless the log has every sample: samples are compared, so they have to be
    /// taken at the same time.
    fn measure<C: Copy, P: Candidate>(
        &mut self,
        entries: &[(String, C)],
        trial: &mut impl Trial<C>,
        parameters: impl Fn(&C) -> P,
        end: Duration,
        given: bool,
    ) -> Result<Vec<Measured<P>>, LogError> {
        let known = entries.iter().map(|(name, one)| {
            let candidate = parameters(one);
            let spread = Ok(self.log.spread(name, &candidate)?);
            Some(Measured { candidate, spread })
        });
        if let Some(known) = known.collect() {
            return Ok(known);
        }
        let candidates: Vec<C> = entries.iter().map(|(_, one)| *one).collect();
        let runs = if given { RUNS_OF_GIVEN } else { RUNS };
        let budget = Budget::until(self.clock, end);
        let samples = in_turns(trial, &budget, &candidates, runs);
        let measured = entries.iter().zip(samples).map(|((name, one), sample)| {
            let candidate = parameters(one);
            let spread = match spread(sample) {
                Ok(spread) => Ok(self.log.write_spread(name, &candidate, &spread)?),
                Err(why) => Err(why),
            };
            Ok(Measured { candidate, spread })
        });
        measured.collect()
    }

    fn put<P: Candidate>(&mut self, found: &Found<P>, names: &[String], all: &[Measured<P>]) {
        let (own, rivals) = all.split_at(names.len());
        let rivals = rivals.iter().filter_map(|one| {
            let (fields, spread) = (fields(&one.candidate), *one.spread.as_ref().ok()?);
            Some(Rival { fields, spread })
        });
        let mut rivals = rivals.collect();
        let mut rejected = rejected(found);
        for (name, one) in names.iter().zip(own) {
            match &one.spread {
                Ok(spread) => self.routines.push(Tuned {
                    routine: name.clone(),
                    fields: fields(&one.candidate),
                    spread: *spread,
                    trials: found.trials,
                    // Once for all forms of a routine.
                    rejected: std::mem::take(&mut rejected),
                    rivals: std::mem::take(&mut rivals),
                }),
                Err(why) => self.notes.push(format!("{name}: {why}")),
            }
        }
    }

    fn nothing<P: Candidate>(&mut self, name: &str, found: &Found<P>) {
        let why = found.refused.first().map(|one| one.why.clone());
        let why = why.unwrap_or_else(|| "no candidate fits this processor".into());
        self.notes.push(format!("{name}: {why}"));
        self.complete = false;
    }
}

/// Parameters and their performance, or why there is no performance.
struct Measured<P> {
    candidate: P,
    spread: Result<Spread, String>,
}

fn spread(sample: Sample) -> Result<Spread, String> {
    Spread::of(&sample?).ok_or_else(|| "no run in the time given".into())
}

fn rejected<P: Candidate>(found: &Found<P>) -> Vec<Rejected> {
    let each = found.refused.iter().map(|one| Rejected {
        fields: fields(&one.candidate),
        why: one.why.clone(),
    });
    each.collect()
}

fn letter(precision: Precision) -> char {
    match precision {
        Precision::Double => 'd',
        Precision::Single => 's',
    }
}
