"""One suite over every scene."""

from contextlib import nullcontext

import numpy as np
import pytest

from touchline.envs.env import EnvRecipe, make
from touchline.errors import UsageError
from touchline.scenes import SCENES
from touchline.specs import DimensionProperty
from touchline.testing import (
    check_env,
    check_slots,
    play_randomly,
    random_slot_actions,
)

WITHOUT_CHANCE = {"Basic"}
WITH_LARGE_PICTURES = {"Visual3DBall", "VisualFoodCollector"}
"""Half a megabyte an agent and exchange: they get fewer steps."""


@pytest.mark.parametrize("scene", SCENES)
def test_keeps_the_contract_of_an_env(scene):
    check_env(
        EnvRecipe("scene", scene, num_areas=3),
        exchanges=120,
        random_start=scene not in WITHOUT_CHANCE,
    )


@pytest.mark.parametrize("scene", SCENES)
def test_slots_keep_their_invariants(scene):
    with make(EnvRecipe("scene", scene, num_areas=2)) as env:
        latest = {}
        slots = check_slots(env, steps=300, on_rows=latest.__setitem__)
        rng = np.random.default_rng(0)
        actions = {
            name: random_slot_actions(spec, latest[name], rng)
            for name, spec in env.behaviors.items()
        }
        for name, rows in slots.step(actions).items():
            assert len(rows) <= env.capacity(name), (
                "a scene never needs more slots than it declares"
            )


@pytest.mark.parametrize("scene", SCENES)
def test_the_number_of_areas_changes_nothing_in_the_first_area(scene):
    paths = []
    for num_areas in (1, 3):
        with make(EnvRecipe("scene", scene, num_areas=num_areas)) as env:
            env.reset(seed=11)
            first = [env.steps(name)[0] for name in env.behaviors]
            paths.append([[o[: len(d) // num_areas] for o in d.obs] for d in first])
    for one, three in zip(*paths, strict=True):
        for a, b in zip(one, three, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("scene", SCENES)
def test_rounds_played_in_one_call_are_those_played_one_by_one(scene):
    paths = []
    for watched in (False, True):
        with make(EnvRecipe("scene", scene, options={"num_threads": 1})) as env:
            env.reset(seed=2)
            one_by_one = env.watched(lambda: None) if watched else nullcontext()
            with one_by_one:
                paths.append([*play_randomly(env, 60), env.state()])
    for at_once, by_one in zip(*paths, strict=True):
        np.testing.assert_equal(at_once, by_one)


@pytest.mark.parametrize("scene", SCENES)
def test_play_5_leaves_the_state_of_five_times_play_1(scene):
    states = []
    for at_once in (True, False):
        with make(EnvRecipe("scene", scene, options={"num_threads": 1})) as env:
            env.reset(seed=2)
            play_randomly(env, 20)
            played = (
                env.scene.play(5)
                if at_once
                else _play_one_by_one(env.scene, states[0][0])
            )
            states.append((played, env.state()))
    assert 1 <= states[0][0] <= 5
    np.testing.assert_equal(states[0], states[1])


def _play_one_by_one(scene, rounds):
    for played in range(1, rounds + 1):
        assert scene.play(1) == 1
        if played < rounds:
            # As the Academy counts a round without an exchange.
            scene.academy.advance_clock(1)
    return rounds


@pytest.mark.parametrize("scene", SCENES)
def test_a_watched_scene_shows_every_physics_step(scene):
    with make(EnvRecipe("scene", scene, num_areas=2)) as env:
        env.reset(seed=0)
        clocks = []
        with env.watched(lambda: clocks.append(env.scene.academy.clock)):
            play_randomly(env, 5)
        shown = len(clocks)
        play_randomly(env, 5)
    assert clocks == list(range(clocks[0], clocks[0] + shown))
    assert shown >= 5
    assert len(clocks) == shown, "nothing is shown afterwards"


@pytest.mark.parametrize("scene", SCENES)
def test_thousands_of_random_steps_stay_finite(scene):
    parts = 10 if scene in WITH_LARGE_PICTURES else 40
    with make(EnvRecipe("scene", scene)) as env:
        env.reset(seed=1)
        for part in range(parts):  # every path is kept in memory while it is played
            play_randomly(env, 50, seed=part)


@pytest.mark.parametrize("scene", SCENES)
def test_an_unknown_parameter_is_refused_by_name(scene):
    with (
        make(EnvRecipe("scene", scene)) as env,
        pytest.raises(UsageError, match="unknown parameter 'wind'"),
    ):
        env.reset(parameters={"wind": 1.0})


@pytest.mark.parametrize("scene", SCENES)
def test_draws_a_picture(scene):
    with make(EnvRecipe("scene", scene, num_areas=1)) as env:
        env.reset(seed=0)
        picture = env.render(0, 160, 120)
    assert picture.shape == (120, 160, 3)
    assert picture.std() > 5, "the picture shows nothing"


@pytest.mark.parametrize("scene", ["3DBall", "Basic", "PushBlock", "SoccerTwos"])
def test_observations_are_marked_as_unity_marks_them(scene, shared):
    """Names aside, specs equal those of recorded players; packages before 2.0 mark no dimensions."""
    (recording,) = shared.glob(f"wire-recordings/{scene}-package-[23].*.wire.gz")
    with make(str(recording)) as recorded, make(scene) as twin:
        recorded.reset()
        theirs, ours = (
            next(iter(recorded.behaviors.values())),
            next(iter(twin.behaviors.values())),
        )
        for sensor, own in zip(
            theirs.observation_specs, ours.observation_specs, strict=True
        ):
            assert own.shape == sensor.shape
            assert own.dimension_property == sensor.dimension_property
            assert own.observation_type == sensor.observation_type


@pytest.mark.parametrize("scene", SCENES)
def test_every_vector_is_marked_as_having_no_spatial_property(scene):
    with make(EnvRecipe("scene", scene, num_areas=1)) as env:
        sensors = [o for spec in env.behaviors.values() for o in spec.observation_specs]
    vectors = [sensor for sensor in sensors if len(sensor.shape) == 1]
    assert all(
        sensor.dimension_property == (DimensionProperty.NONE,) for sensor in vectors
    )
