"""Learners on disk: weights as safetensors, metadata as JSON in the same file's header.

No pickle: loading an untrusted file runs no code.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from touchline.envs.saved_state import part_of
from touchline.errors import UsageError
from touchline.policies.network import Architecture, Network, make_network
from touchline.specs import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from touchline.whole import write_whole

FORMAT = "touchline-1"
CHECKSUM = "checksum"


def write_checkpoint(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]
) -> None:
    """Save tensors and their metadata, whole or not at all."""
    # safetensors takes only tensors without strides.
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_whole(path, save(contiguous, _header(metadata)))


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_checkpoint` saved. Raises a UsageError for anything else."""
    return _read(path, "pt")


def network_metadata(
    network: Network, reward_signals: Sequence[str] = ()
) -> dict[str, Any]:
    """The part of a checkpoint's metadata that `load_network` needs.

    `reward_signals` are the names of the network's value heads, in order; a single one needs none.
    """
    metadata: dict[str, Any] = {
        "spec": spec_to_json(network.spec),
        "network": asdict(network.architecture),
    }
    if len(reward_signals) > 1:
        metadata["reward_signals"] = list(reward_signals)
    return metadata


def load_network(path: Path) -> Network:
    """The network of a checkpoint.

    Raises a UsageError for a file that is no checkpoint of a policy, or whose network this version
    cannot build.
    """
    tensors, metadata = read_checkpoint(path)
    if "spec" not in metadata or "network" not in metadata:
        raise UsageError(f"{path}: a checkpoint, but not of a policy")
    with _described_by(path):
        spec = spec_from_json(metadata["spec"])
        architecture = _architecture(metadata["network"])
        num_signals = len(metadata.get("reward_signals", ())) or 1
        # First: a sketch of a billion layers would never be complete, even without weights.
        _check_sizes(architecture, tensors)
        # Without memory for the weights: a small file may describe a network of any size.
        try:
            with torch.device("meta"):
                sketch = make_network(spec, architecture, num_signals)
        except (RuntimeError, OverflowError, MemoryError) as error:
            raise ValueError(str(error)) from None
    # Next to the weights there are the optimizer's state and random numbers.
    weights = part_of("network.", tensors)
    expected = {name: tensor.shape for name, tensor in sketch.state_dict().items()}
    if expected != {name: tensor.shape for name, tensor in weights.items()}:
        raise UsageError(
            f"{path}: its weights do not fit the {spec.network} network; "
            "was it written by another version of Touchline?"
        )
    network = make_network(spec, architecture, num_signals)
    network.load_state_dict(weights)
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise UsageError(f"{path}: some of its weights are NaN or infinite")
    return network


def _check_sizes(architecture: Architecture, tensors: Mapping[str, Tensor]) -> None:
    """Raise a UsageError for sizes that the numbers of the file cannot fill."""
    numbers = sum(tensor.numel() for tensor in tensors.values())
    for name in ("hidden_units", "num_layers", "memory_size"):
        size = getattr(architecture, name)
        if size > numbers:
            raise UsageError(f"{name} {size:,}, but the file holds {numbers:,} numbers")


@contextmanager
def _described_by(path: Path) -> Iterator[None]:
    """Turn whatever a wrong description of a network leads to into a UsageError with the file."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except KeyError as error:
        raise UsageError(f"{path}: its description has no {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise UsageError(f"{path}: its description is wrong: {reason}") from None


def _architecture(value: Mapping[str, Any]) -> Architecture:
    kinds = {setting.name: type(setting.default) for setting in fields(Architecture)}
    for name, given in value.items():
        if name not in kinds:
            raise UsageError(
                f"an architecture of another version of Touchline: {name} is unknown"
            )
        # Exactly this type: isinstance would take True for a number.
        if type(given) is not kinds[name]:
            raise UsageError(f"{name}: expected {kinds[name].__name__}, got {given!r}")
    return Architecture(**value)


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a checkpoint, without its tensors. Raises a UsageError for other files."""
    with _opened(path, "np") as (_, metadata):
        return metadata


def _read(path: Path, framework: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and metadata; `framework` is safetensors' name for the kind of tensors."""
    with _opened(path, framework) as (file, metadata):
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, metadata


@contextmanager
def _opened(path: Path, framework: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    # To open a named pipe would wait for someone who writes into it.
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: not a checkpoint: expected a regular file")
    try:
        with safe_open(path, framework=framework) as file:
            header = file.metadata() or {}
            metadata = json.loads(header.get("about", "{}"))
            if not isinstance(metadata, dict):
                metadata = {}
            # Taken out, because `_header` adds it after the checksum was computed.
            found = metadata.pop("format", None)
            if found != FORMAT:
                raise UsageError(
                    f"{path}: not a Touchline checkpoint (format {found!r})"
                )
            yield file, metadata
    except FileNotFoundError:
        raise UsageError(f"{path}: no such checkpoint") from None
    except (
        SafetensorError,
        OSError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        raise UsageError(f"{path}: not a checkpoint, or cut short ({error})") from None


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]
) -> None:
    """Like `write_checkpoint`, for NumPy arrays of any number type; with a checksum."""
    in_order = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    about = {**metadata, CHECKSUM: _checksum(in_order, metadata)}
    write_whole(path, safetensors.numpy.save(in_order, _header(about)))


def read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """What `write_arrays` saved. Raises a UsageError for anything else."""
    arrays, metadata = _read(path, "np")
    expected = metadata.pop(CHECKSUM, None)
    if expected != _checksum(arrays, metadata):
        raise UsageError(
            f"{path}: damaged: its content does not have the checksum in it"
        )
    return arrays, metadata


def _checksum(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> str:
    """Of names, types, shapes, values and metadata; safetensors notices only a wrong length."""
    # As it is once it was read: tuples are lists in JSON.
    text = json.dumps(json.loads(json.dumps(metadata)), sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _header(metadata: Mapping[str, Any]) -> dict[str, str]:
    # A single entry: safetensors writes several in any order, but a run must repeat its bytes.
    return {"about": json.dumps({"format": FORMAT, **metadata})}


def spec_to_json(spec: BehaviorSpec) -> dict[str, Any]:
    """A behavior's spec as plain values."""
    return asdict(spec)


def spec_of(path: Path, metadata: Mapping[str, Any]) -> BehaviorSpec:
    """What the policy of a checkpoint observes and does, from its metadata."""
    if "spec" not in metadata:
        raise UsageError(f"{path}: a checkpoint, but not of a policy")
    with _described_by(path):
        return spec_from_json(metadata["spec"])


def spec_from_json(value: Mapping[str, Any]) -> BehaviorSpec:
    """The spec that `spec_to_json` wrote."""
    # Version 0.1.0 wrote neither these two keys nor a network.
    sensors = tuple(map(_observation_spec, value["observation_specs"]))
    action = value["action_spec"]
    action_spec = ActionSpec(
        action["continuous_size"],
        tuple(action["discrete_branches"]),
        action.get("staged", False),
    )
    return BehaviorSpec(sensors, action_spec, value.get("network", "standard"))


def _observation_spec(value: Mapping[str, Any]) -> ObservationSpec:
    return ObservationSpec(
        tuple(value["shape"]),
        tuple(DimensionProperty(p) for p in value["dimension_property"]),
        ObservationType(value["observation_type"]),
        value["name"],
        value.get("critic_only", False),
    )
