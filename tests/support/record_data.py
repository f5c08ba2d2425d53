"""Records of a comparison and of a recording."""

from vtax.core.formats.model import (
    ComparisonRecord,
    EnvironmentRecord,
    MachineRecord,
    RecordingRecord,
)

ORDER = tuple(("native", number) for number in range(5))
RECORD_OF_ONE = ComparisonRecord(
    vtax_version="0",
    command_line=("vtax",),
    name="hpcc",
    started_utc="2026-01-01T00:00:00+00:00",
    workload="hpcc",
    workload_parameters={},
    repetitions=1,
    reboot="never",
    budget_s=None,
    margin_percent=2,
    seed=1,
    order=ORDER,
    environments=(
        EnvironmentRecord(
            label="native",
            spec="native",
            role="baseline",
            baseline=None,
            description="this machine",
            facts={},
        ),
    ),
)
RECORDING = RecordingRecord(
    vtax_version="0",
    command_line=("vtax",),
    name="machine",
    started_utc="2026-01-01T00:00:00+00:00",
    argv=(),
    recording={"every": "1ms"},
    machine=MachineRecord(spec="native", description="this machine", facts={}),
)
