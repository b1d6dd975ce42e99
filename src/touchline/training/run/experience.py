"""What learners remember, next to the resume point: only what is new is written.

A replay is written in pieces, each a file of some actions in order of their arrival. A piece is
written once and never changed. A resume point names the pieces that it needs; they are written
before it, and those that it no longer names are deleted after it. So whenever a run is killed, the
pieces of its latest two resume points are whole: what was written after that is under other names.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from touchline.errors import UsageError
from touchline.operating_systems import remove_file
from touchline.policies.files.checkpoints import read_arrays, write_arrays
from touchline.policies.files.run_layout import CHECKPOINT, RunLayout
from touchline.training.algorithms.learner import Learner, Remembering
from touchline.training.experience.replay import Replay

Piece = tuple[int, int]
"""Number of the first action, and the number after the last."""


class ExperienceFiles:
    """The experience of all behaviors of one run on disk."""

    def __init__(self, layout: RunLayout) -> None:
        self._layout = layout
        self._pieces: dict[str, list[Piece]] = {}
        self._before: dict[str, list[Piece]] = {}
        """What the resume point before the latest one names."""

    def write(self, learners: Mapping[str, Learner]) -> dict[str, list[Piece]]:
        """Write what is new; returns the pieces that hold everything now, by behavior."""
        self._before = dict(self._pieces)
        for name, learner in learners.items():
            replay = _replay(learner)
            self._pieces[name] = [] if replay is None else self._extended(name, replay)
        return {name: list(pieces) for name, pieces in self._pieces.items()}

    def drop_unnamed(self) -> None:
        """Delete the files that neither of the latest two resume points names."""
        for name, latest in self._pieces.items():
            folder = self._layout.experience(name)
            pieces = [*latest, *self._before.get(name, ())]
            named = {self._path(name, piece).name for piece in pieces}
            # Only what is named as pieces are: other files are the user's.
            for path in folder.glob(f"[0-9]*-[0-9]*{CHECKPOINT}"):
                if path.name not in named:
                    remove_file(path)

    def load_state(self, pieces: Mapping[str, Sequence[Sequence[int]]]) -> None:
        """Take over what a resume point names."""
        self._pieces = {
            name: [(first, end) for first, end in named]
            for name, named in pieces.items()
        }

    def restore(self, name: str, learner: Learner) -> None:
        """Give a restored learner its experience.

        Raises a UsageError for a piece that is missing or broken.
        """
        replay = _replay(learner)
        if replay is None:
            return
        reached = replay.oldest
        for piece in self._pieces.get(name, ()):
            first, end = piece
            path = self._path(name, piece)
            rows, _ = read_arrays(path)
            # A piece may begin before what is still needed; a gap before it is lost experience.
            if first > reached or any(len(v) != end - first for v in rows.values()):
                raise UsageError(f"{path}: not the experience that belongs here")
            replay.load_rows(first, rows)
            reached = max(reached, end)
        if reached != replay.added:
            raise UsageError(
                f"{self._layout.experience(name)}: holds experience up to number {reached:,}, but "
                f"the resume point has {replay.added:,}"
            )

    def _extended(self, name: str, replay: Replay) -> list[Piece]:
        """The pieces that are still needed, and a new one with what came since."""
        # The ring has dropped what is older than `oldest`: pieces that end before it are not read
        # again.
        pieces = [p for p in self._pieces.get(name, ()) if p[1] > replay.oldest]
        written = pieces[-1][1] if pieces else replay.oldest
        if replay.added > written:
            new = written, replay.added
            write_arrays(self._path(name, new), replay.rows(*new), {})
            pieces.append(new)
        return pieces

    def _path(self, name: str, piece: Piece) -> Path:
        first, end = piece
        return self._layout.experience(name) / f"{first}-{end}{CHECKPOINT}"


def _replay(learner: Learner) -> Replay | None:
    return learner.experience if isinstance(learner, Remembering) else None
