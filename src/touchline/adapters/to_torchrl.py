"""A world as a TorchRL environment: every agent's transitions right, whatever the others do.

Two layouts. `batch`: one group whose slots are the batch, `batch_size [n]`; for independent agents.
`groups`: `batch_size []`, one nested tensordict [n] per group; for several behaviors or teams.

| key (below the group's name in layout `groups`) | what |
| --- | --- |
| `observation` | [n, ...] of the only sensor, or a nested tensordict with one leaf per sensor; images CHW |
| `mask` | bool [n]: this slot acts now; the others are empty or wait, and their action is ignored |
| `action` | float [n, C] in [-1, 1], or int64 [n] for one branch; else nested: `continuous`, `branch_0`, ... |
| `action_mask` | bool [n, choices], True = allowed; nested like the branches where there are several |
| `reward` | [n, 1] own + group reward; `group_reward` [n, 1] tells the group's part |
| `done`, `terminated`, `truncated` | bool [n, 1], true once, on the row of the end; there is no root done |
| `agent_id`, `group_id` | int32 [n], -1 = empty |
| `episode` | int64 [n], the number of the life that runs here, -1 before the first |

`reset()` restarts the world. A partial reset (TorchRL sends one when some slot is done) never does: it hands
out what every slot acts on now. `next` of an ended slot holds its true last observation.

Where agents do not all decide at the same time, call `one_row_per_action` on a batch before estimating
advantages. Checked against TorchRL 0.14.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

from touchline.adapters.groups import GroupBy, Groups, Worlds, open_world
from touchline.adapters.layout import Layout
from touchline.envs.env import EnvRecipe
from touchline.envs.slots import SlotRows
from touchline.errors import UsageError
from touchline.specs import ActionTuple

BATCH, GROUPS = "batch", "groups"


def make_torchrl(env: Worlds, **options: Any) -> TouchlineTorchRLEnv:
    """A TorchRL environment of one world, or of several side by side. Options: those of `TouchlineTorchRLEnv`.

    Pickles by name, so `ParallelEnv(4, partial(make_torchrl, "3DBall"))` works; give each its own seed.
    """
    return TouchlineTorchRLEnv(env, **options)


class TouchlineTorchRLEnv(EnvBase):
    """All agents of some worlds.

    `layout` "auto" takes `batch` where there is one group, else `groups`. `group_by`: "behavior" keeps teams
    apart, "base" merges them, "all" puts everybody together. `spare_slots`: room for agents born later in
    worlds that cannot tell how many there will be. Any field of `EnvRecipe` may be given too.
    """

    def __init__(
        self,
        env: Worlds,
        *,
        layout: Literal["auto", "batch", "groups"] = "auto",
        group_by: GroupBy = "behavior",
        spare_slots: int = 0,
        join_vectors: bool = False,
        flatten_branches: bool = False,
        uint8_images: bool = False,
        device: torch.device | str = "cpu",
        **recipe: Any,
    ) -> None:
        if layout not in ("auto", BATCH, GROUPS):
            raise UsageError(f"layout: expected 'auto', 'batch' or 'groups', got {layout!r}")
        seed = recipe.get("seed")
        worlds = open_world(env, **recipe) if isinstance(env, str | EnvRecipe) else env
        self._groups = Groups(worlds, group_by=group_by, spare_slots=spare_slots)
        if layout == BATCH and len(self._groups.specs) > 1:
            self._groups.close()
            raise UsageError(
                f"layout 'batch' shows one group, this world has {', '.join(self._groups.specs)}; take "
                "layout='groups', or group_by='base' to merge teams"
            )
        self.layout = GROUPS if layout == GROUPS or len(self._groups.specs) > 1 else BATCH
        self._tables = {
            group: _Table(
                group,
                Layout(spec, join_vectors=join_vectors, flatten_branches=flatten_branches, uint8_images=uint8_images),
                self._groups.sizes[group],
                torch.device(device),
            )
            for group, spec in self._groups.specs.items()
        }
        size = [] if self.layout == GROUPS else [self._groups.sizes[next(iter(self._tables))]]
        super().__init__(device=torch.device(device), batch_size=torch.Size(size))
        self._next_seed: int | None = seed
        self.group_map = {group: table.slot_names for group, table in self._tables.items()}
        self._set_specs()

    @property
    def counts(self) -> Any:
        """What no row tells: group -> `SlotCounts` of its parts."""
        return self._groups.counts

    @property
    def group_specs(self) -> dict[str, Any]:
        """Group -> its `BehaviorSpec`."""
        return dict(self._groups.specs)

    def render(self, world: int = 0, area: int = 0, width: int = 640, height: int = 480) -> NDArray[np.uint8]:
        """One area of one world as a picture [H, W, 3]."""
        return self._groups.render(world, area, width, height)

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Random actions that the masks of the present rows allow."""
        if tensordict is None:
            tensordict = TensorDict({}, self.batch_size, device=self.device)
        for group, table in self._tables.items():
            action = table.random_action()
            tensordict.set("action" if self.layout == BATCH else (group, "action"), action)
        return tensordict

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Close the worlds; twice is fine."""
        self._groups.close()
        super().close(raise_if_closed=raise_if_closed)

    def _set_specs(self) -> None:
        parts = {group: table.specs() for group, table in self._tables.items()}
        if self.layout == BATCH:
            ((observation, action, reward, done),) = parts.values()
            self.observation_spec, self.action_spec = observation, action
            self.reward_spec, self.done_spec = reward, done
            return
        for i, kind in enumerate(("observation_spec", "action_spec", "reward_spec", "done_spec")):
            setattr(self, kind, Composite({group: specs[i] for group, specs in parts.items()}, device=self.device))

    def _set_seed(self, seed: int | None) -> None:
        self._next_seed = seed

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:  # noqa: ARG002
        partial = tensordict is not None and any(tensordict.get(key, None) is not None for key in self.reset_keys)
        if not partial:
            rows = self._groups.reset(self._next_seed)
            self._next_seed = None
            for group, table in self._tables.items():
                table.restart(rows[group])
        return self._assembled({group: table.pending() for group, table in self._tables.items()})

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        actions = {
            group: table.read_action(tensordict if self.layout == BATCH else tensordict.get(group, None))
            for group, table in self._tables.items()
        }
        rows = self._groups.step(actions)
        return self._assembled({group: table.outcome(rows[group]) for group, table in self._tables.items()})

    def _step_proc_data(self, next_tensordict_out: TensorDictBase) -> TensorDictBase:
        """TorchRL completes and checks every step's leaves here; ours are complete, and it cost a fifth of a step."""
        return next_tensordict_out

    def _assembled(self, parts: dict[str, TensorDict]) -> TensorDict:
        if self.layout == BATCH:
            (part,) = parts.values()
            return part
        return _unchecked(dict(parts), self.batch_size, self.device)


class RandomPolicy:
    """Uniform over the actions that the masks in a tensordict allow, in either layout; for collectors.

    TorchRL's own `RandomPolicy` looks at the specs, which cannot hold masks that change at every step.
    """

    def __init__(self, env: EnvBase) -> None:
        self._leaves = [(_as_tuple(key), spec) for key, spec in env.full_action_spec.items(True, True)]

    @staticmethod
    def _guide(key: tuple[str, ...], spec: Any) -> tuple[str, ...]:
        """The leaf that tells what is allowed, or for continuous actions how many slots there are."""
        if isinstance(spec, Categorical):
            return tuple("action_mask" if part == "action" else part for part in key)
        return (*key[: key.index("action")], "mask")

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        for key, spec in self._leaves:
            guide = tensordict.get(self._guide(key, spec))
            if isinstance(spec, Categorical):
                tensordict.set(key, _uniform_choice(guide))
            else:
                tensordict.set(key, 2.0 * torch.rand((*guide.shape, spec.shape[-1]), device=guide.device) - 1.0)
        return tensordict


def one_row_per_action(batch: TensorDictBase, group: str | None = None) -> TensorDictBase:
    """A collected batch with one entry per action, [..., n, T]: what advantages may be estimated from.

    Where agents decide at different times a slot's stream holds rows in which it only waits, and its reward or
    end may arrive there. Here each action's reward is the sum up to the slot's next decision or end, and `next`
    is what it then saw. Entries are moved to the front; `mask` says which are real. The last real entry of a
    slot is truncated (estimates look at its `next` and no further). Actions still open at the end of the batch
    are dropped, since their reward is not known.

    `batch` comes from a rollout or a collector: [..., n, T] in layout `batch`, [..., T] with a `group`.
    """
    rows = (
        batch if group is None else batch.get(group).copy().set("next", batch.get(("next", group))).transpose(-1, -2)
    )
    deciding, after = rows.get("mask"), rows.get("next")
    ended = after.get("done").squeeze(-1)
    length = deciding.shape[-1]
    time = torch.arange(length, device=deciding.device).expand(deciding.shape)
    closing = torch.where(after.get("mask") | ended, time, length)
    closed_at = closing.flip(-1).cummin(-1).values.flip(-1)
    valid = deciding & (closed_at < length)
    order = (~valid).to(torch.uint8).argsort(dim=-1, stable=True)[..., : max(1, int(valid.sum(-1).max()))]
    until = closed_at.clamp(max=length - 1).gather(-1, order)
    packed = rows.exclude("next").gather(-1, order)
    outcome = after.gather(-1, until)
    for key in ("reward", "group_reward"):
        total = after.get(key).squeeze(-1).double().cumsum(-1)
        before = torch.nn.functional.pad(total, (1, 0)).gather(-1, order)
        outcome.set(key, (total.gather(-1, until) - before).to(torch.float32).unsqueeze(-1))
    real = valid.gather(-1, order)
    last = real & ~torch.nn.functional.pad(real[..., 1:], (0, 1))
    cut = (last & ~outcome.get("done").squeeze(-1)).unsqueeze(-1)
    outcome.set("truncated", outcome.get("truncated") | cut)
    outcome.set("done", outcome.get("done") | cut)
    return packed.set("mask", real).set("next", outcome)


class _Table:
    """One group's rows as tensors: what slots act on now, and what came of their last actions."""

    def __init__(self, group: str, layout: Layout, size: int, device: torch.device) -> None:
        self.layout = layout
        self.slot_names = [f"{group}_{slot}" for slot in range(size)]
        self._group = group
        self._size = size
        self._device = device
        self._action_names = [
            *(["continuous"] if layout.continuous_size else []),
            *self._by_branch(layout.branches),
        ]
        self._on_cpu = device.type == "cpu"
        self._batch_size = torch.Size([size])
        self._episodes = 0
        self._group_ids = np.full(size, -1, np.int32)
        self._nested = len(layout.branches) > 1 or bool(layout.branches and layout.continuous_size)
        self._never = torch.zeros((size, 1), dtype=torch.bool, device=device)

    def specs(self) -> tuple[Any, Any, Any, Any]:
        """Observation, action, reward and done specs [n]."""
        n, layout, to = self._size, self.layout, {"device": self._device}
        leaves = {
            view.name: Bounded(0, 255, (n, *view.shape), dtype=torch.uint8, **to)
            if view.is_image and layout.uint8_images
            else Unbounded((n, *view.shape), dtype=torch.float32, **to)
            for view in layout.views
        }
        observation = Composite(
            observation=next(iter(leaves.values())) if len(leaves) == 1 else Composite(leaves, shape=(n,), **to),
            mask=Binary(shape=(n,), dtype=torch.bool, **to),
            agent_id=Unbounded((n,), dtype=torch.int32, **to),
            group_id=Unbounded((n,), dtype=torch.int32, **to),
            episode=Unbounded((n,), dtype=torch.int64, **to),
            group_reward=Unbounded((n, 1), dtype=torch.float32, **to),
            shape=(n,),
            **to,
        )
        if layout.branches:
            masks = [Binary(shape=(n, k), dtype=torch.bool, **to) for k in layout.branches]
            observation["action_mask"] = (
                Composite(self._by_branch(masks), shape=(n,), **to) if self._nested else masks[0]
            )
        choices = [Categorical(k, shape=(n,), dtype=torch.int64, **to) for k in layout.branches]
        moves = Bounded(-1.0, 1.0, (n, layout.continuous_size), dtype=torch.float32, **to)
        if self._nested:
            both = ({"continuous": moves} if layout.continuous_size else {}) | self._by_branch(choices)
            action: Any = Composite(both, shape=(n,), **to)
        else:
            action = choices[0] if choices else moves
        flag = {k: Categorical(2, shape=(n, 1), dtype=torch.bool, **to) for k in ("done", "terminated", "truncated")}
        return (
            observation,
            Composite(action=action, shape=(n,), **to),
            Composite(reward=Unbounded((n, 1), dtype=torch.float32, **to), shape=(n,), **to),
            Composite(flag, shape=(n,), **to),
        )

    def restart(self, rows: SlotRows) -> None:
        """The world began anew."""
        self._episode = np.full(self._size, -1, np.int64)
        self._take(rows)

    def pending(self) -> TensorDict:
        """What every slot acts on now."""
        rows = self._rows
        leaves = self._leaves(self._copied(rows.obs), rows.deciding, rows.action_mask, self._who)
        for key in ("terminated", "truncated", "done"):
            leaves[key] = torch.zeros((self._size, 1), dtype=torch.bool, device=self._device)
        return self._tensordict(leaves)

    def outcome(self, rows: SlotRows) -> TensorDict:
        """What came of the last actions: the `next` of the rows before."""
        ended = rows.terminated | rows.truncated
        before = self._who
        self._take(rows)
        obs, mask, allowed, who = self._copied(rows.obs), rows.deciding, rows.action_mask, self._who
        if len(rows.final_slot):  # lives that ended show their own last things
            for view, last in zip(obs, self.layout.observe(rows.final_obs), strict=True):
                view[rows.final_slot] = last
            mask = mask & ~ended
            allowed = None if allowed is None else allowed | ended[:, None]
            over = self._tensor(ended)
            who = {key: torch.where(over, before[key], now) for key, now in who.items()}
        leaves = self._leaves(obs, mask, allowed, who)
        leaves["terminated"] = self._tensor(rows.terminated[:, None])
        leaves["truncated"] = self._tensor(rows.truncated[:, None])
        leaves["done"] = self._tensor(ended[:, None])
        leaves["reward"] = self._tensor((rows.reward + rows.group_reward)[:, None])
        return self._tensordict(leaves)

    def read_action(self, tensordict: TensorDictBase | None) -> ActionTuple:
        """The world's actions from the leaves below `action`, or a UsageError that names the wrong one."""
        action = None if tensordict is None else tensordict.get("action", None)
        if action is None:
            raise UsageError(f"{self._group}: expected a key 'action', got none; did a policy write it?")
        layout, size = self.layout, self._size
        if not self._nested:
            if isinstance(action, TensorDictBase):
                raise UsageError(f"{self._group}: action: expected a tensor, got the keys {sorted(action.keys())}")
            if layout.branches:
                return layout.actions(None, self._read(action, "branch_0", (size,))[:, None], size)
            return layout.actions(self._read(action, "continuous", (size, layout.continuous_size)), None, size)
        if not isinstance(action, TensorDictBase) or set(action.keys()) != set(self._action_names):
            came = sorted(action.keys()) if isinstance(action, TensorDictBase) else "a tensor"
            raise UsageError(f"{self._group}: action: expected the keys {self._action_names}, got {came}")
        discrete = np.empty((size, len(layout.branches)), np.int32)
        for i in range(len(layout.branches)):
            name = f"branch_{i}"
            discrete[:, i] = self._read(action.get(name), name, (size,))
        continuous = None
        if layout.continuous_size:
            continuous = self._read(action.get("continuous"), "continuous", (size, layout.continuous_size))
        return layout.actions(continuous, discrete, size)

    def random_action(self) -> Tensor | TensorDict:
        """Uniform over what the present masks allow."""
        parts: dict[str, Tensor] = {}
        if self.layout.continuous_size:
            parts["continuous"] = 2.0 * torch.rand(self._size, self.layout.continuous_size, device=self._device) - 1.0
        if self.layout.branches and self._rows.action_mask is not None:
            masks = self._tensor(self.layout.mask(self._rows.action_mask)).split(self.layout.branches, dim=1)
            parts |= self._by_branch([_uniform_choice(mask) for mask in masks])
        if self._nested:
            return self._tensordict(dict(parts))
        (only,) = parts.values()
        return only

    def _take(self, rows: SlotRows) -> None:
        """Remember these rows, and who acts in them from now on."""
        self._rows = rows
        same = not len(rows.final_slot) and not rows.begins.any() and np.array_equal(rows.group_id, self._group_ids)
        self._group_ids = rows.group_id
        if same:
            return
        gone = (rows.terminated | rows.truncated) & ~rows.begins
        self._episode = np.where(gone, -1, self._episode)
        born = int(rows.begins.sum())
        self._episode[rows.begins] = self._episodes + np.arange(born)
        self._episodes += born
        self._who = {
            "agent_id": self._tensor(np.where(gone, np.int32(-1), rows.agent_id)),
            "group_id": self._tensor(np.where(gone, np.int32(-1), rows.group_id)),
            "episode": self._tensor(self._episode),
        }

    def _copied(self, obs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The views as arrays of our own: slots keep theirs while nobody decides, whatever becomes of these."""
        mine = {id(o) for o in obs}
        return [o.copy() if id(o) in mine else o for o in self.layout.observe(obs)]

    def _leaves(
        self,
        views: list[NDArray[Any]],
        mask: NDArray[np.bool_],
        allowed: NDArray[np.bool_] | None,
        who: dict[str, Tensor],
    ) -> dict[str, Any]:
        seen: Any = [self._tensor(view) for view in views]
        if len(views) == 1:
            (seen,) = seen
        else:
            names = [view.name for view in self.layout.views]
            seen = self._tensordict(dict(zip(names, seen, strict=True)))
        leaves = {
            "observation": seen,
            "mask": self._tensor(mask),
            "group_reward": self._tensor(self._rows.group_reward[:, None]),
            **who,
        }
        if allowed is not None:
            masks, ends = self.layout.mask(allowed), self.layout.mask_ends
            if self._nested:
                parts = (masks[:, end - size : end] for end, size in zip(ends, self.layout.branches, strict=True))
                leaves["action_mask"] = self._tensordict(self._by_branch(map(self._tensor, parts)))
            else:
                leaves["action_mask"] = self._tensor(masks)
        return leaves

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self._on_cpu else tensor.to(self._device)

    def _tensordict(self, leaves: dict[str, Any]) -> TensorDict:
        return _unchecked(leaves, self._batch_size, self._device)

    def _read(self, leaf: Any, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        floats = name == "continuous"
        if (
            leaf.shape == shape
            and leaf.dtype is (torch.float32 if floats else torch.int64)
            and leaf.is_cpu
            and self._on_cpu
        ):
            return np.asarray(leaf.numpy(force=True))  # what policies send; all else is looked at closely
        if (
            tuple(leaf.shape) != shape
            or leaf.dtype.is_floating_point != floats
            or leaf.dtype == torch.bool
            or leaf.device.type != self._device.type
        ):
            kind = "floats" if floats else "integers"
            raise UsageError(
                f"{self._group}: action ({name}): expected {kind} of shape {shape} on {self._device}, got "
                f"{leaf.dtype} of shape {tuple(leaf.shape)} on {leaf.device}"
            )
        return np.asarray(leaf.numpy(force=True))

    @staticmethod
    def _by_branch(parts: Any) -> dict[str, Any]:
        return {f"branch_{i}": part for i, part in enumerate(parts)}


def _unchecked(leaves: dict[str, Any], batch_size: torch.Size, device: torch.device | None) -> TensorDict:
    """A tensordict of leaves known to fit: TensorDict's own checks took a fifth of an environment's step."""
    made: TensorDict = TensorDict._new_unsafe(source=leaves, batch_size=batch_size, device=device)
    return made


def _uniform_choice(allowed: Tensor) -> Tensor:
    """One allowed choice [...] of each row of a mask [..., choices]."""
    return torch.where(allowed, torch.rand(allowed.shape, device=allowed.device), -1.0).argmax(-1)


def _as_tuple(key: Any) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)
