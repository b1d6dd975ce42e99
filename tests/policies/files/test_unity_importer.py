"""Every kind of exported network against the operators that Unity's importers list.

Sources: "Supported ONNX operators" of Sentis 2.1 (com.unity.sentis, which ML-Agents 3.0 uses) and of
Inference Engine 2.2 (com.unity.ai.inference, which ML-Agents 4.0 uses). Both name the opset versions
7 to 15. Operators with restricted parameters are in `RESTRICTED`.
"""

from dataclasses import replace

import pytest
import torch
from test_onnx import ARCHITECTURES, CASES

from touchline.policies.files.onnx_out import build_onnx
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.nets.encoders import SMALLEST_SIDE
from touchline.policies.network import Architecture
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

LISTED = frozenset(
    """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization
    Bernoulli Cast CastLike Ceil Celu Clip Compress Concat Constant ConstantOfShape Conv
    ConvTranspose Cos Cosh CumSum DepthToSpace Div Dropout Einsum Elu Equal Erf Exp Expand
    Flatten Floor Gather GatherElements GatherND Gemm GlobalAveragePool GlobalMaxPool Greater
    GreaterOrEqual GridSample Hardmax HardSigmoid HardSwish Identity InstanceNormalization IsInf
    IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LRN LSTM MatMul Max
    MaxPool Mean Min Mod Mul Multinomial Neg NonMaxSuppression NonZero Not OneHot Or Pad Pow
    PRelu RandomNormal RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare Relu Reshape Resize RoiAlign Round ScatterElements ScatterND Selu
    Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split
    Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Where Xor
    """.split()  # noqa: SIM905
)
"""Operators in both lists."""
RESTRICTED = {
    "AveragePool": {"ceil_mode", "count_include_pad"},
    "BatchNormalization": {"momentum", "spatial", "training_mode"},
    "Constant": {"sparse_value"},
    "ConvTranspose": {"dilations", "group", "output_shape"},
    "MaxPool": {"ceil_mode", "dilations", "storage_order"},
}
"""Operator -> attributes that the importers do not follow."""


def _networks():
    for case, spec in CASES.items():
        for name, architecture in ARCHITECTURES.items():
            # Their pictures are too small for the default encoder; all of them follow below.
            if architecture.vis_encode_type == "simple":
                architecture = replace(architecture, vis_encode_type="resnet")
            yield pytest.param(spec, architecture, id=f"{case}, {name}")
    for encoder, side in SMALLEST_SIDE.items():
        image = ObservationSpec((3, max(side, 1), max(side, 1)), name="camera")
        spec = BehaviorSpec((image,), ActionSpec(2, (3,)))
        architecture = Architecture(
            hidden_units=16, num_layers=1, vis_encode_type=encoder
        )
        yield pytest.param(spec, architecture, id=f"a picture, {encoder}")
    gru = Architecture(hidden_units=16, memory_size=12, memory_type="gru")
    yield pytest.param(CASES["hybrid, two sensors"], gru, id="a GRU")
    for case in ("continuous", "hybrid, two sensors"):
        squashed = Architecture(hidden_units=16, squashed=True)
        yield pytest.param(CASES[case], squashed, id=f"{case}, of SAC")


@pytest.mark.parametrize(("spec", "architecture"), list(_networks()))
def test_unitys_importers_know_every_operator_of_an_exported_network(
    spec, architecture
):
    torch.manual_seed(0)
    model = build_onnx(ActorCritic(spec, architecture))
    (opset,) = model.opset_import
    assert opset.domain == ""
    assert 7 <= opset.version <= 15
    for node in model.graph.node:
        assert node.op_type in LISTED, node.name
        given = {attribute.name for attribute in node.attribute}
        assert not given & RESTRICTED.get(node.op_type, set()), node
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.HasField("tensor_type")
