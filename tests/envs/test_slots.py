"""The slots' invariants on a world that shows every difficulty, and the rules one by one."""

import numpy as np
import pytest
from tests.scripted_world import ScriptedWorld

from touchline.envs.actions import ActionError
from touchline.envs.env import make
from touchline.envs.slots import Slots
from touchline.errors import RunError, UsageError
from touchline.specs import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
)
from touchline.steps import DecisionSteps, TerminalSteps
from touchline.testing import check_slots

SPEC = BehaviorSpec((ObservationSpec((1,)),), ActionSpec.create_discrete((2,)))


class Replay:
    """A world that plays back exchanges: per behavior (ids that decide, ids that ended), reward =
    id + 0.5.
    """

    def __init__(self, *exchanges, behaviors=("A",), capacity=None):
        self._exchanges = exchanges
        self._behaviors = dict.fromkeys(behaviors, SPEC)
        self._capacity = capacity
        self.sent = []

    @property
    def behaviors(self):
        return self._behaviors

    def capacity(self, behavior):
        return self._capacity

    def reset(self, seed=None, parameters=None):
        self._now = 0

    def set_actions(self, behavior, actions):
        self.sent.append(actions.discrete[:, 0].tolist())

    def step(self):
        self._now += 1

    def steps(self, behavior):
        deciding, ended = self._exchanges[self._now].get(behavior, ([], []))
        return _decisions(deciding, self._now), _terminals(ended, self._now)


def _decisions(ids, now):
    ids = np.array(ids, np.int32)
    return DecisionSteps(
        [np.full((len(ids), 1), now, np.float32)], ids + np.float32(0.5), ids,
        [np.zeros((len(ids), 2), bool)], np.zeros_like(ids), np.zeros(len(ids), np.float32),
    )  # fmt: skip


def _terminals(ids, now):
    interrupted = np.array([i < 0 for i in ids], bool)
    ids = np.abs(np.array(ids, np.int32))
    return TerminalSteps(
        [np.full((len(ids), 1), -now, np.float32)], ids + np.float32(0.25), interrupted, ids,
        np.zeros_like(ids), np.zeros(len(ids), np.float32),
    )  # fmt: skip


def _act(slots, rows):
    return slots.step(
        {
            name: ActionTuple(discrete=np.arange(len(r))[:, None] % 2)
            for name, r in rows.items()
        }
    )


@pytest.mark.parametrize(
    "seed",
    [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))],
)
def test_invariants_hold_through_every_difficulty(seed):
    episodes = {}

    def same_life(name, row):
        for slot in np.flatnonzero(row.deciding):
            who = row.obs[0][slot, :2].tolist()
            assert who[0] == row.agent_id[slot]
            assert row.begins[slot] or episodes[name, slot] == who, (
                "an observation is followed by one from another episode"
            )
            episodes[name, slot] = who
        for slot, last in zip(row.final_slot, row.final_obs[0], strict=True):
            assert row.truncated[slot] or row.terminated[slot]
            assert row.begins[slot] or not row.deciding[slot]
            assert last[2] >= 0

    slots = check_slots(ScriptedWorld(), steps=3000, seed=seed, on_rows=same_life)
    counts = list(slots.counts.values())
    assert sum(c.moved for c in counts) > 10, "the script must show moves"
    assert sum(c.orphan_ends for c in counts) > 10, (
        "the script must show ends without decisions"
    )
    assert sum(c.ends for c in counts) > 100


def test_final_observations_belong_to_the_life_that_ended():
    ages = {}

    def on_rows(name, row):
        for slot, last in zip(row.final_slot, row.final_obs[0], strict=True):
            assert last[:2].tolist() == ages[name, slot]
        for slot in np.flatnonzero(row.deciding):
            ages[name, slot] = row.obs[0][slot, :2].tolist()

    check_slots(
        ScriptedWorld(births=False, vanishings=False), steps=2000, on_rows=on_rows
    )


def test_actions_are_sent_in_the_order_in_which_the_world_asked():
    world = Replay({"A": ([7, 3], [])}, {"A": ([3, 7], [])}, {"A": ([3, 7], [])})
    slots = Slots(world)
    rows = slots.reset()
    assert rows["A"].agent_id.tolist() == [7, 3]
    rows = _act(slots, rows)
    rows = _act(slots, rows)
    assert world.sent == [[0, 1], [1, 0]]


def test_exchanges_with_ends_only_are_merged_into_the_next_decision():
    slots = Slots(Replay({"A": ([0, 1], [])}, {"A": ([], [1])}, {"A": ([0, 1], [])}))
    (row,) = _act(slots, slots.reset()).values()
    assert row.terminated.tolist() == [False, True]
    assert row.begins.tolist() == [False, True]
    assert row.reward.tolist() == [0.5, 1.25]
    assert row.final_slot.tolist() == [1]
    assert row.final_obs[0].tolist() == [[-1]]
    assert row.obs[0].tolist() == [[2], [2]]
    assert slots.counts["A"].unattributed_reward == 0.5 + 1.5 + 1.5, (
        "first decisions have no action to reward"
    )


def test_interrupted_becomes_truncated():
    slots = Slots(Replay({"A": ([1], [])}, {"A": ([], [-1])}, {"A": ([1], [])}))
    (row,) = _act(slots, slots.reset()).values()
    assert row.truncated.tolist() == [True]
    assert row.terminated.tolist() == [False]


def test_a_new_id_takes_the_slot_of_the_one_that_just_ended_when_no_other_is_free():
    slots = Slots(
        Replay({"A": ([0], [])}, {"A": ([], [0])}, {"A": ([1], [])}, capacity=1),
        grow=False,
    )
    (row,) = _act(slots, slots.reset()).values()
    assert len(row) == 1
    assert (row.closed & row.terminated & row.begins).all()
    assert row.agent_id.tolist() == [1]


def test_rows_keep_their_ids_when_other_agents_follow():
    world = Replay(
        {"A": ([0, 1], [])},
        {"A": ([0, 1], [])},
        {"A": ([], [0])},
        {"A": ([1, 5], [])},
        {"A": ([1, 5], [])},
        capacity=2,
    )
    slots = Slots(world, grow=False)
    seen = [slots.reset()]
    while len(seen) < 4:
        seen.append(_act(slots, seen[-1]))
    ids = [rows["A"].agent_id.tolist() for rows in seen]
    assert ids == [[0, 1], [0, 1], [5, 1], [5, 1]]


def test_a_resting_slot_is_kept_for_its_id_while_another_is_free():
    world = Replay(
        {"A": ([0, 1], [])}, {"A": ([1, 2], [0])}, {"A": ([0, 1, 2], [])}, capacity=3
    )
    slots = Slots(world, grow=False)
    rows = _act(slots, slots.reset())
    assert rows["A"].agent_id.tolist() == [0, 1, 2], (
        "the row of its end still names the agent"
    )
    assert rows["A"].deciding.tolist() == [False, True, True]
    rows = _act(slots, rows)
    assert rows["A"].agent_id.tolist() == [0, 1, 2]


def test_the_longest_resting_slot_goes_first():
    world = Replay(
        {"A": ([0, 1, 2], [])},
        {"A": ([0, 2], [1])},
        {"A": ([2], [0])},
        {"A": ([2, 9], [])},
        capacity=3,
    )
    slots = Slots(world, grow=False)
    rows = slots.reset()
    for _ in range(3):
        rows = _act(slots, rows)
    assert rows["A"].agent_id.tolist() == [-1, 9, 2]


def test_a_full_table_names_the_option_that_widens_it():
    slots = Slots(Replay({"A": ([0], [])}, {"A": ([0, 1], [])}), grow=False)
    rows = slots.reset()
    with pytest.raises(
        RunError, match=r"1 agents more than fit into A: 1 slots; .* spare_slots"
    ):
        _act(slots, rows)
    slots = Slots(
        Replay({"A": ([0], [])}, {"A": ([0, 1], [])}), grow=False, spare_slots=1
    )
    assert len(_act(slots, slots.reset())["A"]) == 2


def test_an_agent_under_another_behavior_is_cut_in_the_old_one():
    world = Replay({"A": ([4], [])}, {"B": ([4], [])}, behaviors=("A", "B"))
    slots = Slots(world)
    rows = _act(slots, slots.reset())
    assert rows["A"].truncated.tolist() == [True]
    assert rows["A"].reward.tolist() == [0.0]
    assert rows["A"].final_obs[0].tolist() == [[0]], (
        "the last thing the old behavior saw"
    )
    assert rows["B"].begins.tolist() == [True]
    assert slots.counts["B"].unattributed_reward == 4.5


def test_waiting_slots_keep_their_observation_and_get_their_reward_later():
    world = Replay({"A": ([0, 1], [])}, {"A": ([0], [])}, {"A": ([0, 1], [])})
    slots = Slots(world)
    rows = _act(slots, slots.reset())["A"]
    assert rows.closed.tolist() == [True, False]
    assert rows.obs[0].tolist() == [[1], [0]]
    rows = _act(slots, {"A": rows})["A"]
    assert rows.closed.tolist() == [True, True]
    assert rows.reward.tolist() == [0.5, 1.5]
    assert world.sent == [[0, 1], [0]]


def test_empty_slots_show_zeros_and_allow_everything():
    slots = Slots(Replay({"A": ([0], [])}, {"A": ([0], [])}, capacity=2))
    rows = _act(slots, slots.reset())["A"]
    assert rows.agent_id.tolist() == [0, -1]
    assert rows.group_id.tolist() == [0, -1]
    assert rows.env_index.tolist() == [0, -1]
    assert rows.obs[0][1] == 0
    assert rows.action_mask[1].all()


def test_images_become_channels_first():
    tall = (DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,) * 2 + (
        DimensionProperty.NONE,
    )
    spec = BehaviorSpec(
        (ObservationSpec((2, 3, 1), tall),), ActionSpec.create_discrete((2,))
    )
    picture = np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1)
    world = Replay({"A": ([0], [])})
    world._behaviors = {"A": spec}
    base = world.steps
    world.reset()
    world.steps = lambda name: (
        DecisionSteps([picture], *list(vars(base(name)[0]).values())[1:]), TerminalSteps.empty(spec)
    )  # fmt: skip
    slots = Slots(world)
    rows = slots.reset()["A"]
    assert slots.behaviors["A"].observation_specs[0].shape == (1, 2, 3)
    np.testing.assert_array_equal(rows.obs[0][0, 0], picture[0, :, :, 0])


def test_after_a_refused_action_the_same_agents_wait_for_a_better_one():
    slots = Slots(make("Basic"))
    ((name, rows),) = slots.reset().items()
    start = rows.obs[0].argmax()
    with pytest.raises(ActionError, match="3"):
        slots.step({name: ActionTuple(None, np.full((1, 1), 3))})
    with pytest.raises(UsageError, match="no actions for"):
        slots.step({})
    rows = slots.step({name: ActionTuple(None, np.full((1, 1), 2))})[name]
    assert rows.obs[0].argmax() == start + 1
