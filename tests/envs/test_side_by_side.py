"""Several worlds for one learner: side by side, and one that fails alone."""

import os
import signal
import sys
import threading
import time

import numpy as np
import psutil
import pytest
from tests.envs.scripted_player import written

from touchline.envs.env import EnvRecipe, make
from touchline.envs.side_by_side import SideBySide, copies_of
from touchline.envs.slots import Slots
from touchline.errors import NonFiniteError, RunError, UsageError
from touchline.jobs.job import RestartLimits
from touchline.player import build
from touchline.protocol.errors import PlayerExitedError
from touchline.specs import ActionTuple
from touchline.statistics import StatsAggregationMethod as Method
from touchline.testing import random_slot_actions

RECIPE = EnvRecipe("scene", "3DBall", 2, seed=5, options={"num_threads": 1})
NAME = "3DBall?team=0"


def actions_for(slots, rows, rng):
    return {
        name: random_slot_actions(slots.behaviors[name], row, rng)
        for name, row in rows.items()
    }


def play(slots, rows, steps):
    for _ in range(steps):
        rows = slots.step(actions_for(slots, rows, np.random.default_rng(0)))


class Failing:
    """A world that raises at a given step, once."""

    def __init__(self, env, at, error):
        self._env, self._left, self._error = env, at, error

    def __getattr__(self, name):
        return getattr(self._env, name)

    def step(self):
        self._left -= 1
        if self._left == 0:
            raise self._error
        self._env.step()


def failing_once(index, at, error):
    """Opens worlds of which number `index` fails at its `at`-th exchange, and no restarted one."""
    opened = []

    def open_world(recipe):
        opened.append(recipe.seed)
        env = make(recipe)
        return Failing(env, at, error) if recipe.seed == RECIPE.seed + index else env

    return open_world, opened


def test_many_worlds_are_each_world_alone_side_by_side():
    rng = np.random.default_rng(0)
    with SideBySide(copies_of(RECIPE, 3)) as many:
        rows = many.reset(5)
        alone = []
        for i in range(3):
            slots = Slots(make(RECIPE), env_index=i)
            alone.append((slots, slots.reset(5 + i)))
        assert many.capacity(NAME) == 6
        for _ in range(80):
            assert rows[NAME].env_index.tolist() == [0, 0, 1, 1, 2, 2]
            actions = actions_for(many, rows, rng)
            for i, (slots, own) in enumerate(alone):
                np.testing.assert_array_equal(
                    rows[NAME].obs[0][2 * i : 2 * i + 2], own[NAME].obs[0]
                )
                np.testing.assert_array_equal(
                    rows[NAME].reward[2 * i : 2 * i + 2], own[NAME].reward
                )
                part = slice(2 * i, 2 * i + 2)
                alone[i] = (
                    slots,
                    slots.step(
                        {NAME: type(actions[NAME])(actions[NAME].continuous[part])}
                    ),
                )
            rows = many.step(actions)
        assert many.counts[NAME].ends == sum(
            slots.counts[NAME].ends for slots, _ in alone
        )


def test_worlds_and_tables_are_put_back_together():
    with (
        SideBySide(copies_of(RECIPE, 2)) as many,
        SideBySide(copies_of(RECIPE, 2)) as again,
    ):
        rows = many.reset(5)
        play(many, rows, 10)
        state = many.state()
        actions = actions_for(many, rows, np.random.default_rng(1))
        later = many.step(actions)
        again.load_state(state)
        np.testing.assert_array_equal(
            again.step(actions)[NAME].obs[0], later[NAME].obs[0]
        )


def test_the_latest_value_is_the_first_worlds_and_other_figures_are_all_worlds():
    def open_world(recipe):
        env, value = make(recipe), float(recipe.seed)
        reported = {"both": [(value, Method.MOST_RECENT)], "sum": [(value, Method.SUM)]}
        if recipe.seed == 6:
            reported["second"] = [(value, Method.MOST_RECENT)]
        env.take_statistics = lambda: reported
        return env

    with SideBySide(copies_of(RECIPE, 2), open_world=open_world) as many:
        assert many.take_statistics() == {
            "both": [(5.0, Method.MOST_RECENT)],
            "sum": [(5.0, Method.SUM), (6.0, Method.SUM)],
        }


def test_a_world_that_fails_is_replaced_and_only_its_lives_are_cut():
    said = []
    open_world, opened = failing_once(1, 10, PlayerExitedError("boom", 1))
    rng = np.random.default_rng(0)
    with SideBySide(
        copies_of(RECIPE, 3), RestartLimits(), log=said.append, open_world=open_world
    ) as many:
        rows = many.reset(5)
        for step in range(1, 15):
            rows = many.step(actions_for(many, rows, rng))
            row = rows[NAME]
            cut = row.truncated.tolist()
            assert cut == (
                [False, False, True, True, False, False] if step == 10 else [False] * 6
            ), step
            if step == 10:
                assert row.closed.all()
                assert row.begins.tolist() == cut
                assert row.reward[2:4].tolist() == [0, 0]
                assert sorted(row.final_slot.tolist()) == [2, 3]
                assert row.deciding.all()
    assert sorted(opened[:3]) == [5, 6, 7], "side by side, in any order"
    assert opened[3:] == [9]
    assert len(said) == 1
    assert (
        "world 1 failed and is restarted (restart 1); its 2 open episodes are cut"
        in said[0]
    )


def test_a_world_that_fails_in_a_reset_shows_no_end_of_an_episode_twice():
    class FailsInReset(Failing):
        def reset(self, seed=None):
            if self._left < 0:
                raise self._error
            self._left = -self._left
            self._env.reset(seed)

        def step(self):
            self._env.step()

    def open_world(recipe):
        env = make(recipe)
        error = PlayerExitedError("boom", 1)
        return FailsInReset(env, 1, error) if recipe.seed == RECIPE.seed else env

    rng = np.random.default_rng(0)
    with SideBySide([RECIPE], RestartLimits(), open_world=open_world) as worlds:
        row = worlds.reset(5)[NAME]
        while not len(row.final_slot):
            row = worlds.step(actions_for(worlds, {NAME: row}, rng))[NAME]
        after = worlds.reset()[NAME]
    assert row.terminated.any()
    assert not after.terminated.any()
    # The episodes that ran when the world was lost, each once.
    assert sorted(after.final_slot.tolist()) == [0, 1]
    assert after.reward.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (
            RestartLimits(lifetime=0),
            "world 0 failed again after 0 restarts.*max_lifetime_restarts.*boom",
        ),
        (
            RestartLimits(rate=0),
            r"more than 0 times within 60 s \(restarts_rate_limit_n.*boom",
        ),
    ],
)
def test_limits_end_the_run_with_the_cause(limits, text):
    open_world, _ = failing_once(0, 2, PlayerExitedError("boom", 1))
    with SideBySide(copies_of(RECIPE, 2), limits, open_world=open_world) as many:
        rows = many.reset(5)
        with pytest.raises(RunError, match=text):
            play(many, rows, 5)


def test_where_one_world_refuses_its_actions_no_world_has_moved():
    rng = np.random.default_rng(0)
    with (
        SideBySide(copies_of(RECIPE, 3)) as many,
        SideBySide(copies_of(RECIPE, 3)) as same,
    ):
        actions = actions_for(many, many.reset(5), rng)
        same.reset(5)
        wrong = ActionTuple(actions[NAME].continuous.copy())
        wrong.continuous[2] = np.nan  # an agent of world 1
        with pytest.raises(NonFiniteError, match="agent"):
            many.step({NAME: wrong})
        rows, expected = many.step(actions)[NAME], same.step(actions)[NAME]
        np.testing.assert_array_equal(rows.obs[0], expected.obs[0])
        np.testing.assert_array_equal(rows.reward, expected.reward)


def test_closed_worlds_are_not_used_again():
    many = SideBySide(copies_of(RECIPE, 2))
    actions = actions_for(many, many.reset(5), np.random.default_rng(0))
    many.close()
    many.close()
    for use in (many.reset, lambda: many.step(actions)):
        with pytest.raises(UsageError, match="this environment is closed; make a new"):
            use()


def test_a_world_that_replaces_a_failed_one_gets_no_parameter_that_was_refused():
    open_world, opened = failing_once(0, 1, PlayerExitedError("boom", 1))
    with SideBySide(
        copies_of(RECIPE, 2), RestartLimits(), open_world=open_world, log=print
    ) as many:
        rows = many.reset(5)
        many.set_parameters({"mass": 2.0})
        with pytest.raises(UsageError, match="mass"):
            many.set_parameters({"mass": -5.0})
        play(many, rows, 1)
        assert len(opened) == 3
        assert many.slots[0].env.scene.parameter_values.read("mass", [0]) == [2.0]


def test_a_nan_is_not_a_crash_to_be_restarted():
    open_world, opened = failing_once(0, 2, NonFiniteError("NaN"))
    with SideBySide(
        copies_of(RECIPE, 2), RestartLimits(), open_world=open_world
    ) as many:
        rows = many.reset(5)
        with pytest.raises(NonFiniteError):
            play(many, rows, 5)
    assert opened == [5, 6]


def test_a_world_is_not_closed_while_another_fails_and_it_still_steps():
    calls = []

    class Slow(Failing):
        def step(self):
            time.sleep(0.3)
            super().step()
            calls.append("stepped")

        def close(self):
            calls.append("closed")
            self._env.close()

    def open_world(recipe):
        env = make(recipe)
        return (
            Failing(env, 1, NonFiniteError("NaN"))
            if recipe.seed == RECIPE.seed
            else Slow(env, 0, None)
        )

    with SideBySide(
        copies_of(RECIPE, 2), RestartLimits(), open_world=open_world
    ) as many:
        rows = many.reset(5)
        with pytest.raises(NonFiniteError):
            play(many, rows, 1)
        many.close()
    assert calls[:2] == ["stepped", "closed"]


def test_worlds_that_cannot_be_opened_close_the_others():
    closed = []

    def open_world(recipe):
        if recipe.seed == 6:
            raise PlayerExitedError("at once", 3)
        env = make(recipe)
        close = env.close
        env.close = lambda: (closed.append(recipe.seed), close())
        return env

    with pytest.raises(PlayerExitedError):
        SideBySide(copies_of(RECIPE, 3), RestartLimits(), open_world=open_world)
    assert sorted(closed) == [5, 7]


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signals")
def test_ctrl_c_while_worlds_open_closes_all_of_them():
    closed = []

    def open_world(recipe):
        time.sleep(0.2)
        if recipe.seed == 5:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        env = make(recipe)
        close = env.close
        env.close = lambda: (closed.append(recipe.seed), close())
        return env

    with pytest.raises(KeyboardInterrupt):
        SideBySide(copies_of(RECIPE, 2), RestartLimits(), open_world=open_world)
    assert sorted(closed) == [5, 6]


@pytest.mark.skipif(sys.platform == "win32", reason="the player is a shell script")
@pytest.mark.parametrize("number", [1, 2])
def test_ctrl_c_while_players_are_waited_for_ends_them_at_once(tmp_path, number):
    player, pids = tmp_path / "silent.x86_64", tmp_path / "pids"
    player.write_text(f"#!/bin/sh\necho $$ > {pids}/$$\nexec sleep 20\n")
    player.chmod(0o755)
    pids.mkdir()

    def interrupt():
        while len(list(pids.iterdir())) < number:
            time.sleep(0.01)
        time.sleep(0.3)  # what started it has begun to wait
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    recipe = EnvRecipe("unity", str(player), options={"timeout_wait": 15})
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        SideBySide(copies_of(recipe, number), RestartLimits())
    assert time.monotonic() - began < 8
    assert not any(psutil.pid_exists(int(path.name)) for path in pids.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="os.kill ends a process there")
def test_ctrl_c_in_a_step_ends_silent_players_within_their_time_to_quit(tmp_path):
    player = written(tmp_path, "fall-silent")
    recipe = EnvRecipe("unity", str(player), options={"timeout_wait": 60})
    with SideBySide(copies_of(recipe, 2)) as many:
        rows = many.reset()
        pids = [slots.env.pid for slots in many.slots]
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            play(many, rows, 1)
    assert time.monotonic() - began < 20
    assert not any(map(psutil.pid_exists, pids))


def test_ports_and_recordings_are_numbered_and_the_editor_is_one():
    with pytest.raises(UsageError, match="the Editor is one world"):
        SideBySide(copies_of(EnvRecipe("unity", "editor"), 2))


def test_a_player_killed_in_mid_run_is_replaced_and_its_recording_kept(tmp_path):
    recording = {"record_wire": str(tmp_path / "session.wire.gz")}
    player = str(build("3DBall", tmp_path))
    recipe = EnvRecipe("unity", player, 2, seed=5, options=recording)
    rng, said = np.random.default_rng(0), []
    with SideBySide(copies_of(recipe, 2), RestartLimits(), log=said.append) as many:
        rows = many.reset(5)
        cut = np.zeros(4, np.int64)
        for step in range(30):
            if step == 10:
                psutil.Process(many.slots[1].env.pid).kill()
            rows = many.step(actions_for(many, rows, rng))
            cut += rows[NAME].truncated
    assert cut.tolist() == [0, 0, 1, 1]
    assert len(said) == 1
    assert "SIGKILL" in said[0] or "with code" in said[0]
    lengths = {}
    for path in tmp_path.glob("*.wire.gz"):
        with make(str(path)) as again:
            lengths[path.name] = sum(1 for _ in again.replay())
    # The world that failed was reset once and stepped ten times before.
    assert lengths.pop("session-env1.wire.gz") == 11
    assert set(lengths) == {"session.wire.gz", "session-env1-restart1.wire.gz"}
    assert min(lengths.values()) >= 20
