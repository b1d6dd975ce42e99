"""Networks that ML-Agents trained, from its `.pt` checkpoints and its ONNX files.

A checkpoint is read as tensors only: PyTorch's restricted unpickler runs no code of the file. An
ONNX file holds the policy alone, and no count of what its normalizer saw.

Names of modules and the order in which sensors are joined are those of ML-Agents 1.1.0
(`trainers/torch_entities/{networks,encoders,layers,action_model,decoders}.py`, and
`model_saver/torch_model_saver.py` for the parts of a checkpoint).
"""

import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from touchline.envs.saved_state import part_of
from touchline.errors import UsageError
from touchline.policies.files.onnx_in import load_model
from touchline.policies.nets import lstm
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.nets.bodies import Bodies, Body
from touchline.policies.nets.twin_mlp import ACTOR, CRITIC, TwinMLP
from touchline.specs import BehaviorSpec

CHECKPOINT = ".pt"
"""Suffix of ML-Agents' checkpoints."""

SAME_IMAGE_ENCODERS = ("simple", "nature_cnn", "match3")
"""The others differ from ML-Agents' in a width or an activation."""

OBSERVATIONS_BEHIND_ONNX = 1_000_000
"""How many observations the normalizer of an ONNX file counts as: enough that new ones move it
slowly. Official runs of these scenes have seen millions."""

_BODY = "network_body."
_LAYER = _BODY + "_body_endoder.seq_layers."  # their spelling
_SENSOR = _BODY + "observation_encoder.processors."
# Our name for the standard deviation, which ONNX files hold as a nameless constant.
_DIVISOR = "normalizer.divisor"


@dataclass(frozen=True)
class OfficialWeights:
    """Tensors by ML-Agents' names."""

    path: Path
    policy: Mapping[str, Tensor]
    critic: Mapping[str, Tensor]
    """Empty where the file has none that belongs to a single agent; of SAC, the value network."""
    target: Mapping[str, Tensor] = field(default_factory=dict)
    """SAC's slowly moving value network; empty elsewhere."""
    q: Sequence[Mapping[str, Tensor]] = ()
    """SAC's two critics of actions; none elsewhere."""


def read_official(path: Path) -> OfficialWeights:
    """The weights in a `.pt` checkpoint or an ONNX file; a UsageError for anything else."""
    if path.suffix == CHECKPOINT:
        return _read_checkpoint(path)
    return OfficialWeights(path, _renamed(_read_onnx(path)), {})


def with_official_weights(
    network: ActorCritic, weights: OfficialWeights, signals: Sequence[str]
) -> dict[str, Tensor]:
    """The state of `network` with these weights in it.

    `signals` are the names of its value heads. What the file does not hold stays as it is: the
    critic, or the heads of other reward signals. Raises a UsageError for weights of another shape.
    """
    _require_same_settings(network, weights)
    # A copy, so that a file that is refused half-way leaves the network as it was.
    filled = deepcopy(network).cpu()
    with torch.no_grad():
        policy = _Source(weights.path, weights.policy)
        _fill_body(filled, ACTOR, policy)
        _fill_policy_head(filled, policy)
        shares = filled.architecture.shared_critic
        critic = policy if shares else _Source(weights.path, weights.critic)
        if critic.tensors and not shares:
            _fill_body(filled, CRITIC, critic)
        _fill_value_heads(*_heads(filled)[1], 1, critic, signals)
    return filled.state_dict()


def fill_q(
    critic: Body,
    head: nn.Linear,
    spec: BehaviorSpec,
    weights: OfficialWeights,
    number: int,
    signals: Sequence[str],
) -> None:
    """Put one of SAC's two critics in the file into ours, in place.

    `spec` is what `critic` observes, the continuous action as the last sensor. Raises a UsageError
    for weights of another shape.
    """
    source = _Source(weights.path, weights.q[number])
    with torch.no_grad():
        _fill_network(spec, critic, source)
        rows = len(head.bias) // len(signals)
        _fill_value_heads(head.weight, head.bias, rows, source, signals)


class _Source:
    """The tensors of one official module, with messages about those that are not as expected."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self.path, self.tensors = path, tensors

    def take(self, name: str, shape: Sequence[int]) -> Tensor:
        """Raises a UsageError where it is missing, of another shape, or not finite."""
        if name not in self.tensors:
            raise UsageError(
                f"{self.path}: does not fit the configured network: it has no {name}"
            )
        found = self.tensors[name]
        if tuple(found.shape) != tuple(shape):
            raise UsageError(
                f"{self.path}: does not fit the configured network: {name} has the shape "
                f"{list(found.shape)}, expected {list(shape)}"
            )
        if not bool(torch.isfinite(found).all()):
            raise UsageError(f"{self.path}: {name} holds NaN or infinite numbers")
        return found

    def fill(self, weight: Tensor, bias: Tensor, name: str) -> None:
        """Put a layer into ours, in place."""
        weight.copy_(self.take(name + "weight", weight.shape))
        bias.copy_(self.take(name + "bias", bias.shape))


# reading files


def _read_checkpoint(path: Path) -> OfficialWeights:
    try:
        _refuse_compressed(path)
        with warnings.catch_warnings():
            # PyTorch's, about pickles of other programs: an error follows.
            warnings.simplefilter("ignore")
            modules = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f"it names {named[1]}" if named else "it cannot be read as tensors"
        raise UsageError(
            f"{path}: not a checkpoint of tensors only ({what}); nothing in it was run"
        ) from None
    except UsageError:
        raise
    # PyTorch raises errors of a dozen kinds for files that are not its own.
    except Exception as error:
        raise UsageError(
            f"{path}: not a checkpoint of ML-Agents, or cut short ({type(error).__name__})"
        ) from None
    policy = _module(modules, "Policy")
    if policy is None:
        raise UsageError(
            f"{path}: not a checkpoint of ML-Agents: expected a module 'Policy'"
        )
    critic = _module(modules, "Optimizer:critic") or {}
    # The critic of a group (poca) attends to all of its members and is another network.
    is_of_group = any(name.startswith(_BODY + "self_attn") for name in critic)
    if is_of_group:
        critic = {}
    q = _module(modules, "Optimizer:q_network")
    if q is None:
        return OfficialWeights(path, _renamed(policy), critic)
    return OfficialWeights(
        path,
        _renamed(policy),
        _module(modules, "Optimizer:value_network") or {},
        _module(modules, "Optimizer:target_network") or {},
        [part_of("q1_network.", q), part_of("q2_network.", q)],
    )


def _refuse_compressed(path: Path) -> None:
    """Raise a UsageError for an archive that unpacks to more than its own length."""
    if not zipfile.is_zipfile(path):
        return  # PyTorch's older files are no archives
    # PyTorch compresses nothing, but would unpack a thousandfold.
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > path.stat().st_size:
        raise UsageError(f"{path}: not a checkpoint of ML-Agents: it is compressed")


def _module(modules: Any, name: str) -> dict[str, Tensor] | None:
    """The tensors of one module of a checkpoint, None where there is no such module."""
    found = modules.get(name) if isinstance(modules, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    return {
        str(key): value
        for key, value in found.items()
        if isinstance(value, Tensor) and value.layout is torch.strided
    }


def _read_onnx(path: Path) -> dict[str, Tensor]:
    graph = load_model(path).graph
    constants = {
        # onnx gives memory that cannot be written to, of which PyTorch warns.
        constant.name: torch.from_numpy(onnx.numpy_helper.to_array(constant).copy())
        for constant in graph.initializer
    }
    own = (_BODY, "action_")
    named = {k: v for k, v in constants.items() if k.startswith(own)}
    if not named:
        raise UsageError(
            f"{path}: its weights have none of ML-Agents' names, so no training can start with "
            "them; Touchline's own models have a checkpoint next to them"
        )
    made_by = {output: node for node in graph.node for output in node.output}
    for node in graph.node:
        if node.op_type == "Identity" and node.input[0] in constants:
            # PyTorch keeps one of several equal constants.
            named[node.output[0]] = constants[node.input[0]]
        if node.op_type == "LSTM":
            # Its inputs are x, then input weights, recurrent weights and biases.
            weights = [constants[name] for name in node.input[1:4]]
            named |= {
                _BODY + name: tensor
                for name, tensor in lstm.official_parameters_of_node(weights).items()
            }
        before = made_by.get(node.input[0]) if node.input else None
        # A normalizer is (x - mean) / divisor; only the mean keeps its name in the file.
        if node.op_type == "Div" and before is not None and before.op_type == "Sub":
            mean, divisor = before.input[1], node.input[1]
            if mean.endswith("normalizer.running_mean") and divisor in constants:
                prefix = mean.removesuffix("normalizer.running_mean")
                named[prefix + _DIVISOR] = constants[divisor]
    return named


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names of ML-Agents before 0.27 as they are in 1.1.0."""
    old = _BODY + "linear_encoder."
    new = _BODY + "_body_endoder."
    return {name.replace(old, new): tensor for name, tensor in tensors.items()}


# what must be the same


def _require_same_settings(network: ActorCritic, weights: OfficialWeights) -> None:
    path, tensors, wanted = weights.path, weights.policy, network.architecture
    if any(".hypernet." in name for name in tensors):
        raise UsageError(
            f"{path}: a network that goals steer (goal_conditioning_type: hyper) has other shapes "
            "in ML-Agents than here, and cannot be taken over"
        )
    if network.sensors.entities or any(".rsa." in name for name in tensors):
        raise UsageError(
            f"{path}: a network of lists of entities is built otherwise in ML-Agents than here, "
            "and cannot be taken over"
        )
    if network.sensors.images and wanted.vis_encode_type not in SAME_IMAGE_ENCODERS:
        same = ", ".join(SAME_IMAGE_ENCODERS)
        raise UsageError(
            f"{path}: the image encoder {wanted.vis_encode_type} is built otherwise in ML-Agents "
            f"than here, and cannot be taken over; those that can: {same}"
        )
    memory = network.trunk.actor.memory if isinstance(network.trunk, Bodies) else None
    if memory is not None and not memory.official_parameters():
        raise UsageError(
            f"{path}: ML-Agents has no memory of the configured type {wanted.memory_type}"
        )
    found = _settings_of(tensors)
    own = {
        "hidden_units": wanted.hidden_units,
        "num_layers": wanted.num_layers,
        "normalize": network.normalizer is not None,
        "memory_size": wanted.memory_size,
    }
    differing = [key for key in own if found[key] != own[key]]
    if differing:
        theirs = ", ".join(f"{key} {found[key]}" for key in differing)
        ours = ", ".join(f"{key} {own[key]}" for key in differing)
        raise UsageError(
            f"{path}: does not fit the configured network: it has {theirs}; configured: {ours}"
        )


def _settings_of(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The network settings that the shapes of a policy's tensors show."""
    weights = [
        tensor
        for name, tensor in tensors.items()
        if name.startswith(_LAYER) and name.endswith(".weight")
    ]
    return {
        "hidden_units": len(weights[0]) if weights else 0,
        "num_layers": len(weights),
        "normalize": any("normalizer.running_mean" in name for name in tensors),
        "memory_size": lstm.official_size(part_of(_BODY, tensors)),
    }


# filling ours


def _columns(spec: BehaviorSpec, hidden: int) -> Tensor:
    """Where each input of our first layer is among theirs."""
    # There sensors are joined in their order, here vectors come before images. An image is as wide
    # as its encoding.
    vectors: list[int] = []
    images: list[int] = []
    for sensor in spec.observed.observation_specs:
        is_vector = len(sensor.shape) == 1
        start = len(vectors) + len(images)
        span = range(start, start + (sensor.shape[0] if is_vector else hidden))
        (vectors if is_vector else images).extend(span)
    return torch.tensor(vectors + images, dtype=torch.long)


def _fill_body(network: ActorCritic, which: int, source: _Source) -> None:
    """Everything of one of the two networks below its heads."""
    trunk = network.trunk
    if isinstance(trunk, TwinMLP):
        # A `TwinMLP` has its inputs as rows.
        own = [(weight[which].t(), bias[which, 0]) for weight, bias in trunk.layers]
        _fill_layers(network.spec, own, source)
    else:
        body = trunk.bodies[which]
        assert isinstance(body, Body)
        _fill_network(network.spec, body, source)
    if which == ACTOR:
        _fill_normalizer(network, source)


def _fill_network(spec: BehaviorSpec, body: Body, source: _Source) -> None:
    """Dense layers, image encoders and memory."""
    dense = [layer for layer in body.dense if isinstance(layer, nn.Linear)]
    _fill_layers(spec, [(layer.weight, layer.bias) for layer in dense], source)
    sensors = [i for i, o in enumerate(spec.observation_specs) if len(o.shape) == 3]
    for sensor, encoder in zip(sensors, body.images, strict=True):
        assert isinstance(encoder, nn.Sequential)
        parts = [m for m in encoder if isinstance(m, nn.Conv2d | nn.Linear)]
        for k, layer in enumerate(parts):
            name = (
                f"conv_layers.{2 * k}." if isinstance(layer, nn.Conv2d) else "dense.0."
            )
            assert layer.bias is not None
            source.fill(layer.weight, layer.bias, f"{_SENSOR}{sensor}.{name}")
    if body.memory is not None:
        for name, parameter in body.memory.official_parameters().items():
            parameter.copy_(source.take(_BODY + name, parameter.shape))


def _fill_layers(
    spec: BehaviorSpec, own: Sequence[tuple[Tensor, Tensor]], source: _Source
) -> None:
    """Weight [outputs, inputs] and bias of each dense layer, for our order of inputs."""
    for layer, (weight, bias) in enumerate(own):
        source.fill(weight, bias, f"{_LAYER}{2 * layer}.")  # activations lie between
        if layer == 0:
            weight.copy_(weight[:, _columns(spec, len(bias))])


def _fill_normalizer(network: ActorCritic, source: _Source) -> None:
    """The statistics of all vectors, which are one normalizer here and one per sensor there."""
    if network.normalizer is None:
        return
    means, scales = [], []
    count = float(OBSERVATIONS_BEHIND_ONNX)
    for i, sensor in enumerate(network.spec.observation_specs):
        if len(sensor.shape) != 1:
            continue
        own = f"{_SENSOR}{i}."
        means.append(source.take(own + "normalizer.running_mean", sensor.shape))
        if own + _DIVISOR in source.tensors:
            scales.append(1.0 / source.take(own + _DIVISOR, sensor.shape))
            continue
        squares = source.take(own + "normalizer.running_variance", sensor.shape)
        steps = source.take(own + "normalizer.normalization_steps", ())
        # Any sensor's: they are normalized from the same steps.
        count = float(steps)
        # There the squared deviations are summed, here their mean's root is kept, inverted.
        scales.append(torch.sqrt(steps / squares))
    network.normalizer.mean.copy_(torch.cat(means))
    network.normalizer.scale.copy_(torch.cat(scales))
    network.normalizer.count.fill_(count)


def _fill_policy_head(network: ActorCritic, source: _Source) -> None:
    """Means of continuous actions (of SAC, also the logarithms of their spreads), then the choices
    of all branches, as in `ActorCritic`.
    """
    actions = network.spec.action_spec
    sizes: dict[str, int] = {}
    if actions.continuous_size:
        sizes["_continuous_distribution.mu."] = actions.continuous_size
        if network.architecture.squashed:
            sizes["_continuous_distribution.log_sigma."] = actions.continuous_size
    for branch, size in enumerate(actions.discrete_branches):
        sizes[f"_discrete_distribution.branches.{branch}."] = size
    weight, bias = _heads(network)[0]
    weights, biases = (torch.split(t, list(sizes.values())) for t in (weight, bias))
    for name, own_weight, own_bias in zip(sizes, weights, biases, strict=True):
        source.fill(own_weight, own_bias, f"action_model.{name}")
    if network.log_std is not None:
        name = "action_model._continuous_distribution.log_sigma"
        log_sigma = source.take(name, (1, actions.continuous_size))
        network.log_std.copy_(log_sigma[0])


def _fill_value_heads(
    weight: Tensor, bias: Tensor, rows: int, source: _Source, signals: Sequence[str]
) -> None:
    """So many rows for each reward signal that the file knows."""
    weights, biases = torch.split(weight, rows), torch.split(bias, rows)
    for signal, own_weight, own_bias in zip(signals, weights, biases, strict=False):
        name = f"value_heads.value_heads.{signal}."
        if name + "weight" in source.tensors:
            source.fill(own_weight, own_bias, name)


def _heads(network: ActorCritic) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of the policy's head, then of the values'."""
    trunk = network.trunk
    if isinstance(trunk, TwinMLP):
        policy = trunk.policy_weight, trunk.policy_bias
        return [policy, (trunk.value_weight, trunk.value_bias)]
    return [(head.weight, head.bias) for head in (trunk.policy_head, trunk.value_head)]
