"""A machine that shares no folder with this one: files go over the agent's channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from vtax.core import binaries
from vtax.environments import copied_files
from vtax.environments.agent import Finished
from vtax.environments.machine import Machine, MachineSource
from vtax.environments.machine_command import MachineCommand
from vtax.workloads.variables import DEFAULT_PATH

LINK_TIMEOUT_S = 15


class CopyingMachine(Machine):
    """A machine that is given files over the channel; `pushed` are copied beside the agent."""

    def __init__(
        self,
        environment: MachineSource,
        work: Path,
        cpus: Sequence[int],
        pushed: Sequence[Path],
    ) -> None:
        super().__init__(environment, work, cpus)
        self._folder = PurePosixPath(self.launch.work_inside)
        self._links: list[str] = []
        try:
            self.furnish()
            for path in pushed:
                target = self._folder.parent / "pushed" / path.resolve().name
                copied_files.push(self._agent, path.resolve(), target)
                self._links.append(str(target))
        except BaseException:
            self.kill()
            raise

    def furnish(self) -> None:
        """Do what has to be done once before anything is copied."""

    def execute(self, command: MachineCommand) -> Finished:
        """Send the folder's files before the command, and fetch its content after.

        Programs are looked for beside the agent, among what was pushed, on this machine's PATH and
        on the usual PATH. In the folder there are links to what was pushed.
        """
        own, folder = self._folder.parent, command.folder
        path = [str(own), str(own / "pushed"), command.environment.get("PATH", ""), DEFAULT_PATH]
        variables = {**command.environment, "PATH": ":".join(filter(None, path))}
        copied_files.push(self._agent, self.work / folder, self._folder / folder)
        if self._links:
            link = ["ln", "-sf", "--", *self._links, "."]
            super().execute(MachineCommand(link, variables, folder, LINK_TIMEOUT_S))
        finished = super().execute(replace(command, environment=variables))
        copied_files.pull(self._agent, self._folder / folder, self.work / folder)
        return finished


def bring(machine: Machine, name: str) -> str:
    """Copy a program of vtax's beside the machine's folder; returns its path there."""
    path = str(PurePosixPath(machine.launch.work_inside).parent / name)
    machine.push(path, binaries.find(name).read_bytes(), 0o700)
    return path
