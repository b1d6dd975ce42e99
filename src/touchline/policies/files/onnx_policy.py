"""Any torch module that acts, as the ONNX file that Unity's importer reads: model API 3, opset 9.

An `Acting` module says what a policy does with observations, masks and a memory; `traced` writes
its operations. Names and constants of the model are those of `onnx_out`.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from touchline.errors import UsageError, shortened
from touchline.policies.distributions import (
    ActionDistribution,
    SquashedDistribution,
    to_environment,
)
from touchline.policies.files.onnx_graph import OnnxGraph
from touchline.policies.files.traced import NUM_EXAMPLES, write_module
from touchline.policies.network import Network
from touchline.specs import BehaviorSpec, describe_actions, describe_shapes

API_VERSION = 3
FORBIDDEN = 1e8
"""Subtracted from the logits of masked choices."""
CONTINUOUS, DETERMINISTIC = "continuous", "deterministic"
LOGITS, MEMORY, CHOICES = "logits", "memory", "choices"


Given = Tensor | None
"""None where the behavior has no choices, or the policy no memory."""
Results = Mapping[str, Tensor]


class Acting(nn.Module):
    """What a policy does, as tensors: one row for each agent.

    Subclasses set `memory_size` where they have a memory.
    """

    memory_size = 0
    """M: numbers that are kept from decision to decision; 0 before an episode's first."""
    sharpness = 1.0
    """What `logits` are multiplied by, so that drawing finds the best choice alone."""

    def __init__(self, spec: BehaviorSpec) -> None:
        super().__init__()
        self.spec = spec.observed

    @abstractmethod
    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        """Actions from the observations [B, *shape] of all sensors.

        `masks` [B, choices] has 1 for what is allowed, `memory` is [B, M]. Results:

        - `continuous`, `deterministic`: [B, C] in [-1, 1], drawn with `torch.randn_like`, and the
          most likely ones;
        - `logits`: [B, choices] of all branches;
        - `memory`: [B, M] for the next decision.
        """

    def forward(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Observations, then masks and memory where there are such."""
        return self.act(*self.parted(inputs))

    def parted(self, inputs: Sequence[Tensor]) -> tuple[Sequence[Tensor], Given, Given]:
        """The inputs of the model as `act` takes them."""
        count = len(self.spec.observation_specs)
        rest = list(inputs[count:])
        masks = rest.pop(0) if self.spec.action_spec.discrete_size else None
        memory = rest.pop(0) if self.memory_size else None
        return inputs[:count], masks, memory

    def original(self, *inputs: Tensor) -> Results:
        """What the policy's own library does with the inputs of `forward`, to compare with.

        `deterministic` [B, C] and `choices` [B, D], the most likely actions, as far as it says.
        """
        return {}


class NetworkActor(Acting):
    """A `Network` of any kind."""

    def __init__(self, network: Network) -> None:
        super().__init__(network.spec)
        self.network: Any = network  # a torch module, as every network
        if network.memory_shape is not None:
            _, self.memory_size = network.memory_shape

    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        del masks  # the graph applies them to the logits
        vectors = [o for o in obs if o.dim() == 2]
        others = [o for o in obs if o.dim() > 2]
        # [B, 0], cut from an input: tracing would fix the size of new zeros.
        nothing = obs[0].flatten(1)[:, :0]
        joined = torch.cat(vectors, dim=1) if vectors else nothing
        seen = self.network.normalized((joined, *others))
        found: dict[str, Tensor] = {}
        if memory is None:
            distribution = self.network.distribution(seen, None)
        else:
            networks, _ = self.network.memory_shape
            # The critic's part does not matter here, so it gets the actor's; only that is kept.
            before = memory[:, None].expand(-1, networks, -1)
            distribution, _, after = self.network.step(seen, None, before)
            found[MEMORY] = after[:, 0]
        if not isinstance(distribution, ActionDistribution | SquashedDistribution):
            raise UsageError(
                f"the network {self.spec.network!r}: a {type(distribution).__name__} has no ONNX "
                "form; expected an ActionDistribution or a SquashedDistribution"
            )
        if self.spec.action_spec.continuous_size:
            mean = distribution.mean
            noise = torch.randn_like(mean)
            drawn = mean + noise * torch.exp(distribution.log_std)
            is_squashed = isinstance(distribution, SquashedDistribution)
            limited = torch.tanh if is_squashed else to_environment
            found |= {CONTINUOUS: limited(drawn), DETERMINISTIC: limited(mean)}
        if self.spec.action_spec.discrete_size:
            found[LOGITS] = torch.cat(list(distribution.log_probs), dim=1)
        return found


def build_policy(policy: Acting) -> onnx.ModelProto:
    """The ONNX model of a policy.

    Raises a UsageError for results whose shapes do not fit the behavior, and for operators that
    Unity's importer does not know.
    """
    with unchanged(policy):
        return _built(policy)


@contextmanager
def unchanged(policy: nn.Module) -> Iterator[None]:
    """In eval mode on the CPU; afterwards modes, places, buffers and torch's random numbers are as
    before.
    """
    home = next((p.device for p in policy.parameters()), None)
    modes = {module: module.training for module in policy.modules()}
    buffers = {name: b.clone() for name, b in policy.named_buffers() if not is_lazy(b)}
    policy.eval()
    if home is not None:
        policy.to("cpu")
    try:
        # By default it forks every GPU's as well, and warns where there are several.
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, mode in modes.items():
            # Not by `train`, which sets all modules inside as well.
            module.training = mode
        for name in changed(policy, buffers):
            # It may have been replaced by one of another shape, or taken out.
            owner, _, own = name.rpartition(".")
            policy.get_submodule(owner)._buffers[own] = buffers[name]
        if home is not None:
            policy.to(home)


def changed(policy: nn.Module, buffers: Mapping[str, Tensor]) -> list[str]:
    now = dict(policy.named_buffers(remove_duplicate=False))
    return [n for n, b in buffers.items() if not _alike(now.get(n), b)]


def _alike(one: Given, other: Tensor) -> bool:
    """Whether they are equal; NaN equals NaN."""
    if one is None or one.shape != other.shape:
        return False
    are_nan = (one != one) & (other != other)
    return bool(((one == other) | are_nan).all())


def _built(policy: Acting) -> onnx.ModelProto:
    graph = OnnxGraph()
    action = policy.spec.action_spec
    examples = {}
    for i, sensor in enumerate(policy.spec.observation_specs):
        name = graph.input(f"obs_{i}", sensor.shape)
        examples[name] = torch.rand(NUM_EXAMPLES, *sensor.shape)
    masks = ""
    if action.discrete_size:
        masks = graph.input("action_masks", (action.mask_size,))
        examples[masks] = torch.ones(NUM_EXAMPLES, action.mask_size)
    size = policy.memory_size
    if size:
        before = graph.input("recurrent_in", (1, size))
        examples[graph.reshape(before, [-1, size])] = torch.zeros(NUM_EXAMPLES, size)
    # First without tracing: then an error is the policy's own.
    _check(policy, list(examples.values()))
    found = write_module(graph, policy, examples)
    graph.constant_output("version_number", [API_VERSION])
    graph.constant_output("memory_size", [size])
    if action.continuous_size:
        number = action.continuous_size
        _continuous(graph, "continuous_actions", found[CONTINUOUS], number)
        graph.constant_output("continuous_action_output_shape", [number])
        _continuous(
            graph, "deterministic_continuous_actions", found[DETERMINISTIC], number
        )
    if action.discrete_size:
        write_choices(graph, action.discrete_branches, found[LOGITS], 0, masks)
    if size:
        shape = graph.constant(np.array([-1, 1, size]))
        outputs = [found[MEMORY], shape]
        kept = ["batch", 1, size]
        graph.output("recurrent_out", "Reshape", outputs, kept)
    return graph.model()


def _check(policy: Acting, examples: Sequence[Tensor]) -> None:
    """Act once. Raises a UsageError where the policy and its spec differ."""
    spec, action = policy.spec, policy.spec.action_spec
    seen = describe_shapes([o.shape for o in spec.observation_specs])
    try:
        with torch.no_grad():
            found = policy(*examples)
    except UsageError:
        raise
    except Exception as error:  # whatever the policy raises
        reason = shortened(f"{type(error).__name__}: {error}")
        raise UsageError(
            f"the policy cannot act on observations {seen}: {reason}"
        ) from error
    widths = {
        CONTINUOUS: action.continuous_size,
        DETERMINISTIC: action.continuous_size,
        LOGITS: action.mask_size,
        MEMORY: policy.memory_size,
    }
    for name, width in widths.items():
        result = found.get(name)
        if name in found and not isinstance(result, Tensor):
            got = type(result).__name__
            raise UsageError(f"the policy returns a {got} as {name}; expected a tensor")
        shape = [] if result is None else list(result.shape)
        if shape != ([NUM_EXAMPLES, width] if width else []):
            got = f"{shape} of {NUM_EXAMPLES} agents" if shape else "nothing"
            raise UsageError(
                f"the policy returns {got} as {name}; expected {width} numbers for each agent, "
                f"because the behavior takes {describe_actions(action)}"
            )


def _continuous(graph: OnnxGraph, name: str, action: str, size: int) -> None:
    shape = ["batch", size]
    graph.output(name, "Clip", [action], shape, min=-1.0, max=1.0)


def write_choices(
    graph: OnnxGraph, branches: Sequence[int], outputs: str, first: int, masks: str
) -> None:
    """The outputs of all branches, whose logits are in `outputs` [B, ...] from `first` on: drawn
    choices, and the most likely ones.
    """
    drawn = []
    likeliest = []
    start = 0
    for size in branches:
        at = first + start
        logits = graph.slice(outputs, 1, at, at + size)
        mask = graph.slice(masks, 1, start, start + size)
        forbidden = graph.subtract(mask, graph.scalar(1.0))  # 0, or -1 where masked
        penalty = graph.multiply(forbidden, graph.scalar(FORBIDDEN))
        masked = graph.add(logits, penalty)
        drawn.append(
            graph.node("Multinomial", [masked], dtype=TensorProto.INT64, sample_size=1)
        )
        likeliest.append(graph.node("ArgMax", [masked], axis=1, keepdims=1))
        start += size
    shape = ["batch", len(branches)]
    kind = TensorProto.INT64
    graph.output("discrete_actions", "Concat", drawn, shape, kind, axis=1)
    graph.constant_output("discrete_action_output_shape", [list(branches)])
    best = "deterministic_discrete_actions"
    graph.output(best, "Concat", likeliest, shape, kind, axis=1)
