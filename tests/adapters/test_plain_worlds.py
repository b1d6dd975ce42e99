"""Worlds of others with ML-Agents' interface: what breaks its contract is one line."""

from dataclasses import replace

import numpy as np
import pytest
from tests.scripted_world import ScriptedWorld

import touchline
from touchline.envs.ml_agents_names import FIRST_OTHER_ID, as_env
from touchline.envs.slots.rows import idle_actions
from touchline.errors import ActionError
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.steps import DecisionSteps, TerminalSteps

SPEC = BehaviorSpec((ObservationSpec.vector(2, "place"),), ActionSpec(0, (3,)))


class Still:
    """Two agents for which nothing happens; `change` is done to all that it sends."""

    def __init__(self, change):
        self.behavior_specs = {"Still?team=0": SPEC}
        self.change = change

    def reset(self):
        pass

    def step(self):
        pass

    def close(self):
        pass

    def set_actions(self, behavior_name, action):
        pass

    def get_steps(self, behavior_name):
        zeros, agents = np.zeros(2, np.float32), np.arange(2, dtype=np.int32)
        decisions = DecisionSteps(
            [np.zeros((2, 2), np.float32)], zeros, agents, None, agents * 0, zeros
        )
        return self.change(decisions, TerminalSteps.empty(SPEC))


def _decisions(**changes):
    return lambda decisions, ends: (replace(decisions, **changes), ends)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_decisions(obs=[np.zeros((2, 3))]), r"obs have the shapes \[\(2, 3\)\], expected"),
        (_decisions(obs=[np.zeros((1, 2))]), r"\[\(1, 2\)\], expected \[\(2, 2\)\]"),
        (_decisions(obs=[]), r"DecisionSteps.obs have the shapes \[\], expected"),
        (_decisions(reward=1.0), r"reward has the shape \(\), expected \(2,\)"),
        (_decisions(group_id=None), "group_id: expected an array, got None"),
        (_decisions(agent_id=None), "agent_id: expected an array, got None"),
        (_decisions(agent_id=[2**40, 1]), "agent_id: expected an array, got .1099511627776, 1"),
        (_decisions(agent_id=[1.5, 2]), "agent_id: expected an array, got .1.5, 2"),
        (_decisions(agent_id=[3, 3]), "agent_id names an agent twice"),
        (_decisions(obs=None), "obs: expected a list of arrays, got None"),
        (_decisions(obs=[[[0, 0], [1]]]), "obs: expected an array, got "),
        (_decisions(action_mask=3), "action_mask: expected a list of arrays, got 3"),
        (lambda decisions, ends: (decisions, replace(ends, interrupted=None)), r"interrupted has the shape \(\)"),
        (lambda decisions, ends: decisions, "expected .DecisionSteps, TerminalSteps., got D"),
        (_decisions(action_mask=[np.zeros((2, 5), bool)]), r"\(2, 5\)\], expected \[\(2, 3"),
        (_decisions(action_mask=[]), r"action_mask has the shapes \[\], expected"),
        (_decisions(action_mask=[np.ones((2, 3), bool)]), "forbids every choice"),
        (lambda decisions, ends: None, "expected .DecisionSteps, TerminalSteps., got None"),
        (lambda decisions, ends: (ends, decisions), "got .TerminalSteps"),
    ],
)  # fmt: skip
def test_steps_that_break_the_contract_are_one_line(change, message):
    start = r"^Still.get_steps\('Still\?team=0'\): "
    with pytest.raises(touchline.UsageError, match=f"{start}.*{message}") as refused:
        touchline.make_pettingzoo(Still(change)).reset()
    assert "\n" not in str(refused.value)


def test_a_behavior_that_is_not_there_is_named_with_those_that_are():
    world = as_env(Still(_decisions()))
    with pytest.raises(
        touchline.UsageError, match=r"Still: unknown behavior 'Moving'; b.*team=0"
    ):
        world.steps("Moving")


def test_lists_in_place_of_arrays_are_taken():
    lists = {"obs": [[[0, 1], [1, 0]]], "reward": [0, 1], "group_reward": [0.0, 0.0]}
    more = {"agent_id": [0, 1], "group_id": [0, 0], "action_mask": np.zeros((1, 2, 3))}
    env = touchline.make_pettingzoo(Still(_decisions(**lists, **more)))
    obs, _ = env.reset()
    assert [o["observation"].tolist() for o in obs.values()] == [[0, 1], [1, 0]]
    _, rewards, *_ = env.step(dict.fromkeys(env.agents, 1))
    assert list(rewards.values()) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("choice", "message"), [(0, "choice 0 is masked"), (9, "expected 0 to 2, got 9")]
)
def test_choices_that_are_forbidden_or_missing_are_errors(choice, message):
    masks = [np.array([[1, 0, 0]] * 2, bool)]
    env = touchline.make_pettingzoo(Still(_decisions(action_mask=masks)))
    env.reset()
    with pytest.raises(ActionError, match=f"Still: Still.*{message}"):
        env.step(dict.fromkeys(env.agents, choice))


class Rivals(Still):
    """Both behaviors count their agents from 0, and each step ends the first one's episode."""

    def __init__(self):
        super().__init__(None)
        self.behavior_specs = {"Rival?team=0": SPEC, "Rival?team=1": SPEC}
        self.sent = {}
        self.time = 0

    def step(self):
        self.time += 1

    def set_actions(self, behavior_name, action):
        self.sent[behavior_name] = action.discrete[:, 0].tolist()

    def get_steps(self, behavior_name):
        team = float(behavior_name[-1])
        agents = np.array([self.time, 100], np.int32)
        ended = np.array([self.time - 1] if self.time else [], np.int32)
        obs = np.full((2, 2), team, np.float32)
        reward, groups = np.full(2, team, np.float32), np.zeros(2, np.int32)
        count = len(ended)
        return (
            DecisionSteps([obs], reward, agents, None, groups, groups * 0.0),
            TerminalSteps(
                [obs[:count]], reward[:count], ended > 99, ended, groups[:count], reward[:count] * 0
            ),
        )  # fmt: skip


def test_behaviors_may_count_their_agents_from_the_same_number():
    world = Rivals()
    env = touchline.make_gymnasium(world, vector=True, group_by="base")
    obs, _ = env.reset()
    for _ in range(3):
        assert obs[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0]
        obs, rewards, ended, *_ = env.step(1 + obs[:, 0].astype(int))
        assert rewards.tolist() == [0.0, 0.0, 1.0, 1.0]
        assert ended.tolist() == [True, False, True, False]
        assert world.sent == {"Rival?team=0": [1, 1], "Rival?team=1": [2, 2]}


def test_a_reset_forgets_who_was_there():
    world = Rivals()
    env = touchline.make_gymnasium(world, vector=True, group_by="base")
    for _ in range(3):
        env.reset()
        world.time += 1000
    table = as_env(world)
    for _ in range(3):
        world.time += 1000
        table.reset()
        ids = [table.steps(name)[0].agent_id.tolist() for name in world.behavior_specs]
        first = FIRST_OTHER_ID
        assert ids == [[world.time, 100], [first, first + 1]]


def _steps_of(num_deciding, num_ended=0):
    """Of agent 0."""
    agents, ended = (np.zeros(int(n), np.int32) for n in (num_deciding, num_ended))
    return (
        DecisionSteps([np.zeros((len(agents), 2))], agents * 1.0, agents, None, agents, agents * 0.0),
        TerminalSteps([np.zeros((len(ended), 2))], ended * 1.0, ended > 0, ended, ended, ended * 0.0),
    )  # fmt: skip


class Waits(Rivals):
    """Agent 0 of team 0 acts in every fourth exchange; one of team 1 ends in every second."""

    def get_steps(self, behavior_name):
        if behavior_name.endswith("0"):
            return _steps_of(self.time % 4 == 0)
        return _steps_of(self.time % 2 == 0, self.time % 2 == 1)


def test_an_agent_that_waits_is_not_taken_for_one_of_another_behavior():
    slots = touchline.Slots(as_env(Waits()))
    rows = slots.reset()
    for _ in range(20):
        rows = slots.step({
            name: idle_actions(SPEC.action_spec, row)
            for name, row in rows.items()
        })  # fmt: skip
        assert not rows["Rival?team=0"].truncated.any()
    assert not any(count.moved for count in slots.counts.values())


class TakesTurns(Rivals):
    """The agent of each team has the same id, and acts while the other one waits."""

    def get_steps(self, behavior_name):
        return _steps_of(self.time % 2 == int(behavior_name[-1]))


class Arrives(Waits):
    """Team 1 comes while the agent of team 0 waits."""

    def __init__(self):
        super().__init__()
        del self.behavior_specs["Rival?team=1"]

    def step(self):
        super().step()
        if self.time == 2:
            self.behavior_specs["Rival?team=1"] = SPEC


@pytest.mark.parametrize("world", [TakesTurns, Arrives])
def test_agents_that_take_turns_with_one_id_are_warned_of_once(caplog, world):
    env = as_env(world())
    for number in range(12):
        if number % 6 == 0:
            env.reset()
        for name in env.behaviors:
            env.steps(name)
        env.step()
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "agent 0 of Rival?team=0 acts as Rival?team=1 now, so its episode there was cut off"
    )


class Delegating:
    """A world of ours with ML-Agents' interface alone."""

    def __init__(self, world):
        self._world = world
        self.step, self.close, self.set_actions = (
            world.step,
            world.close,
            world.set_actions,
        )
        self.get_steps = world.steps

    @property
    def behavior_specs(self):
        return self._world.behaviors

    def reset(self):
        self._world.reset(3)


@pytest.mark.parametrize("is_plain", [False, True])
def test_agents_that_change_their_behavior_are_the_same_agents(is_plain):
    world = ScriptedWorld(6, moves=True, births=False, vanishings=False)
    slots = touchline.Slots(as_env(Delegating(world)) if is_plain else world)
    rows = slots.reset(3)
    for _ in range(300):
        actions = {
            name: idle_actions(slots.behaviors[name].action_spec, row)
            for name, row in rows.items()
        }  # fmt: skip
        rows = slots.step(actions)
    assert sum(count.moved for count in slots.counts.values()) > 0
    assert slots.num_active <= len(world.agents)


def test_steps_that_hold_it_and_a_class_for_a_world():
    env = touchline.make_pettingzoo(Still(_decisions()))
    assert len(env.reset()[0]) == 2
    with pytest.raises(touchline.UsageError, match="expected an ENV, an EnvRecipe or"):
        touchline.make_pettingzoo(Still)
