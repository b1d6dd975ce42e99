"""TorchRL's checker, and the laws of the rows through rollouts, collectors and batched
environments.
"""

import gc
import warnings
from functools import partial

import numpy as np
import pytest
import torch
import torchrl.objectives
from scene_params import SCENE_PARAMS
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from tests.scripted_world import ScriptedWorld
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import (
    ParallelEnv,
    PettingZooWrapper,
    RewardSum,
    SerialEnv,
    StepCounter,
    TransformedEnv,
)
from torchrl.envs.utils import check_env_specs
from torchrl.modules import MaskedCategorical, MultiAgentMLP, ProbabilisticActor
from torchrl.objectives.value import GAE

import touchline
from touchline.adapters.to_torchrl import RandomPolicy, one_row_per_action
from touchline.envs.env import EnvRecipe
from touchline.errors import RunError, UsageError
from touchline.scenes import SCENES
from touchline.steps import DecisionSteps, TerminalSteps
from touchline.testing import Ledger

LAYOUTS = ("batch", "groups", "teams")


def even_world(**events):
    """Every agent decides at every step; agents end and begin again."""
    return ScriptedWorld(
        **{"periods": (1,), "moves": False, "births": False, "vanishings": False}
        | events
    )


def uneven_world(**events):
    """Agents decide every 1, 2, 3 or 5 ticks."""
    return ScriptedWorld(
        **{"moves": False, "births": False, "vanishings": False} | events
    )


def full_world():
    """Births, deaths, moves between two behaviors, uneven decisions."""
    return ScriptedWorld()


WORLDS = {"even": even_world, "uneven": uneven_world, "full": full_world}


def _make(world, layout="groups", **options):
    env = (
        WORLDS[world]()
        if world in WORLDS
        else EnvRecipe("scene", world, num_areas=options.pop("num_areas", 3))
    )
    return touchline.make_torchrl(env, layout=layout, spare_slots=14, **options)


def _scene(scene, layout, **options):
    """Teams merged; skips where the layout is rightly refused."""
    try:
        return _make(scene, layout, group_by="base", **options)
    except UsageError as refused:
        assert "take layout='groups'" in str(refused)  # noqa: PT017
        pytest.skip(str(refused))


def _groups(batch):
    """Each group's rows [..., n, T] with their `next`, whatever the layout."""
    names = [
        key
        for key in batch.keys(False)
        if key != "next" and (key, "mask") in batch.keys(True)
    ]
    if not names:
        return {"": batch}
    return {
        g: batch[g].copy().set("next", batch["next", g]).transpose(-1, -2)
        for g in names
    }


def check_links(rows, *, episodes=True):
    """The laws of one group's rows [..., n, T]; with `episodes`, of a scripted world's observations
    too.
    """
    after, mask = rows["next"], rows["mask"]
    ended = after["done"].squeeze(-1)
    assert torch.equal(ended, (after["terminated"] | after["truncated"]).squeeze(-1))
    assert not (after["terminated"] & after["truncated"]).any()
    goes_on = ~ended[..., :-1]
    seen, then = after["observation"], rows["observation"]
    leaves = [()] if isinstance(seen, torch.Tensor) else list(seen.keys(True, True))
    for key in leaves:
        ahead, there = (seen[key], then[key]) if key else (seen, then)
        at, length = mask.ndim - 1, mask.shape[-1] - 1
        link = ahead.narrow(at, 0, length) == there.narrow(at, 1, length)
        assert link[goes_on].all(), (
            "next observation == following observation unless ended"
        )
    assert torch.equal(after["mask"][..., :-1][goes_on], mask[..., 1:][goes_on])
    assert not after["mask"][ended].any(), "an episode that ended has no more decisions"
    same = after["episode"] == rows["episode"]
    living = rows["episode"] >= 0
    assert same[living].all(), "`next` belongs to the same episode"
    fresh = rows["episode"][..., 1:] != rows["episode"][..., :-1]
    continued = fresh & goes_on & living[..., :-1]
    assert not continued.any(), "an episode changes only at an end"
    assert not after["reward"].squeeze(-1)[~living].any(), "an empty slot earns nothing"
    if episodes:
        who, later = rows["observation"][..., :2], after["observation"][..., :2]
        assert (who == later).all(-1)[living].all(), (
            "(id, episode) stays through a transition, the last one included"
        )
        assert (rows["agent_id"] == who[..., 0])[living].all()


def per_slot_advantages(rows, value, next_value, gamma, lmbda):
    """GAE by the book, one slot at a time."""
    done = rows["next", "done"].squeeze(-1)
    terminated = rows["next", "terminated"].squeeze(-1)
    reward = rows["next", "reward"].squeeze(-1)
    advantage = torch.zeros_like(reward)
    for slot in np.ndindex(*reward.shape[:-1]):
        running = 0.0
        for t in reversed(range(reward.shape[-1])):
            at = (*slot, t)
            ahead = 0.0 if terminated[at] else gamma * next_value[at]
            delta = reward[at] + ahead - value[at]
            running = delta if done[at] else delta + gamma * lmbda * running
            advantage[at] = running
    return advantage


def _value_module(rows):
    """A fixed function of the first sensor."""
    seen, axes = rows["observation"], rows["mask"].ndim
    key = (
        "observation"
        if isinstance(seen, torch.Tensor)
        else ("observation", next(iter(seen.keys())))
    )

    def value(sensor):
        flat = sensor.flatten(axes)
        return torch.tanh(flat @ torch.linspace(-1, 1, flat.shape[-1]) / 10).unsqueeze(
            -1
        )

    return TensorDictModule(value, in_keys=[key], out_keys=["state_value"])


def check_gae(rows):
    module = _value_module(rows)
    estimated = GAE(gamma=0.97, lmbda=0.9, value_network=module, average_gae=False)(
        rows.clone()
    )
    value = estimated["state_value"].squeeze(-1)
    next_value = module(rows["next"].clone())["state_value"].squeeze(-1)
    by_hand = per_slot_advantages(rows, value, next_value, 0.97, 0.9)
    mask = rows["mask"]
    assert mask.any()
    torch.testing.assert_close(
        estimated["advantage"].squeeze(-1)[mask], by_hand[mask], rtol=1e-5, atol=1e-5
    )


@pytest.fixture(autouse=True)
def _the_same_random_play_every_time():
    # In DungeonEscape some play makes agents return in another team's slot, which `teams` refuses.
    torch.manual_seed(0)


def collect(env_fn, how, rows):
    """So many rows of random allowed play, gathered in one of the ways TorchRL offers."""
    if how == "rollout":
        env = env_fn()
        batch = env.rollout(rows, break_when_any_done=False)
        env.close()
        return batch
    if how in ("serial", "parallel"):
        cls, kwargs = (
            (SerialEnv, {})
            if how == "serial"
            else (ParallelEnv, {"mp_start_method": "fork"})
        )
        alone = env_fn()
        policy = RandomPolicy(alone)
        alone.close()
        del alone
        # physics threads do not survive a fork: a child that collects their owner waits for ever
        gc.collect()
        env = cls(2, env_fn, **kwargs)
        batch = env.rollout(
            rows, policy, break_when_any_done=False, auto_cast_to_device=True
        )
        env.close()
        return batch
    env = env_fn()
    frames = max(1, env.batch_size.numel()) * rows
    kwargs = (
        {"num_collectors": 2, "sync": True, "cat_results": "stack"}
        if how == "processes"
        else {}
    )
    source = [env_fn, env_fn] if how == "processes" else env
    frames *= 2 if how == "processes" else 1
    collector = Collector(
        source,
        RandomPolicy(env),
        frames_per_batch=frames,
        total_frames=frames,
        **kwargs,
    )
    (batch,) = [batch.clone() for batch in collector]
    collector.shutdown()
    return batch


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("simple", [False, True])
@pytest.mark.parametrize("scene", SCENE_PARAMS)
def test_torchrls_checker_finds_nothing_on_a_scene(scene, layout, simple):
    env = _scene(scene, layout, join_vectors=simple, flatten_branches=simple)
    check_env_specs(env, break_when_any_done="both")
    env.close()
    env.close()
    assert env.is_closed


@pytest.mark.parametrize(
    ("world", "layout"),
    [("even", "batch"), ("uneven", "batch"), ("uneven", "groups"), ("full", "groups")],
)
@pytest.mark.parametrize("flat", [False, True])
def test_torchrls_checker_finds_nothing_on_a_scripted_world(world, layout, flat):
    check_env_specs(
        _make(world, layout, flatten_branches=flat), break_when_any_done="both"
    )


@pytest.mark.parametrize("how", ["rollout", "collector", "serial"])
@pytest.mark.parametrize(
    ("world", "layout"),
    [("even", "batch"), ("even", "groups"), ("uneven", "batch"), ("full", "groups")],
)
def test_rows_are_linked_and_advantages_right_on_a_scripted_world(world, layout, how):
    batch = collect(partial(_make, world, layout), how, 150)
    groups = _groups(batch)
    assert all(rows["next", "done"].sum() > 5 for rows in groups.values())
    for name, rows in groups.items():
        check_links(rows)
        check_gae(rows if world == "even" else one_row_per_action(batch, name or None))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scene", SCENE_PARAMS)
def test_rows_are_linked_and_advantages_right_on_a_scene(scene, layout):
    _scene(scene, layout).close()
    batch = collect(
        partial(_make, scene, layout, group_by="base", join_vectors=True),
        "collector",
        60,
    )
    for rows in _groups(batch).values():
        check_links(rows, episodes=False)
        check_gae(rows)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["parallel", "processes"])
@pytest.mark.parametrize(
    ("world", "layout"), [("even", "batch"), ("even", "teams"), ("full", "groups")]
)
def test_rows_are_linked_and_advantages_right_across_processes_on_a_scripted_world(
    world, layout, how
):
    batch = collect(partial(_make, world, layout), how, 100)
    for name, rows in _groups(batch).items():
        check_links(rows)
        check_gae(one_row_per_action(batch, name or None))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["serial", "parallel", "processes"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scene", SCENES)
def test_rows_are_linked_and_advantages_right_on_a_scene_however_it_is_collected(
    scene, layout, how
):
    _scene(scene, layout).close()
    batch = collect(
        partial(_make, scene, layout, group_by="base", join_vectors=True), how, 60
    )
    for name, rows in _groups(batch).items():
        check_links(rows, episodes=False)
        check_gae(one_row_per_action(batch, name or None))


@pytest.mark.parametrize(
    ("world", "layout"), [("even", "batch"), ("uneven", "batch"), ("full", "groups")]
)
def test_rewards_and_actions_are_conserved_through_a_collector(world, layout):
    ledger = Ledger(WORLDS[world]())
    env = touchline.make_torchrl(ledger, layout=layout, spare_slots=14)
    frames = 400 * max(1, env.batch_size.numel())
    collector = Collector(
        env, RandomPolicy(env), frames_per_batch=frames // 4, total_frames=frames
    )
    earned = group = 0.0
    acted = 0
    for batch in collector:
        for rows in _groups(batch).values():
            earned += rows["next", "reward"].sum(dtype=torch.float64).item()
            group += rows["next", "group_reward"].sum(dtype=torch.float64).item()
            acted += int(rows["mask"].sum())
    counts = [c for parts in env.counts.values() for c in parts]
    assert (
        group + sum(c.unattributed_group_reward for c in counts) == ledger.group_reward
    )
    unattributed = sum(
        c.unattributed_reward + c.unattributed_group_reward for c in counts
    )
    assert earned + unattributed == ledger.reward + ledger.group_reward
    assert ledger.actions == acted, "actions delivered == rows marked as acted"
    assert ledger.resets == 1, "nothing is reset because something else ended"


@pytest.mark.parametrize("scene", SCENE_PARAMS)
def test_a_scene_is_never_restarted_and_keeps_its_rewards(scene):
    from touchline.envs.env import make

    ledger = Ledger(make(EnvRecipe("scene", scene, num_areas=3)))
    env = touchline.make_torchrl(ledger, layout="groups")
    collector = Collector(
        env, RandomPolicy(env), frames_per_batch=150, total_frames=150
    )
    (batch,) = list(collector)
    earned = sum(
        r["next", "reward"].sum(dtype=torch.float64).item()
        for r in _groups(batch).values()
    )
    unattributed = sum(
        c.unattributed_reward + c.unattributed_group_reward
        for p in env.counts.values()
        for c in p
    )
    assert ledger.resets == 1
    assert earned + unattributed == pytest.approx(
        ledger.reward + ledger.group_reward, rel=1e-5, abs=1e-4
    )
    collector.shutdown()


def test_one_row_per_action_is_what_a_loop_over_slots_gives():
    env = _make("uneven", "batch")
    batch = env.rollout(300, break_when_any_done=False)
    packed = one_row_per_action(batch)
    for slot in range(batch.shape[0]):
        entries, open_row = [], None
        for t in range(300):
            row = batch[slot, t]
            if row["mask"]:
                open_row, total = row, 0.0
            total = (
                total + row["next", "reward"].item() if open_row is not None else 0.0
            )
            if open_row is not None and (row["next", "mask"] or row["next", "done"]):
                entries.append((open_row, total, row["next"]))
                open_row = None
        real = packed["mask"][slot]
        assert real.sum() == len(entries)
        assert real[: len(entries)].all()
        for k, (row, total, after) in enumerate(entries):
            entry = packed[slot, k]
            assert torch.equal(entry["observation"], row["observation"])
            assert torch.equal(entry["action", "branch_0"], row["action", "branch_0"])
            assert entry["next", "reward"].item() == total
            assert torch.equal(entry["next", "observation"], after["observation"])
            assert entry["next", "terminated"] == after["terminated"]
            last = k == len(entries) - 1
            assert bool(entry["next", "done"]) == bool(after["done"] or last)
            assert torch.equal(
                entry["next", "observation"][:2], entry["observation"][:2]
            ), "still the same episode"


def test_one_row_per_action_changes_nothing_where_all_agents_always_decide():
    batch = _make("3DBall", "batch").rollout(50, break_when_any_done=False)
    packed = one_row_per_action(batch)
    assert packed["mask"].all()
    for key in (
        "observation",
        "action",
        ("next", "reward"),
        ("next", "terminated"),
        ("next", "observation"),
    ):
        torch.testing.assert_close(packed[key], batch[key])


@pytest.mark.parametrize("layout", ["batch", "groups"])
def test_time_limits_and_return_counters_are_right_per_slot(layout):
    env = touchline.make_torchrl("3DBall", layout=layout, num_areas=4, seed=3)
    # In layout `groups` TorchRL's StepCounter cannot follow nested ends.
    if layout == "batch":
        env = TransformedEnv(env, StepCounter(max_steps=15))
    key = ["reward"] if layout == "batch" else [("3DBall", "reward")]
    summed = ["episode_reward" if layout == "batch" else ("3DBall", "episode_reward")]
    env = env.append_transform(RewardSum(in_keys=key, out_keys=summed))
    rows = env.rollout(120, break_when_any_done=False)
    rows = rows if layout == "batch" else next(iter(_groups(rows).values()))
    running = torch.zeros(4)
    for t in range(120):
        running = running + rows["next", "reward"][:, t, 0]
        torch.testing.assert_close(rows["next", "episode_reward"][:, t, 0], running)
        done = rows["next", "done"][:, t, 0]
        running = torch.where(done, 0.0, running)
        if layout == "batch":
            assert rows["next", "step_count"].max() <= 15
    if layout == "batch":
        assert (rows["next", "truncated"] & ~rows["next", "terminated"]).any(), (
            "soft cuts happened"
        )
        cut = (rows["next", "truncated"] & ~rows["next", "terminated"])[:, :-1, 0]
        assert torch.equal(
            rows["next", "observation"][:, :-1][cut], rows["observation"][:, 1:][cut]
        ), "no world restarted"


def test_a_partial_reset_hands_out_pending_decisions_and_a_full_one_restarts():
    ledger = Ledger(even_world())
    env = touchline.make_torchrl(ledger)
    td = env.reset()
    for _ in range(5):
        _, td = env.step_and_maybe_reset(env.rand_action(td))
    some = torch.zeros(6, 1, dtype=torch.bool)
    some[2] = True
    for chosen in (some, torch.ones(6, 1, dtype=torch.bool)):
        again = env.reset(td.copy().set("_reset", chosen))
        assert ledger.resets == 1
        assert not again["done"].any()
        np.testing.assert_array_equal(
            again["observation"], env._groups.rows["Walker"].obs[0]
        )
    env.reset()
    assert ledger.resets == 2


def test_an_end_is_shown_once_and_the_empty_slot_is_quiet():
    env = touchline.make_torchrl(
        ScriptedWorld(moves=False, vanishings=False, periods=(1,)), spare_slots=14
    )
    rows = env.rollout(300, break_when_any_done=False)
    empty = rows["agent_id"] < 0
    assert empty.any()
    assert not rows["mask"][empty].any()
    assert not rows["next", "done"].squeeze(-1)[empty].any()
    assert not rows["observation"][empty].any()
    assert (rows["episode"][empty] == -1).all()
    assert all(mask[empty].all() for mask in rows["action_mask"].values())
    assert rows["next", "done"].sum() > 20


@pytest.mark.parametrize("steps", [600, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_forbidden_action_is_possible(steps):
    env = touchline.make_torchrl(_Strict())
    policy = RandomPolicy(env)
    for way in (None, policy):
        td = env.reset()
        for _ in range(steps // 3):
            td = env.rand_action(td) if way is None else way(td)
            _, td = env.step_and_maybe_reset(td)
    flat = touchline.make_torchrl(_Strict(), flatten_branches=True)
    td = flat.reset()
    for _ in range(steps // 3):
        _, td = flat.step_and_maybe_reset(flat.rand_action(td))


class _Strict(ScriptedWorld):
    def __init__(self, **options):
        super().__init__(moves=False, births=False, vanishings=False, **options)

    def set_actions(self, behavior, actions):
        super().set_actions(behavior, actions)
        steps, rows, start = self.steps(behavior)[0], np.arange(len(actions)), 0
        for branch, forbidden in enumerate(steps.action_mask):
            chosen = actions.discrete[:, branch]
            assert not forbidden[rows, chosen].any()
            if branch and steps.second_mask is not None:
                assert not steps.second_mask[
                    rows, actions.discrete[:, 0], start + chosen
                ].any()
                start += forbidden.shape[1]


@pytest.mark.parametrize("layout", ["batch", "groups"])
def test_staged_actions_come_with_what_each_first_choice_allows(layout):
    env = touchline.make_torchrl(
        _Strict(branches=(4, 3, 2), staged=True), layout=layout
    )
    check_env_specs(env, break_when_any_done="both")
    batch = env.rollout(300, RandomPolicy(env), break_when_any_done=False)
    env.rollout(100, break_when_any_done=False)
    (rows,) = _groups(batch).values()
    second, after = rows["second_mask"], rows["next", "second_mask"]
    assert second.shape == (6, 300, 4, 5)
    assert not second[rows["mask"]].all()
    ended = rows["next", "done"].squeeze(-1)
    assert after[ended].all(), "nothing to choose after an end"
    goes_on = ~ended[:, :-1]
    assert torch.equal(after[:, :-1][goes_on], second[:, 1:][goes_on])


@pytest.mark.parametrize("scene", SCENE_PARAMS)
def test_500_steps_are_the_same_for_the_same_seed(scene):
    def path(seed):
        env = touchline.make_torchrl(scene, num_areas=2, layout="groups")
        env.set_seed(seed)
        torch.manual_seed(0)
        batch = env.rollout(500, break_when_any_done=False)
        env.close()
        return batch

    one, same = path(3), path(3)
    assert (one == same).all()


def test_a_seed_given_to_the_env_is_a_seed_given_to_the_world():
    obs = [
        touchline.make_torchrl("3DBall", seed=s).reset()["observation"]
        for s in (4, 4, 5)
    ]
    assert torch.equal(obs[0], obs[1])
    assert not torch.equal(obs[0], obs[2])
    env = touchline.make_torchrl("3DBall")
    env.set_seed(4)
    assert torch.equal(env.reset()["observation"], obs[0])


def test_several_scenes_at_once_are_one_batch():
    env = touchline.make_torchrl(["3DBall", "3DBall"])
    assert env.batch_size == torch.Size([24])
    rows = env.rollout(30, break_when_any_done=False)
    check_links(rows, episodes=False)
    env.close()


def test_group_map_names_every_slot():
    env = _make("full")
    assert {g: len(names) for g, names in env.group_map.items()} == {
        "Walker": 17,
        "Jumper": 17,
    }
    merged = touchline.make_torchrl(full_world(), group_by="all", spare_slots=14)
    assert merged.layout == "batch"
    assert merged.batch_size == torch.Size([34])


def test_rows_fill_a_replay_buffer_without_replacement():
    rows = _make("3DBall", "batch").rollout(16, break_when_any_done=False).reshape(-1)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(len(rows)),
        sampler=SamplerWithoutReplacement(),
        batch_size=8,
    )
    buffer.extend(rows)
    seen = torch.cat([minibatch["next", "reward"] for minibatch in buffer])
    assert seen.shape[0] == len(rows)


def test_what_the_batch_layout_cannot_express_is_refused_with_the_one_that_can():
    with pytest.raises(
        UsageError,
        match="shows one group, this world has Walker, Jumper; take layout='groups'",
    ):
        touchline.make_torchrl(full_world(), layout="batch")
    with pytest.raises(
        UsageError,
        match="layout: expected 'auto', 'batch', 'groups' or 'teams', got 'slots'",
    ):
        touchline.make_torchrl("3DBall", layout="slots")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (None, r"3DBall: expected a key 'action', got none"),
        (
            torch.zeros(3, 3),
            r"expected floats of shape \(3, 2\) on cpu, got torch.float32 of shape \(3, 3\) on cpu",
        ),
        (
            torch.zeros(3, 2, dtype=torch.int64),
            r"expected floats of shape \(3, 2\) on cpu, got torch.int64",
        ),
        (
            torch.zeros(3, 2, dtype=torch.bfloat16),
            r"expected floats of shape \(3, 2\) on cpu, got torch.bfloat16",
        ),
        (
            torch.zeros(3, 2, device="meta"),
            "on cpu, got torch.float32 of shape .* on meta",
        ),
        (
            TensorDict({"continuous": torch.zeros(3, 2)}, [3]),
            r"expected a tensor, got the keys \['continuous'\]",
        ),
    ],
)
def test_actions_of_the_wrong_form_are_named(action, message):
    env = _make("3DBall", "groups")
    td = env.reset().clear_device_()
    if action is not None:
        td["3DBall"]["action"] = action
    with pytest.raises(UsageError, match=message):
        env._step(td)


def test_a_choice_beyond_32_bits_is_refused():
    env = touchline.make_torchrl("Basic", num_areas=2)
    td = env.reset().set("action", torch.tensor([0, 2**32 + 2]))
    with pytest.raises(UsageError, match="choices counted from 0, got 4294967298"):
        env.step(td)
    env.close()


def test_whoever_writes_into_a_step_changes_nothing_that_is_shown_later():
    env = touchline.make_torchrl("Basic", num_areas=2, seed=0)
    td = env.reset()
    names = ["agent_id", "group_id", "episode", "group_reward", "mask", "action_mask"]
    first = td.select(*names).clone()
    for _ in range(3):
        for name in names:
            td[name].zero_()
        td = env.step(td.set("action", torch.tensor([0, 0])))["next"]
        assert (td.select(*names) == first).all()
    env.close()


def test_a_batch_without_its_groups_name_is_refused_with_the_names():
    groups = _make("full").rollout(3, break_when_any_done=False)
    for wrong in (None, "Runner"):
        with pytest.raises(
            UsageError, match=f"group: expected 'Walker' or 'Jumper', got {wrong!r}"
        ):
            one_row_per_action(groups, wrong)
    with pytest.raises(UsageError, match="group: expected None, got 'Walker'"):
        one_row_per_action(
            _make("even", "batch").rollout(3, break_when_any_done=False), "Walker"
        )


def test_parts_of_an_action_that_are_missing_are_named():
    env = _make("uneven", "batch")
    td = env.reset().set(
        "action", TensorDict({"branch_0": torch.zeros(6, dtype=torch.int64)}, [6])
    )
    with pytest.raises(
        UsageError,
        match=r"Walker: action: expected the keys \['continuous', 'branch_0', 'branch_1'\]",
    ):
        env.step(td)


@pytest.mark.parametrize("which", ["IPPOLoss", "MAPPOLoss"])
def test_multi_agent_losses_learn_from_teams_side_by_side(which):
    env = touchline.make_torchrl(
        "SoccerTwos",
        layout="teams",
        group_by="base",
        num_areas=4,
        join_vectors=True,
        flatten_branches=True,
    )
    group, members = "SoccerTwos", 2
    assert env.batch_size == (8,), "two teams on each of four fields"
    policy = MultiAgentMLP(
        336, 27, members, centralized=False, share_params=True, num_cells=[16]
    )
    actor = ProbabilisticActor(
        TensorDictModule(
            policy, in_keys=[(group, "observation")], out_keys=[(group, "logits")]
        ),
        in_keys={"logits": (group, "logits"), "mask": (group, "action_mask")},
        out_keys=[(group, "action")],
        distribution_class=MaskedCategorical,
        return_log_prob=True,
        log_prob_key=(group, "action_log_prob"),
    )
    value = MultiAgentMLP(
        336,
        1,
        members,
        centralized=which == "MAPPOLoss",
        share_params=True,
        num_cells=[16],
    )
    critic = TensorDictModule(
        value, in_keys=[(group, "observation")], out_keys=[(group, "state_value")]
    )
    loss = getattr(torchrl.objectives, which)(actor, critic)
    names = ("action", "reward", "done", "terminated", "advantage", "value_target")
    keys = {"sample_log_prob": "action_log_prob", "value": "state_value"} | {
        name: name for name in names
    }
    loss.set_keys(**{key: (group, name) for key, name in keys.items()})
    frames = 30 * 8
    collector = Collector(
        env,
        actor,
        frames_per_batch=frames,
        total_frames=frames,
        auto_register_policy_transforms=False,
    )
    (batch,) = list(collector)
    (rows,) = _groups(batch).values()
    check_links(rows, episodes=False)
    assert (rows["group_id"][:, :1] == rows["group_id"]).all(), "a team is a team"
    assert len(rows["group_id"][:, 0, 0].unique()) == 8
    with torch.no_grad():
        loss.value_estimator(batch)
    assert batch[group, "advantage"].shape == (8, 30, members, 1)
    parts = loss(batch.reshape(-1))
    sum(
        parts[key] for key in ("loss_objective", "loss_critic", "loss_entropy")
    ).backward()
    assert all(
        p.grad is not None and p.grad.isfinite().all() for p in loss.parameters()
    )
    collector.shutdown()


def test_a_critic_of_teams_sees_its_own_team_and_no_other():
    env = touchline.make_torchrl(
        "SoccerTwos", layout="teams", group_by="base", num_areas=3, join_vectors=True
    )
    value = MultiAgentMLP(336, 1, 2, centralized=True, share_params=True, num_cells=[8])
    seen = env.reset()["SoccerTwos", "observation"].requires_grad_()
    value(seen)[2, 1].sum().backward()
    depends = seen.grad.abs().sum(-1) > 0
    assert depends.nonzero().tolist() == [[2, 0], [2, 1]]


def test_teams_apart_face_each_other_in_the_same_row():
    env = touchline.make_torchrl("SoccerTwos", layout="teams", num_areas=3)
    td = env.reset()
    assert env.batch_size == (3,)
    assert env.group_map["SoccerTwos_0"] == ["SoccerTwos_0_0", "SoccerTwos_0_1"]
    for field in range(3):
        ids = torch.cat(
            [td[group, "agent_id"][field] for group in ("SoccerTwos_0", "SoccerTwos_1")]
        )
        assert set((ids // 4).tolist()) == {field}, (
            "field k has the agents 4k to 4k + 3"
        )


def test_teams_that_cannot_stand_side_by_side_are_refused():
    with pytest.raises(
        UsageError,
        match=r"needs all agents from the start, 14 of 17 slots .* layout='groups'",
    ):
        _make("full", "teams")
    with pytest.raises(
        UsageError,
        match="as many teams in each group, got 4 in Walker, 2 in Jumper; take layout=",
    ):
        touchline.make_torchrl(
            _Companies(Walker=(1, 2, 3, 4), Jumper=(5, 6)), layout="teams"
        )
    with pytest.raises(
        UsageError,
        match=r"teams of one size, Walker has teams of \[1, 2\]; take layout='groups'",
    ):
        touchline.make_torchrl(_Companies(Walker=(1, 1, 2)), layout="teams")
    fickle = _Companies(Walker=(1, 1, 2, 2))
    env = touchline.make_torchrl(fickle, layout="teams")
    td = env.reset()
    fickle.members["Walker"] = (1, 2, 1, 2)
    with pytest.raises(
        RunError, match=r"Walker: agents changed their teams, .* take layout='groups'"
    ):
        env.step(env.rand_action(td))


class _Companies(ScriptedWorld):
    """Behaviors whose agents are in these groups."""

    def __init__(self, **members):
        self.members = members
        names = tuple(members)
        super().__init__(
            2, periods=(1,), moves=False, births=False, vanishings=False, names=names
        )

    def capacity(self, behavior):
        return len(self.members[behavior])

    def observe(self, ends):
        spec = self.spec
        for start, name in zip((0, 10), self.names, strict=False):
            ids = np.arange(start, start + len(self.members[name]), dtype=np.int32)
            masks = [
                np.zeros((len(ids), b), np.bool_)
                for b in spec.action_spec.discrete_branches
            ]
            zeros = np.zeros(len(ids), np.float32)
            groups = np.array(self.members[name], np.int32)
            decisions = DecisionSteps(
                [np.zeros((len(ids), 4), np.float32)], zeros, ids, masks, groups, zeros
            )
            self.exchange[name] = decisions, TerminalSteps.empty(spec)


def test_torchrls_wrapper_of_pettingzoo_takes_our_pettingzoo_env():
    raw = touchline.make_pettingzoo("3DBall", num_areas=3)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "PettingZoo in TorchRL is tested using version"
        )
        env = PettingZooWrapper(raw, use_mask=True, done_on_any=False)
    batch = env.rollout(60, break_when_any_done=True)
    assert batch["next", "agent", "done"].squeeze(-1).any(0).all(), (
        "the episodes of all agents ended"
    )
    assert batch["next", "agent", "observation"].shape[1:] == (3, 8)


def test_a_single_sensor_keeps_its_name_on_request():
    for name_single in (False, True):
        env = touchline.make_torchrl("3DBall", num_areas=2, name_single=name_single)
        key = ("observation", "VectorSensor_size8") if name_single else "observation"
        check_env_specs(env)
        assert env.reset()[key].shape == (2, 8)
        assert env.rollout(3, break_when_any_done=False)["next", key].shape == (2, 3, 8)
        env.close()


def test_seeds_that_torchrl_draws_fit_a_player():
    env = touchline.make_torchrl("Basic")
    env.set_seed(3)
    for seed in (3_000_000_000, 2**32 - 2):
        env.set_seed(seed)
        assert 0 <= env._next_seed < 2**31
    env.close()
