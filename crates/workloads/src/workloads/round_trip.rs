//! `round-trip`: state of every kind that a guest must keep while the host changes its paging.

mod counter;
mod exchange;
mod files;
mod pages;
mod ticks;

use std::path::Path;

use serde_json::{Map, Value};

use crate::bound::Bound;
use crate::checksum::Checksum;
use crate::meter::Meter;
use crate::options::{Kind, OptionSpec, SEED, mem};
use crate::workload::{Description, Job, Outcome, Workload};
use crate::workloads::memory::map;
use crate::workloads::timer_tick::Clocks;
use counter::Counter;
use exchange::Exchange;
use files::Files;
use pages::Pages;
use ticks::Ticks;
use vtax_sys::terminal::Error;

/// Keeps state and checks it all the time.
#[derive(Debug)]
pub struct RoundTrip;

static DESCRIPTION: Description = Description {
    name: "round-trip",
    summary: "Keeps memory, two open files, a timer, a TCP connection, a counter and the clocks \
              under check, until SIGTERM or its bound",
    stresses: "A mixture; it shows that a switch of the paging mode of the running guest loses \
               nothing",
    unit: "rounds",
    default_bound: Bound::Count(1_000),
    options: &[
        mem(
            "8M",
            "Memory with a pattern, checked and rewritten in slices of 64 KiB",
        ),
        SEED,
        OptionSpec {
            name: "connect",
            kind: Kind::Address,
            default: None,
            help: "Where `vtax-agent workload echo` listens; without it no messages",
        },
    ],
};

impl Workload for RoundTrip {
    fn description(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn run(&self, job: &mut Job<'_>) -> Result<Outcome, Error> {
        let mut state = State::new(job, Path::new("."))?;
        let meter = Meter::start();
        while job.limit.grant(1).is_some() {
            state.round()?;
        }
        state.finish()?;
        let usage = meter.stop();
        Ok(Outcome {
            usage,
            operations: job.limit.done(),
            checksum: Some(state.checksum()),
            verified: state.errors(job.limit.done()) == 0,
            details: state.details(job.limit.done()),
        })
    }
}

struct State {
    pages: Pages,
    files: Files,
    ticks: Ticks,
    exchange: Option<Exchange>,
    counter: Counter,
    clocks: Clocks,
}

impl State {
    fn new(job: &Job<'_>, folder: &Path) -> Result<Self, Error> {
        let seed = job.parameters.number("seed");
        let region = map(job, job.parameters.number("mem"), false)?;
        let address = job.parameters.text("connect");
        Ok(Self {
            pages: Pages::new(region, seed),
            files: Files::create(folder, seed)?,
            exchange: address.map(Exchange::connect).transpose()?,
            counter: Counter::new(),
            ticks: Ticks::start()?,
            clocks: Clocks::new()?,
        })
    }

    /// Do everything once. The clocks are read between the parts, so that gaps are the guest's.
    fn round(&mut self) -> Result<(), Error> {
        self.pages.check_slice();
        self.clocks.read()?;
        self.files.append()?;
        self.clocks.read()?;
        self.ticks.look()?;
        if let Some(exchange) = &mut self.exchange {
            exchange.look();
        }
        self.counter.increment();
        self.clocks.read()
    }

    fn finish(&mut self) -> Result<(), Error> {
        if let Some(exchange) = &mut self.exchange {
            exchange.finish();
        }
        self.pages.check_all();
        self.files.check_all()?;
        self.clocks.read()
    }

    fn checksum(&self) -> u64 {
        let mut checksum = Checksum::new();
        let [memory, files] = [self.pages.checksum(), self.files.checksum()];
        checksum.extend([memory, files, self.counter.value()]);
        checksum.value()
    }

    fn errors(&self, rounds: u64) -> u64 {
        self.pages.errors
            + self.files.errors
            + self.ticks.errors
            + self.exchange.as_ref().map_or(0, |exchange| exchange.errors)
            + self.counter.errors(rounds)
            + self.clocks.backsteps()
    }

    fn details(&self, rounds: u64) -> Map<String, Value> {
        let exchange = self.exchange.as_ref();
        let pairs = [
            ("memory_passes", self.pages.passes.into()),
            ("memory_errors", self.pages.errors.into()),
            ("file_bytes", self.files.bytes.into()),
            ("file_errors", self.files.errors.into()),
            ("ticks", self.ticks.total.into()),
            ("tick_errors", self.ticks.errors.into()),
            ("messages", exchange.map(|it| it.messages).into()),
            ("message_errors", exchange.map(|it| it.errors).into()),
            (
                "message_error",
                exchange.and_then(|it| it.lost.clone()).into(),
            ),
            (
                "largest_message_gap_ms",
                exchange.and_then(Exchange::largest_gap_ms).into(),
            ),
            ("clock_backsteps", self.clocks.backsteps().into()),
            ("largest_gap_ms", self.clocks.largest_gap_ms().into()),
            (
                "largest_realtime_gap_ms",
                self.clocks.largest_realtime_gap_ms().into(),
            ),
            ("counter", self.counter.value().into()),
            ("counter_errors", self.counter.errors(rounds).into()),
        ];
        let named = pairs.map(|(name, value)| (name.to_owned(), value));
        named.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
