"""Choices among what masks allow, worked by hand."""

import numpy as np

import touchline
from touchline.envs.actions import choose_allowed, random_allowed
from touchline.specs import ActionSpec

MASK = np.array([[False, True, True, True, True], [True, True, True, False, True]])
SECOND = np.array(
    [
        [[True, True], [False, True], [True, False]],
        [[True, False], [True, True], [True, True]],
    ]
)


def test_the_first_allowed_choice_of_each_branch():
    assert choose_allowed(ActionSpec(0, (3, 2)), MASK, None).tolist() == [
        [1, 0],
        [0, 1],
    ]


def test_staged_branches_heed_what_the_first_one_chose():
    spec = ActionSpec(0, (3, 2), staged=True)
    assert choose_allowed(spec, MASK, SECOND).tolist() == [[1, 1], [0, 0]]
    rng = np.random.default_rng(0)
    drawn = {
        tuple(map(tuple, random_allowed(spec, MASK, SECOND, 2, rng).discrete.tolist()))
        for _ in range(300)
    }
    assert {first for first, _ in drawn} == {(1, 1), (2, 0)}
    assert {second for _, second in drawn} == {(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)}


def test_allowed_actions_play_a_game_with_masks_without_a_generator():
    with touchline.make("GridWorld") as env:
        env.reset(seed=1)
        ((behavior, spec),) = env.behaviors.items()
        for _ in range(20):
            decisions, _ = env.steps(behavior)
            actions = touchline.allowed_actions(spec.action_spec, decisions)
            env.set_actions(behavior, actions)
            env.step()
    assert len(decisions)
