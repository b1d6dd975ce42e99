"""What a learner has learned: checked after each update, saved for a resume point, restored."""

from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any

import torch
from torch import Tensor, nn

from touchline.envs.saved_state import part_of
from touchline.errors import NonFiniteError
from touchline.training.experience.trajectories import Trajectories
from touchline.training.run.packing import pack, unpack

_PENDING = "pending."
"""Begins the names of experience that waits for the next update."""


def refuse_non_finite(
    behavior: str,
    steps: int,
    *parts: Any,
    advice: str = "a smaller learning_rate or max_grad_norm may help",
) -> None:
    """Raise a NonFiniteError where the update that ended now made a weight NaN or infinite.

    `parts` are modules, and tensors of weights.
    """
    for part in parts:
        # Buffers, too: a normalizer that saw an infinite observation spoils every later one.
        values = [part] if isinstance(part, Tensor) else part.state_dict().values()
        for value in values:
            is_finite = torch.isfinite(value).all()
            if not bool(is_finite):
                raise NonFiniteError(
                    f"{behavior}: the update that ended at step {steps:,} made weights "
                    f"NaN or infinite; {advice}"
                )


def saved(parts: Mapping[str, Any]) -> dict[str, Tensor]:
    """The states of modules and of parts with `state`, each below its name and a dot."""
    # On the CPU: a run that was trained on a GPU resumes on a machine without one.
    tensors: dict[str, Tensor] = {}
    for prefix, part in parts.items():
        own = part.state_dict() if isinstance(part, nn.Module) else part.state()
        tensors |= {f"{prefix}.{name}": value.cpu() for name, value in own.items()}
    return tensors


def restore(state: Mapping[str, Tensor], parts: Mapping[str, Any]) -> None:
    """Continue from what `saved` returned for parts of these names."""
    for prefix, part in parts.items():
        load = part.load_state_dict if isinstance(part, nn.Module) else part.load_state
        load(copied_part(f"{prefix}.", state))


def copied_part(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors whose names begin with the prefix, without it."""
    return {name: value.clone() for name, value in part_of(prefix, state).items()}


def pending(added: Sequence[Trajectories]) -> dict[str, Tensor]:
    """Experience that waits for the next update; `pending_again` takes it."""
    # There is some where several behaviors share rounds of collectors: each round ends when one of
    # them has enough.
    tensors: dict[str, Tensor] = {}
    for number, trajectories in enumerate(added):
        for name, array in pack([trajectories]).items():
            tensors[f"{_PENDING}{number}.{name}"] = torch.from_numpy(array)
    return tensors


def pending_again(state: Mapping[str, Tensor]) -> list[Trajectories]:
    """What `pending` was given."""
    parts = (copied_part(f"{_PENDING}{number}.", state) for number in count())
    added = []
    for tensors in takewhile(bool, parts):
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        added += unpack(arrays, Trajectories)
    return added
