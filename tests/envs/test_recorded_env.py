"""Recordings from Unity as worlds: they replay, and mean what their headers say."""

import re

import numpy as np
import pytest

from touchline.cli import run
from touchline.envs.env import Drawable, EnvRecipe, Stateful, make
from touchline.envs.recorded_env import RecordedEnv, RecordingEndedError
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.protocol.recording import describe_behaviors
from touchline.protocol.session import Command


def recordings(shared):
    return sorted((shared / "wire-recordings").glob("*.wire.gz"))


def test_every_recording_replays_and_shows_its_headers_behaviors(shared):
    for path in recordings(shared):
        with make(str(path)) as env:
            exchanges = sum(1 for _ in env.replay())
            assert describe_behaviors(env.behaviors) == env.header["behaviors"], path
            # frames are pairs; two belong to the handshake, one request to nothing when the session
            # ended in it
            assert exchanges == env.header["frames"] // 2 - 2, path


def test_stepping_shows_what_replay_shows_and_stops_at_resets_and_at_the_end(shared):
    path = shared / "wire-recordings" / "Basic-package-3.0.0.wire.gz"
    with RecordedEnv(path) as env:
        replayed = [
            exchange["Basic?team=0"][0].agent_id.tolist() for exchange in env.replay()
        ]
        env.reset(seed=0)
        stepped = [env.steps("Basic?team=0")[0].agent_id.tolist()]
        while (due := env.next_command) is not None:
            if due is Command.RESET:
                with pytest.raises(
                    UsageError,
                    match=r"holds \d+ episodes? in \d+ exchanges, and then the",
                ):
                    env.step()
                env.reset()
            else:
                env.step()
            stepped.append(env.steps("Basic?team=0")[0].agent_id.tolist())
        assert stepped == replayed
        with pytest.raises(RecordingEndedError, match=r"reset\(\) starts again"):
            env.step()
        env.reset()
        assert env.steps("Basic?team=0")[0].agent_id.tolist() == replayed[0]


def test_3dball_pays_what_the_game_pays_in_every_package(shared):
    """0.1 for each decision with the ball up, -1 at its fall: ML-Agents' Ball3DAgent.cs."""
    for path in recordings(shared):
        if path.name.startswith("3DBall"):
            with RecordedEnv(path) as env:
                pairs = [exchange["3DBall?team=0"] for exchange in env.replay()]
            kept = np.concatenate([d.reward for d, _ in pairs])
            ended = np.concatenate([t.reward for _, t in pairs])
            assert set(np.round(kept, 4)) <= {np.float32(0), np.float32(0.1)}
            assert set(np.round(ended, 4)) == {np.float32(-1)}


def test_the_zoos_images_change_axes_between_packages(shared):
    shapes = {}
    for package in ("2.3.0", "3.0.0"):
        with RecordedEnv(
            shared / "wire-recordings" / f"Zoo-package-{package}.wire.gz"
        ) as env:
            env.reset()
            image = env.steps("Zoo?team=0")[0].obs[2]
            shapes[package] = image.shape[1:]
            # Constant grey: the engine had no renderer.
            assert image.min() == image.max() > 0
    assert shapes == {"2.3.0": (16, 20, 3), "3.0.0": (3, 16, 20)}


def test_recorded_actions_are_those_that_were_sent(shared):
    with RecordedEnv(
        shared / "wire-recordings" / "3DBall-package-1.0.0.wire.gz"
    ) as env:
        env.reset()
        sent = env.recorded_actions("3DBall?team=0").continuous
        np.testing.assert_allclose(sent[0], [-0.165955991, 0.440648973])


def test_slots_hold_over_a_recorded_session(shared):
    for path in recordings(shared):
        with RecordedEnv(path) as env:
            slots = Slots(env)
            rows = slots.reset()
            for _ in range(25):
                rows = slots.step(
                    {
                        n: s.action_spec.empty_action(len(rows[n]))
                        for n, s in slots.behaviors.items()
                    }
                )
            assert any(row.deciding.any() for row in rows.values())


def test_what_a_recording_cannot_do_it_refuses(shared):
    path = str(recordings(shared)[0])
    with make(path) as env:
        assert not isinstance(env, Stateful | Drawable)
        assert env.capacity("3DBall?team=0") is None
        with pytest.raises(UsageError):
            env.steps("3DBall?team=0")
    with pytest.raises(UsageError, match="unknown option 'speed'"):
        make(EnvRecipe("recording", path, options={"speed": 2}))
    for given in ({"num_areas": 4}, {"parameters": {"gravity": -5.0}}):
        with pytest.raises(UsageError, match="leave --num-areas and --parameter away"):
            make(EnvRecipe("recording", path, **given))


def test_more_episodes_than_a_recording_holds_are_refused_with_their_number(
    shared, capsys
):
    path = str(shared / "wire-recordings" / "Basic-package-3.0.0.wire.gz")
    call = ["eval", path, "--policy", "random"]
    run([*call, "--episodes", "100000"])
    held = re.search(r"the recording holds (\d+) episodes", capsys.readouterr().err)
    assert run([*call, "--episodes", held[1]]) == 0
    assert run([*call, "--episodes", str(int(held[1]) + 1)]) != 0
