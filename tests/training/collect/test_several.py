"""Several collectors in this process: what they bring together, and that runs with them resume."""

import pickle
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.training.practice import make_learner
from tests.training.self_play import duel

from touchline.envs.env import WORLDS, EnvRecipe, World
from touchline.envs.side_by_side import copies_of
from touchline.errors import MissingError, UsageError
from touchline.jobs.job import RestartLimits
from touchline.operating_systems import send_to_self
from touchline.player import build
from touchline.policies.files.checkpoints import read_arrays
from touchline.specs import base_name
from touchline.statistics import StatsAggregationMethod as Method
from touchline.statistics import merged_statistics
from touchline.training.collect.collector import Seat, of_collector
from touchline.training.collect.copies import Policies, weights_of
from touchline.training.collect.opening import worker_setups
from touchline.training.collect.several import Here, SeveralCollectors
from touchline.training.collect.worker import Worker, WorkerSetup
from touchline.training.config.reading import read_config
from touchline.training.experience.trajectories import Trajectories
from touchline.training.run.packing import pack, unpack
from touchline.training.run.stopwatch import Stopwatch
from touchline.training.self_play.lineup import SelfPlay
from touchline.training.trainer import train

RECIPE = EnvRecipe("scene", "3DBall", num_areas=2, seed=3)
NAME = "3DBall?team=0"
CLUSTER = "touchline.training.collect.cluster"


def config_of(tmp_path, collectors, preset="3DBall", run_id="run", **changes):
    block = f"behaviors.{preset.partition('_')[0]}"
    overrides = {
        "checkpoint_settings.results_dir": str(tmp_path),
        "checkpoint_settings.run_id": run_id,
        "env_settings.seed": 3,
        "cluster_settings.collectors": collectors,
        f"{block}.hyperparameters.buffer_size": 240,
        f"{block}.hyperparameters.batch_size": 60,
        f"{block}.max_steps": 960,
    }
    return read_config(
        preset, (), overrides | {k.replace("__", "."): v for k, v in changes.items()}
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
    here = Here(setups, print)
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
    policies = Policies({"3DBall": weights_of(lineup.learner.policy)})
    for setup in setups:
        worker = Worker(setup)
        worker.run([("open", ()), ("reset", (3,))]).outcome.result()
        for number, together in enumerate(rounds):
            call = "collect", (number, {"3DBall": 30}, 1e9)
            answer = worker.run([call], policies)
            answer.outcome.result()
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
    """A watch that sends SIGTERM to this process at its n-th look."""

    def __init__(self, looks):
        self.left = looks

    def __call__(self, progress):
        progress()
        self.left -= 1
        if not self.left:
            send_to_self(signal.SIGTERM)


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
        arrays, expected = (load_file(r.folder / name) for r in (resumed, whole))
        assert_same(expected, arrays)


def test_another_number_of_collectors_may_resume_and_is_said(tmp_path):
    first = train(config_of(tmp_path, 3), RECIPE, watch=StopAt(3))
    assert first.interrupted
    lines = []
    again = config_of(tmp_path, 2, checkpoint_settings__resume=True)
    result = train(again, RECIPE, lines.append)
    assert result.behaviors["3DBall"].steps >= 960
    assert any("had collectors 3, now 2" in line for line in lines)


def lessons_until(threshold):
    """Balls of mass 0.5 until this share of the steps, then of mass 3."""
    criteria = {
        "measure": "progress",
        "behavior": "3DBall",
        "threshold": threshold,
        "min_lesson_length": 1,
    }
    light = {"name": "light", "value": 0.5, "completion_criteria": criteria}
    lessons = [light, {"name": "heavy", "value": 3.0}]
    return {"environment_parameters__mass": {"curriculum": lessons}}


def assert_heavy_in_both(folder):
    arrays, _ = read_arrays(folder / "resume.safetensors")
    for index in range(2):
        masses = [
            array
            for name, array in arrays.items()
            if name.startswith(f"collector/{index}/") and name.endswith("mass")
        ]
        assert masses
        assert all((mass == 3.0).all() for mass in masses)


def test_every_collector_gets_a_new_lesson(tmp_path):
    config = config_of(tmp_path, 2, **lessons_until(0.2))
    assert_heavy_in_both(train(config, RECIPE).folder)


def test_a_lesson_that_is_due_when_a_run_is_resumed_begins_at_once(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(Here, "slice_s", 0.0)
    short = {"behaviors__3DBall__max_steps": 480, **lessons_until(1.0)}
    train(config_of(tmp_path, 2, **short), RECIPE)
    again = {"checkpoint_settings__resume": True, **lessons_until(0.2)}
    result = train(config_of(tmp_path, 2, **again), RECIPE)
    assert result.behaviors["3DBall"].steps >= 960
    assert_heavy_in_both(result.folder)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"cluster": "local:0", "collectors": 2}, r"expected local:N .* got 'local:0'"),
        ({"cluster": "ray://head:10001", "collectors": 2}, r"expected local:N"),
        ({"collectors": 0}, r"collectors"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_one_line(settings, text):
    overrides = {f"cluster_settings.{key}": value for key, value in settings.items()}
    with pytest.raises(UsageError, match=text) as caught:
        read_config("3DBall_official", (), overrides)
    assert "\n" not in str(caught.value)


def test_a_cluster_without_collectors_is_one_line(tmp_path):
    where = {"cluster_settings.cluster": "local:2"}
    where["checkpoint_settings.results_dir"] = str(tmp_path)
    with pytest.raises(UsageError, match=r"--cluster local:2 needs --collectors N"):
        train(read_config("3DBall_official", (), where), RECIPE)
    assert not [path for path in tmp_path.rglob("*") if "lock" not in path.name]


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


TWO_BEHAVIORS = {
    f"behaviors.{name}.{key}": value
    for name, steps in (("BigWallJump", 600), ("SmallWallJump", 900))
    for key, value in (
        ("hyperparameters.buffer_size", 200),
        ("hyperparameters.batch_size", 100),
        ("network_settings.hidden_units", 8),
        ("max_steps", steps),
    )
}


@pytest.mark.parametrize("threaded", [False, True])
def test_experience_that_waits_for_an_update_survives_resuming(
    tmp_path, monkeypatch, threaded
):
    """A round ends when one behavior has enough; what the other has waits for its own update."""
    monkeypatch.setattr(Here, "slice_s", 0.0)
    recipe = EnvRecipe("scene", "WallJump", num_areas=4, seed=3)

    def config(run_id, **settings):
        changes = TWO_BEHAVIORS | {
            "behaviors.*.threaded": threaded,
            "checkpoint_settings.results_dir": str(tmp_path),
            "checkpoint_settings.run_id": run_id,
            "env_settings.seed": 3,
            "cluster_settings.collectors": 2,
            "evaluation.episodes": 0,
        }
        return read_config("WallJump", (), changes | settings)

    whole = train(config("whole"), recipe)
    stopped = train(config("run"), recipe, watch=StopAt(120))
    assert stopped.interrupted
    halfway, _ = read_arrays(stopped.folder / "resume.safetensors")
    assert any("pending.0.obs.0" in name for name in halfway)
    checkpoints = stopped.folder.glob("*/checkpoint.safetensors")
    assert not any("pending." in name for c in checkpoints for name in load_file(c))
    resumed = train(config("run", **{"checkpoint_settings.resume": True}), recipe)
    arrays, expected = (
        load_file(r.folder / "resume.safetensors") for r in (resumed, whole)
    )
    assert_same(expected, arrays)


class GamesLineup:
    """A lineup with self-play, of learners that do not learn."""

    def __init__(self, **self_play):
        self.self_play, self.learners = SelfPlay(3), {}
        self.settings = duel.config(**self_play)

    def seat(self, behavior, spec):
        base = base_name(behavior)
        if base not in self.learners:
            learner = make_learner(spec, self.settings, name=base)
            self.learners[base] = learner
            own = self.settings.self_play
            self.self_play.enroll(base, spec, own, learner.policy, 0)
        policy = self.self_play.seating.policy(behavior, self.learners[base].policy)
        return Seat(policy, self.learners[base].generator)

    def roster(self, behaviors):
        return self.self_play.roster(behaviors)

    def record_games(self, *reports):
        self.self_play.record(*reports)


def duel_setups(target="Duel"):
    recipe = EnvRecipe("duel", target, num_areas=4, seed=3)
    recipes = copies_of(recipe, 2)
    limits = RestartLimits()
    return [
        WorkerSetup(i, (recipes[i],), limits, 3, i, 2, self_play=True) for i in range(2)
    ]


@pytest.fixture
def two_duels(monkeypatch):
    world = World("tests.training.self_play.duel:open_duel")
    monkeypatch.setitem(WORLDS, "duel", world)
    here = Here(duel_setups(), print)
    here.open()
    yield here
    here.close()


def rounds_of(here, lineup, count, wanted=120):
    """Collections of whole rounds; the pool takes a snapshot after each."""
    collector = SeveralCollectors(here, print, lineup, Stopwatch())
    collector.reset(3)
    found = []
    while len(found) < count:
        collection = collector.collect({"Duel": wanted})
        if collection.trajectories:
            found.append(collection)
            lineup.self_play.pools["Duel"].learned(1000 * len(found), is_done=False)
    return found


def test_an_opponent_on_collectors_stays_for_a_whole_game(two_duels):
    rounds = rounds_of(two_duels, GamesLineup(play_against_latest_model_ratio=0.3), 6)
    guests = 0
    for name in rounds[0].trajectories:
        begins = np.concatenate([r.trajectories[name].begins for r in rounds])
        is_own = np.concatenate([r.trajectories[name].acted for r in rounds])
        changes = is_own[1:] != is_own[:-1]
        assert not (changes & ~begins[1:]).any(), name
        guests += np.count_nonzero(~is_own)
    assert guests > 100


def test_every_game_of_collectors_is_counted_once(two_duels):
    lineup = GamesLineup(play_against_latest_model_ratio=0.0)
    rounds = rounds_of(two_duels, lineup, 4)
    # One side of every game is the latest policy, whose two members' episodes are recorded.
    episodes = sum(len(e.returns) for r in rounds for e in r.episodes.values())
    ratings = lineup.self_play.ratings
    assert ratings.games.sum() / 2 == episodes / 2 > 20
    # Snapshots of earlier rounds have played, too.
    assert np.count_nonzero(ratings.games.sum(axis=1)) > 2
    assert lineup.self_play.pools["Duel"].opponent_steps > 100


def test_opponents_that_left_the_pool_and_play_nowhere_are_released(two_duels):
    lineup = GamesLineup(save_steps=10, window=2, play_against_latest_model_ratio=0.0)
    rounds_of(two_duels, lineup, 12, wanted=30)
    pool = lineup.self_play.pools["Duel"]
    assert len(pool.guests) <= 2 + len(pool.drawn) + 8


def test_a_collector_in_a_world_of_one_team_is_one_line(monkeypatch):
    world = World("tests.training.self_play.duel:open_duel")
    monkeypatch.setitem(WORLDS, "duel", world)
    here = Here(duel_setups("Solo"), print)
    here.open()
    with pytest.raises(UsageError, match=r"self_play: all agents .* on one team"):
        rounds_of(here, GamesLineup(), 1)
    here.close()


SOCCER = {
    "preset": "SoccerTwos",
    "behaviors__SoccerTwos__max_steps": 2000,
    "behaviors__SoccerTwos__hyperparameters__buffer_size": 400,
    "behaviors__SoccerTwos__hyperparameters__batch_size": 100,
    "behaviors__SoccerTwos__network_settings__hidden_units": 8,
    "behaviors__SoccerTwos__self_play__save_steps": 500,
    "behaviors__SoccerTwos__self_play__swap_steps": 100,
    "behaviors__SoccerTwos__self_play__versus": ["random"],
    "env_settings__num_areas": 2,
}


def test_self_play_on_collectors_resumes_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(Here, "slice_s", 0.0)
    recipe = EnvRecipe("scene", "SoccerTwos", num_areas=2, seed=3)
    whole = train(config_of(tmp_path, 2, run_id="whole", **SOCCER), recipe)
    stopped = train(config_of(tmp_path, 2, **SOCCER), recipe, watch=StopAt(150))
    assert stopped.interrupted
    again = {"checkpoint_settings__resume": True, **SOCCER}
    resumed = train(config_of(tmp_path, 2, **again), recipe)
    found, expected = (
        read_arrays(r.folder / "resume.safetensors") for r in (resumed, whole)
    )
    assert_same(expected[0], found[0])
    assert found[1]["self_play"] == expected[1]["self_play"]
    assert any("/seating/player/" in name for name in expected[0])


def test_an_answer_holds_little_beside_the_experience(tmp_path):
    config = config_of(tmp_path, 2, "GridWorld")
    setup = worker_setups(EnvRecipe("scene", "GridWorld", seed=3), config)[0]
    worker = Worker(setup)
    worker.run([("open", ()), ("reset", (3,))]).outcome.result()
    lineup = GridLineup(config)
    seat = lineup.seat("GridWorld", worker.run([("set_parameters", ({},))]))
    # As many results as the preset's buffer gives each of two collectors.
    call = "collect", (1, {"GridWorld": 128}, 1e9)
    answer = worker.run([call], Policies({"GridWorld": weights_of(seat)}))
    answer.outcome.result()
    worker.run([("close", ())])
    experience = sum(
        array.nbytes for t in answer.trajectories.values() for array in t.values()
    )
    assert len(pickle.dumps(answer, protocol=5)) <= 1.1 * experience


def test_a_latest_value_that_only_a_later_collector_has_is_left_out():
    total, latest = Method.SUM, Method.MOST_RECENT
    first = {"sum": [(1.0, total)], "both": [(1.0, latest)]}
    later = {"sum": [(2.0, total)], "both": [(2.0, latest)], "later": [(2.0, latest)]}
    assert merged_statistics([first, later]) == {
        "sum": [(1.0, total), (2.0, total)],
        "both": [(1.0, latest)],
    }


class GridLineup:
    """The untrained policy of a worker's behavior."""

    def __init__(self, config):
        self.config = config

    def seat(self, behavior, answer):
        (spec,) = answer.shown.behaviors.values()
        learner = make_learner(spec, self.config.behaviors[behavior], name=behavior)
        return learner.policy


@pytest.mark.skipif(sys.platform == "win32", reason="the player is a shell script")
def test_a_player_killed_while_its_replaced_collector_starts_is_started_again(tmp_path):
    game = build("Basic", tmp_path, num_areas=2)
    first, other = tmp_path / "first", tmp_path / "dies_at_first.x86_64"
    other.write_text(
        f'#!/bin/sh\nif [ ! -e {first} ]; then touch {first}; kill -9 $$; fi\nexec {game} "$@"\n'
    )
    other.chmod(0o755)
    recipe = EnvRecipe.parse(str(other), seed=3)
    setup = WorkerSetup(0, (recipe,), RestartLimits(), 3, 0, 1)
    answer = Worker(setup).run([("open", ())])
    assert answer.outcome.failure, "at a run's beginning it is a bad player"
    assert "SIGKILL before it connected" in answer.outcome.failure
    first.unlink()
    worker = Worker(replace(setup, replacements=1))
    answer = worker.run([("open", ()), ("reset", (3,))])
    worker.run([("close", ())])
    assert not answer.outcome.failure
    assert answer.shown is not None
    assert list(answer.shown.behaviors) == ["Basic?team=0"]
    (line,) = answer.lines
    assert "its player failed and is restarted before it began (restart 1)" in line
