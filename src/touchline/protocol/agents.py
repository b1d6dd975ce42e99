"""The agents of one behavior in one message, checked against what the behavior must show.

Two readers find them and give the same arrays bit for bit. `parsed_agents` lets protobuf's runtime
parse them, and describes what a reader does. `scan` makes one pass over the bytes with numba, where
that is installed.
Both check every agent before memory for observations is allocated, so no message can make us
allocate more than a few times its own size. What they find wrong is a number from the list below,
which `explained` turns into an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from touchline.errors import NonFiniteError
from touchline.protocol.errors import MalformedMessageError, UnityObservationException
from touchline.specs import BehaviorSpec, describe_branches

# What can be wrong with an agent.
FINE, BROKEN_FIELD, SPLIT_MASK, TOO_MANY_OBSERVATIONS, TOO_FEW_OBSERVATIONS = range(5)
WRONG_SHAPE, NO_DATA, WRONG_DATA_SIZE, WRONG_COMPRESSION = range(5, 9)
NEGATIVE_ID, NEGATIVE_GROUP, REWARD_NOT_FINITE, GROUP_REWARD_NOT_FINITE = range(9, 13)
WRONG_MASK_LENGTH, WRONG_MASK_VALUE, IMAGE_WITHOUT_3_AXES = range(13, 16)

# Rows of the table of numbers [rows, N], int32; rewards as the bits of their float32.
ID, GROUP, REWARD, GROUP_REWARD = range(4)
NUMBER_ROWS = 4

# Values of the enum CompressionTypeProto.
UNCOMPRESSED, PNG_COMPRESSED = 0, 1

EXPONENT_BITS = 0x7F800000
"""A float32 is a NaN or an infinity where all of these are set."""


@dataclass(frozen=True)
class Layout:
    """What every agent of one behavior must show."""

    name: str
    spec: BehaviorSpec
    shapes: NDArray[np.int64]
    """[sensors, most axes of any sensor]; zero after a sensor's last axis."""
    sizes: NDArray[np.int64]
    """[sensors]: how many floats each sensor sends."""
    choices: int
    """The length of an action mask: the choices of all branches together."""

    @staticmethod
    def of(name: str, spec: BehaviorSpec) -> Layout:
        sensors = spec.observation_specs
        most_axes = max((len(sensor.shape) for sensor in sensors), default=1)
        shapes = np.zeros((len(sensors), most_axes), np.int64)
        for row, sensor in enumerate(sensors):
            shapes[row, : len(sensor.shape)] = sensor.shape
        sizes = np.array([prod(sensor.shape) for sensor in sensors], np.int64)
        return Layout(name, spec, shapes, sizes, spec.action_spec.mask_size)


def explained(finding: int, layout: Layout, row: int, sensor: int) -> Exception:
    """The exception for what a reader found wrong with the agent in `row`, at its `sensor`."""
    agent = f"agentInfos[{layout.name!r}].value[{row}]"
    sensors = layout.spec.observation_specs
    action = layout.spec.action_spec
    of_agents = {
        BROKEN_FIELD: ": a field is broken or cut off",
        NEGATIVE_ID: ".id: expected 0 or more",
        NEGATIVE_GROUP: ".group_id: expected 0 or more",
        WRONG_MASK_LENGTH: f".action_mask: expected {action.mask_size} values, one for each choice "
        f"of the branches {describe_branches(action.discrete_branches)}, or none",
        WRONG_MASK_VALUE: ".action_mask: expected only 0 and 1",
        SPLIT_MASK: ".action_mask: expected one packed list",
        TOO_MANY_OBSERVATIONS: f".observations: more than the {len(sensors)} of this behavior",
        TOO_FEW_OBSERVATIONS: f".observations: expected {len(sensors)}, got {sensor}",
    }
    if finding in of_agents:
        return MalformedMessageError(agent + of_agents[finding])
    of_rewards = {REWARD_NOT_FINITE: "reward", GROUP_REWARD_NOT_FINITE: "group_reward"}
    if finding in of_rewards:
        return NonFiniteError(
            f"{agent}.{of_rewards[finding]}: expected a finite number, got a NaN or an infinity"
        )
    shape = sensors[sensor].shape
    of_observations = {
        WRONG_SHAPE: f"shape: expected {shape}, as this behavior's first agent sent it",
        NO_DATA: "observation_data: neither float_data nor compressed_data is there",
        WRONG_DATA_SIZE: "float_data.data: expected one packed list of "
        f"{prod(shape)} floats for {shape}",
        WRONG_COMPRESSION: "compression_type: expected NONE with float_data, "
        "PNG with compressed_data",
        IMAGE_WITHOUT_3_AXES: f"compressed_data: an image needs a shape of 3 axes, got {shape}",
    }
    where = f"{agent}.observations[{sensor}] ({sensors[sensor].name!r})"
    return UnityObservationException(f"{where}.{of_observations[finding]}")
