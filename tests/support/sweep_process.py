"""A sweep in a process of its own, for tests that kill it: DESIGN FOLDER EVALUATE [resume]."""

import signal
import sys
from pathlib import Path

import sweep_standin
from vtax.core.page.progress import Lines
from vtax.main import _interrupt
from vtax.paging.sweep.design import read_design
from vtax.paging.sweep.run import SweepOptions, sweep

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    design, folder, name, *rest = sys.argv[1:]
    outcome = sweep(
        read_design(Path(design), sweep_standin.CATALOG),
        SweepOptions(Path(folder), workers=2, resume="resume" in rest),
        getattr(sweep_standin, name),
        Lines(),
    )
    print(outcome.state, len(outcome.points))
