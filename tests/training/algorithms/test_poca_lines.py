"""Trajectories as time lines of groups: who stands beside whom, who is paid, and what is an end."""

import json

import numpy as np
import pytest
from tests.slot_rows import slot_rows

from touchline.policies.policy import ChosenActions
from touchline.training.algorithms.poca.lines import time_lines
from touchline.training.experience.rollout import Rollout
from touchline.training.experience.trajectories import horizon_cuts


def rollout_of(rows, actions=None):
    """Trajectories of rows in order; action at step t of slot n is 100 n + t unless given."""
    rollout = Rollout()
    rollout.begin(rows[0])
    for t, row in enumerate(rows[1:]):
        size = len(rows[t])
        values = 100.0 * np.arange(size) + t if actions is None else actions[t]
        rollout.chosen = ChosenActions(
            np.asarray(values, np.float32)[:, None], np.zeros((size, 0), np.int64)
        )
        rollout.add(row)
    return rollout.trajectories()


def row(obs, ended=(), final=(), **columns):
    """Rows of agents that observe one number each; ended slots end and do not decide."""
    obs = np.asarray(obs, np.float32)[:, None]
    final_obs = [np.asarray(final, np.float32).reshape(-1, 1)]
    return slot_rows([obs], final_slot=ended, final_obs=final_obs, **columns)


def test_a_dying_agents_last_step_stands_beside_its_mates_same_step(shared):
    """Source: the right values of ML-Agents 1.1.0's case; its own pair with the step before."""
    golden = json.loads(
        (shared / "golden" / "early_death.json").read_text(encoding="utf-8")
    )
    right, official = (
        golden[f"{which}_last_step_of_agent_1"] for which in ("right", "official")
    )
    pair = {"group_id": 1}
    trajectories = rollout_of(
        [
            row([10, 20], begins=True, **pair),
            row([11, 21], closed=True, reward=[0.1, 0.01], **pair),
            row([0, 22], [0], [12], deciding=[False, True], closed=True,
                terminated=[True, False], reward=[0.2, 0.02], **pair),
            row([0, 0], [1], [23], deciding=False, closed=[False, True],
                terminated=[False, True], reward=[0, 0.03], **pair),
        ],
        actions=[[100, 200], [101, 201], [0, 202]],
    )  # fmt: skip
    lines = time_lines(trajectories)
    assert lines.present[:, 0].tolist() == [[True, True], [True, True], [False, True]]
    last = 1
    source = lines.source[last, 0]
    obs = trajectories.obs[0][source, [0, 1], 0]
    action = trajectories.continuous[source, [0, 1], 0]
    reward = lines.placed(trajectories.reward)[last, 0]
    mate = right["mates"][0]
    assert obs.tolist() == [right["obs"], mate["obs"]]
    assert action.tolist() == [right["action"], mate["action"]]
    assert reward.tolist() == pytest.approx([right["reward"], mate["reward"]])
    followers = trajectories.obs[0][last + 1, lines.slot[0][lines.stays[last, 0]], 0]
    assert followers.tolist() == right["next_group"]
    assert lines.ends[:, 0].tolist() == [False, False, True], "a death is not an end"

    as_ml_agents = official["mates"][0]
    assert as_ml_agents["obs"] == mate["obs"] - 1, "as ML-Agents: the step before"


def test_groups_of_two_worlds_with_the_same_number_are_two_lines():
    trajectories = rollout_of(
        [row([1, 2, 3], begins=True, group_id=[7, 7, 7], env_index=[0, 1, 1]),
         row([1, 2, 3], closed=True, group_id=7, env_index=[0, 1, 1])]
    )  # fmt: skip
    lines = time_lines(trajectories)
    assert lines.present.sum(axis=2).tolist() == [[1, 2]]


def test_agents_without_a_group_are_lines_of_one():
    trajectories = rollout_of(
        [row([1, 2, 3], begins=True), row([1, 2, 3], closed=True)]
    )
    assert time_lines(trajectories).present.shape == (1, 3, 1)


def _together(closed=(True, True), reward=(0, 0), group=(0, 0), deciding=True):
    return row([1, 2], closed=closed, reward=reward, group_reward=group,
               deciding=deciding, group_id=1)  # fmt: skip


def test_the_groups_reward_counts_once_and_own_rewards_are_apart():
    trajectories = rollout_of(
        [
            row([1, 2], begins=True, group_id=1),
            _together(reward=(0.5, 0.25), group=(1, 1)),
        ]
    )
    lines = time_lines(trajectories)
    assert lines.once(trajectories.group_reward).tolist() == [[1.0]]
    assert lines.placed(trajectories.reward).tolist() == [[[0.5, 0.25]]]


def test_members_that_decide_at_different_steps_are_paid_once_when_they_close():
    """The second member acts at every other step; the group is paid 1 in the first two steps."""
    late = (True, False)
    trajectories = rollout_of(
        [
            row([1, 2], begins=True, group_id=1),
            _together(late, (0.1, 0), (1, 0), deciding=late),
            _together((True, True), (0.2, 0.9), (1, 2)),
            _together(late, (0.3, 0), (0, 0), deciding=late),
            _together((True, True), (0.4, 0.8), (3, 3)),
        ]
    )
    lines = time_lines(trajectories)
    group = lines.once(trajectories.group_reward)
    assert group[:, 0].tolist() == [1, 1, 0, 3]
    assert lines.present.all(), "who waits is still there"
    assert lines.source[:, 0, 1].tolist() == [0, 0, 2, 2], "with its last action"
    own = lines.placed(trajectories.reward)[:, 0]
    np.testing.assert_allclose(own, [[0.1, 0], [0.2, 0.9], [0.3, 0], [0.4, 0.8]])
    assert lines.credited[:, 0, 1].tolist() == [True, False, True, False]


def test_rewards_of_a_line_add_up_to_what_the_world_paid():
    """Random deaths, births and waits: own rewards are all placed, none twice."""
    rng = np.random.default_rng(0)
    alive, waiting = np.ones(6, bool), np.zeros(6, bool)
    group = np.repeat([1, 2], 3)
    rows, paid = [row(np.zeros(6), begins=True, group_id=group)], 0.0
    for _ in range(60):
        closed = alive & (rng.random(6) < 0.8)
        ended = closed & (rng.random(6) < 0.2)
        born = ~alive & (rng.random(6) < 0.3)
        waiting = alive & ~closed
        reward = np.where(closed, rng.normal(size=6), 0).astype(np.float32)
        paid += float(reward.sum(dtype=np.float64))
        alive = (alive & ~ended) | born
        rows.append(
            row(np.zeros(6), np.flatnonzero(ended), np.zeros(ended.sum()),
                deciding=alive & ~waiting, begins=born, closed=closed,
                terminated=ended, reward=reward, group_id=group)
        )  # fmt: skip
    trajectories = rollout_of(rows)
    lines = time_lines(trajectories)
    placed = lines.placed(trajectories.reward)
    assert float(placed.sum(dtype=np.float64)) == pytest.approx(paid, abs=1e-4)
    assert not (placed != 0)[~lines.present].any()
    assert not lines.stays[lines.ends].any()


def test_an_end_of_all_is_interrupted_where_one_was_cut_short():
    def ends(**columns):
        first = row([1, 2], begins=True, group_id=1)
        last = row([0, 0], [0, 1], [8, 9], deciding=False, closed=True, group_id=1,
                   **columns)  # fmt: skip
        return time_lines(rollout_of([first, last]))

    assert not ends(terminated=True).interrupted.any()
    cut = ends(terminated=[True, False], truncated=[False, True])
    assert cut.interrupted.all()
    assert cut.final[0, 0].tolist() == [-1, 1], "only who was still there counts"


def test_an_action_carried_over_a_hand_over_is_no_moment_of_its_group_again():
    """What its mates did next to it, and what it brought all of them, was handed over before."""
    pair = {"group_id": 1}
    rollout = Rollout()
    rows = [
        row([1, 2], begins=True, **pair),
        row(
            [3, 2],
            closed=[True, False],
            deciding=[True, False],
            group_reward=[1, 0],
            **pair,
        ),
        row([5, 6], closed=True, group_reward=[0.5, 1.5], **pair),
    ]
    rollout.begin(rows[0])
    pieces = []
    for t, following in enumerate(rows[1:]):
        rollout.chosen = ChosenActions(
            np.full((2, 1), t, np.float32), np.zeros((2, 0), np.int64)
        )
        rollout.add(following)
        pieces.append(rollout.trajectories())
        rollout.begin_again()
    assert pieces[1].valid.tolist() == [[False, True], [True, False]]
    lines = time_lines(pieces[1])
    assert lines.decides[:, 0].tolist() == [False, True]
    assert lines.credited.sum() == 1, "of the mate that acts now"
    group = lines.once(pieces[1].group_reward)
    assert group.sum() == 0.5, "the reward of 1 came with the first piece"


def test_agents_alone_lose_no_action_at_a_hand_over():
    """Two that decide in turns, and a hand-over after each result."""
    rollout = Rollout()
    rollout.begin(row([1, 2], begins=True, deciding=[True, False]))
    credited = np.zeros(2, int)
    for t in range(1, 9):
        rollout.chosen = ChosenActions(
            np.full((2, 1), t, np.float32), np.zeros((2, 0), np.int64)
        )
        turn = [t % 2 == 0, t % 2 == 1]
        rollout.add(row([1, 2], deciding=turn, closed=[turn[0], turn[1] and t > 1]))
        if rollout.num_results:
            lines = time_lines(rollout.trajectories())
            for line, (slot,) in enumerate(lines.slot):
                credited[slot] += lines.credited[:, line].sum()
            rollout.begin_again()
    assert credited.tolist() == [4, 3], "every result, once"


def test_a_horizon_cuts_all_members_at_the_same_step_also_those_born_later():
    first = row([1, 2], begins=True, deciding=[True, False], group_id=1)
    rows = [first] + [
        row([1, 2], begins=[False, t == 2], deciding=[True, t >= 2],
            closed=[True, t > 2], group_id=1)
        for t in range(1, 7)
    ]  # fmt: skip
    lines = time_lines(rollout_of(rows))
    cuts = horizon_cuts(lines.decides, lines.begins, 3)
    assert cuts[:, 0].tolist() == [False, False, True] * 2
