"""From rows to trajectories."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.scripted_world import ScriptedWorld
from tests.training.rows import any_rows

from touchline.envs.saved_state import prefixed
from touchline.envs.slots import Slots
from touchline.policies.policy import ChosenActions
from touchline.testing import random_slot_actions
from touchline.training.experience.replay import Replay
from touchline.training.experience.rollout import Rollout
from touchline.training.run.packing import pack


def _chosen(actions):
    return ChosenActions(actions.continuous, actions.discrete.astype(np.int64))


def test_every_action_stands_beside_its_own_result():
    """On a world with every difficulty, trajectories say of an action what the slots said of it."""
    slots, rng, rollout = Slots(ScriptedWorld()), np.random.default_rng(0), Rollout()
    rows = slots.reset(0)
    name = next(name for name in slots.behaviors if "Walker" in name)
    rollout.begin(rows[name])
    results, open_at, total, total_of_group = {}, {}, 0.0, 0.0
    for _ in range(300):
        actions = {
            n: random_slot_actions(s, rows[n], rng) for n, s in slots.behaviors.items()
        }
        rollout.chosen = _chosen(actions[name])
        for slot in np.flatnonzero(rows[name].deciding):
            open_at[slot] = len(rollout.rows) - 1
        rows = slots.step(actions)
        row = rows[name]
        for slot in np.flatnonzero(row.closed):
            if slot in open_at:
                columns = (row.reward, row.group_reward, row.terminated, row.truncated)
                result = tuple(column[slot] for column in columns)
                results[open_at.pop(slot), int(slot)] = result
                total += result[0]
                total_of_group += result[1]
        rollout.add(row)
    t = rollout.trajectories()
    assert sorted(results) == sorted(zip(*np.nonzero(t.valid), strict=True))
    assert rollout.num_results == t.num_results == len(results)
    for (step, slot), result in results.items():
        columns = (t.reward, t.group_reward, t.terminated, t.truncated)
        assert tuple(column[step, slot] for column in columns) == result
        ended = result[2] or result[3]
        assert (t.final[step, slot] >= 0) == ended
        obs, final_obs = t.obs[0], t.final_obs[0]
        who = obs[step, slot, :2]
        next_row = t.value_row[step, slot]
        after = final_obs[t.final[step, slot]] if ended else obs[next_row, slot]
        assert after[:2].tolist() == who.tolist(), (
            "what follows belongs to the same episode"
        )
        assert after[2] > obs[step, slot, 2] or (ended and result[3]), (
            "and is later in it"
        )
        assert t.agent_id[step, slot] >= 0
        assert t.env_index[step, slot] == 0
    assert float(t.reward.sum()) == pytest.approx(total)
    assert float(t.group_reward.sum()) == pytest.approx(total_of_group)


def test_results_of_actions_from_before_a_rollout_do_not_count_towards_an_update():
    """Agents that decide one after the other: a rollout of 20 results holds 20 valid actions."""
    world = ScriptedWorld(12, periods=(6,), moves=False, births=False, vanishings=False)
    slots, rng = Slots(world), np.random.default_rng(0)
    (name, rows), rollout = next(iter(slots.reset(0).items())), Rollout()
    rollout.begin(rows)
    for _ in range(5):
        while rollout.num_results < 20:
            actions = random_slot_actions(slots.behaviors[name], rows, rng)
            rollout.chosen = _chosen(actions)
            rows = slots.step({name: actions})[name]
            rollout.add(rows)
        assert rollout.trajectories().num_results == rollout.num_results
        rollout.begin(rows)


@pytest.mark.parametrize("resumes", [False, True])
def test_actions_open_at_a_hand_over_come_with_the_next_trajectories(resumes):
    """Agents that decide one after the other, each result handed over at once (SAC's default)."""
    world = ScriptedWorld(12, periods=(6,), moves=False)
    slots, rng = Slots(world), np.random.default_rng(0)
    (name, rows) = next(iter(slots.reset(0).items()))
    rollout, whole = Rollout(), Rollout()
    pieces, everything = Replay(1000), Replay(1000)
    rollout.begin(rows)
    whole.begin(rows)
    most_rows = 0
    for _ in range(120):
        actions = random_slot_actions(slots.behaviors[name], rows, rng)
        rows = slots.step({name: actions})[name]
        for one in (rollout, whole):
            one.chosen = _chosen(actions)
            one.add(rows)
        if rollout.num_results:
            piece = rollout.trajectories()
            pieces.add("A", piece, piece.reward[..., None])
            rollout.begin_again()
            most_rows = max(most_rows, len(rollout.rows))
            if resumes:
                rollout = _restored(rollout)
    all_of_it = whole.trajectories()
    everything.add("A", all_of_it, all_of_it.reward[..., None])
    assert len(pieces) == whole.num_results > 100
    assert 1 < most_rows <= 7, "no more than what is open, and the last row"
    # Returns over four actions, so that each action must know the next ones of its agent.
    assert _returns(pieces) == _returns(everything)


def _restored(rollout):
    """Another one, from what a resume point holds of this one."""
    saved = prefixed("rows", pack(rollout.rows))
    if rollout.actions:
        saved |= prefixed("actions", pack(rollout.actions))
    if rollout.num_carried:
        saved["carried"] = np.array(rollout.num_carried)
    again = Rollout()
    again.restore(saved, rollout.rows[-1])
    return again


def _returns(replay):
    """What followed each action, by what was observed before it."""
    sample = replay.sample(
        5000, [0.5], torch.Generator().manual_seed(0), return_steps=4
    )
    parts = (sample.obs[0], sample.reward, sample.next_obs[0], sample.discount)
    drawn = torch.cat([part.flatten(1) for part in parts], dim=1).tolist()
    return sorted({tuple(row) for row in drawn})


def test_a_rollout_of_a_behavior_that_idles_stays_small():
    rows = any_rows(np.random.default_rng(0), True)
    idle = any_rows(np.random.default_rng(1), False)
    nothing = np.zeros(len(idle), np.bool_)
    idle = replace(
        idle,
        deciding=nothing,
        begins=nothing,
        closed=nothing,
        terminated=nothing,
        truncated=nothing,
    )
    rollout = Rollout()
    rollout.begin(idle)
    for _ in range(1000):
        rollout.chosen = ChosenActions(
            np.zeros((4, 1), np.float32), np.zeros((4, 0), np.int64)
        )
        rollout.add(idle)
    assert len(rollout.rows) == 1
    rollout.add(rows)
    rollout.add(any_rows(np.random.default_rng(2), False))
    assert rollout.trajectories().valid.tolist() == [[True] * 4]
    np.testing.assert_array_equal(rollout.trajectories().obs[0][0], rows.obs[0])


def test_a_rollout_of_a_team_that_waits_for_its_turn_stays_small():
    """Rows between two turns are gone, and what was learned from keeps its results."""
    rng = np.random.default_rng(0)
    played = [any_rows(rng, t == 0) for t in range(40)]
    learns = [t < 3 or t >= 30 for t in range(39)]
    rollout, everything = Rollout(), Rollout()
    for one in (rollout, everything):
        one.begin(played[0])
        for learned, rows in zip(learns, played[1:], strict=True):
            chosen = ChosenActions(
                rng.random((4, 1), np.float32), np.zeros((4, 0), np.int64)
            )
            is_kept = learned or one is everything
            one.chosen = replace(chosen, learned=np.full(4, is_kept))
            one.add(rows)
    assert len(everything.rows) == 40
    assert len(rollout.rows) == 14, "3 and 9 actions, and a row behind each of them"
    short, whole = rollout.trajectories(), everything.trajectories()
    kept = [t for t, learned in enumerate(learns) if learned]
    assert short.valid.sum() == 4 * len(kept) == rollout.num_results
    at = [t for t in range(len(short.acted)) if short.acted[t].all()]
    for mine, its in zip(at, kept, strict=True):
        np.testing.assert_array_equal(short.reward[mine], whole.reward[its])
        np.testing.assert_array_equal(short.obs[0][mine], whole.obs[0][its])
        after = short.value_row[mine]
        np.testing.assert_array_equal(short.obs[0][after[0]], whole.obs[0][its + 1])
