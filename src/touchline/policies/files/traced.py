"""What any torch module computes, as nodes that Unity's importer reads.

`torch.export` lists a module's operations in ATen's core operators, each with the layer that it
belongs to. Those in `FORMS` are written node by node at opset 9, as `onnx_out` writes the standard
network; what does not depend on an input becomes a constant. torch's own ONNX exporters are not
used: the one for these opset versions is deprecated, the other starts at opset 18, and Unity's
importers read 7 to 15.

Source: https://docs.pytorch.org/docs/stable/torch.compiler_ir.html, "Core Aten IR".
"""

import logging
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from functools import reduce
from io import StringIO
from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_unflatten

from touchline.errors import UsageError, shortened
from touchline.policies.files.onnx_graph import OnnxGraph

KINDS = {
    torch.float32: TensorProto.FLOAT,
    torch.int32: TensorProto.INT32,
    torch.int64: TensorProto.INT64,
    torch.bool: TensorProto.BOOL,
}
NOISE = ("normal", "normal_functional", "randn", "randn_like")
"""Operators that draw from a normal distribution."""
NUM_EXAMPLES = 3
"""Rows of the examples to trace with: `torch.export` takes 0 and 1 for fixed sizes."""


def write_module(
    graph: OnnxGraph, module: nn.Module, examples: Mapping[str, Tensor]
) -> dict[str, str]:
    """Add what `module` computes of these inputs of the graph; output -> its name in the graph.

    The module returns a dict of tensors. Raises a UsageError that names the layer and the operator
    of what has no form.
    """
    with torch.no_grad():
        program = _exported(_OfList(module), list(examples.values()))
    outputs = _Writer(graph, program).write(list(examples))
    found: dict[str, str] = tree_unflatten(outputs, program.call_spec.out_spec)
    return found


class _NoFormError(Exception):
    """An operator, or its arguments, cannot be written; the error of a user names its layer."""


class _OfList(nn.Module):
    """A module whose inputs are a list, whatever it calls them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> dict[str, Tensor]:
        return dict(self.module(*inputs))


def _exported(
    module: nn.Module, inputs: Sequence[Tensor]
) -> torch.export.ExportedProgram:
    # A symbol in place of a number, so that what depends on the number of agents is an error here
    # and not a wrong file.
    batch = torch.export.Dim("batch")
    has_checks = torch.distributions.Distribution._validate_args
    # They depend on numbers, which a graph cannot follow; the policy has passed them once.
    torch.distributions.Distribution.set_default_validate_args(False)
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        # What torch cannot follow it also prints, in hundreds of lines; one is enough.
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            # torch warns of its own pytrees, and of the weights that an LSTM lists twice.
            warnings.simplefilter("ignore")
            program = torch.export.export(
                module,
                tuple(inputs),
                dynamic_shapes=(tuple({0: batch} for _ in inputs),),
            )
            decomposed: torch.export.ExportedProgram = program.run_decompositions()
    except Exception as error:  # torch raises a dozen types of its own
        reason = shortened(str(error))
        if "specialized it" in reason:
            reason = "it fixes their number; len(x) does so, x.shape[0] does not"
        if "data-dependent" in reason:
            reason = "it decides by observations; `if` does so, torch.where does not"
        raise UsageError(
            f"torch.export cannot follow the policy for any number of agents: {reason}"
        ) from error
    finally:
        torch.distributions.Distribution.set_default_validate_args(has_checks)
        log.setLevel(level)
    # Its checks of sizes have no form in ONNX, and the examples have passed them.
    graph = decomposed.graph_module.graph
    for node in list(graph.nodes):
        if "_assert_" in str(node.target):
            graph.erase_node(node)
    graph.eliminate_dead_code()
    return decomposed


class _Writer:
    """Writes the operations of one exported program."""

    def __init__(self, graph: OnnxGraph, program: torch.export.ExportedProgram) -> None:
        self.graph = graph
        self._program = program
        self._values: dict[fx.Node, Any] = {}
        """Each node's tensor where it is a constant, else its name in the graph."""
        self._constants: dict[tuple[int, torch.dtype], tuple[str, Tensor]] = {}
        self._batch: str | None = None
        self._input = ""
        self.num_agents = ""
        """The symbol that stands for the number of agents in shapes."""

    def write(self, inputs: Sequence[str]) -> list[str]:
        """The names of the outputs."""
        signature = self._program.graph_signature
        held = {**self._program.state_dict, **self._program.constants}
        targets = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        given = iter(inputs)
        self._input = inputs[0]
        for node in self._program.graph.nodes:
            if node.op == "placeholder":
                if node.name in targets:
                    self._values[node] = held[targets[node.name]].detach()
                else:
                    self._values[node] = next(given)
                    self.num_agents = str(node.meta["val"].shape[0])
            elif node.op == "call_function":
                self._values[node] = self._result(node)
        (results,) = self._program.graph.output_node().args
        assert isinstance(results, tuple)
        # What a program changes in its buffers comes before what it returns.
        own = results[len(results) - len(signature.user_outputs) :]
        return [self.name(self._values[result]) for result in own]

    def _result(self, node: fx.Node) -> Any:
        known = {argument: self._values[argument] for argument in node.all_input_nodes}
        values: Any = fx.map_arg((node.args, node.kwargs), lambda n: known[n])
        arguments, keywords = values
        if node.target is operator.getitem:
            return arguments[0][arguments[1]]
        packet = getattr(node.target, "overloadpacket", node.target)
        operation = str(packet).removeprefix("aten.")
        is_size = not isinstance(node.meta.get("val"), Tensor | tuple | list)
        if is_size:
            return None  # the number of agents, or a product with it: read from shapes below
        leaves = _leaves(known.values())
        is_constant = not any(isinstance(v, str) or v is None for v in leaves)
        # Weights are transposed and joined once, instead of at every decision. Noise is drawn
        # at every decision, also where its shape is constant.
        if is_constant and operation not in NOISE:
            return node.target(*arguments, **keywords)  # type: ignore[operator]
        form = FORMS.get(operation)
        try:
            if form is None:
                raise _NoFormError
            return form(_Node(self, node), *arguments, **keywords)
        # Forms fail on arguments of other types than theirs, such as limits that are tensors.
        except (_NoFormError, AttributeError, TypeError, ValueError) as error:
            raise UsageError(
                f"{_layer_of(node)}: its operator aten.{operation} has no form here in operators "
                f"of Unity's importer{f' ({error})' if str(error) else ''}"
            ) from error

    def name(self, value: Any, kind: torch.dtype | None = None) -> str:
        """The name of a value in the graph; constants and plain numbers are of this type."""
        if isinstance(value, str):
            return value
        if not isinstance(value, Tensor):
            return self.graph.constant(np.full(1, value, _numpy_kind(kind)))
        kind = value.dtype if kind is None else kind
        key = (id(value), kind)
        if key not in self._constants:
            array = value.to(kind).numpy(force=True)
            # Kept with its tensor, whose id would be free otherwise.
            self._constants[key] = self.graph.constant(array), value
        return self._constants[key][0]

    def batch(self) -> str:
        """The number of agents, [1]."""
        if self._batch is None:
            shape = self.graph.node("Shape", [self._input])
            self._batch = self.graph.slice(shape, 0, 0, 1)
        return self._batch


class _Node:
    """One operation in the making."""

    def __init__(self, writer: _Writer, node: fx.Node) -> None:
        self.writer = writer
        self.name = writer.name
        self.graph = writer.graph
        self.node = node
        value = node.meta["val"]
        self.value: Tensor = value if isinstance(value, Tensor) else value[0]
        """Shape and type of the (first) result."""

    def add(self, operation: str, *inputs: Any, **attributes: Any) -> str:
        """A node of the graph; plain numbers among the inputs have the type of the result."""
        own = self.value.dtype
        names = [self.name(x, None if isinstance(x, Tensor) else own) for x in inputs]
        return self.graph.node(operation, names, **attributes)

    def shape_of(self, position: int = 0) -> torch.Size:
        """Of an argument."""
        argument = self.node.args[position]
        assert isinstance(argument, fx.Node)
        shape: torch.Size = argument.meta["val"].shape
        return shape

    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments: their shapes and types."""
        values = [n.meta["val"] for n in self.node.all_input_nodes]
        return [value for value in values if isinstance(value, Tensor)]

    def axis(self, axis: int, rank: int | None = None) -> int:
        """Counted from the front."""
        rank = len(self.shape_of()) if rank is None else rank
        return axis % max(rank, 1)

    def sizes(self, shape: Sequence[Any]) -> list[int]:
        """A shape for Reshape: -1 stands for the axis of the agents."""
        free = [n for n in shape if not isinstance(n, int)]
        if len(free) > 1:
            raise _NoFormError("two axes that depend on the number of agents")
        return [n if isinstance(n, int) else -1 for n in shape]

    def counts(self, sizes: Sequence[Any]) -> str:
        """Sizes as a tensor of integers, for operators that take them as an input."""
        parts = []
        for size in sizes:
            if isinstance(size, int):
                parts.append(self.graph.constant(np.array([size], np.int64)))
            elif str(size) == self.writer.num_agents:
                parts.append(self.writer.batch())
            else:
                raise _NoFormError("a multiple of the number of agents")
        return self.graph.concat(parts, axis=0)

    def reshaped(self, x: Any, *_: Any) -> str:
        """With the shape of the result."""
        return self.graph.reshape(self.name(x), self.sizes(self.value.shape))

    def cast(self, x: Any, kind: torch.dtype) -> str:
        if kind not in KINDS:
            raise _NoFormError(f"numbers of type {kind}")
        return self.add("Cast", x, to=KINDS[kind])

    def alike(self, *positions: int) -> list[str]:
        """These arguments with one type: ONNX mixes none."""
        arguments = [self.node.args[p] for p in positions]
        values: list[Any] = [
            a.meta["val"] if isinstance(a, fx.Node) else a for a in arguments
        ]
        kinds = [v.dtype for v in values if isinstance(v, Tensor)]
        kind = reduce(torch.promote_types, kinds)
        is_number = any(isinstance(v, float) for v in values)
        if kind == torch.float64 or (is_number and not kind.is_floating_point):
            kind = torch.float32
        known = self.writer._values
        names = []
        for argument, value in zip(arguments, values, strict=True):
            given = known[argument] if isinstance(argument, fx.Node) else argument
            is_other = isinstance(given, str) and value.dtype != kind
            names.append(self.cast(given, kind) if is_other else self.name(given, kind))
        return names


Form = Callable[..., Any]
_FAR = 1 << 31
"""An end of a slice beyond all sizes stands for the whole axis."""


def _leaves(values: Any) -> list[Any]:
    found = []
    for value in values:
        is_nested = isinstance(value, list | tuple)
        found += _leaves(value) if is_nested else [value]
    return found


def _numpy_kind(kind: torch.dtype | None) -> Any:
    return torch.empty(0, dtype=kind or torch.float32).numpy().dtype


def _layer_of(node: fx.Node) -> str:
    """The layer that an operation belongs to, such as `actor.2 (Linear)`."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path, kind = stack[-1] if stack else ("", "policy")
    if isinstance(kind, type):
        kind = kind.__name__
    # The policy itself is the only child of `_OfList`.
    own = path.removeprefix("module").removeprefix(".")
    return f"layer {own or 'policy'} ({kind.rpartition('.')[2]})"


# Forms: from the arguments of an ATen operator to the name of its result. Tensors are names, or
# tensors where they are constants.


def _unary(operation: str) -> Form:
    return lambda node, x: node.add(operation, x)


def _binary(operation: str) -> Form:
    def form(node: _Node, a: Any, b: Any, alpha: float = 1) -> str:  # noqa: ARG001
        first, second = node.alike(0, 1)
        if alpha != 1:
            second = node.graph.multiply(second, node.graph.scalar(alpha))
        return node.graph.node(operation, [first, second])

    return form


def _division(node: _Node, a: Any, b: Any, **rounding: Any) -> str:  # noqa: ARG001
    first, second = node.alike(0, 1)
    # Divided integers are floats in torch, and integers in ONNX.
    is_float = [v.dtype.is_floating_point for v in node.tensors()]
    if rounding or not any(is_float):
        raise _NoFormError("division of integers")
    return node.graph.divide(first, second)


def _negated(form: Form) -> Form:
    return lambda node, *arguments: node.graph.node("Not", [form(node, *arguments)])


def _equal(node: _Node, a: Any, b: Any) -> str:  # noqa: ARG001
    # Equal takes floats from opset 11 on.
    first, second = node.alike(0, 1)
    greater = node.graph.node("Greater", [first, second])
    less = node.graph.node("Less", [first, second])
    differs = node.graph.node("Or", [greater, less])
    return node.graph.node("Not", [differs])


def _where(node: _Node, condition: Any, a: Any, b: Any) -> str:  # noqa: ARG001
    first, second = node.alike(1, 2)
    return node.graph.node("Where", [node.name(condition), first, second])


def _clamp(node: _Node, x: Any, least: Any = None, most: Any = None) -> str:
    if any(isinstance(limit, str | Tensor) for limit in (least, most)):
        for operation, limit in (("Max", least), ("Min", most)):
            x = x if limit is None else node.add(operation, x, limit)
        return node.name(x)
    limits = {"min": least, "max": most}
    given = {name: float(v) for name, v in limits.items() if v is not None}
    kind = node.value.dtype
    # Limits are attributes up to opset 10, so they are known here.
    if kind.is_floating_point:
        return node.add("Clip", x, **given)
    # Clip takes integers from opset 12 on; indices of tables are small enough to be floats.
    clipped = node.graph.node("Clip", [node.cast(x, torch.float32)], **given)
    return node.cast(clipped, kind)


def _leaky_relu(node: _Node, x: Any, slope: float = 0.01) -> str:
    return node.add("LeakyRelu", x, alpha=slope)


def _elu(
    node: _Node, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1
) -> str:
    if input_scale != 1:
        raise _NoFormError("input_scale")
    made = node.add("Elu", x, alpha=alpha)
    return made if scale == 1 else node.add("Mul", made, scale)


def _gelu(node: _Node, x: Any, approximate: str = "none") -> str:
    """The gate Φ(x) times x, or its approximation by tanh."""
    # Source: Hendrycks et al. 2016, arXiv:1606.08415.
    if approximate == "tanh":
        cubed = node.add("Mul", node.add("Mul", x, x), x)
        inner = node.add("Add", x, node.add("Mul", cubed, 0.044715))
        gate = node.add("Tanh", node.add("Mul", inner, (2 / np.pi) ** 0.5))
    else:
        gate = node.add("Erf", node.add("Mul", x, 0.5**0.5))
    half = node.add("Mul", x, 0.5)
    return node.add("Mul", half, node.add("Add", gate, 1.0))


def _same(node: _Node, x: Any, **_: Any) -> str:
    return node.name(x)


def _converted(node: _Node, x: Any, dtype: Any = None, **_: Any) -> str:
    return node.name(x) if dtype is None else node.cast(x, dtype)


def _permute(node: _Node, x: Any, order: Sequence[int]) -> str:
    return node.add("Transpose", x, perm=[node.axis(a) for a in order])


def _cat(node: _Node, parts: Sequence[Any], axis: int = 0) -> str:
    rank = len(node.value.shape)
    # Unrolled LSTMs join lists of one step.
    if len(parts) == 1:
        return node.name(parts[0])
    return node.add("Concat", *parts, axis=node.axis(axis, rank))


def _slice(
    node: _Node,
    x: Any,
    axis: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> str:
    size = node.shape_of()[axis]
    if step == 1 and not start and (end is None or end > _FAR):
        return node.name(x)
    if step != 1 or not isinstance(size, int):
        raise _NoFormError("steps, or parts of the agents")
    first, last, _ = slice(start, end).indices(size)
    return node.graph.slice(node.name(x), node.axis(axis), first, last)


def _select(node: _Node, x: Any, axis: int, index: int) -> str:
    size = node.shape_of()[axis]
    if not isinstance(size, int):
        raise _NoFormError("one of the agents")
    at = index % size
    return node.reshaped(node.graph.slice(node.name(x), node.axis(axis), at, at + 1))


def _split(node: _Node, x: Any, sizes: Sequence[int], axis: int = 0) -> list[str]:
    ends = np.cumsum(sizes).tolist()
    name = node.name(x)
    return [
        node.graph.slice(name, node.axis(axis), end - size, end)
        for size, end in zip(sizes, ends, strict=True)
    ]


def _expand(node: _Node, x: Any, *_: Any, **__: Any) -> str:
    return node.graph.node("Expand", [node.name(x), node.counts(node.value.shape)])


def _repeat(node: _Node, x: Any, times: Sequence[Any]) -> str:
    shape = node.shape_of()
    aligned = [1] * (len(times) - len(shape)) + list(shape)
    sizes: Sequence[Any] = node.value.shape
    # A symbol among them is the number of agents, of something that is the same for all of them.
    counted = [size if n is None else n for n, size in zip(times, sizes, strict=True)]
    name = node.graph.reshape(node.name(x), node.sizes(aligned))
    return node.graph.node("Tile", [name, node.counts(counted)])


def _full(node: _Node, shape: Any, value: float, **_: Any) -> str:  # noqa: ARG001
    return _expand(node, torch.tensor(value, dtype=node.value.dtype))


def _reduced(operation: str) -> Form:
    def form(
        node: _Node,
        x: Any,
        axes: Sequence[int] | int | None = None,
        keep: bool = False,
        **_: Any,
    ) -> str:
        if isinstance(axes, int):
            axes = [axes]
        if not axes:
            raise _NoFormError("over all agents")
        counted = [node.axis(a) for a in axes]
        return node.add(operation, x, axes=counted, keepdims=int(keep))

    return form


def _any(node: _Node, x: Any, *axes: Any) -> str:
    # ONNX has no operator for this; the largest of zeros and ones is the same.
    floats = node.add("Cast", x, to=TensorProto.FLOAT)
    most = _reduced("ReduceMax")(node, floats, *axes)
    return node.graph.node("Cast", [most], to=TensorProto.BOOL)


def _norm(
    node: _Node,
    x: Any,
    order: float = 2,
    axes: Sequence[int] | None = None,
    keep: bool = False,
    **_: Any,
) -> str:
    # Others are rare in networks, and would take a power and a root.
    if order not in (1, 2):
        raise _NoFormError(f"of order {order}")
    norm: str = _reduced(f"ReduceL{order:g}")(node, x, axes, keep)
    return norm


def _variance(
    node: _Node,
    x: Any,
    axes: Sequence[int] | None = None,
    *,
    correction: float = 1,
    keepdim: bool = False,
) -> str:
    if axes is None or len(axes) != 1:
        raise _NoFormError("over several axes")
    axis = node.axis(axes[0])
    count = node.shape_of()[axis]
    centered = node.add("Sub", x, node.graph.mean(node.name(x), axis))
    squares = node.add("Mul", centered, centered)
    total = node.graph.sum(squares, axis, keep=keepdim)
    return node.add("Div", total, count - correction)


def _extreme_index(operation: str) -> Form:
    def form(node: _Node, x: Any, axis: int | None = None, keep: bool = False) -> str:
        if axis is None:
            raise _NoFormError("over all agents")
        return node.add(operation, x, axis=node.axis(axis), keepdims=int(keep))

    return form


def _softmax(operation: str) -> Form:
    def form(node: _Node, x: Any, axis: int, *_: Any) -> str:
        # Up to opset 12 all axes from this one on are flattened.
        if node.axis(axis) != len(node.value.shape) - 1:
            raise _NoFormError("along another axis than the last")
        return node.add(operation, x, axis=node.axis(axis))

    return form


def _addmm(
    node: _Node, bias: Any, x: Any, weight: Any, beta: float = 1, alpha: float = 1
) -> str:
    return node.add("Gemm", x, weight, bias, alpha=float(alpha), beta=float(beta))


def _convolution(
    node: _Node,
    x: Any,
    weight: Any,
    bias: Any,
    strides: Sequence[int],
    padding: Sequence[int],
    dilations: Sequence[int],
    is_transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> str:
    if is_transposed or any(output_padding):
        raise _NoFormError("transposed")
    inputs = [x, weight] if bias is None else [x, weight, bias]
    return node.add(
        "Conv",
        *inputs,
        kernel_shape=list(node.shape_of(1)[2:]),
        strides=list(strides),
        pads=list(padding) * 2,  # before each axis, then after each
        dilations=list(dilations),
        group=groups,
    )


def _max_pool(
    node: _Node,
    x: Any,
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    is_rounded_up: bool = False,
) -> tuple[str, None]:
    if is_rounded_up or any(d != 1 for d in dilation):
        raise _NoFormError("ceil_mode, dilation")
    pads = list(padding) * (2 * len(kernel) // len(padding))
    strides = list(strides) or list(kernel)
    pooled = node.add(
        "MaxPool", x, kernel_shape=list(kernel), strides=strides, pads=pads
    )
    return pooled, None


def _average_pool(
    node: _Node,
    x: Any,
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    *rest: Any,
) -> str:
    if any(padding) or any(rest):
        raise _NoFormError("padding, ceil_mode")
    strides = list(strides) or list(kernel)
    return node.add("AveragePool", x, kernel_shape=list(kernel), strides=strides)


def _adaptive_pool(node: _Node, x: Any, sizes: Sequence[int]) -> str:
    given = node.shape_of()[-len(sizes) :]
    if any(whole % size for whole, size in zip(given, sizes, strict=True)):
        raise _NoFormError("to sizes that do not divide the picture's")
    kernel = [whole // size for whole, size in zip(given, sizes, strict=True)]
    return node.add("AveragePool", x, kernel_shape=kernel, strides=kernel)


def _layer_norm(
    node: _Node, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[str, None, None]:
    if len(shape) != 1:
        raise _NoFormError("over several axes")
    axis = len(node.value.shape) - 1
    result = node.graph.normalized(node.name(x), axis, eps)
    if weight is not None:
        result = node.add("Mul", result, weight)
    if bias is not None:
        result = node.add("Add", result, bias)
    return result, None, None


def _batch_norm(
    node: _Node,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    momentum: float,  # noqa: ARG001 - for training
    eps: float,
) -> tuple[str, None, None]:
    # ONNX has no batch normalization without a scale and a shift.
    ones, zeros = torch.ones_like(mean), torch.zeros_like(mean)
    scale = ones if weight is None else weight
    shift = zeros if bias is None else bias
    made = node.add("BatchNormalization", x, scale, shift, mean, variance, epsilon=eps)
    return made, None, None


def _gathered(node: _Node, table: Any, index: Any, *_: Any) -> str:
    return node.add("Gather", table, index, axis=0)


def _index_select(node: _Node, x: Any, axis: int, index: Any) -> str:
    return node.add("Gather", x, index, axis=node.axis(axis))


def _indexed(node: _Node, x: Any, indices: Sequence[Any]) -> str:
    (axis, index), *more = [(i, v) for i, v in enumerate(indices) if v is not None]
    if more or not isinstance(index, Tensor) or index.dtype != torch.int64:
        raise _NoFormError("by several lists, or by what depends on an observation")
    if axis == 0 and not isinstance(x, Tensor):
        raise _NoFormError("some of the agents")
    # Up to opset 10 no index counts from the end.
    return node.add("Gather", x, index % node.shape_of()[axis], axis=axis)


def _flip(node: _Node, x: Any, axes: Sequence[int]) -> str:
    for axis in map(node.axis, axes):
        size = node.shape_of()[axis]
        if not isinstance(size, int):
            raise _NoFormError("of the agents")
        x = node.add("Gather", x, torch.arange(size).flip(0), axis=axis)
    return node.name(x)


def _extreme(operation: str) -> Form:
    """The largest or smallest along an axis, and where it is."""

    def form(node: _Node, x: Any, *along: Any) -> tuple[str, str]:
        value = _reduced(f"Reduce{operation}")(node, x, *along)
        return value, _extreme_index(f"Arg{operation}")(node, x, *along)

    return form


def _noise(node: _Node, *_: Any, **__: Any) -> str:
    return node.add("RandomNormalLike", _full(node, None, 0.0))


def _normal(node: _Node, mean: Any, std: Any = 1.0, **_: Any) -> str:
    return node.add("Add", mean, node.add("Mul", std, _noise(node)))


def _padded(node: _Node, x: Any, pads: Sequence[int], value: float = 0) -> str:
    # torch lists the last axis first, ONNX all beginnings and then all ends.
    missing = [0] * (len(node.value.shape) - len(pads) // 2)
    before = missing + list(pads[-2::-2])
    after = missing + list(pads[::-2])
    return node.add("Pad", x, pads=before + after, value=float(value))


_greater, _less = _binary("Greater"), _binary("Less")
_SAME = """Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor IsNaN Log Neg Reciprocal
Relu Sigmoid Sign Sin Sinh Sqrt Tan Tanh""".split()  # noqa: SIM905 - a list of names
"""ONNX operators of one input that ATen has under the same names."""
_BINARY = {
    "add": "Add",
    "bitwise_and": "And",
    "bitwise_or": "Or",
    "bmm": "MatMul",
    "logical_and": "And",
    "logical_or": "Or",
    "maximum": "Max",
    "minimum": "Min",
    "mm": "MatMul",
    "mul": "Mul",
    "pow": "Pow",
    "sub": "Sub",
}
FORMS: dict[str, Form] = {
    **{name.lower(): _unary(name) for name in _SAME},
    **{name: _binary(operation) for name, operation in _BINARY.items()},
    "logical_not": _unary("Not"),
    "bitwise_not": _unary("Not"),
    "_adaptive_avg_pool2d": _adaptive_pool,
    "_log_softmax": _softmax("LogSoftmax"),
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_softmax": _softmax("Softmax"),
    "_to_copy": _converted,
    "_unsafe_view": _Node.reshaped,
    "addmm": _addmm,
    "alias": _same,
    "amax": _reduced("ReduceMax"),
    "any": _any,
    "amin": _reduced("ReduceMin"),
    "argmax": _extreme_index("ArgMax"),
    "argmin": _extreme_index("ArgMin"),
    "avg_pool2d": _average_pool,
    "cat": _cat,
    "clamp": _clamp,
    "clone": _same,
    "constant_pad_nd": _padded,
    "convolution": _convolution,
    "detach": _same,
    "div": _division,
    "elu": _elu,
    "embedding": _gathered,
    "eq": _equal,
    "empty": lambda node, shape, **_: _full(node, shape, 0.0),
    "expand": _expand,
    "expm1": lambda node, x: node.add("Sub", node.add("Exp", x), 1.0),
    "flip": _flip,
    "full": _full,
    "full_like": _full,
    "ge": _negated(_less),
    "gelu": _gelu,
    "gt": _greater,
    "hardtanh": _clamp,
    "index": _indexed,
    "index_select": _index_select,
    "le": _negated(_greater),
    "leaky_relu": _leaky_relu,
    "linalg_vector_norm": _norm,
    "log1p": lambda node, x: node.add("Log", node.add("Add", x, 1.0)),
    "lt": _less,
    "max": _extreme("Max"),
    "max_pool2d_with_indices": _max_pool,
    "mean": _reduced("ReduceMean"),
    "min": _extreme("Min"),
    "native_layer_norm": _layer_norm,
    "ne": _negated(_equal),
    "normal": _normal,
    "normal_functional": lambda node, _, mean=0.0, std=1.0: _normal(node, mean, std),
    "permute": _permute,
    "prod": _reduced("ReduceProd"),
    "randn": _noise,
    "randn_like": _noise,
    "repeat": _repeat,
    "rsqrt": lambda node, x: node.add("Reciprocal", node.add("Sqrt", x)),
    "select": _select,
    "slice": _slice,
    "split_with_sizes": _split,
    "squeeze": _Node.reshaped,
    "sum": _reduced("ReduceSum"),
    "unsqueeze": _Node.reshaped,
    "var": _variance,
    "view": _Node.reshaped,
    "where": _where,
}
"""ATen operator -> what writes it."""
