"""What a person plays, kept as it happens, and written as a demonstration.

Going back in time takes back what was recorded since, so a recording holds one course of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from touchline.envs.slots import SlotRows
from touchline.protocol.demonstrations import DemoFile
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.training.recording import EpisodeRecorder
from touchline.viewer.insight import Seat

_WITHOUT_END = 10**9
"""Episodes to record: as many as are played."""


@dataclass(frozen=True, eq=False)
class _Step:
    """One agent's decision and what came of it, N = 1."""

    behavior: str
    rows: SlotRows
    action: ActionTuple
    after: SlotRows


class Tape:
    """The decisions of one agent since the recording began."""

    def __init__(self, seat: Seat, number: int) -> None:
        """`number` tells this tape from others of the same simulation."""
        self.seat = seat
        self.number = number
        self._steps: list[_Step] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(
        self, behavior: str, rows: SlotRows, action: ActionTuple, after: SlotRows
    ) -> None:
        """Keep a decision, the action [1, ...] taken, and the rows that it led to, N = 1."""
        self._steps.append(_Step(behavior, rows, action, after))

    def cut(self, count: int) -> None:
        """Keep the first decisions alone."""
        del self._steps[count:]

    def forget_open_episode(self) -> None:
        """Drop the decisions of an episode that will have no end."""
        ends = [i for i, step in enumerate(self._steps) if len(step.after.final_slot)]
        self.cut(ends[-1] + 1 if ends else 0)

    def files(self, specs: Mapping[str, BehaviorSpec]) -> dict[str, DemoFile]:
        """A demonstration for each behavior that the agent had; none of an empty tape.

        An episode that was underway when the recording began starts there; the last one may lack
        its end, as where Unity stops recording.
        """
        steps_of: dict[str, list[_Step]] = {}
        for step in self._steps:
            steps_of.setdefault(step.behavior, []).append(step)
        files = {}
        for name, steps in steps_of.items():
            recorder = EpisodeRecorder(name, specs[name], steps[0].rows, _WITHOUT_END)
            for number, step in enumerate(steps):
                rows = _begun(step.rows) if number == 0 else step.rows
                recorder.decide(rows, step.action)
                recorder.end(step.after)
            files[name] = recorder.file()
        return files


def _begun(rows: SlotRows) -> SlotRows:
    """The same rows, as where an episode begins."""
    flags = rows.flags.copy()
    flags[rows.deciding, 1] = True
    return replace(rows, flags=flags)
