"""What `vtax place` needs; links to guests have a check of their own, `link`."""

from __future__ import annotations

from vtax.core import foreign_json
from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import VtaxError
from vtax.place.cores import cores
from vtax.place.plan import cpu_list


class SlowCores(Check):
    """Service threads can be held below full speed."""

    name = "slow-cores"
    purpose = "vtax place measure, apply and watch"

    def find(self, host: Host) -> Finding:
        program = host.program()
        if program is None:
            return self.missing(
                "vtax-host is not part of this installation", "make setup, or pip install ."
            )
        output = host.run([program, "place", "backends", "--json"])
        try:
            found = foreign_json.parse_object(output.stdout)["backends"]
            possible = [each["name"] for each in found if each["possible"]]
            reasons = [f"{each['name']}: {each['reason']}" for each in found]
        except (ValueError, KeyError, TypeError):
            return self.missing(f"{program} does not run: {output.last_error}", "make setup")
        if host.euid != 0:
            return self.missing("only root slows and moves threads of others", "run vtax as root")
        if not possible:
            return self.impossible("; ".join(reasons))
        return self.ok(f"by {', '.join(possible)}")


class CoreClasses(Check):
    """Which cores are slow."""

    name = "core-classes"
    purpose = "vtax place advise and watch"

    def find(self, host: Host) -> Finding:
        try:
            known = cores(None, None, None, host.root)
        except VtaxError as error:
            return self.degraded(f"not known: {error.message}", "name them: --fast, --slow")
        notes = "".join(f"; {each}" for each in known.notes)
        if known.supposed:
            return self.ok(f"all cores are alike; --fast and --slow can name some{notes}")
        kinds = ", ".join(
            f"{each.name} {cpu_list(each.cpus)} ({each.speed_percent:.3g} %)"
            for each in known.classes
        )
        return self.ok(f"{kinds}, {known.source}{notes}")


CHECKS = (SlowCores, CoreClasses)
