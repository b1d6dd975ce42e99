"""Experience on disk: only what is new is written, and the latest resume point finds its own."""

import pytest
from tests.training.experience.test_replay import _drawn, _learner, _pieces

from touchline.errors import UsageError
from touchline.policies.files.run_layout import RunLayout
from touchline.training.run.experience import ExperienceFiles

CAPACITY = 12


class Kept:
    """A learner that has got so far, and its files."""

    def __init__(self, folder, lengths):
        self.learner = _learner(buffer_size=CAPACITY, save_replay_buffer=True)
        self.files = ExperienceFiles(RunLayout(folder))
        self.folder = RunLayout(folder).experience("Tiny")
        self.rest = _pieces(lengths)

    def go_on(self):
        """Add the next trajectories."""
        piece = self.rest.pop(0)
        self.learner.replay.add("A", piece, piece.reward[..., None])

    def save(self):
        return self.files.write({"Tiny": self.learner})

    def names(self):
        return {path.stem for path in self.folder.glob("*")}


def restored(folder, named, state):
    """A new learner with what a resume point has."""
    learner = _learner(buffer_size=CAPACITY, save_replay_buffer=True)
    learner.load_state(state)
    files = ExperienceFiles(RunLayout(folder))
    files.load_state(named)
    files.restore("Tiny", learner)
    return learner


def test_each_resume_point_writes_what_is_new_and_drops_what_is_gone(tmp_path):
    kept = Kept(tmp_path, [5, 5, 5, 30])
    names = []
    for _ in range(4):
        kept.go_on()
        kept.save()
        kept.files.drop_unnamed()
        names.append(kept.names())
    assert names == [
        {"0-5"},
        {"0-5", "5-10"},
        {"0-5", "5-10", "10-15"},  # number 3 is still there
        {"0-5", "5-10", "10-15", "33-45"},  # the point before names the first three
    ]


def test_until_a_resume_point_is_whole_the_one_before_finds_what_it_names(tmp_path):
    kept = Kept(tmp_path, [5, 9, 40])
    kept.go_on()
    kept.go_on()
    named, state = kept.save(), kept.learner.state()
    kept.files.drop_unnamed()
    before = _drawn(kept.learner.replay, steps=2)
    kept.go_on()
    kept.save()  # and here it is killed, before the resume point is written
    assert _drawn(restored(tmp_path, named, state).replay, steps=2) == before


def test_a_run_that_has_just_begun_learns_on_as_if_it_had_not_been_killed(tmp_path):
    kept = Kept(tmp_path, [])
    again = restored(tmp_path, kept.save(), kept.learner.state())
    assert again.wanted == kept.learner.wanted == 4  # a batch, not ten


def test_a_piece_that_is_missing_or_another_one_is_named(tmp_path):
    kept = Kept(tmp_path, [4, 5])
    kept.go_on()
    kept.save()
    kept.go_on()
    named, state = kept.save(), kept.learner.state()
    (kept.folder / "0-4.safetensors").rename(kept.folder / "x")
    with pytest.raises(UsageError, match=r"0-4\.safetensors: no such checkpoint"):
        restored(tmp_path, named, state)
    (kept.folder / "4-9.safetensors").rename(kept.folder / "0-4.safetensors")
    with pytest.raises(UsageError, match=r"0-4\.safetensors: not the experience"):
        restored(tmp_path, named, state)
    with pytest.raises(UsageError, match=r"up to number 0, but .* has 9"):
        restored(tmp_path, {"Tiny": []}, state)


def test_without_save_replay_buffer_nothing_is_written_or_read(tmp_path):
    kept = Kept(tmp_path, [4, 5])
    kept.go_on()
    state = kept.learner.state()
    kept.learner = _learner(buffer_size=CAPACITY)
    kept.learner.load_state(state)
    kept.go_on()
    assert kept.learner.replay.added == 5
    assert kept.save() == {"Tiny": []}
    assert not kept.folder.exists()
