//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use vtax_agent::channel::ChannelSpec;
use vtax_agent::facts;
use vtax_agent::workload::{self, WorkloadArguments};
use vtax_agent::{
    check_fp, clocks, counters, guest, init, memory, prices, probe, run, serve, swap, traced, tune,
};
use vtax_sys::cgroup::sweep::sweep;
use vtax_sys::confine::Limits;
use vtax_sys::cpu_list;
use vtax_sys::guest_page::applications::whole_names;
use vtax_sys::swap::Kind;
use vtax_sys::terminal::{Error, output, units};
use vtax_sys::tree::Tree;
use vtax_workloads::stream;

/// Describes, measures and serves one machine.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXAMPLES, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Subcommands,
}

const EXAMPLES: &str = "\
Examples:
  vtax-agent facts --pretty
  vtax-agent run --timeout 60 --cpus 0 --stdout out.txt -- make test
  vtax-agent probe l1 fma
  vtax-agent prices --only stat,open,fork
  vtax-agent tune --export blas.toml
  vtax-agent stream --bytes 268435456
  vtax-agent serve --channel fd:3 --cpus 0,1 --memory 1073741824

Exit code: 0 done, 1 the machine failed, 2 misuse, 128+N ended by signal N.";

#[derive(Debug, Subcommand)]
enum Subcommands {
    Facts(FactsArguments),
    Clocks(ClocksArguments),
    Probe(probe::cli::ProbeArguments),
    Prices(prices::cli::PricesArguments),
    Tune(tune::cli::TuneArguments),
    Run(RunArguments),
    Stream(StreamArguments),
    Serve(ServeArguments),
    Init(InitArguments),
    Counters(CountersArguments),
    Guest(GuestArguments),
    Sweep(SweepArguments),
    WithSwap(WithSwapArguments),
    Memory(MemoryArguments),
    Traced(TracedArguments),
    CheckFp(CheckFpArguments),
    Workload(WorkloadArguments),
}

/// Print what machine this is, as JSON
///
/// What the machine does not tell is null. The steal clock is true when steal time is reported,
/// false when there is a hypervisor that does not report it, and null when nothing could steal time
/// or there is no way to tell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  vtax-agent facts --pretty")]
struct FactsArguments {
    /// Indent the JSON
    #[arg(long)]
    pretty: bool,
}

/// Print what this machine's clocks are, do and cost, as JSON (docs/audit.md)
///
/// Each clock's claimed resolution, smallest step, cost, path and steps back, and the time that a
/// loop on one CPU loses to everything else. What is null has its reason in `reasons`. Takes 2 to
/// 3 s.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vtax-agent clocks\n  vtax-agent clocks --seconds 10")]
struct ClocksArguments {
    /// How long the loop runs (0.001 to 600)
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = spinning)]
    seconds: Duration,
    /// Accepted for clarity: the output is always JSON
    #[arg(long)]
    json: bool,
}

/// Run a command and print what it used, as JSON
///
/// The command gets this environment and no input; its output goes to the standard error or to
/// the files named. The exit code is 0 however the command itself ended.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vtax-agent run -- sleep 1\n  \
    vtax-agent run --timeout 60s --memory 512M --stdout out.txt -- make test")]
struct RunArguments {
    /// Kill the command and all it started after this time, such as 90s or 1h30m
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    timeout: Option<Duration>,
    /// Working folder
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<PathBuf>,
    /// File for the standard output
    #[arg(long, value_name = "FILE")]
    stdout: Option<PathBuf>,
    /// File for the standard error
    #[arg(long, value_name = "FILE")]
    stderr: Option<PathBuf>,
    /// CPUs to run on, such as 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<CpuList>,
    /// Memory limit, such as 512M, swap included
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    memory: Option<u64>,
    /// Limit on processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pids: Option<u64>,
    /// Count instructions and cycles, where the machine has counters for them
    #[arg(long)]
    count: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    argv: Vec<OsString>,
}

/// Measure memory bandwidth with the STREAM kernels, on one thread
///
/// The result is the best of all rounds but the first; 1 GB is 10^9 bytes, counted as STREAM does
/// (16 bytes per element for copy and scale, 24 for add and triad). The result is JSON in any case.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vtax-agent stream\n  \
    vtax-agent stream --bytes 256M --times 20")]
struct StreamArguments {
    /// Size of each of the three arrays; default: four times the last-level cache
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    bytes: Option<u64>,
    /// Rounds, at least 2
    #[arg(long, value_name = "ROUNDS", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    times: u32,
    /// Accepted for clarity: the output is always JSON
    #[arg(long)]
    json: bool,
}

/// Answer requests on a channel (crates/agent/PROTOCOL.md)
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  vtax-agent serve --channel fd:3 --cpus 0 --memory 1G\n  \
    echo '{\"id\": 1, \"op\": \"ping\"}' | vtax-agent serve"
)]
struct ServeArguments {
    /// fd:N, or the path of a device; default: standard input and output
    #[arg(long, value_name = "CHANNEL", value_parser = str::parse::<ChannelSpec>)]
    channel: Option<ChannelSpec>,
    /// CPUs to run commands on, such as 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpus: Option<CpuList>,
    /// Memory limit for commands, such as 512M, swap included
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    memory: Option<u64>,
    /// Limit on processes and threads for commands
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pids: Option<u64>,
    #[command(flatten)]
    swap: Option<SwapArguments>,
    /// End, and end what runs, when nothing came on the channel for so long
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    lease: Option<Duration>,
}

/// Be the first process of a guest (crates/agent/PROTOCOL.md);
/// process 1 does so without being told
#[derive(Debug, Args)]
struct InitArguments {}

/// Print what KVM counts on this host, over all guests that run now
///
/// A line marked (now) is a gauge, the others are running totals that drop when a guest ends. A
/// counter that this kernel does not have is left out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vtax-agent counters\n  vtax-agent counters --json")]
struct CountersArguments {
    /// JSON, with each guest's own counters (crates/agent/PROTOCOL.md)
    #[arg(long)]
    json: bool,
}

impl CountersArguments {
    fn carry_out(&self) -> Result<(), Error> {
        let found = counters::read(&Tree::host())?;
        if self.json {
            output::json(&found)
        } else {
            output::line(&counters::describe(&found))
        }
    }
}

/// Publish this machine's counters in a page that the host samples (docs/record.md)
///
/// Page faults, swapping, context switches, interrupts, times of the CPUs, and what applications
/// register. At the end, and at a signal, it prints what it has published, as JSON.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  vtax-agent guest\n  \
    vtax-agent guest --page /run/vtax/work/guest-page --every 1ms --app requests,errors")]
struct GuestArguments {
    /// A file, which the host sees too; default: the memory of the ivshmem device
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Time from one publication to the next (1ms to 10s)
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = rate)]
    every: Duration,
    /// Counters of applications by their names, or all that are registered now
    #[arg(long, value_name = "NAMES|all", default_value = "all", value_parser = applications)]
    app: Applications,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    duration: Option<Duration>,
}

#[derive(Debug, Clone)]
struct Applications(Option<Vec<String>>);

/// End the processes in control groups of killed agents, remove the groups, and print how many
#[derive(Debug, Args)]
#[command(hide = true)]
struct SweepArguments {
    /// Also turn off and remove the swap that they left, found by its files in this folder
    #[arg(long, value_name = "FOLDER")]
    swap_folder: Option<PathBuf>,
}

/// Run a command on this machine with swap that exists as long as the command runs
#[derive(Debug, Args)]
#[command(hide = true)]
struct WithSwapArguments {
    #[command(flatten)]
    swap: SwapArguments,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    argv: Vec<OsString>,
}

#[derive(Debug, Args)]
struct SwapArguments {
    /// What commands may swap out beyond their memory limit, to swap that ends with the agent
    #[arg(long, value_name = "SIZE", value_parser = units::size, required = false,
          requires = "swap_folder")]
    swap: u64,
    /// Folder for the swap file, on a file system that can hold one, or for the record of the zram
    /// device
    #[arg(long, value_name = "FOLDER", required = false, requires = "swap")]
    swap_folder: PathBuf,
    /// file or zram, compressed memory; default: file
    #[arg(long, value_name = "WHAT", value_parser = str::parse::<Kind>, requires = "swap")]
    swap_in: Option<Kind>,
}

/// Run a command and write what memory it and the machine used, as JSON
///
/// Ends as the command does, with its exit code or by its signal. Values that this machine does not
/// report are null.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  vtax-agent memory --out memory.json -- vtax-dgemm --size 1000")]
struct MemoryArguments {
    /// File for the JSON; it is replaced
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Time from one look at the memory to the next (1ms to 10s)
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = rate)]
    every: Duration,
    /// Measure how much memory the command uses within a second; meanwhile the kernel reclaims
    /// pages less well
    #[arg(long)]
    working_set: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    argv: Vec<OsString>,
}

/// Run a command between marks at which an emulator begins and ends a trace
///
/// Where no emulator watches, the marks do nothing. Ends as the command ends.
#[derive(Debug, Args)]
#[command(hide = true)]
struct TracedArguments {
    /// File for how long the command took, as JSON; it is replaced
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Run the command once more before; its second run is a phase of its own
    #[arg(long)]
    warm_up: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    argv: Vec<OsString>,
}

/// Check that vector registers keep their values across context switches
///
/// Fails in a guest whose kernel loses them.
#[derive(Debug, Args)]
#[command(hide = true)]
struct CheckFpArguments {
    /// How often each thread checks its registers
    #[arg(long, value_name = "COUNT", default_value_t = 5_000)]
    rounds: u32,
}

// A type of its own: clap takes a bare Vec for an option that may be repeated.
#[derive(Debug, Clone)]
struct CpuList(Vec<usize>);

/// Is this word a subcommand's name?
pub fn is_subcommand(word: &str) -> bool {
    word.starts_with('-') || Arguments::command().find_subcommand(word).is_some()
}

impl Arguments {
    /// Carry out the subcommand.
    ///
    /// Fails when the subcommand fails, or when the standard output cannot be written. `init` is
    /// refused on a running machine.
    pub fn carry_out(self) -> Result<(), Error> {
        match self.command {
            Subcommands::Facts(arguments) => {
                let facts = facts::gather(&Tree::host());
                if arguments.pretty {
                    output::pretty_json(&facts)
                } else {
                    output::json(&facts)
                }
            }
            Subcommands::Clocks(arguments) => output::json(&clocks::measure(arguments.seconds)),
            Subcommands::Probe(arguments) => arguments.carry_out(),
            Subcommands::Prices(arguments) => arguments.carry_out(),
            Subcommands::Tune(arguments) => arguments.carry_out(),
            Subcommands::Run(arguments) => output::json(&run::run(arguments.into())?),
            Subcommands::Stream(arguments) => output::json(&stream::measure(
                facts::memory(&Tree::host()),
                arguments.bytes,
                arguments.times,
            )?),
            Subcommands::Serve(arguments) => serve::serve(&arguments.into()).map(drop),
            Subcommands::Init(_) => Err(init::refused()),
            Subcommands::Counters(arguments) => arguments.carry_out(),
            Subcommands::Guest(arguments) => output::json(&guest::guest(&arguments.into())?),
            Subcommands::Sweep(arguments) => output::json(&arguments.carry_out()),
            Subcommands::WithSwap(arguments) => swap::run(&arguments.swap.into(), &arguments.argv),
            Subcommands::Memory(arguments) => memory::run(&memory::MemoryOptions {
                argv: arguments.argv,
                out: arguments.out,
                every: arguments.every,
                working_set: arguments.working_set,
            }),
            Subcommands::Traced(arguments) => {
                traced::run(&arguments.argv, arguments.out.as_ref(), arguments.warm_up)
            }
            Subcommands::CheckFp(arguments) => output::json(&check_fp::check(arguments.rounds)?),
            Subcommands::Workload(arguments) => workload::carry_out(&arguments),
        }
    }
}

impl SweepArguments {
    /// How many groups and swap devices were removed.
    fn carry_out(&self) -> usize {
        let tree = Tree::host();
        // What is in the groups may be swapped out: it ends first.
        let groups = sweep(&tree);
        let folder = self.swap_folder.as_deref();
        groups + folder.map_or(0, |folder| vtax_sys::swap::sweep(&tree, folder))
    }
}

impl From<RunArguments> for run::RunOptions {
    fn from(arguments: RunArguments) -> Self {
        Self {
            argv: arguments.argv,
            timeout: arguments.timeout,
            cwd: arguments.cwd,
            stdout: arguments.stdout,
            stderr: arguments.stderr,
            cpus: arguments.cpus.map(|list| list.0),
            count: arguments.count,
            limits: Limits {
                memory_bytes: arguments.memory,
                swap_bytes: 0,
                processes: arguments.pids,
            },
        }
    }
}

impl From<GuestArguments> for guest::GuestOptions {
    fn from(arguments: GuestArguments) -> Self {
        Self {
            page: arguments.page,
            every: arguments.every,
            applications: arguments.app.0,
            duration: arguments.duration,
        }
    }
}

impl From<SwapArguments> for swap::SwapOptions {
    fn from(arguments: SwapArguments) -> Self {
        Self {
            bytes: arguments.swap,
            kind: arguments.swap_in.unwrap_or_default(),
            folder: arguments.swap_folder,
        }
    }
}

impl From<ServeArguments> for serve::ServeOptions {
    fn from(arguments: ServeArguments) -> Self {
        Self {
            channel: arguments.channel.unwrap_or(ChannelSpec::Standard),
            cpus: arguments.cpus.map(|list| list.0),
            limits: Limits {
                memory_bytes: arguments.memory,
                swap_bytes: arguments.swap.as_ref().map_or(0, |swap| swap.swap),
                processes: arguments.pids,
            },
            swap: arguments.swap.map(Into::into),
            lease: arguments.lease,
        }
    }
}

fn rate(text: &str) -> Result<Duration, String> {
    from_a_millisecond(text, 10)
}

fn spinning(text: &str) -> Result<Duration, String> {
    from_a_millisecond(text, 600)
}

fn from_a_millisecond(text: &str, longest_s: u64) -> Result<Duration, String> {
    let time = units::duration(text)?;
    let allowed = Duration::from_millis(1)..=Duration::from_secs(longest_s);
    let fits = allowed.contains(&time).then_some(time);
    fits.ok_or_else(|| format!("not from 1ms to {longest_s}s"))
}

fn applications(text: &str) -> Result<Applications, String> {
    whole_names(text).map(Applications)
}

fn cpus(text: &str) -> Result<CpuList, String> {
    cpu_list::parse(text)
        .map(CpuList)
        .map_err(|error| error.to_string())
}
