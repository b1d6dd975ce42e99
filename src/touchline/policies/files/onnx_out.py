"""A trained policy as the ONNX file that Unity's importer reads: model API 3, opset 9.

The graph of the standard network is built node by node; others are traced (`onnx_policy`). Names,
constants and operators follow `docs/protocol.md`, "ONNX models". Actions are drawn inside the
graph, as Unity expects. The value function is not part of it.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import onnx
from onnx import TensorProto
from torch import nn

from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.known_files import refuse_other_kinds
from touchline.policies.distributions import CONTINUOUS_LIMIT, LOG_STD_RANGE
from touchline.policies.files.checkpoints import load_network
from touchline.policies.files.onnx_graph import OnnxGraph
from touchline.policies.files.onnx_policy import (
    API_VERSION,
    NetworkActor,
    build_policy,
    write_choices,
)
from touchline.policies.files.run_layout import CHECKPOINT, MODEL, RunLayout, run_of
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.nets.attention import (
    ABSENT,
    ATTENTION_HEADS,
    ATTENTION_SIZE,
    HEAD_SIZE,
    EntityAttention,
)
from touchline.policies.nets.bodies import Body
from touchline.policies.nets.dense import NORM_EPSILON, HyperLinear
from touchline.policies.nets.encoders import Residual
from touchline.policies.nets.normalizer import NORMALIZED_LIMIT, RunningNormalizer
from touchline.policies.nets.twin_mlp import ACTOR, TwinMLP
from touchline.policies.network import Network, WithoutOnnx
from touchline.specs import BehaviorSpec
from touchline.whole import require_writable, write_whole


def export(
    run: Annotated[str | os.PathLike[str], Flag("RUN")],
    output: Annotated[str | os.PathLike[str], Flag(short="-o")],
    *,
    behavior: str | None = None,
) -> Path:
    """Write a trained policy as the ONNX file that Unity loads.

    Parameters
    ----------
    run
        A run folder or a checkpoint; of several seeds or trials the best by evaluation is taken.
    output
        The ONNX file to write.
    behavior
        Which behavior, when the run has several.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    UsageError
        There is no such checkpoint, Unity cannot load its kind of network, or the file cannot be
        written.
    """
    source, target = Path(run), Path(output)
    if target.suffix != MODEL:
        raise UsageError(f"{target}: expected a file name that ends in {MODEL}")
    require_writable(target)
    checkpoint = source
    if source.is_dir():
        checkpoint = RunLayout(run_of(source)).checkpoint(behavior)
    refuse_other_kinds(checkpoint, "a run folder or a checkpoint", CHECKPOINT)
    export_onnx(load_network(checkpoint), target)
    return target


def onnx_obstacle(network: Network) -> str:
    """Why the policy of this network cannot be written; empty where it can."""
    if type(network) is ActorCritic:
        return ""
    try:
        build_onnx(network)
    except UsageError as error:
        return str(error)
    return ""


def export_onnx(network: Network, path: Path) -> None:
    """Write the policy of `network`. Raises a UsageError for what Unity cannot load."""
    write_whole(path, build_onnx(network).SerializeToString())


def build_onnx(network: Network) -> onnx.ModelProto:
    """The policy of `network` as an ONNX model. Raises a UsageError for what Unity cannot load."""
    if isinstance(network, WithoutOnnx):
        raise UsageError(network.no_onnx)
    # A subclass may compute something else than the standard graph.
    if type(network) is ActorCritic:
        return _standard(network)
    return build_policy(NetworkActor(network))


def _standard(network: ActorCritic) -> onnx.ModelProto:
    graph = OnnxGraph()
    action = network.spec.action_spec
    obs = _inputs(graph, network.spec, network.normalizer)
    masks = ""
    if action.discrete_size:
        masks = graph.input("action_masks", (action.mask_size,))
    memory_size = network.memory_shape[1] if network.memory_shape else 0
    memory = ""
    if isinstance(network.trunk, TwinMLP):
        # Such a trunk is made for vectors alone, which are the first part.
        outputs = _twin_mlp(graph, network.trunk, obs[0])
    else:
        actor = network.trunk.actor
        x = _features(graph, actor, obs)
        if actor.memory is not None:
            recurrent_in = graph.input("recurrent_in", (1, memory_size))
            # Memories are time first inside the graph: [B, 1, M] becomes [1, B, M].
            before = graph.transpose(recurrent_in, [1, 0, 2])
            x, memory = actor.memory.onnx(graph, x, before)
        head = network.trunk.policy_head
        outputs = graph.linear(x, head.weight, head.bias)
    graph.constant_output("version_number", [API_VERSION])
    graph.constant_output("memory_size", [memory_size])
    if action.continuous_size:
        _continuous(graph, network, outputs)
    if action.discrete_size:
        # Logits come after the means, and after the spreads where those are outputs, too.
        numbers = action.continuous_size * (2 if network.architecture.squashed else 1)
        write_choices(graph, action.discrete_branches, outputs, numbers, masks)
    if memory_size:
        shape = ["batch", 1, memory_size]
        graph.output("recurrent_out", "Transpose", [memory], shape, perm=[1, 0, 2])
    return graph.model()


def _inputs(
    graph: OnnxGraph, spec: BehaviorSpec, normalizer: RunningNormalizer | None
) -> list[str]:
    """The parts of `Obs`: joined vectors, normalized if set so, then other sensors."""
    vectors = []
    others = []
    for i, sensor in enumerate(spec.observed.observation_specs):
        name = graph.input(f"obs_{i}", sensor.shape)
        if len(sensor.shape) == 1:
            vectors.append(name)
        else:
            others.append(name)
    joined = graph.concat(vectors, axis=1)
    if normalizer is not None:
        joined = graph.subtract(joined, graph.parameter(normalizer.mean))
        joined = graph.multiply(joined, graph.parameter(normalizer.scale))
        # Limits are attributes up to opset 10.
        joined = graph.node(
            "Clip", [joined], min=-NORMALIZED_LIMIT, max=NORMALIZED_LIMIT
        )
    return [joined, *others]


def _twin_mlp(graph: OnnxGraph, mlp: TwinMLP, x: str) -> str:
    for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
        x = _silu(graph, graph.linear(x, weight[ACTOR].t(), bias[ACTOR, 0]))
    return graph.linear(x, mlp.policy_weight, mlp.policy_bias)


def _features(graph: OnnxGraph, body: Body, obs: Sequence[str]) -> str:
    """`Body.features`, step by step."""
    sensors = body.sensors
    vectors = obs[0]  # the empty name where there are none
    parts = [vectors] if vectors else []
    for encode, i in zip(body.images, sensors.images, strict=True):
        parts.append(_layer(graph, encode, obs[i]))
    x = graph.concat(parts, axis=1)
    if body.attention is not None:
        lists = [obs[i] for i in sensors.entities]
        attended = _attention(graph, body.attention, x, lists)
        x = graph.concat([x, attended] if x else [attended], axis=1)
    x = _layer(graph, body.dense, x)
    if body.goal_layer is not None:
        spans = [
            graph.slice(vectors, 1, start, end) for start, end in sensors.goal_spans
        ]
        goals = graph.concat(spans, axis=1)
        steered = _hyper_linear(graph, body.goal_layer, x, goals)
        x = _silu(graph, steered)
    return x


def _layer(graph: OnnxGraph, layer: nn.Module, x: str) -> str:
    match layer:
        case nn.Sequential():
            for part in layer:
                x = _layer(graph, part, x)
            return x
        case nn.Linear():
            return graph.linear(x, layer.weight, layer.bias)
        case nn.Conv2d():
            return _convolution(graph, layer, x)
        case nn.MaxPool2d():
            return _max_pool(graph, layer, x)
        case nn.LeakyReLU():
            return graph.node("LeakyRelu", [x], alpha=layer.negative_slope)
        case nn.SiLU():
            return _silu(graph, x)
        case nn.Flatten():
            return graph.node("Flatten", [x], axis=1)
        case Residual():
            residual = _layer(graph, layer.layers, x)
            return graph.add(x, residual)
        # A layer was added to the networks and not here: our mistake, which the tests of every
        # network show.
        case _:
            raise NotImplementedError(
                f"no ONNX form for a layer of type {type(layer).__name__}"
            )


def _convolution(graph: OnnxGraph, layer: nn.Conv2d, x: str) -> str:
    assert layer.bias is not None
    weight = graph.parameter(layer.weight)
    bias = graph.parameter(layer.bias)
    pads = [int(p) for p in layer.padding] * 2  # before each axis, then after each
    return graph.node(
        "Conv",
        [x, weight, bias],
        kernel_shape=layer.kernel_size,
        strides=layer.stride,
        pads=pads,
    )


def _max_pool(graph: OnnxGraph, layer: nn.MaxPool2d, x: str) -> str:
    kernel = [int(layer.kernel_size)] * 2  # type: ignore[arg-type]
    strides = [int(layer.stride)] * 2  # type: ignore[arg-type]
    return graph.node("MaxPool", [x], kernel_shape=kernel, strides=strides)


def _silu(graph: OnnxGraph, x: str) -> str:
    gate = graph.node("Sigmoid", [x])
    return graph.multiply(x, gate)


def _linear_of_lists(graph: OnnxGraph, layer: nn.Linear, x: str) -> str:
    """A dense layer of lists [B, K, I], which Gemm does not take."""
    weight = graph.parameter(layer.weight.t())
    bias = graph.parameter(layer.bias)
    return graph.add(graph.matmul(x, weight), bias)


def _hyper_linear(graph: OnnxGraph, layer: HyperLinear, x: str, goal: str) -> str:
    """`HyperLinear.forward`, step by step."""
    outputs = len(layer.bias)
    products = graph.matmul(x, graph.parameter(layer.special.weight.t()))
    z = graph.normalized(_layer(graph, layer.goal, goal), 1, NORM_EPSILON)
    z = graph.multiply(z, graph.scalar(layer.spread))
    products = graph.reshape(products, [-1, layer.parts, outputs])
    row = graph.reshape(z, [-1, 1, layer.parts])
    summed = graph.matmul(row, products)
    summed = graph.reshape(summed, [-1, outputs])
    return graph.add(summed, graph.parameter(layer.bias))


def _attention(
    graph: OnnxGraph, attention: EntityAttention, own: str, lists: Sequence[str]
) -> str:
    """`EntityAttention.forward`, step by step."""
    one = graph.scalar(1.0)
    count = sum(attention.counts)
    present = [_is_present(graph, name) for name in lists]
    weight = graph.concat(present, axis=1)  # [B, K]
    x = _embedded(graph, attention, own, lists)  # [B, K, E]
    query = _heads(graph, attention.query, x, count, [0, 2, 1, 3])
    # Transposed for the product.
    key = _heads(graph, attention.key, x, count, [0, 2, 3, 1])
    scores = graph.matmul(query, key)  # [B, heads, K, K]
    scores = graph.multiply(scores, graph.scalar(HEAD_SIZE**-0.5))
    columns = graph.reshape(weight, [-1, 1, 1, count])
    missing = graph.subtract(columns, one)  # 0, or -1 where there is no entity
    penalty = graph.multiply(missing, graph.scalar(ABSENT))
    scores = graph.add(scores, penalty)
    # Up to opset 12 this flattens all axes from `axis` on, which is the same only for the last
    # one.
    shares = graph.node("Softmax", [scores], axis=3)
    value = _heads(graph, attention.value, x, count, [0, 2, 1, 3])
    attended = graph.matmul(shares, value)  # [B, heads, K, D]
    attended = graph.transpose(attended, [0, 2, 1, 3])
    attended = graph.reshape(attended, [-1, count, ATTENTION_SIZE])
    out = _linear_of_lists(graph, attention.out, attended)
    x = graph.normalized(graph.add(x, out), 2, NORM_EPSILON)
    rows = graph.reshape(weight, [-1, count, 1])
    x = graph.multiply(x, rows)
    number = graph.sum(weight, 1, keep=True)
    number = graph.node("Max", [number, one])  # an empty list has the mean 0
    total = graph.sum(x, 1, keep=False)
    return graph.divide(total, number)


def _is_present(graph: OnnxGraph, entities: str) -> str:
    """1 for each row [B, K] that is an entity, 0 for rows of zeros."""
    sizes = graph.node("Abs", [entities])
    size = graph.sum(sizes, 2, keep=False)
    is_present = graph.node("Greater", [size, graph.scalar(0.0)])
    return graph.node("Cast", [is_present], to=TensorProto.FLOAT)


def _embedded(
    graph: OnnxGraph, attention: EntityAttention, own: str, lists: Sequence[str]
) -> str:
    """All entities, each together with what the agent knows of itself, [B, K, E]."""
    embedded = []
    for layer, name in zip(attention.embed, lists, strict=True):
        assert isinstance(layer, nn.Linear)
        embedded.append(_linear_of_lists(graph, layer, name))
    x = graph.concat(embedded, axis=1)
    if attention.embed_self is not None:
        layer = attention.embed_self
        embedded_self = graph.linear(own, layer.weight, layer.bias)
        row = graph.reshape(embedded_self, [-1, 1, ATTENTION_SIZE])
        x = graph.add(x, row)
    return _silu(graph, x)


def _heads(
    graph: OnnxGraph, layer: nn.Linear, x: str, count: int, order: Sequence[int]
) -> str:
    """A dense layer's result by heads; the axes [B, K, heads, D] in this order."""
    projected = _linear_of_lists(graph, layer, x)
    parted = graph.reshape(projected, [-1, count, ATTENTION_HEADS, HEAD_SIZE])
    return graph.transpose(parted, order)


def _continuous(graph: OnnxGraph, network: ActorCritic, outputs: str) -> None:
    size = network.spec.action_spec.continuous_size
    mean = graph.slice(outputs, 1, 0, size)
    noise = graph.node("RandomNormalLike", [mean])
    if network.architecture.squashed:
        log_std = graph.slice(outputs, 1, size, 2 * size)
        lowest, highest = LOG_STD_RANGE
        log_std = graph.node("Clip", [log_std], min=lowest, max=highest)
        std = graph.node("Exp", [log_std])
    else:
        assert network.log_std is not None
        std = graph.constant(np.exp(network.log_std.numpy(force=True)))
    spread = graph.multiply(noise, std)
    drawn = graph.add(mean, spread)
    _action_output(graph, network, "continuous_actions", drawn)
    graph.constant_output("continuous_action_output_shape", [size])
    _action_output(graph, network, "deterministic_continuous_actions", mean)


def _action_output(graph: OnnxGraph, network: ActorCritic, name: str, raw: str) -> None:
    shape = ["batch", network.spec.action_spec.continuous_size]
    if network.architecture.squashed:
        # ML-Agents 1.1.0 forgets it in the deterministic one.
        graph.output(name, "Tanh", [raw], shape)
        return
    # `distributions.to_environment`
    clipped = graph.node("Clip", [raw], min=-CONTINUOUS_LIMIT, max=CONTINUOUS_LIMIT)
    graph.output(name, "Div", [clipped, graph.scalar(CONTINUOUS_LIMIT)], shape)
