"""What a learner has learned: checked after each update, saved for a resume point, restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any

import torch
from torch import Tensor

from touchline.errors import NonFiniteError
from touchline.training.algorithms.adam import Adam
from touchline.training.experience.trajectories import Trajectories
from touchline.training.rewards.signal import RewardSignal
from touchline.training.run.packing import pack, unpack

_PENDING = "pending."
"""Begins the names of experience that waits for the next update."""


def refuse_non_finite(behavior: str, steps: int, *networks: Any) -> None:
    """Raise a NonFiniteError where the update that ended now made a weight NaN or infinite."""
    for network in networks:
        # Buffers, too: a normalizer that saw an infinite observation spoils every later one.
        for value in network.state_dict().values():
            is_finite = torch.isfinite(value).all()
            if not bool(is_finite):
                raise NonFiniteError(
                    f"{behavior}: the update that ended at step {steps:,} made weights "
                    "NaN or infinite; a smaller learning_rate or max_grad_norm may help"
                )


def saved(
    networks: Mapping[str, Any],
    adam: Adam,
    signals: Sequence[RewardSignal],
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Everything needed to go on learning bit for bit, on the CPU; `restore` takes it."""
    tensors: dict[str, Tensor] = {}
    for prefix, network in networks.items():
        weights = network.state_dict()
        tensors |= {f"{prefix}.{name}": value for name, value in weights.items()}
    moments = adam.state()
    tensors |= {f"optimizer.{name}": value for name, value in moments.items()}
    for signal in signals:
        learned = signal.state()
        tensors |= {f"signal.{signal.name}.{name}": v for name, v in learned.items()}
    # A run that was trained on a GPU resumes on a machine without one.
    on_cpu = {name: value.cpu() for name, value in tensors.items()}
    return on_cpu | {"generator": generator.get_state()}


def restore(
    state: Mapping[str, Tensor],
    networks: Mapping[str, Any],
    adam: Adam,
    signals: Sequence[RewardSignal],
    generator: torch.Generator,
) -> None:
    """Go on from what `saved` gave."""
    for prefix, network in networks.items():
        network.load_state_dict(part_of(f"{prefix}.", state))
    adam.load_state(part_of("optimizer.", state))
    for signal in signals:
        signal.load_state(part_of(f"signal.{signal.name}.", state))
    generator.set_state(state["generator"])


def part_of(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with the prefix, without it, as copies."""
    return {
        name.removeprefix(prefix): value.clone()
        for name, value in state.items()
        if name.startswith(prefix)
    }


def pending(added: Sequence[Trajectories]) -> dict[str, Tensor]:
    """Experience that waits for the next update; `pending_again` takes it.

    There is some where several behaviors share rounds of collectors: each round ends when one of
    them has enough.
    """
    tensors: dict[str, Tensor] = {}
    for number, trajectories in enumerate(added):
        for name, array in pack([trajectories]).items():
            tensors[f"{_PENDING}{number}.{name}"] = torch.from_numpy(array)
    return tensors


def pending_again(state: Mapping[str, Tensor]) -> list[Trajectories]:
    """What `pending` was given."""
    parts = (part_of(f"{_PENDING}{number}.", state) for number in count())
    added = []
    for tensors in takewhile(bool, parts):
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        added += unpack(arrays, Trajectories)
    return added
