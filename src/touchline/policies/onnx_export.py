"""A trained policy as the ONNX file that Unity's importer reads: model API 3, opset 9, built node by node.

Names, constants and operators follow `docs/protocol.md`, "ONNX models"; no exporter is involved that could
change under us. Sampling happens inside the graph, as Unity expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from touchline.errors import UsageError
from touchline.policies.checkpoints import write_whole
from touchline.policies.distributions import CONTINUOUS_LIMIT
from touchline.policies.networks import ACTOR, NORMALIZED_LIMIT, ActorCritic

OPSET = 9
IR_VERSION = 6
"""What the models that ship with ML-Agents Release 22 show."""
API_VERSION = 3
_FORBIDDEN = 1e8


def export_onnx(network: nn.Module, path: Path) -> None:
    """Write the policy of `network` without its value function. Raises a UsageError for what Unity cannot load."""
    if not isinstance(network, ActorCritic):
        raise UsageError("policies over boards have no ONNX form that Unity could load; use the checkpoint")
    write_whole(path, build_onnx(network).SerializeToString())


def build_onnx(network: ActorCritic) -> onnx.ModelProto:
    """The policy of `network` as an ONNX model."""
    graph, spec = _Graph(), network.spec
    names = [graph.input(f"obs_{i}", o.shape) for i, o in enumerate(spec.observation_specs)]
    x = names[0] if len(names) == 1 else graph.node("Concat", names, axis=1)
    if network.normalizer is not None:
        x = graph.node("Sub", [x, graph.constant(_array(network.normalizer.mean))])
        x = graph.node("Mul", [x, graph.constant(_array(network.normalizer.scale))])
        x = graph.node("Clip", [x], min=-NORMALIZED_LIMIT, max=NORMALIZED_LIMIT)
    outputs = _mlp(graph, network, x)
    graph.constant_output("version_number", [API_VERSION])
    graph.constant_output("memory_size", [0])
    action = spec.action_spec
    if action.continuous_size:
        _continuous(graph, network, outputs)
    if action.discrete_size:
        _discrete(graph, network, outputs)
    return graph.model()


def _mlp(graph: _Graph, network: ActorCritic, x: str) -> str:
    mlp = network.mlp
    weights = [mlp.first_weight[:, : mlp.hidden], *(w[ACTOR] for w in mlp.weights)]
    biases = [mlp.first_bias[: mlp.hidden], *(b[ACTOR, 0] for b in mlp.biases)]
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        if layer:
            x = graph.node("Mul", [x, graph.node("Sigmoid", [x])])  # SiLU
        x = graph.node("Gemm", [x, graph.constant(_array(weight)), graph.constant(_array(bias))])
    return x


def _continuous(graph: _Graph, network: ActorCritic, outputs: str) -> None:
    size = network.spec.action_spec.continuous_size
    assert network.log_std is not None
    mean = graph.node("Slice", [outputs], axes=[1], starts=[0], ends=[size])
    noise = graph.node("RandomNormalLike", [mean])
    spread = graph.node("Mul", [noise, graph.constant(np.exp(_array(network.log_std)))])
    for name, raw in (
        ("continuous_actions", graph.node("Add", [mean, spread])),
        ("deterministic_continuous_actions", mean),
    ):
        clipped = graph.node("Clip", [raw], min=-CONTINUOUS_LIMIT, max=CONTINUOUS_LIMIT)
        limit = graph.constant(np.float32(CONTINUOUS_LIMIT).reshape(1))
        graph.output(name, "Div", [clipped, limit], TensorProto.FLOAT, ["batch", size])
        if name == "continuous_actions":
            graph.constant_output("continuous_action_output_shape", [size])


def _discrete(graph: _Graph, network: ActorCritic, outputs: str) -> None:
    action = network.spec.action_spec
    masks = graph.input("action_masks", (action.mask_size,))
    drawn, likeliest, start = [], [], 0
    for size in action.discrete_branches:
        first = action.continuous_size + start
        logits = graph.node("Slice", [outputs], axes=[1], starts=[first], ends=[first + size])
        mask = graph.node("Slice", [masks], axes=[1], starts=[start], ends=[start + size])
        forbidden = graph.node("Sub", [mask, graph.constant(np.ones(1, np.float32))])
        penalty = graph.node("Mul", [forbidden, graph.constant(np.full(1, _FORBIDDEN, np.float32))])
        masked = graph.node("Add", [logits, penalty])
        drawn.append(graph.node("Multinomial", [masked], dtype=TensorProto.INT64, sample_size=1))
        likeliest.append(graph.node("ArgMax", [masked], axis=1, keepdims=1))
        start += size
    shape = ["batch", action.discrete_size]
    graph.output("discrete_actions", "Concat", drawn, TensorProto.INT64, shape, axis=1)
    graph.constant_output("discrete_action_output_shape", [list(action.discrete_branches)])
    graph.output("deterministic_discrete_actions", "Concat", likeliest, TensorProto.INT64, shape, axis=1)


class _Graph:
    """An ONNX graph in the making; every method gives the name of what it added."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []

    def input(self, name: str, shape: Sequence[int]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape]))
        return name

    def constant(self, value: NDArray[Any]) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def output(
        self, name: str, operator: str, inputs: Sequence[str], kind: int, shape: Sequence[Any], **attributes: Any
    ) -> None:
        self._nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        self._outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def constant_output(self, name: str, value: Sequence[Any]) -> None:
        array = np.asarray(value, np.float32)
        self.output(name, "Identity", [self.constant(array)], TensorProto.FLOAT, array.shape)

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self._nodes, "touchline", self._inputs, self._outputs, self._constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="touchline")
        made.ir_version = IR_VERSION
        onnx.checker.check_model(made)
        return made


def _array(tensor: Any) -> NDArray[np.float32]:
    return np.asarray(tensor.detach().numpy(), np.float32)
