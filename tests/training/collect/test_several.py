"""Several collectors in this process: what they bring together, and that runs with them resume."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from tests.training.practice import make_learner

from touchline.envs.env import EnvRecipe
from touchline.errors import MissingError, UsageError
from touchline.policies.files.checkpoints import read_arrays
from touchline.training.collect.collector import Seat, of_collector
from touchline.training.collect.opening import worker_setups
from touchline.training.collect.several import Here, SeveralCollectors
from touchline.training.collect.weights import weights_of
from touchline.training.collect.worker import Worker
from touchline.training.config.reading import read_config
from touchline.training.experience.trajectories import Trajectories
from touchline.training.run.packing import pack, unpack
from touchline.training.run.stopwatch import Stopwatch
from touchline.training.trainer import train

RECIPE = EnvRecipe("scene", "3DBall", num_areas=2, seed=3)
NAME = "3DBall?team=0"
CLUSTER = "touchline.training.collect.cluster"


def config_of(tmp_path, collectors, scene="3DBall", run_id="run", **changes):
    overrides = {
        "checkpoint_settings.results_dir": str(tmp_path),
        "checkpoint_settings.run_id": run_id,
        "env_settings.seed": 3,
        "cluster_settings.collectors": collectors,
        f"behaviors.{scene}.hyperparameters.buffer_size": 240,
        f"behaviors.{scene}.hyperparameters.batch_size": 60,
        f"behaviors.{scene}.max_steps": 960,
    }
    return read_config(
        scene, (), overrides | {k.replace("__", "."): v for k, v in changes.items()}
    )


class Lineup:
    """A lineup of one policy, made when its behavior is first shown."""

    def __init__(self, config):
        self.config, self.learner = config, None

    def seat(self, behavior, spec):
        if self.learner is None:
            behavior_config = self.config.behaviors["3DBall"]
            self.learner = make_learner(spec, behavior_config, name="3DBall")
        return Seat(self.learner.policy, self.learner.generator)


@pytest.fixture
def collecting(tmp_path):
    """Three collectors, their setups and their lineup."""
    config = config_of(tmp_path, 3)
    setups = worker_setups(RECIPE, config)
    here = Here(setups)
    here.open()
    lineup = Lineup(config)
    collector = SeveralCollectors(here, print, lineup, Stopwatch())
    collector.reset(3)
    yield collector, setups, lineup
    here.close()


def whole_round(collector, wanted):
    while True:
        collection = collector.collect({"3DBall": wanted})
        if collection.trajectories:
            return collection


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert np.array_equal(array, second[name]), name


def test_a_round_has_what_each_collector_brings_alone(collecting):
    collector, setups, lineup = collecting
    rounds = [whole_round(collector, 90) for _ in range(2)]
    policies = {"3DBall": weights_of(lineup.learner.policy)}
    for setup in setups:
        worker = Worker(setup)
        worker.run([("open", ()), ("reset", (3,))]).check()
        for number, together in enumerate(rounds):
            call = "collect", (number, {"3DBall": 30}, 1e9)
            answer = worker.run([call], policies)
            answer.check()
            (alone,) = unpack(answer.trajectories[NAME], Trajectories)
            theirs = together.trajectories[of_collector(NAME, setup.index)]
            assert (theirs.env_index == setup.index).all()
            theirs.env_index[:] = 0  # alone, the world is the first
            assert_same(pack([alone]), pack([theirs]))
        worker.run([("close", ())])


def test_collectors_have_different_worlds_and_noise(collecting):
    collector, *_ = collecting
    found = list(whole_round(collector, 90).trajectories.values())
    assert len(found) == 3
    assert not np.array_equal(found[0].obs[0], found[1].obs[0])
    assert not np.array_equal(found[1].continuous[0], found[2].continuous[0])


def test_the_length_of_a_slice_changes_nothing(tmp_path, monkeypatch):
    checkpoints = []
    for run_id, slice_s in (("short", 0.0), ("long", 1e9)):
        monkeypatch.setattr(Here, "slice_s", slice_s)
        folder = train(config_of(tmp_path, 3, run_id=run_id), RECIPE).folder
        checkpoints.append((folder / "3DBall/checkpoint.safetensors").read_bytes())
    assert checkpoints[0] == checkpoints[1]


def test_another_number_of_collectors_is_another_run(tmp_path):
    checkpoints = []
    for collectors in (2, 3):
        config = config_of(tmp_path, collectors, run_id=f"{collectors}")
        folder = train(config, RECIPE).folder
        checkpoints.append((folder / "3DBall/checkpoint.safetensors").read_bytes())
    assert checkpoints[0] != checkpoints[1]


class StopAt:
    """A watch that sends SIGTERM at its n-th look."""

    def __init__(self, looks):
        self.left = looks

    def __call__(self, progress):
        progress()
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("memory", [False, True])
def test_a_run_that_stops_amid_a_round_resumes_bit_for_bit(
    tmp_path, monkeypatch, memory
):
    monkeypatch.setattr(Here, "slice_s", 0.0)
    changes = {}
    if memory:
        block = "behaviors__3DBall__network_settings__memory"
        changes = {f"{block}__memory_size": 8, f"{block}__sequence_length": 8}
    whole = train(config_of(tmp_path, 3, run_id="whole", **changes), RECIPE)
    config = config_of(tmp_path, 3, **changes)
    stopped = train(config, RECIPE, watch=StopAt(70))
    assert stopped.interrupted
    steps = stopped.behaviors["3DBall"].steps
    assert 0 < steps < 960
    again = {"checkpoint_settings__resume": True, **changes}
    resumed = train(config_of(tmp_path, 3, **again), RECIPE)
    for name in ("3DBall/checkpoint.safetensors", "resume.safetensors"):
        arrays, expected = (read_arrays(r.folder / name)[0] for r in (resumed, whole))
        assert_same(expected, arrays)


def test_another_number_of_collectors_may_resume_and_is_said(tmp_path):
    first = train(config_of(tmp_path, 3), RECIPE, watch=StopAt(3))
    assert first.interrupted
    lines = []
    again = config_of(tmp_path, 2, checkpoint_settings__resume=True)
    result = train(again, RECIPE, lines.append)
    assert result.behaviors["3DBall"].steps >= 960
    assert any("had collectors 3, now 2" in line for line in lines)


def test_every_collector_gets_a_new_lesson(tmp_path):
    lessons = [
        {
            "name": "light",
            "value": 0.5,
            "completion_criteria": {
                "measure": "progress",
                "behavior": "3DBall",
                "threshold": 0.2,
                "min_lesson_length": 1,
            },
        },
        {"name": "heavy", "value": 3.0},
    ]
    config = config_of(
        tmp_path, 2, environment_parameters__mass={"curriculum": lessons}
    )
    folder = train(config, RECIPE).folder
    arrays, _ = read_arrays(folder / "resume.safetensors")
    for index in range(2):
        masses = [
            array
            for name, array in arrays.items()
            if name.startswith(f"collector/{index}/") and name.endswith("mass")
        ]
        assert masses
        assert all((mass == 3.0).all() for mass in masses)


@pytest.mark.parametrize(
    ("scene", "key"),
    [("SoccerTwos", "self_play"), ("3DBall_sac", "trainer_type")],
)
def test_what_collectors_cannot_do_is_one_line(tmp_path, scene, key):
    with pytest.raises(UsageError, match=rf"{scene}\.yaml.*{key}.*--collectors"):
        read_config(scene, (), {"cluster_settings.collectors": 2})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"cluster": "local:2"}, r"needs --collectors N"),
        ({"cluster": "local:0", "collectors": 2}, r"expected local:N .* got 'local:0'"),
        ({"cluster": "ray://head:10001", "collectors": 2}, r"expected local:N"),
        ({"collectors": 0}, r"collectors"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_one_line(settings, text):
    overrides = {f"cluster_settings.{key}": value for key, value in settings.items()}
    with pytest.raises(UsageError, match=text) as caught:
        read_config("3DBall", (), overrides)
    assert "\n" not in str(caught.value)


def test_a_cluster_without_ray_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, CLUSTER, raising=False)
    config = config_of(tmp_path, 2, cluster_settings__cluster="local:2")
    with pytest.raises(MissingError, match=r"ray.*pip install 'touchline\[ray\]'"):
        train(config, RECIPE)
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file()]


def test_training_in_this_process_does_not_load_ray():
    code = "import sys, touchline.training.trainer; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_learning_beside_collectors_resumes_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(Here, "slice_s", 0.0)
    changes = {"behaviors__3DBall__threaded": True}
    whole = train(config_of(tmp_path, 2, run_id="whole", **changes), RECIPE)
    stopped = train(config_of(tmp_path, 2, **changes), RECIPE, watch=StopAt(150))
    assert stopped.interrupted
    again = {"checkpoint_settings__resume": True, **changes}
    resumed = train(config_of(tmp_path, 2, **again), RECIPE)
    arrays, expected = (
        read_arrays(r.folder / "resume.safetensors")[0] for r in (resumed, whole)
    )
    assert_same(expected, arrays)
