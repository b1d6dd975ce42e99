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


@dataclass(frozen=True, eq=False)
class Tape:
    """The decisions of one agent since the recording began; never changed, only continued.

    So the moments of the time machine keep it without a copy: all of a recording share their steps.
    """

    seat: Seat
    number: int
    """Tells this recording from others of the same simulation."""
    last: tuple[Tape, _Step] | None = None
    """The tape before the last decision, and that decision; None of an empty tape."""
    length: int = 0

    def __len__(self) -> int:
        return self.length

    def with_step(
        self, behavior: str, rows: SlotRows, action: ActionTuple, after: SlotRows
    ) -> Tape:
        """With a decision, the action [1, ...] taken, and the rows that it led to, N = 1."""
        step = _Step(behavior, rows, action, after)
        return replace(self, last=(self, step), length=self.length + 1)

    def without_open_episode(self) -> Tape:
        """Without the decisions of an episode that will have no end."""
        tape = self
        while tape.last is not None and not len(tape.last[1].after.final_slot):
            tape = tape.last[0]
        return tape

    def _steps(self) -> list[_Step]:
        steps, last = [], self.last
        while last is not None:
            steps.append(last[1])
            last = last[0].last
        return steps[::-1]

    def files(self, specs: Mapping[str, BehaviorSpec]) -> dict[str, DemoFile]:
        """A demonstration for each behavior that the agent had; none of an empty tape.

        An episode that was underway when the recording began starts there; the last one may lack
        its end, as where Unity stops recording.
        """
        steps_of: dict[str, list[_Step]] = {}
        for step in self._steps():
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
    # The reward of the first record is for what was not recorded.
    return replace(rows, begins=rows.begins | rows.deciding)
