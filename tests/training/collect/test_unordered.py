"""Collectors that do not wait for each other: their bound on old weights, and SAC on them."""

import numpy as np
import pytest
from tests.training.collect.test_several import RECIPE, Lineup, StopAt, config_of

from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import read_arrays
from touchline.training.collect.opening import worker_setups
from touchline.training.collect.several import PIECE, Here, UnorderedCollectors
from touchline.training.config.reading import read_config
from touchline.training.run.stopwatch import Stopwatch
from touchline.training.trainer import train


class WithVersions(Here):
    """Workers whose policies act out the version of their weights; the first one is slow."""

    slice_s = 1e9

    def __init__(self, setups, slowness):
        super().__init__(setups, print)
        self.version, self.looks, self.slowness = 0, 0, slowness

    def shared(self, policies):
        self.version += 1
        weights = policies.latest["3DBall"].weights
        for name, array in weights.items():
            weights[name] = np.zeros_like(array)
        weights["trunk.policy_bias"] += self.version
        return policies

    def finished(self):
        self.looks += 1
        late = {0} & self._busy if self.looks % self.slowness else set()
        self._busy -= late
        answers = super().finished()
        self._busy |= late
        return answers


def versions_behind(tmp_path, slowness, count):
    """Of the weights of each piece, as its actions show; and which collectors brought them."""
    config = config_of(
        tmp_path, 3, behaviors__3DBall__network_settings__deterministic=True
    )
    workers = WithVersions(worker_setups(RECIPE, config), slowness)
    workers.open()
    collector = UnorderedCollectors(workers, print, Lineup(config), Stopwatch())
    collector.reset(3)
    behind, brought = [], []
    while len(behind) < count:
        before = workers.version
        for name, t in collector.collect({"3DBall": 9}).trajectories.items():
            assert t.num_results >= PIECE
            (version,) = np.unique(t.continuous[t.valid])
            behind.append(before - version)
            brought.append(name)
    workers.close()
    return collector, behind, brought


def test_no_piece_is_further_behind_than_the_bound_says(tmp_path):
    collector, behind, brought = versions_behind(tmp_path, 30, 30)
    assert collector.versions_behind == 6
    # The slow one makes the others wait: the bound is reached, and never passed.
    assert max(behind) == collector.furthest_behind == 6
    assert len(set(brought)) == 3


def test_collectors_of_equal_speed_do_not_wait(tmp_path):
    _, behind, brought = versions_behind(tmp_path, 1, 12)
    assert max(behind) <= 1
    assert min(brought.count(name) for name in set(brought)) == 4


def sac(tmp_path, **changes):
    block = "behaviors__Basic__"
    settings = {
        f"{block}hyperparameters__buffer_size": 2000,
        f"{block}hyperparameters__batch_size": 32,
        f"{block}hyperparameters__buffer_init_steps": 200,
        f"{block}hyperparameters__steps_per_update": 10,
        f"{block}max_steps": 1500,
        f"{block}summary_freq": 500,
    }
    return config_of(tmp_path, 2, "Basic_sac", **settings | changes)


BASIC = EnvRecipe("scene", "Basic", num_areas=2, seed=3)


def updates_in(folder):
    arrays, _ = read_arrays(folder / "resume.safetensors")
    return int(arrays["learners/Basic/replay.counters"][0])


def test_sac_makes_the_gradient_steps_that_its_experience_is_worth(tmp_path):
    result = train(sac(tmp_path), BASIC)
    steps = result.behaviors["Basic"].steps
    assert 1500 <= steps < 1500 + 4 * PIECE
    assert updates_in(result.folder) == pytest.approx((steps - 200) / 10, abs=2)


def test_sac_on_collectors_resumes_with_its_replay(tmp_path):
    stopped = train(sac(tmp_path), BASIC, watch=StopAt(5))
    assert stopped.interrupted
    before = updates_in(stopped.folder)
    result = train(sac(tmp_path, checkpoint_settings__resume=True), BASIC)
    assert result.behaviors["Basic"].steps >= 1500
    steps = result.behaviors["Basic"].steps
    assert before < updates_in(result.folder)
    assert updates_in(result.folder) == pytest.approx((steps - 200) / 10, abs=2)


def test_a_lesson_that_begins_amid_pieces_loses_none_of_them(tmp_path, monkeypatch):
    collected = []
    merged = UnorderedCollectors._merged

    def counting(self, answers):
        collection = merged(self, answers)
        collected.append(sum(collection.results.values()))
        return collection

    monkeypatch.setattr(UnorderedCollectors, "_merged", counting)
    lessons = [
        {
            "name": "first",
            "value": 9.0,
            "completion_criteria": {
                "measure": "progress",
                "behavior": "Basic",
                "threshold": 0.4,
                "min_lesson_length": 1,
            },
        },
        {"name": "second", "value": 10.0},
    ]
    config = sac(tmp_path, environment_parameters__gravity={"curriculum": lessons})
    result = train(config, BASIC)
    assert sum(collected) == result.behaviors["Basic"].steps


def test_behaviors_of_both_kinds_are_one_line(tmp_path):
    mixed = {
        "behaviors.Basic.trainer_type": "sac",
        "behaviors.Other.trainer_type": "ppo",
        "cluster_settings.collectors": 2,
    }
    with pytest.raises(UsageError, match=r"Basic\.trainer_type: .*one kind") as caught:
        read_config(None, (), mixed)
    assert "\n" not in str(caught.value)
