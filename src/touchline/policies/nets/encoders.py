"""How a behavior's sensors are arranged for a network, and the encoders of images.

Everything here is made of operations that ONNX's opset 9 has, because `files.onnx_out` writes them
down one by one. Kinds, sizes and activations of the encoders follow ML-Agents 1.1.0
(`torch_entities/encoders.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from touchline.errors import UsageError
from touchline.policies.nets.dense import linear
from touchline.specs import BehaviorSpec, ObservationSpec, ObservationType

SMALLEST_SIDE = {
    "simple": 20,
    "nature_cnn": 36,
    "resnet": 15,
    "match3": 5,
    "fully_connected": 1,
}
"""Image encoders, and the least height and width that each can take."""


@dataclass(frozen=True)
class Sensors:
    """Where the sensors of a behavior are in `touchline.policies.network.Obs`."""

    vector_size: int
    """V: numbers of all vector sensors together."""
    goal_spans: tuple[tuple[int, int], ...]
    """Which columns of the joined vectors are goals: the first, and one past the last."""
    images: tuple[int, ...]
    """Indices of images and grids in `Obs`."""
    entities: tuple[int, ...]
    """Indices of lists of entities in `Obs`."""
    shapes: tuple[tuple[int, ...], ...]
    """Shape of each part of `Obs`."""

    @staticmethod
    def from_spec(spec: BehaviorSpec) -> Sensors:
        """Raises a UsageError for a sensor whose rank no network takes."""
        goal_spans = []
        vector_size = 0
        others = []
        for sensor in spec.observation_specs:
            if len(sensor.shape) == 1:
                start = vector_size
                vector_size += sensor.shape[0]
                if sensor.observation_type == ObservationType.GOAL_SIGNAL:
                    goal_spans.append((start, vector_size))
            else:
                _check_rank(sensor)
                others.append(sensor.shape)
        # The joined vectors come first in `Obs`.
        images = tuple(i for i, shape in enumerate(others, 1) if len(shape) == 3)
        entities = tuple(i for i, shape in enumerate(others, 1) if len(shape) == 2)
        shapes = ((vector_size,), *others)
        return Sensors(vector_size, tuple(goal_spans), images, entities, shapes)

    @property
    def is_vectors(self) -> bool:
        return len(self.shapes) == 1

    @property
    def goal_size(self) -> int:
        """How many numbers describe the goal."""
        return sum(end - start for start, end in self.goal_spans)

    def goals(self, vectors: Float[Tensor, "B V"]) -> Float[Tensor, "B G"]:
        """The goal's part of the joined vectors."""
        spans = [vectors[:, start:end] for start, end in self.goal_spans]
        return torch.cat(spans, dim=1)


def with_vector(spec: BehaviorSpec, size: int, name: str) -> BehaviorSpec:
    """The behavior, as if it also observed a vector of `size` numbers, after all others."""
    if not size:
        return spec
    vector = ObservationSpec.vector(size, name)
    return replace(spec, observation_specs=(*spec.observation_specs, vector))


def _check_rank(sensor: ObservationSpec) -> None:
    if len(sensor.shape) not in (2, 3):
        raise UsageError(
            f"observation {sensor.name!r} of shape {sensor.shape}: the trainer learns from vectors "
            "[size], lists of entities [count, size] and images [channels, height, width]"
        )


def image_encoder(kind: str, sensor: ObservationSpec, outputs: int) -> nn.Sequential:
    """An image or grid [B, channels, height, width] to [B, outputs].

    Raises a UsageError that names the `sensor` when there is no such kind, or the image is too
    small for it.
    """
    _check_size(kind, sensor)
    layers = _LAYERS[kind](sensor.shape[0])
    # The size behind the convolutions is tried out, which no change of a layer can make wrong.
    with torch.no_grad():
        picture = torch.zeros(1, *sensor.shape)
        for layer in layers:
            picture = layer(picture)
    flat = prod(picture.shape[1:])
    # 1.41 is ML-Agents' gain, √2 for a ReLU.
    gain = 1.0 if kind == "fully_connected" else 1.41
    last = nn.SiLU() if kind in ("resnet", "fully_connected") else nn.LeakyReLU()
    return nn.Sequential(*layers, nn.Flatten(), linear(flat, outputs, gain), last)


def check_images(kind: str, spec: BehaviorSpec) -> None:
    """Raises a UsageError when an image of the behavior is too small for this kind of encoder."""
    for sensor in spec.observation_specs:
        if len(sensor.shape) == 3:
            _check_size(kind, sensor)


def _check_size(kind: str, sensor: ObservationSpec) -> None:
    _, height, width = sensor.shape
    side = min(height, width)
    if kind not in SMALLEST_SIDE:
        raise UsageError(
            f"no image encoder {kind!r}; there are: {', '.join(SMALLEST_SIDE)}"
        )
    if side < SMALLEST_SIDE[kind]:
        fitting = ", ".join(
            name for name, least in SMALLEST_SIDE.items() if side >= least
        )
        raise UsageError(
            f"observation {sensor.name!r}: vis_encode_type {kind} takes images of "
            f"{SMALLEST_SIDE[kind]} or more pixels a side, this one is {height} x {width}; "
            f"those that fit: {fitting}"
        )


def _simple(channels: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, 16, 8, stride=4), nn.LeakyReLU(),
        nn.Conv2d(16, 32, 4, stride=2), nn.LeakyReLU(),
    ]  # fmt: skip


def _nature(channels: int) -> list[nn.Module]:
    # Source: Mnih et al. 2015, doi:10.1038/nature14236.
    return [
        nn.Conv2d(channels, 32, 8, stride=4), nn.LeakyReLU(),
        nn.Conv2d(32, 64, 4, stride=2), nn.LeakyReLU(),
        nn.Conv2d(64, 64, 3), nn.LeakyReLU(),
    ]  # fmt: skip


def _resnet(channels: int) -> list[nn.Module]:
    # Source: Espeholt et al. 2018, "IMPALA", arXiv:1802.01561, figure 3.
    layers: list[nn.Module] = []
    for width in (16, 32, 64):
        layers += [
            nn.Conv2d(channels, width, 3, padding=1),
            nn.MaxPool2d(3, 2),
            Residual(width),
            Residual(width),
        ]
        channels = width
    return [*layers, nn.SiLU()]


def _match3(channels: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, 35, 3), nn.LeakyReLU(),
        nn.Conv2d(35, 144, 3), nn.LeakyReLU(),
    ]  # fmt: skip


def _fully_connected(channels: int) -> list[nn.Module]:  # noqa: ARG001
    # Nothing: `image_encoder` adds one dense layer to every kind.
    return []


_LAYERS: dict[str, Callable[[int], list[nn.Module]]] = {
    "simple": _simple,
    "nature_cnn": _nature,
    "resnet": _resnet,
    "match3": _match3,
    "fully_connected": _fully_connected,
}


class Residual(nn.Module):
    """A picture plus what two convolutions make of it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1),
            nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        return torch.add(x, self.layers(x))
