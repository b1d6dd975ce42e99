"""One group's rows as tensordicts, for the adapter to TorchRL.

Everything here runs at every step, so the tensordicts are made of leaves that are known to fit:
TensorDict's own checks took a fifth of an environment's step.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, Composite, Unbounded

from touchline.adapters.layout import Layout
from touchline.envs.slots import SlotRows
from touchline.errors import RunError, UsageError
from touchline.specs import ActionTuple

INTEGERS = frozenset((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8))
FLOATS = frozenset((torch.float32, torch.float64, torch.float16))


class GroupTensors:
    """One group's rows as tensors: what slots act on now, and how their last actions turned out.

    `in_teams` arranges the slots as [teams, members] instead of [slots].
    """

    def __init__(
        self,
        group: str,
        layout: Layout,
        rows: SlotRows,
        device: torch.device,
        *,
        in_teams: bool,
    ) -> None:
        teams = _slots_of_teams(group, rows) if in_teams else None
        self.layout = layout
        self.shape = torch.Size([len(rows)] if teams is None else teams.shape)
        self.slot_names = [f"{group}_{slot}" for slot in range(self.shape[-1])]
        self._group = group
        self._num_slots = len(rows)
        self._device = device
        self._is_on_cpu = device.type == "cpu"
        self._teams = teams
        """[teams, members] slots; None without teams."""
        is_plain = self._is_on_cpu and teams is None
        self._tensor = torch.from_numpy if is_plain else self._arranged
        self._num_episodes = 0
        has_both_kinds = bool(layout.branches and layout.continuous_size)
        self._is_nested = len(layout.branches) > 1 or has_both_kinds
        """Whether actions and masks have one leaf per branch."""
        self._expected: dict[str, tuple[torch.Size, frozenset[torch.dtype]]] = {}
        """Shape and dtypes of each part of the actions."""
        if layout.continuous_size:
            shape = torch.Size([*self.shape, layout.continuous_size])
            self._expected["continuous"] = shape, FLOATS
        for name in _by_branch(layout.branches):
            self._expected[name] = self.shape, INTEGERS
        starts = [0, *layout.mask_ends[:-1]]
        masks = map(slice, starts, layout.mask_ends)
        self._mask_parts = list(_by_branch(masks).items())
        """Each branch's name and its columns in a flat mask."""
        self.restart(rows)

    def specs(self) -> tuple[Any, Any, Any, Any]:
        """TorchRL's specs: observation, action, reward and done."""
        shape = self.shape
        on_device = {"device": self._device}
        reward = Unbounded((*shape, 1), dtype=torch.float32, **on_device)
        done = {
            key: Categorical(2, shape=(*shape, 1), dtype=torch.bool, **on_device)
            for key in ("done", "terminated", "truncated")
        }
        return (
            self._observation_spec(),
            Composite(action=self._action_spec(), shape=shape, **on_device),
            Composite(reward=reward, shape=shape, **on_device),
            Composite(done, shape=shape, **on_device),
        )

    def restart(self, rows: SlotRows) -> None:
        """The world was restarted, and these are its first rows."""
        self._episode = np.full(self._num_slots, -1, np.int64)
        self._team_ids = None
        if self._teams is not None:
            # After a restart an agent may be in another slot.
            self._teams = _slots_of_teams(self._group, rows)
            self._team_ids = rows.group_id
        self._take(rows)

    def pending(self, rows: SlotRows) -> TensorDict:
        """What every slot acts on now."""
        views = self.layout.copied(rows.obs)
        leaves = self._leaves(
            rows, views, rows.deciding, rows.action_mask, rows.second_mask
        )
        for key in ("terminated", "truncated", "done"):
            leaves[key] = torch.zeros(
                (*self.shape, 1), dtype=torch.bool, device=self._device
            )
        return self._tensordict(leaves)

    def outcome(self, rows: SlotRows) -> TensorDict:
        """How the last actions turned out: TorchRL's `next` of the rows before."""
        tensor, ids_before = self._tensor, self._ids
        self._take(rows)
        views = self.layout.copied(rows.obs)
        mask = rows.deciding
        allowed, second = rows.action_mask, rows.second_mask
        # TorchRL asks for the last axis.
        terminated = rows.terminated[:, None]  # [N, 1]
        truncated = rows.truncated[:, None]  # [N, 1]
        done = terminated | truncated
        if len(rows.final_slot):
            # Slots in which an episode ended show what belongs to it; there is nothing to choose.
            finals = self.layout.observe(rows.final_obs)
            for view, final in zip(views, finals, strict=True):
                view[rows.final_slot] = final
            mask = mask & ~done[:, 0]
            allowed = None if allowed is None else allowed | done
            second = None if second is None else second | done[:, None]
        leaves = self._leaves(rows, views, mask, allowed, second)
        if len(rows.final_slot):
            has_ended = tensor(done[:, 0])
            for key, ids in self._ids.items():
                # The row of an end belongs to the episode that ended, not to the one that the
                # slot now shows.
                leaves[key] = torch.where(has_ended, ids_before[key], ids)
        leaves["terminated"] = tensor(terminated)
        leaves["truncated"] = tensor(truncated)
        leaves["done"] = tensor(done)
        leaves["reward"] = tensor((rows.reward + rows.group_reward)[:, None])
        return self._tensordict(leaves)

    def read_action(self, tensordict: Any) -> ActionTuple:
        """The world's actions from the leaves below `action`.

        Raises a UsageError that names a leaf that is missing or wrong.
        """
        parts = self._action_parts(entries(tensordict).get("action"))
        arrays = []
        for name, (shape, dtypes) in self._expected.items():
            leaf = parts[name]
            if (
                leaf.shape != shape
                or leaf.dtype not in dtypes
                or leaf.is_cpu != self._is_on_cpu
            ):
                kind = "floats" if name == "continuous" else "integers"
                raise UsageError(
                    f"{self._group}: action ({name}): expected {kind} of shape {tuple(shape)} on "
                    f"{self._device}, got {leaf.dtype} of shape {tuple(leaf.shape)} on "
                    f"{leaf.device}"
                )
            # `force` detaches and copies, which a plain tensor on the CPU does not need.
            is_bound = leaf.requires_grad or not self._is_on_cpu
            arrays.append(leaf.numpy(force=is_bound))
        if self._teams is not None:
            arrays = [self._in_slots(array) for array in arrays]
        continuous = arrays.pop(0) if self.layout.continuous_size else None
        discrete = np.array(arrays).T if arrays else None  # [N, branches]
        return self.layout.actions(continuous, discrete, self._num_slots)

    def _action_parts(self, action: Any) -> dict[str, Any]:
        """The leaves of an action by the names in `_expected`."""
        if action is None:
            raise UsageError(
                f"{self._group}: expected a key 'action', got none; did a policy write it?"
            )
        parts = entries(action)
        if not self._is_nested:
            if parts:
                raise UsageError(
                    f"{self._group}: action: expected a tensor, got the keys {sorted(parts)}"
                )
            return dict.fromkeys(self._expected, action)
        if parts.keys() != self._expected.keys():
            got = f"the keys {sorted(parts)}" if parts else "a tensor"
            raise UsageError(
                f"{self._group}: action: expected the keys {list(self._expected)}, got {got}"
            )
        return parts

    def _observation_spec(self) -> Any:
        shape = self.shape
        layout = self.layout
        on_device = {"device": self._device}
        leaves: dict[str, Any] = {}
        for view in layout.views:
            of_view = (*shape, *view.shape)
            if view.is_image and layout.uint8_images:
                leaves[view.name] = Bounded(
                    0, 255, of_view, dtype=torch.uint8, **on_device
                )
            else:
                leaves[view.name] = Unbounded(of_view, dtype=torch.float32, **on_device)
        named = Composite(leaves, shape=shape, **on_device)
        spec = Composite(
            observation=named if layout.has_names else next(iter(leaves.values())),
            mask=Binary(shape=shape, dtype=torch.bool, **on_device),
            agent_id=Unbounded(shape, dtype=torch.int32, **on_device),
            group_id=Unbounded(shape, dtype=torch.int32, **on_device),
            episode=Unbounded(shape, dtype=torch.int64, **on_device),
            group_reward=Unbounded((*shape, 1), dtype=torch.float32, **on_device),
            shape=shape,
            **on_device,
        )
        if layout.branches:
            masks = [
                Binary(shape=(*shape, size), dtype=torch.bool, **on_device)
                for size in layout.branches
            ]
            together = Composite(_by_branch(masks), shape=shape, **on_device)
            spec["action_mask"] = together if self._is_nested else masks[0]
        staged = layout.spec.action_spec.second_mask_shape
        if staged:
            spec["second_mask"] = Binary(
                shape=(*shape, *staged), dtype=torch.bool, **on_device
            )
        return spec

    def _action_spec(self) -> Any:
        shape = self.shape
        layout = self.layout
        on_device = {"device": self._device}
        choices = [
            Categorical(size, shape=shape, dtype=torch.int64, **on_device)
            for size in layout.branches
        ]
        size = (*shape, layout.continuous_size)
        continuous = Bounded(-1.0, 1.0, size, dtype=torch.float32, **on_device)
        if not self._is_nested:
            return choices[0] if choices else continuous
        parts: dict[str, Any] = (
            {"continuous": continuous} if layout.continuous_size else {}
        )
        return Composite(parts | _by_branch(choices), shape=shape, **on_device)

    def _take(self, rows: SlotRows) -> None:
        """Remember which agent and episode is in each slot from now on."""
        if self._team_ids is not None:
            has_changed = rows.group_id != self._team_ids
            if has_changed[rows.agent_id >= 0].any():
                raise RunError(
                    f"{self._group}: agents changed their teams, which layout 'teams' cannot show; "
                    "take layout='groups'"
                )
        agent_id = rows.agent_id
        group_id = rows.group_id
        begins = rows.begins
        if len(rows.final_slot) or np.count_nonzero(begins):
            # Ended, and no next episode has begun in the slot.
            is_empty = (rows.terminated | rows.truncated) & ~begins
            agent_id = np.where(is_empty, -1, agent_id)
            group_id = np.where(is_empty, -1, group_id)
            # Always a new array: tensors of earlier steps share the memory of the old one.
            self._episode = np.where(is_empty, -1, self._episode)
            num_new = int(begins.sum())
            self._episode[begins] = self._num_episodes + np.arange(num_new)
            self._num_episodes += num_new
        self._ids = {
            "agent_id": self._tensor(agent_id),
            "group_id": self._tensor(group_id),
            "episode": self._tensor(self._episode),
        }

    def _leaves(
        self,
        rows: SlotRows,
        views: list[NDArray[Any]],
        mask: NDArray[np.bool_],
        allowed: NDArray[np.bool_] | None,
        second: NDArray[np.bool_] | None,
    ) -> dict[str, Any]:
        tensor = self._tensor
        observation = self.layout.named([tensor(view) for view in views])
        if self.layout.has_names:
            observation = self._tensordict(observation)
        # Copies, which the caller may write to: the same arrays are shown again later.
        leaves = {
            "observation": observation,
            "mask": tensor(mask.copy()),
            "group_reward": tensor(rows.group_reward[:, None].copy()),
            **{key: ids.clone() for key, ids in self._ids.items()},
        }
        if allowed is not None:
            flat = self.layout.mask(allowed.copy())
            if self._is_nested:
                parts = {name: tensor(flat[:, part]) for name, part in self._mask_parts}
                leaves["action_mask"] = self._tensordict(parts)
            else:
                leaves["action_mask"] = tensor(flat)
        if second is not None:
            leaves["second_mask"] = tensor(second.copy())
        return leaves

    def _arranged(self, array: NDArray[Any]) -> Tensor:
        """An array of slots on the device, as [teams, members] where there are teams."""
        arranged = array if self._teams is None else array[self._teams]
        return torch.from_numpy(arranged).to(self._device)

    def _in_slots(self, of_teams: NDArray[Any]) -> NDArray[Any]:
        """An array [teams, members, ...] as [slots, ...]."""
        of_slots = np.empty((self._num_slots, *of_teams.shape[2:]), of_teams.dtype)
        of_slots[self._teams] = of_teams
        return of_slots

    def _tensordict(self, leaves: dict[str, Any]) -> TensorDict:
        return unchecked(leaves, self.shape, self._device)


def entries(tensordict: Any) -> dict[str, Any]:
    """A tensordict's own entries, nothing of anything else; five times faster than its `get`."""
    return dict(tensordict.items()) if isinstance(tensordict, TensorDictBase) else {}


def unchecked(
    leaves: dict[str, Any], batch_size: torch.Size, device: torch.device | None
) -> TensorDict:
    """A tensordict of leaves that are known to fit."""
    made: TensorDict = TensorDict._new_unsafe(
        source=leaves, batch_size=batch_size, nested=False
    )
    made._device = device  # as an argument of the constructor it costs twice the time
    return made


def _by_branch(parts: Iterable[Any]) -> dict[str, Any]:
    return {f"branch_{i}": part for i, part in enumerate(parts)}


def _slots_of_teams(group: str, rows: SlotRows) -> NDArray[np.intp]:
    """The slots of each team, [teams, members], in the order of worlds and group ids."""
    num_empty = int((rows.agent_id < 0).sum())
    if num_empty:
        raise UsageError(
            f"layout 'teams' needs all agents from the start, {num_empty} of {len(rows)} slots of "
            f"{group} are empty; take layout='groups'"
        )
    # An agent without a group is a team by itself, so it gets a number that no other has.
    has_no_group = rows.group_id == 0
    own_number = np.where(has_no_group, 1 + np.arange(len(rows)), 0)
    keys = np.stack([rows.env_index, rows.group_id, own_number])  # [3, N]
    _, team, sizes = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    different = sorted(set(sizes.tolist()))
    if len(different) > 1:
        raise UsageError(
            f"layout 'teams' needs teams of one size, {group} has teams of {different}; "
            "take layout='groups'"
        )
    # All teams are of one size, so the slots in the order of teams are a row for each.
    return np.argsort(team, kind="stable").reshape(len(sizes), -1)
