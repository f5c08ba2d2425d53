"""What every measurement needs."""

from __future__ import annotations

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding


class Agent(Check):
    """Runs inside every machine under measurement; comes with vtax."""

    name = "agent"
    purpose = "every measurement"

    def find(self, host: Host) -> Finding:
        program = host.agent()
        if program is None:
            return self.missing(
                "vtax-agent is not part of this installation", "make setup, or pip install ."
            )
        output = host.run([program, "--version"])
        if output.code != 0:
            return self.missing(f"{program} does not run: {output.last_error}", "make setup")
        return self.ok(output.first_line)
