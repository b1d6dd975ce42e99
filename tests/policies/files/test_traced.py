"""Any torch module in Unity's operators: the same numbers, or one line that names what is missing."""

import numpy as np
import onnxruntime as ort
import pytest
import torch
from tests.unity_importer import require_known
from torch import nn
from torch.distributions import Normal
from torch.nn.functional import (
    normalize,
    one_hot,
    pad,
    scaled_dot_product_attention,
)

from touchline.errors import UsageError
from touchline.policies.files.onnx_graph import OnnxGraph
from touchline.policies.files.traced import NUM_EXAMPLES, write_module

ACTIVATIONS = [
    nn.CELU(), nn.ELU(), nn.GELU(), nn.GELU(approximate="tanh"), nn.Hardsigmoid(), nn.Hardswish(),
    nn.Hardtanh(), nn.LeakyReLU(0.1), nn.LogSigmoid(), nn.LogSoftmax(-1), nn.Mish(), nn.ReLU(),
    nn.ReLU6(), nn.SELU(), nn.Sigmoid(), nn.SiLU(), nn.Softmax(-1), nn.Softplus(), nn.Softsign(),
    nn.Tanh(), nn.Tanhshrink(),
]  # fmt: skip


class Arithmetic(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.batch_norm = nn.BatchNorm1d(6)
        self.row = nn.Parameter(torch.randn(1, 2))

    def forward(self, x):
        size = x.shape[0]
        yield_ = (
            torch.where(x > 0.5, x, -x * 2) + x.pow(2) - x.abs().sqrt() / (1 + x * x)
        )
        yield_ = (
            yield_ + (x >= 0).float() + torch.maximum(x, -x) + x.amax(1, keepdim=True)
        )
        yield_ = yield_ + x.std(1, keepdim=True) + x.norm(dim=1, keepdim=True) + (1 - x)
        same = x.argmax(1, keepdim=True) == x.argmin(1, keepdim=True)
        rows = [self.row.expand(size, -1), torch.zeros(size, 2), torch.ones_like(x)]
        return {
            "sums": yield_ + pad(x, (1, 0))[:, :6] + normalize(x, dim=1),
            "rows": torch.cat(rows, dim=1),
            "same": same.float() + torch.eq(x, x).float(),
            "stacked": torch.stack([x, x * 2], dim=1).flatten(1),
            "table": self.table(x[:, 0].long().clamp(0, 4)),
            "normalized": self.batch_norm(x),
        }


class Arrangement(nn.Module):
    def forward(self, x):
        least, at = x.min(1, keepdim=True)
        times = torch.ones(1, 2).repeat(x.shape[0], 3)
        curves = x.asinh() + (x.tanh() / 2).atanh() + (1 + x.abs()).acosh()
        return {
            "repeated": x.repeat(1, 2) * times.repeat(1, 2),
            "listed": x[:, [0, -2]] + x.flip(1)[:, :2],
            "extremes": x.max(1).values[:, None] + least + at.float(),
            "product": x.prod(1, keepdim=True),
            "chosen": one_hot(x.argmax(1), 6).float(),
            "limited": x.clamp(-torch.ones(6), x[:, :1].abs()),
            "curves": torch.nan_to_num(curves),
        }


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4), nn.LayerNorm(4),
        )  # fmt: skip

    def forward(self, x):
        attended = scaled_dot_product_attention(x[:, 0], x[:, 1], x[:, 2])
        return {"layers": self.layers(x), "attended": attended}


class Named(nn.Module):
    """Results of a part under one name."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        found = self.part(x)
        return {"found": found[0] if isinstance(found, tuple) else found}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(6, 5, num_layers=2), nn.GRU(6, 5)

    def forward(self, x):
        zeros = torch.zeros(2, x.shape[0], 5)
        y, (hidden, _) = self.lstm(x.unsqueeze(0), (zeros, zeros))
        z, _ = self.gru(x.unsqueeze(0), zeros[:1])
        return {"y": y[0], "hidden": hidden[1], "z": z[0]}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)

    def forward(self, x):
        return {"mean": self.layer(x).mean(dim=1)}


MODULES = [
    *[pytest.param(Named(a), (6,), id=repr(a)) for a in ACTIVATIONS],
    pytest.param(Arithmetic(), (6,), id="arithmetic"),
    pytest.param(Arrangement(), (6,), id="arrangement"),
    pytest.param(Pictures(), (3, 20, 20), id="pictures"),
    pytest.param(Recurrent(), (6,), id="recurrent"),
    pytest.param(Attention(), (5, 8), id="attention"),
]


def _written(module, shape):
    graph = OnnxGraph()
    name = graph.input("x", shape)
    example = torch.randn(NUM_EXAMPLES, *shape)
    expected = module(example)
    for key, found in write_module(graph, module, {name: example}).items():
        sizes = ["batch", *expected[key].shape[1:]]
        graph.output(f"out_{key}", "Identity", [found], sizes)
    return graph.model()


@pytest.mark.parametrize(("module", "shape"), MODULES)
@torch.no_grad()
def test_a_module_computes_the_same_in_operators_of_unitys_importer(module, shape):
    torch.manual_seed(0)
    module = module.eval()
    model = _written(module, shape)
    require_known(model)
    session = ort.InferenceSession(model.SerializeToString())
    for rows in (1, 1000):
        x = torch.randn(rows, *shape)
        found = session.run(None, {"x": x.numpy()})
        for expected, own in zip(module(x).values(), found, strict=True):
            np.testing.assert_allclose(own, expected.numpy(), atol=1e-5)


class Drawn(nn.Module):
    """The distributions of torch, which check their numbers, too."""

    def forward(self, x):
        distribution = Normal(x, torch.full((2,), 0.5))
        size = x.shape[0]
        return {
            "sample": distribution.sample(),
            "rsample": distribution.rsample(),
            "normal": torch.normal(x, 0.5),
            "randn": x + 0.5 * torch.randn(size, 2),
        }


def test_actions_are_drawn_anew_at_every_decision():
    session = ort.InferenceSession(_written(Drawn(), (2,)).SerializeToString())
    x = np.full((1000, 2), 3, np.float32)
    draws = [session.run(None, {"x": x}) for _ in range(2)]
    for first, second in zip(*draws, strict=True):
        assert first.mean() == pytest.approx(3.0, abs=0.1)
        assert first.std() == pytest.approx(0.5, abs=0.05)
        assert (first != second).all()


class Strange(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).abs()


def test_an_operator_that_the_importer_does_not_know_is_named_with_its_layer():
    module = Named(nn.Sequential(nn.Linear(6, 6), Strange()))
    with pytest.raises(
        UsageError,
        match=r"layer part\.1 \(Strange\): its operator aten\._fft_r2c has no form here",
    ):
        _written(module, (6,))


def test_a_restricted_use_of_an_operator_is_named_with_its_layer():
    module = Named(nn.Sequential(nn.Softmax(dim=1)))
    with pytest.raises(
        UsageError, match=r"layer part\.0 \(Softmax\).*aten\._softmax.*another axis"
    ):
        _written(module, (3, 4))


def test_a_module_that_fixes_the_number_of_agents_is_told_how_not_to():
    class Fixed(nn.Module):
        def forward(self, x):
            return {"y": x + torch.zeros(len(x), 1)}

    with pytest.raises(UsageError, match=r"len\(x\) does so, x\.shape\[0\] does not"):
        _written(Fixed(), (6,))
