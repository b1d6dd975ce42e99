"""3DBall and 3DBallHard against what is known of Unity's: figures from docs/scenes.md."""

import json

import numpy as np
import pytest

from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.errors import NonFiniteError, UsageError
from touchline.parameters import Uniform
from touchline.policies.loading import load_policies
from touchline.specs import ActionTuple
from touchline.training.evaluation import measure

BALL, HARD = "3DBall?team=0", "3DBallHard?team=0"


def _make(scene="3DBall", num_areas=1, **parameters):
    return make(EnvRecipe("scene", scene, num_areas=num_areas, parameters=parameters))


def _act(env, action):
    count = len(env.steps(BALL)[0])
    if count:
        env.set_actions(BALL, ActionTuple(np.full((count, 2), action, np.float32)))
    env.step()


def test_ids_shapes_and_areas_are_unitys():
    with make("3DBall") as env:
        env.reset(seed=0)
        decisions, terminals = env.steps(BALL)
        assert decisions.agent_id.tolist() == list(range(12))
        assert decisions.group_id.tolist() == [0] * 12
        assert len(terminals) == 0
        assert [(o.name, o.shape) for o in env.behaviors[BALL].observation_specs] == [
            ("VectorSensor_size8", (8,))
        ]


def test_episodes_start_within_unitys_ranges():
    with _make(num_areas=2000) as env:
        env.reset(seed=5)
        obs = env.steps(BALL)[0].obs[0]
    limit = np.sin(np.deg2rad(10) / 2)
    for column, low, high in [
        (0, -limit, limit),
        (1, -limit, limit),
        (2, -1.5, 1.5),
        (4, -1.5, 1.5),
    ]:
        assert obs[:, column].min() == pytest.approx(low, rel=0.02)
        assert obs[:, column].max() == pytest.approx(high, rel=0.02)
    np.testing.assert_array_equal(obs[:, 3], 4.0)
    np.testing.assert_array_equal(obs[:, 5:], 0.0)


def test_the_ball_falls_as_in_the_recorded_sessions():
    """y and its velocity one decision later, and after a RESET: 3DBall-package-2.1.0, first
    exchanges.
    """
    with _make() as env:
        env.reset(seed=1)
        _act(env, 0.0)
        y, speed = env.steps(BALL)[0].obs[0][0, [3, 6]]
        assert speed == pytest.approx(-0.981, abs=1e-4)
        assert y == pytest.approx(4 - 0.0196 * 0.2 * 15, abs=1e-3)
        env.reset()
        decisions, terminals = env.steps(BALL)
        assert decisions.obs[0][0, [3, 6]] == pytest.approx([3.9961, -0.1962], abs=1e-4)
        assert decisions.reward[0] == np.float32(0.1)
        assert len(terminals) == 0


def test_full_deflection_turns_10_degrees_a_decision_up_to_the_limit():
    with _make() as env:
        env.reset(seed=2)
        q = [env.steps(BALL)[0].obs[0][0, :2]]
        for _ in range(5):
            _act(env, 1.0)
            decisions, terminals = env.steps(BALL)
            if len(terminals) or not len(decisions):
                break
            q.append(decisions.obs[0][0, :2])
    turned = np.rad2deg(2 * np.arcsin(q[1][0])) - np.rad2deg(2 * np.arcsin(q[0][0]))
    assert turned == pytest.approx(10, abs=1.0), (
        "about z; the other axis bends it a little"
    )
    assert max(float(abs(x).max()) for x in q) < 0.25 + np.sin(np.deg2rad(2) / 2) + 0.01


def test_a_decision_earns_a_tenth_and_a_fall_costs_one():
    with _make(num_areas=30) as env:
        slots = Slots(env)
        rows = slots.reset(3)[BALL]
        policy, fallen = load_policies(["random"], slots.behaviors, seed=1)[BALL], 0
        for _ in range(100):
            rows = slots.step({BALL: policy.act(rows)})[BALL]
            alive = rows.closed & ~rows.terminated
            np.testing.assert_array_equal(rows.reward[alive], np.float32(0.1))
            np.testing.assert_array_equal(rows.reward[rows.terminated], -1.0)
            for last in rows.final_obs[0]:
                assert last[3] < -2 or abs(last[2]) > 3 or abs(last[4]) > 3, (
                    "the ball is off the cube"
                )
            fallen += int(rows.terminated.sum())
    assert fallen > 50


def test_an_episode_is_interrupted_after_1000_decisions_and_goes_on_in_the_same_exchange(
    shared,
):
    with _make() as env:
        slots = Slots(env)
        rows = slots.reset(0)
        policies = load_policies(
            [str(shared / "unity-policies" / "3DBall.onnx")],
            slots.behaviors,
            deterministic=True,
        )
        for step in range(1000):
            assert not rows[BALL].truncated.any(), step
            rows = slots.step({BALL: policies[BALL].act(rows[BALL])})
        row, (decisions, terminals) = rows[BALL], env.steps(BALL)
    assert row.truncated.tolist() == [True]
    assert decisions.agent_id.tolist() == terminals.agent_id.tolist() == [0]
    assert row.obs[0][0, 3] == pytest.approx(3.9961, abs=1e-4), (
        "the new ball has fallen for one physics step"
    )


def test_hard_observes_nine_frames_oldest_first_and_no_velocity():
    with _make("3DBallHard") as env:
        env.reset(seed=4)
        position, rotation = env.steps(HARD)[0].obs
        assert position.shape == (1, 27)
        assert rotation.shape == (1, 18)
        assert not position[0, :24].any(), "zeros before the first frame"
        assert position[0, 25] == 4.0
        first = position[0, 24:].copy()
        env.step()
        position, _ = env.steps(HARD)[0].obs
        np.testing.assert_array_equal(position[0, 21:24], first)
        assert position[0, 25] < 4.0


def test_gravity_acts_at_once_and_mass_and_scale_at_the_next_episode():
    with _make(gravity=0.0) as env:
        env.reset(seed=0)
        _act(env, 0.0)
        assert env.steps(BALL)[0].obs[0][0, 6] == 0.0, "nothing falls"
        env.set_parameters({"gravity": 9.81, "scale": 2.0, "mass": 5.0})
        _act(env, 0.0)
        assert env.steps(BALL)[0].obs[0][0, 6] == pytest.approx(-0.981, abs=1e-4)
        env.reset()
        for _ in range(30):
            _act(env, 0.0)
            if len(env.steps(BALL)[0]):
                resting = float(env.steps(BALL)[0].obs[0][0, 3])
        assert resting > 2.9, "a ball of 2 m across rests 1 m above the top at 2.5 m"


def test_a_sampled_parameter_differs_between_areas_and_stays_in_range():
    with _make(num_areas=50, scale=Uniform(0.75, 3.0)) as env:
        env.reset(seed=0)
        radius = env.scene.state()["scale"]
    assert radius.min() >= 0.75
    assert radius.max() <= 3.0
    assert len(np.unique(radius)) == 50


@pytest.mark.parametrize("scene", ["3DBall", "3DBallHard", "Visual3DBall"])
def test_sampled_gravity_is_drawn_for_every_episode_from_the_runs_seed(scene):
    def gravity_of(seed):
        with _make(scene, 3, gravity=Uniform(1.0, 20.0)) as env:
            env.reset(seed=seed)
            first = env.scene.state()["gravity"]
            env.scene.begin_episodes(np.array([1]))
            kept = env.state()
        with _make(scene, 3, gravity=Uniform(1.0, 20.0)) as env:
            env.reset(seed=0)
            env.load_state(kept)
            second = env.scene.state()["gravity"]
            pull = -env.scene.world.per_area("opt.gravity")[:, 2]
        np.testing.assert_array_equal(pull, second)
        return first, second

    first, second = gravity_of(1)
    assert (first != second).tolist() == [False, True, False]
    assert len({*first, *second}) == 4
    np.testing.assert_array_equal(gravity_of(1), (first, second))
    assert (gravity_of(2)[0] != first).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mass", -1.0),
        ("scale", 0.0),
        ("gravity", float("nan")),
        ("mass", Uniform(-1, 1)),
    ],
)
def test_an_impossible_parameter_is_refused_with_its_range(name, value):
    with (
        _make() as env,
        pytest.raises(
            UsageError, match=f"3DBall: parameter '{name}' .* takes .* to .*, got"
        ),
    ):
        env.reset(parameters={name: value})


def test_wrong_actions_are_refused_by_name():
    with _make(num_areas=2) as env:
        env.reset(seed=0)
        with pytest.raises(
            UsageError, match=r"3DBall: 3DBall\?team=0: expected continuous \(2, 2\)"
        ):
            env.set_actions(BALL, ActionTuple(np.zeros((2, 3), np.float32)))
        with pytest.raises(NonFiniteError, match="agent 1 got the action"):
            env.set_actions(
                BALL, ActionTuple(np.array([[0, 0], [0, np.nan]], np.float32))
            )


def test_random_play_is_as_long_as_in_unity(shared):
    """In Unity: mean length 20.1 decisions and return 0.99 over 607 episodes."""
    in_unity = json.loads(
        (shared / "unity-statistics" / "3DBall.random.json").read_text(encoding="utf-8")
    )["behaviors"][BALL]
    with _make(num_areas=100) as env:
        figures = measure(
            Slots(env), load_policies(["random"], env.behaviors), 1000, seed=0
        )
    assert figures["mean_length"] == pytest.approx(
        in_unity["mean_length_decisions"], rel=0.05
    )
    on_first_decisions = 0.1  # Unity's figure counts it; here it belongs to no action
    assert figures["mean_return"] + on_first_decisions == pytest.approx(
        in_unity["mean_return"], abs=0.06
    )


@pytest.mark.parametrize(("deterministic", "least"), [(False, 98.0), (True, 99.5)])
def test_unitys_policy_plays_as_in_unity(shared, deterministic, least):
    """In Unity: 98.6 sampled. 200 episodes, as in docs/benchmarks.md."""
    with _make(num_areas=200) as env:
        slots = Slots(env)
        slots.reset(0)
        policies = load_policies(
            [str(shared / "unity-policies" / "3DBall.onnx")],
            slots.behaviors,
            deterministic=deterministic,
        )
        assert measure(slots, policies, 200, seed=0)["mean_return"] >= least
