"""What the study runs: real programs, loops with known counts, and changes of both.

Every command line runs in the folder of `inputs`. What one writes is in `out/`, and is replaced by
its next run, so that each repetition does the same.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """A program that no price was made from."""

    name: str
    line: str
    """The command line, in the words of a shell; `|`, `;` and `>` need `sh`."""
    sh: bool = False
    needs: Sequence[str] = ()
    """Programs that it starts, besides the first word of the line."""

    def words(self) -> list[str]:
        """The command line for `vtax explain`."""
        return ["sh", "-c", self.line] if self.sh else shlex.split(self.line)

    def programs(self) -> tuple[str, ...]:
        """What must be installed."""
        return (*self.needs, self.words()[0])


PYTHON = "/usr/bin/python3"

PROGRAMS: Sequence[Program] = (
    Program("gcc", "gcc -O1 -c c/m0.c -o out/m0.o"),
    Program("make -j2", "make -s -B -j2 -C c", needs=("gcc",)),
    Program("clang", "clang -fsyntax-only -Wall c/m0.c"),
    Program("rustc", "rustc --crate-type lib --emit=metadata --out-dir out m.rs"),
    Program("go", "GOCACHE=$PWD/go-cache go vet hello.go", sh=True, needs=("go",)),
    Program("tar create", "tar cf out/made.tar tree"),
    Program("tar extract", "rm -rf out/tar; mkdir out/tar; tar xf tree.tar -C out/tar", sh=True,
            needs=("tar",)),
    Program("git status", "git -C repo status --porcelain"),
    Program("git log", "git -C repo log --stat"),
    Program("git clone", "rm -rf out/clone; git clone -q -n --no-hardlinks repo out/clone", sh=True,
            needs=("git",)),
    Program("sqlite3", "rm -f out/db; sqlite3 out/db '.read rows.sql'", sh=True,
            needs=("sqlite3",)),
    Program("nginx and ab", "nginx -p . -c nginx.conf 2>/dev/null; "
            "ab -q -n 1000 -c 4 http://127.0.0.1:18083/text.txt >/dev/null; "
            "kill $(cat out/nginx.pid)", sh=True, needs=("nginx", "ab")),
    Program("redis", "redis-server --port 18084 --save '' --daemonize yes --pidfile $PWD/out/redis "
            ">/dev/null; redis-benchmark -p 18084 -q -n 2000 -t set,get >/dev/null; "
            "redis-cli -p 18084 shutdown", sh=True,
            needs=("redis-server", "redis-benchmark", "redis-cli")),
    Program("python3 imports", f"{PYTHON} -c 'import asyncio, email.message, unittest, xml.dom'"),
    Program("python3 JSON", f"{PYTHON} -m json.tool rows.json /dev/null"),
    Program("numpy", f"{sys.executable} -c 'import numpy; a = numpy.ones((300, 300)); a @ a'"),
    Program("perl", "perl -ne '$n{$_}++ for split; END { print scalar keys %n }' text.txt"),
    Program("node", "node -e 'require(\"fs\").readFileSync(\"rows.json\")'"),
    Program("java", "java -Xshare:auto -version"),
    Program("zstd", "zstd -q -c -6 text.txt"),
    Program("xz", "xz -c -1 text.txt"),
    Program("gzip", "gzip -c text.txt"),
    Program("bzip2", "bzip2 -c small.txt"),
    Program("find", "find tree -name '*7*' -size +1k"),
    Program("grep -r", "grep -r -c needle tree"),
    Program("diff -r", "diff -r tree copy"),
    Program("cp -r", "rm -rf out/copy; cp -r tree out/copy", sh=True, needs=("cp", "rm")),
    Program("openssl", "openssl dgst -sha256 text.txt tree.tar"),
    Program("openssl encrypt", "openssl enc -aes-256-cbc -pbkdf2 -pass pass:x -in tree.tar "
            "-out out/encrypted"),
    Program("jq", "jq -c 'map(.value) | add' rows.json"),
    Program("sort", "sort text.txt -o out/sorted"),
    Program("awk", "awk '{ n[$1]++ } END { for (w in n) print w, n[w] }' text.txt"),
    Program("sed", "sed -e s/needle/thread/g -e y/abc/xyz/ text.txt"),
    Program("bc", "echo 'scale=600; 4*a(1)' | bc -l", sh=True, needs=("bc",)),
    Program("sh of 60 programs", "for i in $(seq 60); do /bin/true $i; done", sh=True),
    Program("ffmpeg", "ffmpeg -v error -f lavfi -i testsrc=duration=1:size=320x240 -f null -"),
    Program("hpcc", "hpcc --sizes 100 --np 1"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loop:
    """A program of the study's own that does one thing N times (`loops.c`)."""

    name: str
    count: int
    lines: Sequence[str]
    """The lines of the bill that the loop makes; empty: all."""

    def program(self) -> Program:
        return Program(f"loop: {self.name}", f"./loops {self.name} {self.count}")


NOTHING = Loop("nothing", 0, ())
LOOPS: Sequence[Loop] = (
    Loop("null", 50_000, ("null",)),
    Loop("stat", 20_000, ("stat",)),
    Loop("open", 10_000, ("open", "close")),
    Loop("read", 50_000, ("read",)),
    Loop("write", 20_000, ("write",)),
    Loop("getdents", 2_000, ("open", "close", "fstat", "getdents", "brk")),
    Loop("fsync", 40, ("fsync", "write")),
    Loop("mmap", 20_000, ("mmap", "munmap")),
    Loop("mprotect", 20_000, ("mprotect",)),
    Loop("signal", 20_000, ("signal", "other")),
    Loop("anonymous", 20_000, ("anonymous fault", "mmap", "munmap")),
    Loop("file", 200, ("file fault", "mmap", "munmap")),
    Loop("cow", 10_000, ("anonymous fault", "copy-on-write fault", "mmap", "munmap")),
    Loop("fork", 200, ()),
    Loop("exec", 60, ()),
    Loop("thread", 1_000, ()),
    Loop("switch", 5_000, ("read", "write", "context switch")),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One switch of a program: its count of some operation before and after."""

    name: str
    what: str
    """What the switch changes."""
    before: str
    after: str
    sh: bool = False

    def programs(self) -> tuple[Program, Program]:
        """The program before and after."""
        return (
            Program(f"{self.name}, before", self.before, self.sh),
            Program(f"{self.name}, after", self.after, self.sh),
        )


CHANGES: Sequence[Change] = (
    Change("tar --blocking-factor", "size of writes", "tar -b 1 -cf out/b.tar tree",
           "tar -b 256 -cf out/b.tar tree"),
    Change("dd bs=", "size of reads and writes", "dd if=text.txt of=/dev/zero bs=512 status=none",
           "dd if=text.txt of=/dev/zero bs=64k status=none"),
    Change("ls -l", "a stat for each file", "ls -lR tree", "ls -R tree"),
    Change("xargs -n", "programs started", "find tree -type f | head -240 | xargs -n 4 cat",
           "find tree -type f | head -240 | xargs -n 120 cat", sh=True),
    Change("python3 -S -I", "files looked up and read", f"{PYTHON} -c pass",
           f"{PYTHON} -S -I -c pass"),
    Change("sqlite3 BEGIN", "fsyncs", "rm -f out/s.db; sqlite3 out/s.db '.read single.sql'",
           "rm -f out/s.db; (echo 'BEGIN;'; cat single.sql; echo 'COMMIT;') | sqlite3 out/s.db",
           sh=True),
    Change("git core.preloadIndex", "threads", "git -C repo -c core.preloadIndex=true status -s",
           "git -C repo -c core.preloadIndex=false status -s"),
    Change("sort -S", "temporary files", "sort -S 64K -T out text.txt -o out/s.txt",
           "sort -S 64M -T out text.txt -o out/s.txt"),
    Change("MALLOC_TOP_PAD_", "calls of brk", "perl -e '@a = map { \"x\" x 100 } 1 .. 100000'",
           "env MALLOC_TOP_PAD_=67108864 perl -e '@a = map { \"x\" x 100 } 1 .. 100000'"),
    Change("glibc.malloc.hugetlb", "huge pages", f"{PYTHON} -c 'bytearray(64 << 20)'",
           f"env GLIBC_TUNABLES=glibc.malloc.hugetlb=1 {PYTHON} -c 'bytearray(64 << 20)'"),
)  # fmt: skip
"""Changes of counts, as Mosalloc makes them: by the program's own switches."""

PRICE = "price"
"""What the changes of prices are called together."""


def priced(pair: tuple[str, str]) -> Program:
    """The program that runs under both settings."""
    return Program(f"{PRICE}: {pair[0]} to {pair[1]}", "find tree -name '*7*' -size +1k")
