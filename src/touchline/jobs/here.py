"""A place in the current process: one job after another, and Ctrl-C ends the one that runs."""

from __future__ import annotations

from touchline.jobs.job import Job, Outcome, Place, Running, Site, call
from touchline.jobs.restarts import Restarts


class Here(Place):
    """Whoever looks at a job does it."""

    def start(self, job: Job) -> InThisProcess:
        return InThisProcess(job)


class InThisProcess(Running):
    """A job of this process, which does not survive its death."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.name, Restarts(job.name, limits=None))
        self._job = job

    def _ended(self, patience_s: float) -> Outcome:
        arguments = self._job.arguments
        if self._job.folder is not None:
            arguments += (Site(self._job.folder, self._lines.append),)
        return call(self._job.work, *arguments)

    def kill(self) -> None:
        # Whoever looks at it now does not begin it.
        self.outcome = Outcome(failure="it was stopped")
