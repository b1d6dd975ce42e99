"""The means and spreads of observations that a policy keeps to normalize them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from jaxtyping import Float

from touchline.policies.files.onnx_in import OnnxPolicy, load_model
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.policy import Policy
from touchline.specs import BehaviorSpec


class Normalizer(NamedTuple):
    """What a policy observed while it was trained, for some of its observations."""

    sensors: list[int]
    """Numbers of the sensors, whose values are side by side."""
    mean: Float[np.ndarray, " O"]
    spread: Float[np.ndarray, " O"]
    """Standard deviations."""


def normalizers_of(policy: Policy, spec: BehaviorSpec) -> list[Normalizer]:
    """The normalizers of a policy that fits `spec`; empty for one without."""
    vectors = [i for i, o in enumerate(spec.observation_specs) if len(o.shape) == 1]
    if isinstance(policy, OnnxPolicy):
        return list(_in_graph(policy.path, vectors))
    if isinstance(policy, NetworkPolicy) and policy.network.normalizer is not None:
        own = policy.network.normalizer
        mean = own.mean.numpy(force=True)
        scale = own.scale.numpy(force=True)
        return [Normalizer(vectors, mean.astype(np.float64), 1.0 / scale)]
    return []


def _in_graph(path: Path, vectors: list[int]) -> Iterator[Normalizer]:
    """Every (inputs - mean) / spread of a graph; Touchline's own multiply with 1 / spread."""
    graph = load_model(path).graph
    constants = {
        constant.name: onnx.numpy_helper.to_array(constant)
        for constant in graph.initializer
    }
    inputs = {given.name for given in graph.input}
    joined = {}
    shifted = {}
    for node in graph.node:
        if node.op_type == "Concat":
            joined[node.output[0]] = list(node.input)
        if node.op_type == "Sub":
            shifted[node.output[0]] = node
    # A normalizer is (x - mean) / spread, or times 1 / spread.
    for node in graph.node:
        before = shifted.get(node.input[0]) if node.input else None
        if before is None or node.op_type not in ("Div", "Mul"):
            continue
        names = joined.get(before.input[0], [before.input[0]])
        mean = constants.get(before.input[1])
        scale = constants.get(node.input[1])
        if mean is None or scale is None or not inputs.issuperset(names):
            continue
        spread = scale if node.op_type == "Div" else 1.0 / scale
        sensors = [number for name in names for number in _sensors(name, vectors)]
        means = np.ravel(mean).astype(np.float64)
        yield Normalizer(sensors, means, np.ravel(spread))


def _sensors(name: str, vectors: list[int]) -> list[int]:
    """The sensors that an input holds: one, or all vectors in model API 2."""
    return vectors if name == "vector_observation" else [int(name.rpartition("_")[2])]
