"""A machine that shares no folder with this one: files go over the agent's channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from vtax.environments import copied_files
from vtax.environments.agent import Finished
from vtax.environments.machine import Machine
from vtax.environments.process_environment import ProcessEnvironment
from vtax.workloads.variables import DEFAULT_PATH

LINK_TIMEOUT_S = 15


class CopyingMachine(Machine):
    """A machine that is given files over the channel; `pushed` are copied beside the agent."""

    def __init__(
        self,
        environment: ProcessEnvironment,
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

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        timeout_s: float | None = None,
        *,
        workdir: Path | None = None,
        leave: bool = False,
    ) -> Finished:
        """Run a command as `Machine.run` does; the folder's files are sent before, and its content
        is fetched after.

        Programs are looked for beside the agent, among what was pushed, on this machine's PATH and
        on the usual PATH. In the folder there are links to what was pushed.
        """
        own = self._folder.parent
        path = [str(own), str(own / "pushed"), environment.get("PATH", ""), DEFAULT_PATH]
        variables = {**environment, "PATH": ":".join(filter(None, path))}
        copied_files.push(self._agent, self._work / folder, self._folder / folder)
        if self._links:
            link = ["ln", "-sf", "--", *self._links, "."]
            super().run(link, variables, folder, LINK_TIMEOUT_S)
        finished = super().run(argv, variables, folder, timeout_s, workdir=workdir, leave=leave)
        copied_files.pull(self._agent, self._folder / folder, self._work / folder)
        return finished
