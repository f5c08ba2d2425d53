"""Explanations for newcomers: what each kind of flag means, and the words of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Explanation:
    """A kind of flag for somebody who meets it for the first time."""

    title: str
    meaning: str
    remedy: str


EXPLANATIONS: Mapping[str, Explanation] = MappingProxyType(
    {
        "timer-inversion": Explanation(
            "CPU time above wall time",
            "The machine says that the program computed for longer than it ran, which is "
            "impossible. One of its two clocks is wrong, as happens in virtual machines, so its "
            "times and rates may be wrong as well.",
            "Look at the host's clock beside the machine's own in the samples, run longer "
            "problems, and choose another clock source for the guest.",
        ),
        "left-processes": Explanation(
            "Work was cut off",
            "The command ended while processes that it had started (with &, setsid, or as a "
            "daemon) were still running. vtax ends them, so that they do not disturb the next "
            "repetition: no time includes their work.",
            "Let the command wait for them (in a shell: wait), or start the program so that it "
            "stays in the foreground.",
        ),
        "steal": Explanation(
            "CPU time taken by others",
            "While the program was ready to run, the hypervisor gave its CPU to somebody else. "
            "The slowdown then belongs to a busy host and not to virtualization.",
            "Repeat on a quiet or dedicated host, or pin the virtual CPUs to cores of their own.",
        ),
        "steal-unknown": Explanation(
            "Not known whether CPU time was taken",
            "This machine has no steal clock, so nobody can tell whether a hypervisor gave its "
            "CPU to somebody else during the measurement. Unknown is not zero.",
            "Trust the A/A control and the spread more than any single value; use a guest with a "
            "paravirtual clock where there is one.",
        ),
        "aa-control": Explanation(
            "The control differs from the baseline",
            "The A/A control is the baseline measured a second time as if it were something else. "
            "It should be equal and is not, by more than chance gives in one run of twenty. So "
            "something besides the environment changes the result.",
            "Look for what the baseline's runs do not have in common: leftovers of earlier runs, "
            "other programs, a clock that is wrong.",
        ),
        "not-believed": Explanation(
            "The machine contradicts its host",
            "What the machine said about a run is impossible, given what the host saw of the same "
            "run: the machine's clock is wrong, or a program in it answered instead of the agent.",
            "Check the guest's clock source; if the program is not yours, see docs/security.md.",
        ),
        "short-kernel": Explanation(
            "Kernels of less than a second",
            "What a kernel does only once, such as the first touch of its memory, weighs much in a "
            "rate taken over milliseconds, and more in a guest, where page faults cost more.",
            "Choose a larger problem: every kernel of HPCC grows with HPL's N.",
        ),
        "audit": Explanation(
            "An audit doubts this machine's clocks",
            "Before or after the run vtax looked at the machine's clocks, and some checks did not "
            "pass. Each sample has the worse verdict in its column audit.",
            "vtax audit prints each check with its reason and what to do.",
        ),
        "clock-verdict": Explanation(
            "The verdict depends on the clock",
            "By one clock this environment is as fast as the baseline or faster, by another it is "
            "slower. Either the program waits, which CPU time leaves out, or one of the clocks is "
            "wrong.",
            "Say whose time you mean (--clock wall, cpu, tsc or host), and look at the machine's "
            "clocks with vtax audit.",
        ),
        "too-short": Explanation(
            "Too short for this clock",
            "A clock is off by up to a step at both ends of a run, and reading it takes time. In "
            "runs as short as these that is more than 1 %.",
            "Give the program more to do, or take a machine with a finer clock.",
        ),
        "fits-cache": Explanation(
            "The problem fits the cache",
            "All memory that the kernels use stays in this machine's last-level cache, so rates "
            "of STREAM, RandomAccess and the like are the cache's and not the memory's.",
            "Choose a larger problem where memory is the question.",
        ),
        "noise-floor": Explanation(
            "Small differences are hidden by noise",
            "The baseline, measured a second time, is neither different from itself nor equal "
            "within the margin: the runs vary too much to tell.",
            "Add repetitions, quieten the machine, or accept a wider margin.",
        ),
        "drift": Explanation(
            "Results move with time",
            "Later repetitions are steadily faster or slower than earlier ones: something warms "
            "up, fills up or wears on. A median over them mixes different states of the machine.",
            "Look at figure 2, boot afresh for each repetition (--reboot each), or warm up longer.",
        ),
        "coarse-values": Explanation(
            "Values come in coarse steps",
            "The noise is smaller than the step in which values come, so each repetition is "
            "rounded the same way. The interval is wider by what rounding may hide.",
            "Print more digits, use a finer clock, or give the program more to do.",
        ),
        "clock-disagreement": Explanation(
            "The machine's clock disagrees with the host's",
            "The same time span was longer or shorter by the clock inside the machine than "
            "by the host's. Rates that the program computed with its own clock are off by as much.",
            "Prefer metrics that vtax timed on the host, and check the guest's clock source.",
        ),
        "duet": Explanation(
            "Both ran at once",
            "With --duet the two environments run at the same time on different CPUs, and swap "
            "them in half of the rounds. What disturbs the machine hits both and falls out of "
            "their ratio, but each also slows the other: caches, memory bandwidth, a shared core.",
            "Compare such times with those of duets alone, never with runs that had the machine "
            "to themselves.",
        ),
        "duet-overlap": Explanation(
            "A duet that soon was a solo",
            "One of the two took much longer and ran alone for much of its time. Noise of that "
            "part is not shared, and the program is not slowed there by the other.",
            "Compare without --duet: interleaved rounds do not need runs of the same length.",
        ),
        "host-time": Explanation(
            "The host's time instead of the machine's",
            "The machine said that a run took less time than passed on the host from its beginning "
            "to its end, by more than 1 % and 20 ms. So the host's time is taken, "
            "which includes delays of a busy host.",
            "Repeat on a quiet host; if it stays, the guest's clock is slow or the guest lies.",
        ),
        "emulator-time": Explanation(
            "An emulator's clock that lags",
            "On a busy host an emulator's clock falls behind the host's. What is counted in it "
            "is right; times by its clock are too short.",
            "Compare counts (exits, faults, instructions), or repeat on a quiet host.",
        ),
        "failures": Explanation(
            "Repetitions that failed",
            "Some repetitions ended with an error or failed the workload's own check and gave no "
            "value. What remains may be the lucky part.",
            "Read the messages under “How this run was made” and repeat once the cause is gone.",
        ),
        "few-repetitions": Explanation(
            "Few repetitions",
            "With so few values the interval is a rough estimate, and a rare slow run may not "
            "have shown itself.",
            "Run again with more repetitions (--repetitions).",
        ),
        "assumed-direction": Explanation(
            "Assumed direction",
            "Neither you nor a unit says whether higher or lower is better, so words of the "
            "metric's name were taken to say it. If they mislead, slower and faster are swapped.",
            "Write NAME:higher=... or NAME:lower=... in --metric.",
        ),
        "several-matches": Explanation(
            "Several matches",
            "The expression of --metric matched more than once in a repetition, and the last match "
            "was taken. Earlier ones may be of a warm-up, or left by earlier runs.",
            "Choose with first, last or all (their median), or narrow the expression.",
        ),
        "unit-converted": Explanation(
            "Converted unit",
            "The program printed another unit than that of the results, so its values were "
            "converted.",
            "Nothing, if the units are those that you expect.",
        ),
        "one-boot": Explanation(
            "All repetitions in one boot",
            "Results change from one start of a machine to the next. Repetitions of a single boot "
            "cannot show by how much, so the intervals are narrower than they should be.",
            "Boot afresh for each repetition (--reboot each).",
        ),
        "one-node": Explanation(
            "All repetitions on one node",
            "Nodes of a cluster differ in their silicon, firmware, cooling and neighbours. "
            "Repetitions on a single node cannot show by how much.",
            "Let rounds visit several nodes (slurm:PARTITION,nodes=N).",
        ),
        "absent-values": Explanation(
            "Values that are absent",
            "What was to be read beside the program, such as on the host around the machine, could "
            "not be read in some repetitions. The program's own results are complete.",
            "Look at the reason; docs/environments.md says when the host's values are absent.",
        ),
        "cut-short": Explanation(
            "The run was cut short",
            "Not all planned repetitions ran, because time was up or somebody stopped the run. "
            "What finished is complete and counts.",
            "Give it more time (--budget), or run it again to its end.",
        ),
    }
)


def explain(kind: str) -> Explanation:
    """The explanation of a kind of flag; a kind without an explanation says so."""
    known = EXPLANATIONS.get(kind)
    if known is not None:
        return known
    return Explanation(
        kind.replace("-", " ").capitalize(),
        "This version of the report has no general explanation of this flag; its own message "
        "says what was seen.",
        "Read the message, and treat the values it names with care.",
    )


GLOSSARY: Sequence[tuple[str, str]] = (
    ("Baseline", "The environment that counts as 100 %: the outermost one that vtax can reach."),
    (
        "% of the baseline",
        "Speed relative to the baseline. 100 is as fast, 50 half as fast; for a "
        "time or a latency the ratio is inverted, so more is always better.",
    ),
    (
        "Typical run and mean",
        "The typical run is what a run usually costs; few slow runs hardly move it. The mean is "
        "what many runs cost together, slow ones included. “Equivalent” needs both.",
    ),
    (
        "95 % interval",
        "Where the true value lies as far as these repetitions can tell; for a ratio, from how "
        "much the rounds of the run disagree about it.",
    ),
    (
        "Standard deviation",
        "How far single repetitions scatter around their middle: what one more run may show.",
    ),
    (
        "Equivalence margin",
        "How small a difference is small enough not to matter. “Equivalent” means that the whole "
        "interval lies within the margin: shown to be equal, not merely not shown to differ.",
    ),
    (
        "Inconclusive",
        "The interval is too wide to say either. The number of repetitions beside it is an "
        "estimate of what would decide it.",
    ),
    (
        "A/A control",
        "The baseline measured a second time under another name. Its difference is noise.",
    ),
    ("Wall time", "Time by the clock on the wall from start to end, waiting included."),
    (
        "CPU time",
        "Time during which a CPU worked for the program, as the kernel accounts it. On one CPU "
        "it cannot exceed wall time.",
    ),
    (
        "Steal time",
        "Time during which a virtual CPU was ready to run and the hypervisor ran something else.",
    ),
    (
        "Nested boot, reboot each",
        "Repetitions of one boot resemble each other more than those of different boots, so vtax "
        "can boot afresh for each and counts boots, not only repetitions.",
    ),
    (
        "User-mode Linux (UML)",
        "A Linux kernel that runs as an ordinary program and needs no hardware support.",
    ),
    (
        "TCG",
        "QEMU's software emulation of a CPU. It needs no hardware support, and slows programs by "
        "a factor instead of a few percent.",
    ),
)
