"""PPO's mathematics, and that it learns."""

import numpy as np
import pytest
import torch

from touchline.envs.env import make
from touchline.envs.slots import Slots
from touchline.testing import ScriptedWorld
from touchline.training.config import BehaviorConfig, read_config
from touchline.training.ppo import PPO, clipped_surrogate, clipped_surrogate_gradient, linear_schedule
from touchline.training.rollout import Rollout


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective"),
    [(1.1, 2.0, 2.2), (1.5, 2.0, 2.4), (0.5, 2.0, 1.0), (0.9, -1.0, -0.9), (0.5, -1.0, -0.8), (1.5, -1.0, -1.5)],
)
def test_gains_count_only_near_the_old_policy(ratio, advantage, objective):
    old = torch.tensor([-1.0])
    new = old + torch.log(torch.tensor([ratio]))
    assert clipped_surrogate(new, old, torch.tensor([advantage]), 0.2).item() == pytest.approx(objective, abs=1e-5)


def test_the_written_out_gradient_is_autograds():
    torch.manual_seed(0)
    new = (torch.randn(500) / 3).requires_grad_()
    old, advantage = torch.zeros(500), torch.randn(500)
    (recorded,) = torch.autograd.grad(clipped_surrogate(new, old, advantage, 0.2), new)
    torch.testing.assert_close(clipped_surrogate_gradient(new.detach(), old, advantage, 0.2), recorded)


def test_a_schedule_ends_where_it_says():
    assert [linear_schedule(2.0, 0.0, p) for p in (0.0, 0.25, 1.0, 7.0)] == [2.0, 1.5, 0.0, 0.0]


def test_every_action_stands_beside_its_own_result():
    """On a world with every difficulty: what a rollout says of an action is what the slots said of it."""
    slots = Slots(ScriptedWorld())
    rows = slots.reset(0)
    learners = {
        name: PPO(name, spec, BehaviorConfig(), 0) for name, spec in slots.behaviors.items() if "Walker" in name
    }
    (name, learner), rollout = next(iter(learners.items())), Rollout()
    rollout.begin(rows[name])
    told, open_at, total = {}, {}, 0.0
    for t in range(300):
        chosen, rollout.chosen = learner.act(rows[name])
        actions = {n: s.action_spec.empty_action(len(rows[n])) for n, s in slots.behaviors.items()} | {name: chosen}
        for n, row in rows.items():
            if row.action_mask is not None:
                first_allowed = [np.argmax(m, axis=1) for m in np.split(row.action_mask, [3], axis=1)]
                if n != name:
                    actions[n].discrete[:] = np.stack(first_allowed, axis=1)
        for slot in np.flatnonzero(rows[name].deciding):
            open_at[slot] = t
        rows = slots.step(actions)
        row = rows[name]
        for slot in np.flatnonzero(row.closed):
            if slot in open_at:
                result = (row.reward[slot] + row.group_reward[slot], row.terminated[slot], row.truncated[slot])
                told[open_at.pop(slot), int(slot)] = result
                total += result[0]
        rollout.add(row)
    e = rollout.experience(time_horizon=10_000)
    assert sorted(told) == sorted(zip(*np.nonzero(e.valid), strict=True))
    for (t, slot), result in told.items():
        assert (e.reward[t, slot], e.terminated[t, slot], e.truncated[t, slot]) == result
        ended = result[1] or result[2]
        assert (e.final[t, slot] >= 0) == ended
        obs, final_obs = e.obs[0], e.final_obs[0]
        who = obs[t, slot, :2]
        after = final_obs[e.final[t, slot]] if ended else obs[e.value_row[t, slot], slot]
        assert after[:2].tolist() == who.tolist(), "what follows belongs to the same life"
        assert after[2] > obs[t, slot, 2] or (ended and result[2]), "and is later in it"
    assert float(e.reward.sum()) == pytest.approx(total)


def test_basic_is_learned_to_its_optimum():
    config = read_config("Basic").behaviors["Basic"]
    with make("Basic") as env:
        slots = Slots(env)
        rows = slots.reset(1)["Basic?team=0"]
        learner = PPO("Basic", slots.behaviors["Basic?team=0"], config, seed=1)
        rollout, running, returns = Rollout(), 0.0, []
        rollout.begin(rows)
        while learner.steps < 20_000:
            chosen, rollout.chosen = learner.act(rows)
            rows = slots.step({"Basic?team=0": chosen})["Basic?team=0"]
            rollout.add(rows)
            running += float(rows.reward[0])
            if rows.terminated[0]:
                returns, running = [*returns, running], 0.0
            if rollout.num_results >= config.hyperparameters.buffer_size:
                learner.learn([rollout.experience(config.time_horizon)])
                rollout.begin(rows)
    assert np.mean(returns[-30:]) > 0.9, "the best return is 0.93 (docs/scenes.md)"
