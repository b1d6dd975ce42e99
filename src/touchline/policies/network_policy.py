"""A network as a policy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows
from touchline.policies.distributions import (
    ActionDistribution,
    SquashedDistribution,
    to_environment,
)
from touchline.policies.network import (
    Actor,
    Allowed,
    Distribution,
    Network,
    Obs,
    side_by_side,
)
from touchline.policies.policy import (
    ChosenActions,
    Decision,
    Outlook,
    SlotMemory,
    require_fit,
)
from touchline.specs import ActionTuple, BehaviorSpec


class NetworkPolicy:
    """Acts with a network: draws actions from its distribution, or takes the most likely ones."""

    def __init__(
        self,
        network: Network,
        *,
        deterministic: bool = False,
        device: torch.device | str = "cpu",
        source: str = "this network",
    ) -> None:
        """`device` is where the network is; `source` names it in messages."""
        self.network = network
        self.deterministic = deterministic
        self.device = device
        self._source = source
        self._actor: Actor | None = None

    def check(self, behavior: str, spec: BehaviorSpec) -> None:
        require_fit(self._source, self.network.spec, behavior, spec)

    def new_memory(self) -> SlotMemory | None:
        shape = self.network.memory_shape
        return None if shape is None else SlotMemory(shape)

    def new_generator(self, seed: int) -> torch.Generator:
        """On the CPU, wherever the network is: a run draws the same numbers on every device."""
        return torch.Generator().manual_seed(seed)

    def forget_actor(self) -> None:
        """Call this whenever the weights have changed: what was prepared from them is stale."""
        self._actor = None

    def act(
        self, rows: SlotRows, memory: SlotMemory | None, generator: torch.Generator
    ) -> Decision:
        """Also takes rows whose observations are as `Network.compact` keeps them."""
        with torch.inference_mode():
            distribution, before = self._distribution(rows, memory)
            if self.deterministic:
                continuous, discrete = distribution.mode()
            else:
                continuous, discrete = distribution.sample(generator)
            limited = to_environment(continuous)
        actions = ActionTuple(limited.numpy(), discrete.numpy())
        # A learner needs the raw numbers: the log-probability of a limited action is not that of
        # what the normal drew.
        kept = ChosenActions(continuous.numpy(), discrete.numpy(), before)
        return Decision(actions, kept)

    def outlook(self, rows: SlotRows, memory: SlotMemory | None) -> Outlook:
        with torch.inference_mode():
            obs, allowed = self._seen(rows)
            value: torch.Tensor | None = None
            # Its critic may have seen more in training than this world shows.
            sensors = self.network.spec.observation_specs
            has_all = len(rows.obs) == len(sensors)
            if memory is None and not has_all:
                distribution = self.network.distribution(obs, allowed)
            elif memory is None:
                distribution, value = self.network(obs, allowed)
                if rows.second_mask is not None:  # only the actor takes it
                    distribution, _ = self._distribution(rows, None)
            else:
                before = self._tensor(memory.recall(rows))
                distribution, value, _ = self.network.step(obs, allowed, before)
                value = value if has_all else None
            continuous, _ = distribution.mode()
            limited = to_environment(continuous)
        branches: Sequence[torch.Tensor] = ()
        # Other distributions have choices that depend on each other.
        if isinstance(distribution, ActionDistribution | SquashedDistribution):
            branches = distribution.log_probs
        return Outlook(
            [branch.exp().numpy(force=True) for branch in branches],
            limited.numpy(),
            None if value is None else value.numpy(force=True),
        )

    def _distribution(
        self, rows: SlotRows, memory: SlotMemory | None
    ) -> tuple[Distribution, NDArray[np.float32] | None]:
        """Of the slots' actions, and what the slots remembered; what they remember now is kept."""
        obs, allowed = self._seen(rows)
        if memory is not None:
            # Not by the prepared actor, which has no memory.
            before = memory.recall(rows)
            remembered = self._tensor(before)
            distribution, _, after = self.network.step(obs, allowed, remembered)
            memory.keep(rows, before, after.numpy(force=True))
            return distribution, before
        # Prepared once per update instead of once per step; see `forget_actor`.
        if self._actor is None:
            self._actor = self.network.actor()
        if rows.second_mask is not None:  # staged actions: the later branches' masks
            second_mask = self._tensor(rows.second_mask)
            return self._actor(obs, allowed, second_mask), None
        return self._actor(obs, allowed), None

    def _seen(self, rows: SlotRows) -> tuple[Obs, Allowed]:
        obs = tuple(map(self._tensor, side_by_side(rows.obs)))
        mask = rows.action_mask
        return self.network.normalized(obs), None if mask is None else self._tensor(
            mask
        )

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)
