"""An ONNX graph in the making: every method gives the name of what it added."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

OPSET = 9
IR_VERSION = 6
"""As in the models that ship with ML-Agents Release 22."""


class OnnxGraph:
    """Nodes, inputs, outputs and constants, in the order in which they are added."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []

    def input(self, name: str, shape: Sequence[int]) -> str:
        """An input [batch, *shape] of the model."""
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
        self._inputs.append(info)
        return name

    def constant(self, value: NDArray[Any]) -> str:
        """An array that is part of the model."""
        name = f"constant_{len(self._constants)}"
        tensor = numpy_helper.from_array(np.ascontiguousarray(value), name)
        self._constants.append(tensor)
        return name

    def scalar(self, value: float) -> str:
        """One float as a constant [1], which broadcasts to every shape."""
        return self.constant(np.full(1, value, np.float32))

    def node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        """An operator with one output."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        node = helper.make_node(operator, inputs, [name], name=name, **attributes)
        self._nodes.append(node)
        return name

    def nodes(
        self,
        operator: str,
        inputs: Sequence[str],
        names: Sequence[str],
        **attributes: Any,
    ) -> list[str]:
        """An operator with several outputs; an empty name is one that is not used."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        outputs = [output and f"{name}_{output}" for output in names]
        node = helper.make_node(operator, inputs, outputs, name=name, **attributes)
        self._nodes.append(node)
        return outputs

    def parameter(self, tensor: Tensor) -> str:
        """A weight as a constant."""
        return self.constant(np.asarray(tensor.numpy(force=True), np.float32))

    def linear(self, x: str, weight: Tensor, bias: Tensor) -> str:
        """A dense layer of rows [B, I]; `weight` is [O, I]."""
        return self.node("Gemm", [x, self.parameter(weight.t()), self.parameter(bias)])

    def add(self, a: str, b: str) -> str:
        return self.node("Add", [a, b])

    def subtract(self, a: str, b: str) -> str:
        return self.node("Sub", [a, b])

    def multiply(self, a: str, b: str) -> str:
        return self.node("Mul", [a, b])

    def divide(self, a: str, b: str) -> str:
        return self.node("Div", [a, b])

    def matmul(self, a: str, b: str) -> str:
        return self.node("MatMul", [a, b])

    def mean(self, name: str, axis: int) -> str:
        """Along an axis, which stays with size 1."""
        # As attributes, which opset 18 made into inputs (of sums, opset 13).
        return self.node("ReduceMean", [name], axes=[axis], keepdims=1)

    def sum(self, name: str, axis: int, *, keep: bool) -> str:
        """Along an axis, which stays with size 1 or is dropped."""
        return self.node("ReduceSum", [name], axes=[axis], keepdims=int(keep))

    def normalized(self, name: str, axis: int, epsilon: float) -> str:
        """With mean 0 and spread 1 along an axis."""
        centered = self.subtract(name, self.mean(name, axis))
        variance = self.mean(self.multiply(centered, centered), axis)
        variance = self.add(variance, self.scalar(epsilon))
        return self.divide(centered, self.node("Sqrt", [variance]))

    def transpose(self, name: str, order: Sequence[int]) -> str:
        return self.node("Transpose", [name], perm=order)

    def concat(self, names: Sequence[str], axis: int) -> str:
        """These side by side; one alone stays as it is, none gives the empty name."""
        if len(names) < 2:
            return names[0] if names else ""
        return self.node("Concat", names, axis=axis)

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        sizes = self.constant(np.array(shape, np.int64))
        return self.node("Reshape", [name, sizes])

    def slice(self, name: str, axis: int, start: int, end: int) -> str:
        """Elements `start` to `end` - 1 of an axis."""
        # As attributes, which opset 10 made into inputs.
        return self.node("Slice", [name], axes=[axis], starts=[start], ends=[end])

    def output(
        self,
        name: str,
        operator: str,
        inputs: Sequence[str],
        shape: Sequence[Any],
        kind: int = TensorProto.FLOAT,
        **attributes: Any,
    ) -> None:
        """An operator whose result is an output of the model, of this shape and element type."""
        node = helper.make_node(operator, inputs, [name], name=name, **attributes)
        self._nodes.append(node)
        info = helper.make_tensor_value_info(name, kind, shape)
        self._outputs.append(info)

    def constant_output(self, name: str, value: Sequence[Any]) -> None:
        """An output that is the same for all inputs."""
        array = np.asarray(value, np.float32)
        self.output(name, "Identity", [self.constant(array)], array.shape)

    def model(self) -> onnx.ModelProto:
        """All of it, checked."""
        graph = helper.make_graph(
            self._nodes, "touchline", self._inputs, self._outputs, self._constants
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(
            graph, opset_imports=[opset], producer_name="touchline"
        )
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model)
        return model
