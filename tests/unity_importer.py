"""What Unity's importers read of an ONNX file.

Sources: "Supported ONNX operators" of Sentis 2.1 (com.unity.sentis, which ML-Agents 3.0 uses) and of
Inference Engine 2.2 (com.unity.ai.inference, which ML-Agents 4.0 uses). Both name the opset versions
7 to 15. Operators with restricted parameters are in `RESTRICTED`.
"""

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


def require_known(model):
    """Every operator and opset of the model is one that both importers read."""
    (opset,) = model.opset_import
    assert opset.domain == ""
    assert 7 <= opset.version <= 15
    for node in model.graph.node:
        assert node.op_type in LISTED, node.name
        given = {attribute.name for attribute in node.attribute}
        assert not given & RESTRICTED.get(node.op_type, set()), node
    for value in (*model.graph.input, *model.graph.output):
        assert value.type.HasField("tensor_type")
