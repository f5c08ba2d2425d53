"""The files that the study's programs read: made here, alike for a seed."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vtax.core.errors import VtaxError

MADE = "made"
"""The file that says that a folder is complete, with its seed."""
FOLDERS, FILES = 60, 40
COMMITS = 12
MODULES = 4
COMPILE = ("cc", "-O1", "-pthread", "-o", "loops", str(Path(__file__).parent / "loops.c"))
GIT = ("git", "-c", "user.name=study", "-c", "user.email=study@localhost")

NGINX = """\
pid out/nginx.pid; error_log out/nginx.log; daemon on; worker_processes 1;
events {} http { access_log off; client_body_temp_path out; proxy_temp_path out;
fastcgi_temp_path out; uwsgi_temp_path out; scgi_temp_path out;
server { listen 127.0.0.1:18083; root tree/d0; location = /text.txt { alias tree/d0/f0.txt; } } }
"""
MAKEFILE = """\
prog: $(patsubst %.c,%.o,$(wildcard *.c))
	gcc -o $@ $^
%.o: %.c
	gcc -O0 -c -o $@ $<
"""


def make(folder: Path, seed: int) -> dict[str, str]:
    """Make all files in `folder`, unless it has those of this seed. What could not be made without
    a program, and why. Raises VtaxError when a file cannot be written."""
    made = folder / MADE
    if made.is_file() and (told := json.loads(made.read_text()))["seed"] == seed:
        missing: dict[str, str] = told["missing"]
        return missing
    try:
        shutil.rmtree(folder, ignore_errors=True)
        texts(folder, random.Random(seed))
        missing = dict(_built(folder))
        made.write_text(json.dumps({"seed": seed, "missing": missing}))
    except OSError as error:
        raise VtaxError(
            f"cannot write {folder}: {error.strerror}", "choose another --out"
        ) from None
    return missing


def texts(folder: Path, chance: random.Random) -> None:
    """Write what needs no other program, and make the folder `out`."""
    (folder / "out").mkdir(parents=True)
    words = ["needle", *("".join(chance.choices("abcdefghij", k=6)) for _ in range(2000))]

    def text(lines: int) -> str:
        return "".join(" ".join(chance.choices(words, k=8)) + "\n" for _ in range(lines))

    for number in range(FOLDERS):
        for other in range(FILES):
            file = folder / f"tree/d{number}/f{other}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text(chance.randint(1, 100)))
    with tarfile.open(folder / "tree.tar", "w") as archive:
        archive.add(folder / "tree", "tree")
    shutil.copytree(folder / "tree", folder / "copy")
    rows = [{"name": chance.choice(words), "value": chance.random()} for _ in range(5000)]
    insert = "INSERT INTO t VALUES ('{name}', {value});\n"
    create = "CREATE TABLE t (name TEXT, value REAL);\n"
    inserts = [insert.format(**row) for row in rows]
    files = {
        "text.txt": text(32000),
        "small.txt": text(4000),
        "rows.json": json.dumps(rows),
        "rows.sql": f"{create}BEGIN;\n{''.join(inserts)}COMMIT;\n"
        "SELECT count(*), sum(value) FROM t GROUP BY name ORDER BY 2 DESC LIMIT 5;\n",
        "single.sql": create + "".join(inserts[:20]),
        "nginx.conf": NGINX,
        "c/Makefile": MAKEFILE,
        "c/main.c": "int f0(int);\nint main(void) { return f0(0) > 0; }\n",
        "m.rs": "".join(
            f"pub fn f{n}(a: u64) -> u64 {{ (0..a).map(|b| b * {n}).sum() }}\n" for n in range(40)
        ),
        "hello.go": 'package main\n\nimport "strings"\n\n'
        'func main() { println(strings.Repeat("a", 3)) }\n',
        **{f"c/m{number}.c": _module(number, chance) for number in range(MODULES)},
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)


def _module(number: int, chance: random.Random) -> str:
    own = (
        f"int f{number}_{n}(int a) {{ int b = 0; for (int i = 0; i < a; i++) "
        f"b += i * {chance.randint(1, 99)} % (a + {n + 1}); return b; }}\n"
        for n in range(60)
    )
    last = f"int f{number}(int a) {{ return f{number}_0(a); }}\n"
    return "#include <stdio.h>\n#include <stdlib.h>\n" + "".join(own) + last


def _built(folder: Path) -> Iterator[tuple[str, str]]:
    """Make what needs a program; yields what it was for and what failed."""
    commits = [
        ("git", "init", "-q", "repo"),
        ("cp", "-r", "tree", "repo/tree"),
        *(
            line
            for number in range(COMMITS)
            for line in (
                ("cp", f"tree/d{number}/f0.txt", "repo/tree/d0/f1.txt"),
                (*GIT, "-C", "repo", "add", "-A"),
                (*GIT, "-C", "repo", "commit", "-q", "-m", f"change {number}"),
            )
        ),
    ]
    wanted: Mapping[str, Sequence[Sequence[str]]] = {
        "repo": commits,
        "loops": [COMPILE],
        "go-cache": [("go", "vet", "hello.go")],
    }
    variables = {**os.environ, "GOCACHE": str(folder / "go-cache"), "GIT_CONFIG_GLOBAL": os.devnull}
    for name, lines in wanted.items():
        for line in lines:
            try:
                subprocess.run(
                    line, cwd=folder, env=variables, check=True, capture_output=True, timeout=120
                )
            except (OSError, subprocess.SubprocessError) as error:
                yield name, f"{line[0]}: {error}"
                break
