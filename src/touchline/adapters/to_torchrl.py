"""A world as a TorchRL environment: every agent's transitions are right, whatever others do.

Three layouts. `batch`: one group whose slots are the batch, `batch_size [n]`; for independent
agents. `groups`: `batch_size []`, one nested tensordict [n] per group; for several behaviors or
teams. `teams`: `batch_size [b]`, one nested tensordict [b, m] per group, the m agents of each of b
teams next to each other; for critics that observe a whole team (read [b, m] for [n] below).

| key (below the group's name, except in layout `batch`) | value |
| --- | --- |
| `observation` | [n, ...] of the only sensor, or a tensordict with a leaf per sensor; images CHW |
| `mask` | bool [n]: this slot acts now; others are empty or wait, and their action is ignored |
| `action` | float [n, C] in [-1, 1], or int64 [n] for one branch; nested where there is more |
| `action_mask` | bool [n, choices], True = allowed; nested where there are several branches |
| `second_mask` | staged actions only: bool [n, `branch_0`, choices of the later branches] |
| `reward` | [n, 1] own + group reward; `group_reward` [n, 1] is the group's part |
| `done`, `terminated`, `truncated` | bool [n, 1], true once, in the row of the end; no root done |
| `agent_id`, `group_id` | int32 [n], -1 = empty |
| `episode` | int64 [n], the number of the episode that runs here, -1 before the first |

With `name_single` the only sensor has a leaf of its name too.

Nested actions have the keys `continuous`, `branch_0`, `branch_1`, ...; nested masks those of the
branches.

`reset()` restarts the world. A partial reset (TorchRL sends one when some slot is done) never does:
it returns what every slot acts on now. `next` of an ended slot holds its true last observation.

Where agents do not all decide at the same time, call `one_row_per_action` on a batch before
estimating advantages. Checked against TorchRL 0.14.1.
"""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Categorical, Composite
from torchrl.envs import EnvBase

from touchline.adapters.groups import GroupBy, Groups
from touchline.adapters.layout import Layout
from touchline.adapters.options import (
    AdapterOptions,
    Worlds,
    layout_options,
    recipe_changes,
    with_changes,
)
from touchline.adapters.tensors import GroupTensors, entries, unchecked
from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError

LayoutName = Literal["auto", "batch", "groups", "teams"]
BATCH, GROUPS, TEAMS = "batch", "groups", "teams"


class TouchlineTorchRLEnv(EnvBase):
    """All agents of some worlds: a TorchRL environment of one, or of several side by side.

    Pickles by name, so `ParallelEnv(4, partial(make_torchrl, "3DBall"))` works; give each its own
    seed.

    `layout` "auto" takes `batch` if there is one group, else `groups`. `group_by`: "behavior" keeps
    teams apart, "base" merges them, "all" puts all agents together. In layout `teams` agents of one
    ML-Agents group in one world are a team, an agent without a group is one by itself; they stay
    what they are at construction. `spare_slots`: room for agents that appear later, in worlds whose
    capacity is unknown. Further options: `AdapterOptions`.
    """

    def __init__(
        self,
        env: Worlds,
        *,
        layout: LayoutName = "auto",
        group_by: GroupBy = "behavior",
        spare_slots: int = 0,
        device: torch.device | str = "cpu",
        **options: Unpack[AdapterOptions],
    ) -> None:
        if layout not in ("auto", BATCH, GROUPS, TEAMS):
            raise UsageError(
                f"layout: expected 'auto', 'batch', 'groups' or 'teams', got {layout!r}"
            )
        changes = recipe_changes(options)
        device = torch.device(device)
        self._next_seed: int | None = changes.get("seed")
        if not isinstance(env, str | EnvRecipe):
            # Worlds that are open already, or several, get the seed at the first reset.
            changes.pop("seed", None)
        worlds = with_changes(env, changes)
        self._groups = Groups(worlds, group_by=group_by, spare_slots=spare_slots)
        try:
            self.layout = self._chosen_layout(layout)
            self._tables = {}
            for group, spec in self._groups.specs.items():
                arranged = Layout(spec, **layout_options(options))
                rows = self._groups.rows[group]
                in_teams = self.layout == TEAMS
                table = GroupTensors(group, arranged, rows, device, in_teams=in_teams)
                self._tables[group] = table
            # The batch size is known only once the worlds are open.
            super().__init__(device=device, batch_size=self._common_batch_size())
            self._set_specs()
        except BaseException:
            self._groups.give_back()
            raise
        self.group_map = {
            group: table.slot_names for group, table in self._tables.items()
        }
        self._play_randomly = RandomPolicy(self)

    @property
    def counts(self) -> Any:
        """What rows leave out: group -> `SlotCounts` of its parts."""
        return self._groups.counts

    @property
    def group_specs(self) -> dict[str, Any]:
        """Group -> its `BehaviorSpec`."""
        return dict(self._groups.specs)

    def render(
        self, world: int = 0, area: int = 0, width: int = 640, height: int = 480
    ) -> NDArray[np.uint8]:
        """One area of one world as a picture [H, W, 3]."""
        return self._groups.render(world, area, width, height)

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Random actions that the masks of the present rows allow."""
        if tensordict is None:
            tensordict = TensorDict({}, self.batch_size, device=self.device)
        present = self._pending()
        return tensordict.update(self._play_randomly(present).select(*self.action_keys))

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """TorchRL's own `step`, without its search for partial steps and a given `next`, which most
        callers do not send.
        """
        sent = entries(tensordict)
        is_special = "_step" in sent or "next" in sent
        if is_special or tensordict.batch_size != self.batch_size:
            return super().step(tensordict)
        # `_set_str` is `set` without its checks: the leaves were made for this batch size.
        return tensordict._set_str(
            "next",
            self._step(tensordict),
            validated=True,
            inplace=False,
            non_blocking=False,
        )

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Close the worlds. Idempotent."""
        self._groups.close()
        super().close(raise_if_closed=raise_if_closed)

    def _chosen_layout(self, layout: str) -> str:
        groups = list(self._groups.specs)
        if layout == BATCH and len(groups) > 1:
            raise UsageError(
                f"layout 'batch' shows one group, this world has {', '.join(groups)}; take "
                "layout='groups', or group_by='base' where these are teams of one behavior"
            )
        if layout != "auto":
            return layout
        return GROUPS if len(groups) > 1 else BATCH

    def _common_batch_size(self) -> torch.Size:
        if self.layout == GROUPS:
            return torch.Size([])
        shapes = {group: table.shape for group, table in self._tables.items()}
        sizes = {shape[0] for shape in shapes.values()}
        if len(sizes) > 1:
            counts = ", ".join(
                f"{shape[0]} in {group}" for group, shape in shapes.items()
            )
            raise UsageError(
                f"layout 'teams' needs as many teams in each group, got {counts}; take "
                "layout='groups'"
            )
        return torch.Size(sizes)

    def _set_specs(self) -> None:
        of_groups = {group: table.specs() for group, table in self._tables.items()}
        # In the order of `GroupTensors.specs`.
        kinds = ("observation_spec", "action_spec", "reward_spec", "done_spec")
        for i, kind in enumerate(kinds):
            parts = {group: specs[i] for group, specs in of_groups.items()}
            if self.layout == BATCH:
                (spec,) = parts.values()
            else:
                spec = Composite(parts, shape=self.batch_size, device=self.device)
            setattr(self, kind, spec)

    def _set_seed(self, seed: int | None) -> None:
        # TorchRL draws seeds of workers below 2³², and Unity players have room for half of that.
        self._next_seed = None if seed is None else seed % 2**31

    def _reset(
        self,
        tensordict: TensorDictBase | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> TensorDictBase:
        is_partial = tensordict is not None and any(
            tensordict.get(key, None) is not None for key in self.reset_keys
        )
        if not is_partial:
            rows = self._groups.reset(self._next_seed)
            self._next_seed = None
            for group, table in self._tables.items():
                table.restart(rows[group])
        return self._pending()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        is_batch = self.layout == BATCH
        sent = {} if is_batch else entries(tensordict)
        actions = {
            group: table.read_action(tensordict if is_batch else sent.get(group))
            for group, table in self._tables.items()
        }
        rows = self._groups.step(actions)
        return self._assembled(
            {group: table.outcome(rows[group]) for group, table in self._tables.items()}
        )

    def _pending(self) -> TensorDict:
        rows = self._groups.rows
        return self._assembled(
            {group: table.pending(rows[group]) for group, table in self._tables.items()}
        )

    def _step_proc_data(self, next_tensordict_out: TensorDictBase) -> TensorDictBase:
        """TorchRL completes and checks every step's leaves here. Ours are complete, and the checks
        cost a fifth of a step.
        """
        return next_tensordict_out

    def _assembled(self, parts: dict[str, Any]) -> TensorDict:
        if self.layout == BATCH:
            (part,) = parts.values()
            return part
        return unchecked(parts, self.batch_size, self.device)


make_torchrl = TouchlineTorchRLEnv


class RandomPolicy:
    """Uniform over the actions that the masks in a tensordict allow, in every layout; for
    collectors.

    TorchRL's own `RandomPolicy` reads the specs, which cannot hold masks that change at every step.
    """

    def __init__(self, env: EnvBase) -> None:
        actions = env.full_action_spec.items(True, True)
        self._parts = [(_as_tuple(key), spec) for key, spec in actions]
        observations = map(_as_tuple, env.full_observation_spec.keys(True, True))
        self._staged_groups = {
            key[:-1] for key in observations if key[-1] == "second_mask"
        }

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        column: dict[tuple[str, ...], int] = {}
        """Per group: where the next branch begins in the second-stage mask."""
        for key, spec in self._parts:
            group = key[: key.index("action")]
            if not isinstance(spec, Categorical):
                rows = tensordict.get((*group, "mask"))
                shape = (*rows.shape, spec.shape[-1])
                choice = 2.0 * torch.rand(shape, device=rows.device) - 1.0
            elif group in self._staged_groups and key[-1] != "branch_0":
                first = tensordict.get((*group, "action", "branch_0"))
                allowed = _after(tensordict.get((*group, "second_mask")), first)
                start = column.get(group, 0)
                column[group] = start + spec.n
                choice = _uniform_choice(allowed[..., start : start + spec.n])
            else:
                mask_key = tuple(
                    "action_mask" if part == "action" else part for part in key
                )
                choice = _uniform_choice(tensordict.get(mask_key))
            tensordict.set(key, choice)
        return tensordict


def one_row_per_action(
    batch: TensorDictBase, group: str | None = None
) -> TensorDictBase:
    """A collected batch with one entry per action, [..., n, T]: what advantages may be estimated
    from.

    Where agents decide at different times, a slot's stream holds rows in which it only waits, and
    its reward or end may arrive there. Here each action's reward is the sum up to the slot's next
    decision or end, and `next` is what it then observed. Entries are moved to the front; `mask`
    says which are real. The last real entry of a slot is truncated (estimates look at its `next`
    and no further). Actions still open at the end of the batch are dropped, since their reward is
    not known.

    `batch` comes from a rollout or a collector: [..., n, T] in layout `batch`, [..., T] with a
    `group`.
    """
    rows = _rows_of_group(batch, group)
    deciding = rows.get("mask")
    after = rows.get("next")
    done = after.get("done").squeeze(-1)
    length = deciding.shape[-1]
    # An action closes in the first row from its own on after which the slot decides again or is
    # done: a minimum from the right. `length` stands for never.
    time = torch.arange(length, device=deciding.device).expand(deciding.shape)
    closing = torch.where(after.get("mask") | done, time, length)
    closed_at = closing.flip(-1).cummin(-1).values.flip(-1)  # [..., n, T]
    is_valid = deciding & (closed_at < length)
    # A stable sort of valid before invalid moves the valid entries to the front in their order.
    most = max(1, int(is_valid.sum(-1).max()))
    is_dropped = (~is_valid).to(torch.uint8)
    order = is_dropped.argsort(dim=-1, stable=True)[..., :most]
    until = closed_at.clamp(max=length - 1).gather(-1, order)
    packed = rows.exclude("next").gather(-1, order)
    outcome = after.gather(-1, until)
    for key in ("reward", "group_reward"):
        # The sum over a stretch is a difference of running sums; float64 keeps it exact enough.
        rewards = after.get(key).squeeze(-1).double()
        total = rewards.cumsum(-1)
        before = torch.nn.functional.pad(total, (1, 0)).gather(-1, order)
        stretch = total.gather(-1, until) - before
        outcome.set(key, stretch.to(torch.float32).unsqueeze(-1))
    is_real = is_valid.gather(-1, order)
    has_next = torch.nn.functional.pad(is_real[..., 1:], (0, 1))  # False at the end
    is_last = is_real & ~has_next
    has_ended = outcome.get("done").squeeze(-1)
    is_cut = (is_last & ~has_ended).unsqueeze(-1)
    outcome.set("truncated", outcome.get("truncated") | is_cut)
    outcome.set("done", outcome.get("done") | is_cut)
    return packed.set("mask", is_real).set("next", outcome)


def _rows_of_group(batch: TensorDictBase, group: str | None) -> TensorDictBase:
    """A group's rows with their `next`, [..., n, T]."""
    groups = [
        key
        for key, entry in batch.items()
        if key != "next" and "mask" in entries(entry)
    ]
    if (group is None and groups) or (group is not None and group not in groups):
        expected = " or ".join(map(repr, groups)) or None
        raise UsageError(f"group: expected {expected}, got {group!r}")
    if group is None:
        return batch
    after = batch.get(("next", group))
    together = batch.get(group).copy().set("next", after)  # [..., T, n]
    return together.transpose(-1, -2)


def _after(second_mask: Tensor, first: Tensor) -> Tensor:
    """What a second-stage mask [..., first, later] allows after these first choices [...]."""
    num_later = second_mask.shape[-1]
    index = first[..., None, None].expand(*first.shape, 1, num_later)
    return second_mask.gather(-2, index).squeeze(-2)


def _uniform_choice(allowed: Tensor) -> Tensor:
    """One allowed choice [...] of each row of a mask [..., choices]."""
    # The largest of independent uniform numbers is a uniform choice; forbidden ones are below
    # all.
    draws = torch.rand(allowed.shape, device=allowed.device)
    # Not torch.multinomial, which takes two axes at most.
    return torch.where(allowed, draws, -1.0).argmax(-1)


def _as_tuple(key: Any) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)
