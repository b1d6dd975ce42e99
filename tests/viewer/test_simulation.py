"""The simulation behind a page, without a page."""

import threading
import time

import numpy as np
import pytest

from touchline.envs.env import EnvRecipe, make
from touchline.errors import RunError
from touchline.policies.loading import load_policies
from touchline.scenes import SCENES, scene_class
from touchline.specs import ActionSpec, ActionTuple
from touchline.training.demonstrations import read_demonstration
from touchline.training.recording import write_demos
from touchline.viewer.beside import Beside
from touchline.viewer.insight import Seat
from touchline.viewer.keys import KEYS, action_of, allowed_action, keys_of, meaning_of
from touchline.viewer.opening import ViewOptions, opened
from touchline.viewer.scene_simulation import SceneSimulation
from touchline.viewer.scoreboard import Tally


@pytest.fixture
def simulation():
    """SoccerTwos at random, as fast as it goes; not started."""
    env = make(EnvRecipe("scene", "SoccerTwos", num_areas=2))
    env.reset()
    env.step()  # compiles, which tests with a time limit should not wait for
    playing = SceneSimulation(
        env,
        lambda slots: load_policies(["random"], slots.behaviors),
        budget_bytes=2**24,
    )
    playing.set_speed(float("inf"))
    yield playing
    playing.close()


def _wait(condition, timeout_s=10.0):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "the simulation did not get there"
        time.sleep(0.005)


def _done(simulation, order):
    """Give an order and wait until it was obeyed."""
    obeyed = threading.Event()

    def obey():
        order()
        obeyed.set()

    simulation.order("test", obey)
    assert obeyed.wait(10.0)


def _step(simulation, count=1):
    for _ in range(count):
        before = simulation.time_s()
        _done(simulation, simulation.step_once)
        _wait(lambda before=before: simulation.time_s() > before)
        # The clock moves within an exchange; orders are obeyed after it.
        _done(simulation, lambda: None)


def _looks(simulation):
    return simulation.env.tableau(0).moving.position.copy()


def test_a_paused_world_stands_still_until_it_is_stepped(simulation):
    simulation.start()
    _wait(lambda: simulation.time_s() > 1.0)
    _done(simulation, simulation.pause)
    stopped = simulation.time_s()
    time.sleep(0.05)
    assert simulation.time_s() == stopped
    _step(simulation)
    # One decision is five steps of 0.02 s.
    assert simulation.time_s() == pytest.approx(stopped + 0.1)
    assert simulation.is_paused


def _play_anew(simulation):
    """Let the same policies act again, instead of following what was recorded."""
    _done(simulation, lambda: simulation.replace_actors(simulation.actors))


def test_the_same_actions_give_the_same_future(simulation):
    _pause_first(simulation)
    _step(simulation, 10)
    there = simulation.time_s()
    _step(simulation, 20)
    first = _looks(simulation), simulation.time_s()
    _done(simulation, lambda: simulation.go_to(there))
    assert simulation.time_s() == there
    _play_anew(simulation)
    _step(simulation, 20)
    second = _looks(simulation), simulation.time_s()
    np.testing.assert_array_equal(first[0], second[0])
    assert first[1] == second[1]


def test_other_actions_give_another_future(simulation):
    _pause_first(simulation)
    _step(simulation, 10)
    there = simulation.time_s()
    _step(simulation, 20)
    first = _looks(simulation)
    _done(simulation, lambda: simulation.go_to(there))
    for actor in simulation.actors.values():
        actor.generator = np.random.default_rng(12345)
    _play_anew(simulation)
    _step(simulation, 20)
    assert not np.array_equal(first, _looks(simulation))


def test_going_on_from_the_past_follows_the_recorded_future(simulation):
    _pause_first(simulation)
    looks = [_looks(simulation)]
    for _ in range(10):
        _step(simulation)
        looks.append(_looks(simulation))
    times = [moment.time_s for moment in simulation.history]
    _done(simulation, lambda: simulation.go_to(times[4]))
    for at in range(5, 11):
        _step(simulation)
        np.testing.assert_array_equal(looks[at], _looks(simulation))
        assert [moment.time_s for moment in simulation.history] == times
    for at in range(9, 5, -1):
        _done(simulation, simulation.step_back)
        np.testing.assert_array_equal(looks[at], _looks(simulation))
    _done(simulation, simulation.resume)
    _wait(lambda: simulation.time_s() > times[-1] + 1.0)
    _done(simulation, simulation.pause)
    assert list(simulation.history.branches) == [1]
    assert [moment.time_s for moment in simulation.history][:11] == times


def test_what_a_hand_did_is_followed_after_it_let_go(simulation):
    _pause_first(simulation)
    seat = Seat(0, 1)
    turn_left = action_of(keys_of("SoccerTwos"), ["KeyA"], _actions(simulation, seat))
    _done(simulation, lambda: simulation.take_over(seat, turn_left))
    _step(simulation, 8)
    played = _looks(simulation)
    _done(simulation, lambda: simulation.take_over(seat, None))
    _done(simulation, lambda: simulation.go_to(0.0))
    _step(simulation, 8)
    np.testing.assert_array_equal(played, _looks(simulation))
    assert list(simulation.history.branches) == [1]


@pytest.mark.parametrize("change", ["a hand", "another policy"])
def test_a_change_in_the_past_branches_and_the_old_branch_can_be_chosen(
    simulation, change
):
    _pause_first(simulation)
    _step(simulation, 10)
    old, times = _looks(simulation), [moment.time_s for moment in simulation.history]
    seat = Seat(0, 1)
    _done(simulation, lambda: simulation.go_to(times[4]))
    if change == "a hand":
        hand = action_of(keys_of("SoccerTwos"), ["KeyA"], _actions(simulation, seat))
        _done(simulation, lambda: simulation.take_over(seat, hand))
    else:
        others = load_policies(["zero"], simulation.slots.behaviors)
        _done(simulation, lambda: simulation.replace_actors(others))
    assert simulation.history[-1].time_s == times[-1]  # one can still look ahead
    _step(simulation)
    assert simulation.history[-1].time_s == pytest.approx(times[4] + 0.1)
    _step(simulation, 5)
    new = _looks(simulation)
    assert not np.array_equal(new, old)
    _done(simulation, lambda: simulation.take_over(seat, None))

    _done(simulation, lambda: simulation.choose_branch(1))
    assert simulation.time_s() == times[4]  # where they parted
    _done(simulation, lambda: simulation.go_to(times[-1]))
    np.testing.assert_array_equal(_looks(simulation), old)
    _done(simulation, lambda: simulation.choose_branch(2))
    _done(simulation, lambda: simulation.go_to(times[-1]))
    np.testing.assert_array_equal(_looks(simulation), new)
    assert list(simulation.history.branches) == [1, 2]


def test_rewards_so_far_go_back_with_the_world(simulation):
    _pause_first(simulation)
    _step(simulation, 3)
    kept = {name: values.copy() for name, values in simulation.returns.items()}
    there = simulation.time_s()
    _step(simulation, 3)
    _done(simulation, lambda: simulation.go_to(there))
    for name, values in kept.items():
        np.testing.assert_array_equal(values, simulation.returns[name])


def test_frames_come_at_natural_speed_while_the_world_is_watched(simulation):
    simulation.set_speed(1.0)
    simulation.is_watched = True
    simulation.start()
    begin = time.monotonic()
    seen, number = 0, simulation.frame.number
    while time.monotonic() - begin < 1.0:
        frame = simulation.wait_for_frame(number, 0.5)
        seen += frame.number != number
        number = frame.number
    assert seen >= 30
    assert simulation.time_s() == pytest.approx(1.0, abs=0.3)


def test_a_flood_of_orders_does_not_pile_up(simulation):
    simulation.start()
    obeyed = []
    for number in range(20_000):
        simulation.order("flood", lambda number=number: obeyed.append(number))
    _wait(lambda: obeyed and obeyed[-1] == 19_999)
    assert len(obeyed) < 20_000
    before = simulation.time_s()
    _wait(lambda: simulation.time_s() > before)


def test_memory_stays_within_the_budget(simulation):
    _pause_first(simulation)
    simulation.history.budget_bytes = 2**18
    _step(simulation, 30)
    assert simulation.history.num_bytes <= 2**18
    assert len(simulation.history) > 1


def test_what_ends_the_simulation_is_raised_where_it_is_waited_for(simulation):
    def fail():
        raise RunError("the world broke")

    simulation.start()
    simulation.order("fail", fail)
    with pytest.raises(RunError, match="the world broke"):
        simulation.join()


def test_a_restart_begins_again_with_another_seed(simulation):
    _pause_first(simulation)
    first = _looks(simulation)
    _step(simulation, 5)
    _done(simulation, simulation.restart)
    assert simulation.seed == 1
    assert len(simulation.history) == 1
    assert not np.array_equal(first, _looks(simulation))


def test_the_history_is_never_empty_while_a_world_is_restarted(simulation, monkeypatch):
    _pause_first(simulation)
    _step(simulation, 3)
    seen, state = [], simulation.slots.state

    def state_that_is_looked_at():
        seen.append(simulation.history[0].time_s)  # as pages do at any time
        return state()

    monkeypatch.setattr(simulation.slots, "state", state_that_is_looked_at)
    _done(simulation, simulation.restart)
    assert len(seen) == 1


def _pause_first(simulation):
    simulation.pause()
    simulation.start()


# ----------------------------------------------------------------------------------------------
# agents


def test_an_agent_that_is_taken_over_does_what_the_hand_says(simulation):
    _pause_first(simulation)
    seat = Seat(0, 1)
    before = simulation.env.scene.yaw[0, 1]
    turn_left = action_of(keys_of("SoccerTwos"), ["KeyA"], _actions(simulation, seat))
    _done(simulation, lambda: simulation.take_over(seat, turn_left))
    _step(simulation, 4)
    turned = np.degrees(simulation.env.scene.yaw[0, 1] - before)
    # Four decisions of five steps of 2°, counterclockwise from above.
    assert turned == pytest.approx(-40.0)
    _done(simulation, lambda: simulation.take_over(seat, None))
    yaws = []
    for _ in range(10):
        _step(simulation)
        yaws.append(simulation.env.scene.yaw[0, 1])
    assert len(set(np.sign(np.diff(yaws)))) > 1  # random again


def test_an_agent_that_is_away_keeps_its_seat(simulation):
    _pause_first(simulation)
    seat = Seat(0, 1)
    simulation.env.scene.academy.enabled[seat] = False
    assert seat in simulation.agents().values()


def test_a_score_is_that_of_the_policies_that_play(simulation):
    _pause_first(simulation)
    simulation.score = Tally(3, 1.5)
    assert str(simulation.score) == "mean return 0.500 of 3 episodes"
    _done(simulation, lambda: simulation.replace_actors(simulation.actors))
    assert str(simulation.score) == "no episode ended yet"


def test_an_episode_counts_once_however_often_it_is_played():
    worlds = [make(EnvRecipe("scene", "Basic", num_areas=4)) for _ in range(2)]
    for env in worlds:
        env.reset()
    playing = SceneSimulation(
        worlds[0], lambda slots: load_policies(["random"], slots.behaviors)
    )
    playing.set_speed(float("inf"))
    actors = load_policies(["random"], playing.slots.behaviors)
    try:
        _pause_first(playing)
        _done(playing, lambda: playing.set_beside(Beside(worlds[1], actors, "other")))
        _step(playing)
        start_s, steps = playing.time_s(), 0
        while not (playing.score.episodes and playing.beside.score.episodes):
            _step(playing)
            steps += 1
        scores = playing.score, playing.beside.score
        _done(playing, lambda: playing.go_to(start_s))
        assert (playing.score, playing.beside.score) == (Tally(), Tally())
        _step(playing, steps)
        assert (playing.score, playing.beside.score) == scores
        _done(playing, lambda: playing.replace_actors(playing.actors))
        _done(playing, lambda: playing.go_to(start_s))
        assert playing.score == Tally(), "the others' past"
    finally:
        playing.close()


def test_a_board_is_kept_when_others_begin_to_play_beside(simulation):
    _pause_first(simulation)
    while not simulation.board.ended:
        _step(simulation)
    time_s, board = simulation.time_s(), simulation.board
    _step(simulation)
    other = make(EnvRecipe("scene", "SoccerTwos", num_areas=2))
    other.reset()
    actors = load_policies(["random"], simulation.slots.behaviors)
    _done(simulation, lambda: simulation.set_beside(Beside(other, actors, "other")))
    _done(simulation, lambda: simulation.go_to(time_s))
    assert simulation.board == board
    assert simulation.score == Tally(), "since both are there"


def test_an_insight_shows_what_the_agent_decides_on(simulation):
    _pause_first(simulation)
    _step(simulation, 2)
    seat = Seat(1, 2)
    insight = simulation.insight(seat)
    assert insight.behavior == simulation.behavior_of(seat) == "SoccerTwos?team=1"
    assert [obs.shape for obs in insight.obs] == [
        sensor.shape for sensor in insight.spec.observation_specs
    ]
    decisions, _ = simulation.env.steps(insight.behavior)
    row = decisions.agent_id_to_index[simulation.env.scene.academy.agent_id[seat]]
    np.testing.assert_array_equal(insight.obs[0], decisions.obs[0][row])
    assert insight.outlook is None  # a random policy has none


def test_rays_end_where_the_observation_says(simulation):
    _pause_first(simulation)
    _step(simulation, 5)
    rays = simulation.env.scene.rays(0, 0)
    length = np.linalg.norm(rays.end - rays.start, axis=1)
    newest = simulation.insight(Seat(0, 0)).obs[0].reshape(3, 11, 8)[-1]
    assert length[:11] == pytest.approx(20.0 * newest[:, -1], abs=1e-4)
    # Rays start at the agent, half a meter above its center.
    center = simulation.env.tableau(0).moving.position[0]
    assert rays.start[0] == pytest.approx(center + (0.0, 0.5, 0.0))
    # The first ray points ahead: to where the agent's eyes are.
    eyes = simulation.env.tableau(0).moving.position[5:7].mean(axis=0)
    ahead = (eyes - center)[[0, 2]]
    way = (rays.end - rays.start)[0, [0, 2]]
    assert ahead @ way == pytest.approx(np.linalg.norm(ahead) * np.linalg.norm(way))


def test_a_forbidden_choice_of_a_hand_becomes_an_allowed_one():
    spec = ActionSpec.create_discrete((3, 2))
    action = ActionTuple(np.zeros((1, 0), np.float32), np.array([[2, 1]], np.int32))
    mask = np.array([False, True, False, True, True])
    assert allowed_action(action, mask, spec).discrete.tolist() == [[1, 1]]
    assert allowed_action(action, None, spec) is action


@pytest.mark.parametrize("scene", KEYS)
def test_every_key_is_an_action_of_its_scene(scene):
    specs = scene_class(scene).behaviors.values()
    for spec in specs:
        actions = spec.action_spec
        for press in keys_of(scene).values():
            if press.is_continuous:
                assert press.number < actions.continuous_size
            else:
                assert press.value < actions.discrete_branches[press.number]


@pytest.mark.parametrize("scene", SCENES)
def test_every_scene_names_all_its_actions(scene):
    names = scene_class(scene).action_names
    for spec in scene_class(scene).behaviors.values():
        actions = spec.action_spec
        assert len(names.continuous) == actions.continuous_size
        assert tuple(map(len, names.branches)) == actions.discrete_branches
    for group in (names.continuous, *names.branches):
        assert len(set(group)) == len(group)


@pytest.mark.parametrize(
    ("scene", "code", "meaning"),
    [
        ("3DBall", "KeyD", "tilt right"),
        ("GridFoodCollector", "KeyS", "back"),
        ("WallJump", "Space", "jump"),
        ("PushBlock", "KeyA", "turn left"),
    ],
)
def test_a_key_says_what_it_does(scene, code, meaning):
    press = keys_of(scene)[code]
    assert meaning_of(press, scene_class(scene).action_names) == meaning


def _actions(simulation, seat):
    return simulation.slots.behaviors[simulation.behavior_of(seat)].action_spec


# ----------------------------------------------------------------------------------------------
# recordings


def _basic():
    env = make(EnvRecipe("scene", "Basic", num_areas=1))
    playing = SceneSimulation(
        env, lambda slots: load_policies(["random"], slots.behaviors)
    )
    playing.set_speed(float("inf"))
    return playing


def _hold(playing, seat, key):
    action = action_of(keys_of("Basic"), [key], _actions(playing, seat))
    _done(playing, lambda: playing.take_over(seat, action))


def test_what_a_person_plays_is_a_demonstration(tmp_path):
    playing = _basic()
    seat = Seat(0, 0)
    _pause_first(playing)
    _hold(playing, seat, "KeyD")
    _done(playing, lambda: playing.record(seat))
    # Seven steps right from the middle, at 0.01 each, to the large prize of 1.
    while not _is_over(playing):
        _step(playing)
    _step(playing, 3)  # and three more of an episode that stays open
    (path,) = write_demos(playing.end_recording(), tmp_path / "right.demo")
    playing.close()

    shown = read_demonstration(path)
    assert set(shown.actions.discrete[:, 0]) == {2}
    assert shown.num_episodes == 2
    assert shown.finished.tolist() == [True, False]
    assert shown.returns[0] == pytest.approx(0.93)
    assert len(shown) == 7 + 2  # the third action of the open episode has no result yet


def test_going_back_takes_back_what_was_recorded_since(tmp_path):
    playing = _basic()
    seat = Seat(0, 0)
    _pause_first(playing)
    _done(playing, lambda: playing.record(seat))
    _hold(playing, seat, "KeyD")
    _step(playing, 3)
    there = playing.time_s()
    _hold(playing, seat, "KeyA")
    _step(playing, 2)
    _done(playing, lambda: playing.go_to(there))
    _hold(playing, seat, "KeyD")
    while not _is_over(playing):
        _step(playing)
    (path,) = write_demos(playing.end_recording(), tmp_path / "taken_back.demo")
    playing.close()
    shown = read_demonstration(path)
    assert shown.actions.discrete[:, 0].tolist() == [2] * 7
    assert shown.finished.tolist() == [True]


def test_a_recording_never_replaces_an_earlier_one(tmp_path):
    path = tmp_path / "play.demo"
    path.write_bytes(b"played yesterday")
    lines = []
    for number in (2, 3):  # as of two days
        options = ViewOptions(port=0, record=path, log=lines.append)
        recipe = EnvRecipe("scene", "Basic", num_areas=1)
        with opened(recipe, ["random"], options) as page:
            _done(page.simulation, lambda page=page: page.simulation.record(Seat(0, 0)))
            _wait(lambda page=page: len(page.simulation.tape or ()) > 1)
        own = tmp_path / f"play-{number}.demo"
        assert lines[-1].startswith(f"saved {own}: ")
        assert len(read_demonstration(own)) > 0
    assert path.read_bytes() == b"played yesterday"


def test_a_recording_that_cannot_be_written_is_kept_until_it_can(tmp_path):
    path = tmp_path / "demos" / "play.demo"
    lines = []
    options = ViewOptions(port=0, record=path, log=lines.append)
    recipe = EnvRecipe("scene", "Basic", num_areas=1)
    with opened(recipe, ["random"], options) as page:
        _done(page.simulation, lambda: page.simulation.record(Seat(0, 0)))
        _wait(lambda: len(page.simulation.tape or ()) > 1)
        path.parent.touch()  # a file, where a folder must be
        page.hands.choose(None, None)
        _wait(lambda: lines and "the recording is kept" in lines[-1])
        assert f"{path}: cannot be written" in lines[-1]
        _step(page.simulation)  # the world plays on
        path.parent.unlink()
    assert lines[-1].startswith(f"saved {path}: ")
    assert len(read_demonstration(path)) > 0


def _is_over(playing):
    (rows,) = playing.rows.values()
    return rows.terminated[0]
