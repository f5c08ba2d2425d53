"""What runs: vtax's built-in workloads with fixed counts, and programs of Debian."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from vtax.workloads import hpcc_input
from vtax.workloads.builtin import line


@dataclass(frozen=True, slots=True)
class Program:
    """A command that does the same work each time it runs."""

    name: str
    words: Sequence[str]
    needs: Sequence[str] = ()
    """Programs that must be installed; empty: a built-in workload."""

    def argv(self, agent: str) -> list[str]:
        """The command line; `agent` is the path of vtax-agent where it runs."""
        return list(self.words) if self.needs else line(self.words, agent)

    def missing(self) -> str | None:
        """Why the program cannot run here; None where it can."""
        absent = [name for name in self.needs if shutil.which(name) is None]
        return f"{', '.join(absent)} not installed" if absent else None


def shell(name: str, script: str, *needs: str) -> Program:
    """A program that a shell runs."""
    return Program(name, ("sh", "-c", script), needs)


_NUMBERS = "with recursive n(i) as (select 1 union all select i+1 from n where i < 20000)"
_SQL = (
    f"create table t (i integer, s text); insert into t {_NUMBERS} select i, hex(i * 7919) from n; "
    "create index k on t (s); select count(*) from t a join t b on a.s = b.s;"
)
_HASH = 'my %h; $h{$_ % 5000} .= "x" x ($_ % 7) for 1..200000; print scalar(keys %h), "\\n"'
_SOURCE = "int f(int a){int s=0;for(int i=0;i<a;i++)s+=i*i;return s;}"
_INPUT = hpcc_input.input_file((400,), processes=1, block=80).decode()
_ALONE = (
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    "OMPI_MCA_ess_singleton_isolated=1 OMPI_MCA_plm=isolated OPENBLAS_NUM_THREADS=1"
)

NOTHING = Program("true", ("true",), ("true",))
"""Its counts are what starting, ending and watching any program takes."""

PROGRAMS: Sequence[Program] = (
    Program("sequential-touch", ("sequential-touch", "--count", "200000")),
    Program("random-touch", ("random-touch", "--mem", "32M", "--count", "200000")),
    Program("fault-storm", ("fault-storm", "--count", "10000")),
    Program("mmap-churn", ("mmap-churn", "--count", "1000")),
    Program("fork-exec-storm", ("fork-exec-storm", "--count", "30")),
    Program("context-switch", ("context-switch", "--count", "2000")),
    Program("dgemm", ("dgemm", "--count", "1")),
    Program("gups", ("gups", "--mem", "32M", "--count", "500000")),
    Program("gzip-like", ("gzip-like", "--count", "5")),
    Program("compiler-like", ("compiler-like", "--count", "100")),
    Program("timer-tick", ("timer-tick", "--count", "200000")),
    Program("round-trip", ("round-trip", "--count", "100")),
    shell("gcc", f"echo '{_SOURCE}' | gcc -O2 -S -x c -o /dev/null -", "gcc"),
    shell("gzip", "gzip -c /usr/bin/gzip /usr/bin/dpkg > /dev/null", "gzip"),
    Program("sqlite3", ("sqlite3", ":memory:", _SQL), ("sqlite3",)),
    Program("python3", ("/usr/bin/python3", "-S", "-c",
            "print(len({str(i): i for i in range(50000)}))"), ("/usr/bin/python3",)),
    Program("perl", ("perl", "-e", _HASH), ("perl",)),
    Program("java", ("java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-version"), ("java",)),
    shell("pipeline", "seq 20000 | sed s/1/one/ | grep -v 7 | sort -r | tr a-z A-Z | wc -l",
           "seq"),
    shell("hpcc", f"{_ALONE}; cd /tmp && printf '%s' '{_INPUT}' > hpccinf.txt && hpcc",
           "hpcc"),
)  # fmt: skip
