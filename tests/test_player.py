"""A scene as a player: what comes over the wire is what the scene does in process, bit for bit."""

import subprocess

import numpy as np
import pytest

from touchline.envs.env import EnvRecipe, make
from touchline.envs.unity_env import UnityEnvironment
from touchline.errors import UsageError
from touchline.operating_systems import Launcher
from touchline.player import build, executed, main
from touchline.protocol.errors import PlayerExitedError
from touchline.protocol.recording import REQUEST, read_frames
from touchline.protocol.session import parse_message
from touchline.protocol.side_channels import EnvironmentParametersChannel
from touchline.scenes import SCENES, scene_class
from touchline.specs import ActionSpec, ActionTuple
from touchline.statistics import StatsAggregationMethod
from touchline.testing import allowed_actions, check_env


@pytest.fixture(scope="session")
def builds(tmp_path_factory):
    return tmp_path_factory.mktemp("builds")


def assert_same_exchanges(scene, builds, exchanges, num_areas=None, parameters=None):
    """Step a scene in process and as a player with the same actions; every array must agree in
    every bit.
    """
    path = build(scene, builds)
    rng = np.random.default_rng(1)
    parameters = parameters or {}
    with (
        make(EnvRecipe("scene", scene, num_areas, 5, parameters)) as here,
        make(
            EnvRecipe(
                "unity", str(path), num_areas, 5, parameters, {"timeout_wait": 30}
            )
        ) as there,
    ):
        here.reset()
        there.reset()
        for number in range(exchanges):
            for name, spec in here.behaviors.items():
                pairs = zip(
                    here.steps(name), _steps(there, name, here.steps(name)), strict=True
                )
                for left, right in pairs:
                    assert_same_bits(left, right, (scene, number, name))
                decisions = here.steps(name)[0]
                if len(decisions):
                    actions = allowed_actions(
                        spec.action_spec, decisions, rng, extent=1.5
                    )
                    here.set_actions(name, actions)
                    there.set_actions(name, actions)
            here.step()
            there.step()
        shown = dict(there.behaviors)
        assert shown == {
            name: spec for name, spec in here.behaviors.items() if name in shown
        }
        assert there.package_version == "3.0.0"


def _steps(env, name, otherwise):
    """A behavior without agents so far is unknown on the other end of the wire."""
    if name not in env.behaviors:
        assert not any(map(len, otherwise))
        return otherwise
    return env.steps(name)


def assert_same_bits(left, right, where):
    for key in ("reward", "agent_id", "group_id", "group_reward", "interrupted"):
        if hasattr(left, key):
            a, b = getattr(left, key), getattr(right, key)
            assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes()), (*where, key)
    for sensor, (a, b) in enumerate(zip(left.obs, right.obs, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), (*where, sensor)
        assert a.tobytes() == b.tobytes(), (*where, sensor)
    for a, b in zip(
        getattr(left, "action_mask", None) or (),
        getattr(right, "action_mask", None) or (),
        strict=False,
    ):
        np.testing.assert_array_equal(a, b, str(where))


@pytest.mark.parametrize("scene", SCENES)
def test_a_player_plays_its_scene_bit_for_bit(scene, builds):
    assert_same_exchanges(scene, builds, 60, num_areas=2)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_a_player_plays_its_scene_bit_for_bit_for_a_thousand_exchanges(scene, builds):
    assert_same_exchanges(scene, builds, 1000)


def test_parameters_arrive(builds):
    assert_same_exchanges("3DBall", builds, 30, 3, {"gravity": 4.0, "scale": 1.5})


def test_parameters_that_depend_on_each_other_arrive_in_any_order(builds):
    parameters = {"numPlusGoals": 30.0, "gridSize": 8.0}
    assert_same_exchanges("GridWorld", builds, 3, 2, parameters)


@pytest.mark.slow
def test_a_player_keeps_the_contract_of_an_env(builds):
    check_env(EnvRecipe("unity", str(build("3DBall", builds)), 2), 60)


def test_num_areas_of_one_means_the_scenes_own_number(builds):
    for requested, expected in ((None, scene_class("3DBall").unity_areas), (5, 5)):
        with make(EnvRecipe("unity", str(build("3DBall", builds)), requested)) as env:
            env.reset()
            assert len(env.steps("3DBall?team=0")[0]) == expected


def test_the_statistics_of_a_scene_arrive(builds):
    """Agents that run ahead come to a goal sooner or later."""
    with make(EnvRecipe("unity", str(build("Hallway", builds)), 16, seed=1)) as env:
        env.reset()
        (name,) = env.behaviors
        arrived, ended = {}, 0
        for step in range(250):
            ahead = np.full(
                (len(env.steps(name)[0]), 1), 1 if step % 7 else 3, np.int32
            )
            env.set_actions(
                name, ActionTuple(np.zeros((len(ahead), 0), np.float32), ahead)
            )
            env.step()
            ended += len(env.steps(name)[1])
            for key, values in env.take_statistics().items():
                assert {method for _, method in values} == {StatsAggregationMethod.SUM}
                arrived[key] = arrived.get(key, 0) + sum(value for value, _ in values)
    assert ended > 0
    assert set(arrived) == {"Goal/Correct", "Goal/Wrong"}
    assert sum(arrived.values()) == ended


def test_any_action_is_executed():
    spec = ActionSpec(2, (3,))
    done = executed(
        spec, ActionTuple(np.array([[np.nan, 9.0], [np.inf, 0]]), np.array([[-1], [7]]))
    )
    assert done.continuous[0].tolist() == [0, 9]
    assert np.isfinite(done.continuous).all()
    assert done.discrete.tolist() == [[0], [0]]


def test_build_refuses_an_unknown_scene_and_a_folder_it_cannot_write(tmp_path):
    with pytest.raises(UsageError, match="did you mean '3DBall'"):
        build("3DBal", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the player"):
        build("3DBall", tmp_path / "file")


def test_build_refuses_a_player_without_areas(tmp_path):
    with pytest.raises(UsageError, match="num_areas must be 1 or more, got 0"):
        build("Basic", tmp_path, num_areas=0)
    assert list(tmp_path.iterdir()) == []


def test_a_player_takes_every_seed_that_a_message_has_room_for(builds):
    with UnityEnvironment(build("Basic", builds), seed=-5) as env:
        env.reset()
        assert len(env.behaviors) == 1


def test_a_player_that_cannot_load_its_scene_says_goodbye_and_why(tmp_path):
    """Official Python waits without a limit for what comes after its welcome."""
    path = Launcher("", "touchline.player", ["Basic", "--num-areas", "0"], []).write(
        tmp_path, "Basic"
    )
    recording = tmp_path / "session.wire.gz"
    reason = "exited with code 2 while it loaded its scene(.|\n)*num_areas must be 1"
    with pytest.raises(PlayerExitedError, match=reason):
        UnityEnvironment(path, record_wire=recording)
    messages = [message for kind, message in read_frames(recording) if kind == REQUEST]
    assert parse_message(messages[-1]).header.status == 400


def test_a_sampler_that_nothing_can_be_drawn_from_is_ignored(builds, tmp_path):
    channel = EnvironmentParametersChannel()
    channel.set_uniform_sampler_parameters("gravity", 5.0, 1.0, 3)
    path = build("3DBall", builds)
    with UnityEnvironment(path, side_channels=[channel], log_folder=tmp_path) as env:
        env.reset()
        env.step()
    log = (tmp_path / "Player-0.log").read_text(encoding="utf-8")
    assert "a parameter is ignored: uniform sampler: expected low <= high" in log


def test_a_player_without_a_port_exits_with_a_usage_error(capsys):
    assert main(["3DBall", "-batchmode", "-nographics"]) == 2
    assert "no --mlagents-port" in capsys.readouterr().err


def test_a_player_whose_log_cannot_be_written_plays_without_one(builds, tmp_path):
    path = build("Basic", builds)
    arguments = ["--mlagents-port", "1", "-logFile", tmp_path / "missing" / "log"]
    done = subprocess.run(
        [path, *arguments], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0
    assert "there is no log: " in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_player_whose_python_is_gone_leaves_quietly(builds, tmp_path):
    path = build("Basic", builds)
    done = subprocess.run(
        [
            path,
            "-nographics",
            "-batchmode",
            "--mlagents-port",
            "1",
            "-logFile",
            tmp_path / "log",
            "--other",
            "x",
        ],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "connecting to port 1" in (tmp_path / "log").read_text(encoding="utf-8")
