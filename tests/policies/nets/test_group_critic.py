"""The critic of groups against ML-Agents' own numbers, and its laws."""

import json

import numpy as np
import pytest
import torch

from touchline.policies.nets.group_critic import GroupCritic, Groups
from touchline.policies.network import Architecture
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.algorithms.returns import generalized_advantage

BODY = "network_body."
OF_ML_AGENTS = {
    "member": BODY + "obs_encoder.self_ent_encoder.seq_layers.0",
    "member_with_action": BODY + "obs_action_encoder.self_ent_encoder.seq_layers.0",
    "out": BODY + "self_attn.fc_out",
    "dense.0": BODY + "linear_encoder.seq_layers.0",
    "dense.2": BODY + "linear_encoder.seq_layers.2",
}
"""Our layers -> ML-Agents' names."""


def _critic(golden):
    """A critic with the weights of the golden file; vectors of 3 and 2 are observed."""
    spec = BehaviorSpec(
        (ObservationSpec.vector(3, "a"), ObservationSpec.vector(2, "b")),
        ActionSpec(golden["continuous"], tuple(golden["branches"])),
    )
    architecture = Architecture(
        hidden_units=golden["hidden_units"], num_layers=golden["num_layers"]
    )
    critic = GroupCritic(spec, architecture)
    given = {k: torch.tensor(v) for k, v in golden["weights"].items()}
    state = {}
    for ours, theirs in OF_ML_AGENTS.items():
        state[f"{ours}.weight"] = given[f"{theirs}.weight"]
        state[f"{ours}.bias"] = given[f"{theirs}.bias"]
    for part in ("weight", "bias"):
        attention = [given[f"{BODY}self_attn.fc_{name}.{part}"] for name in "qkv"]
        state[f"query_key_value.{part}"] = torch.cat(attention)
        state[f"value_{part}"] = given[f"value_heads.value_heads.extrinsic.{part}"]
    state["most_members"] = given[BODY + "_current_max_agents"].float()
    critic.load_state_dict(state)
    return critic


def _groups(golden):
    """Four moments of an agent and the mates that are not absent, the agent first."""
    own = np.concatenate(golden["own_obs"], axis=1)
    mates = [np.concatenate(obs, axis=1) for obs in golden["mate_obs"]]
    absent = np.array(golden["absent"], bool)
    continuous, discrete = golden["mate_continuous"], golden["mate_discrete"]
    obs, actions, moment, credited = [], [], [], []
    for t in range(len(own)):
        credited.append(len(obs))
        obs.append(own[t])
        size = golden["continuous"] + sum(golden["branches"])
        actions.append(np.full(size, 7.0))  # the baseline may not depend on it
        moment.append(t)
        for mate in np.flatnonzero(~absent[t]):
            one_hots = [
                np.eye(n)[c]
                for n, c in zip(golden["branches"], discrete[mate][t], strict=True)
            ]
            obs.append(mates[mate][t])
            actions.append(np.concatenate([continuous[mate][t], *one_hots]))
            moment.append(t)
    return Groups(
        obs=(torch.tensor(np.array(obs), dtype=torch.float32),),
        actions=torch.tensor(np.array(actions), dtype=torch.float32),
        moment=torch.tensor(moment),
        num_moments=len(own),
        credited=torch.tensor(credited),
    )


@pytest.fixture(params=["continuous", "discrete"])
def golden(shared, request):
    """Source: ML-Agents 1.1.0's POCA optimizer, run on small tensors."""
    path = shared / "golden" / f"poca_critic_{request.param}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_values_and_baselines_are_ml_agents(golden):
    with torch.no_grad():
        value, baseline = _critic(golden)(_groups(golden))
    np.testing.assert_allclose(value[:, 0], golden["value"], atol=1e-5)
    np.testing.assert_allclose(baseline[:, 0], golden["baseline"], atol=1e-5)


def test_returns_and_advantages_are_ml_agents(golden):
    """Own rewards and those of mates are shared; G is along the group's line; A = G - b."""
    own, mates = np.array(golden["own_reward"]), np.array(golden["mate_rewards"])
    present = ~np.array(golden["absent"], bool)
    reward = own + (mates * present).sum(axis=1) + golden["group_reward"]
    np.testing.assert_allclose(reward, golden["total_reward"], atol=1e-5)
    value = np.array(golden["value"], np.float32)[:, None]
    ends = np.zeros((len(value), 1), bool)
    advantage = generalized_advantage(
        reward=reward.astype(np.float32)[:, None],
        value=value,
        next_value=np.append(value[1:], np.float32([[golden["value_next"]]]), axis=0),
        terminated=ends,
        truncated=ends,
        valid=~ends,
        discount=golden["gamma"],
        gae_lambda=golden["lambd"],
    )
    returns = (advantage + value)[:, 0]
    np.testing.assert_allclose(returns, golden["lambda_return"], atol=1e-5)
    np.testing.assert_allclose(
        returns - golden["baseline"], golden["advantage"], atol=1e-5
    )


SPEC = BehaviorSpec((ObservationSpec.vector(3, "v"),), ActionSpec(1, (2,)))


def _random_groups(members_of_moments, seed=0):
    moment = torch.repeat_interleave(
        torch.arange(len(members_of_moments)), torch.tensor(members_of_moments)
    )
    generator = torch.Generator().manual_seed(seed)
    size = len(moment)
    return Groups(
        obs=(torch.randn(size, 3, generator=generator),),
        actions=torch.randn(size, 3, generator=generator),
        moment=moment,
        num_moments=len(members_of_moments),
        credited=torch.arange(size),
    )


def _random_critic(**changes):
    torch.manual_seed(1)
    critic = GroupCritic(SPEC, Architecture(hidden_units=16, **changes), 2)
    critic.most_members.fill_(3)
    for parameter in critic.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return critic.eval()


@torch.no_grad()
def test_a_baseline_knows_the_mates_actions_but_not_its_own():
    critic, groups = _random_critic(), _random_groups([3, 1, 2])
    _, before = critic(groups)
    groups.actions[0] += 1.0
    value, after = critic(groups)
    changed = (before != after).any(dim=1).tolist()
    assert changed == [False, True, True, False, False, False]
    assert value.shape == (3, 2)


@torch.no_grad()
def test_one_call_over_many_groups_is_one_call_for_each():
    """Absent members, of which the smaller groups have some, change nothing."""
    critic, counts = _random_critic(), [3, 1, 2]
    groups = _random_groups(counts)
    value, baseline = critic(groups)
    start = 0
    for number, count in enumerate(counts):
        rows = slice(start, start + count)
        alone = Groups(
            obs=(groups.obs[0][rows],),
            actions=groups.actions[rows],
            moment=torch.zeros(count, dtype=torch.int64),
            num_moments=1,
            credited=torch.arange(count),
        )
        own_value, own_baseline = critic(alone)
        torch.testing.assert_close(own_value[0], value[number])
        torch.testing.assert_close(own_baseline, baseline[rows])
        start += count


@torch.no_grad()
def test_the_order_of_members_does_not_matter():
    critic, groups = _random_critic(), _random_groups([3])
    value, baseline = critic(groups)
    order = torch.tensor([2, 0, 1])
    turned = Groups(
        (groups.obs[0][order],),
        groups.actions[order],
        groups.moment,
        1,
        groups.credited,
    )
    other_value, other_baseline = critic(turned)
    torch.testing.assert_close(other_value, value)
    torch.testing.assert_close(other_baseline, baseline[order])


@torch.no_grad()
def test_alone_the_baseline_is_the_value():
    value, baseline = _random_critic()(_random_groups([1, 1]))
    torch.testing.assert_close(value, baseline)
