"""Agents read by protobuf's runtime: nothing to compile, one Python object per agent and sensor.

Slower than `scan` (docs/benchmarks.md), with the same arrays bit for bit. It accepts what protobuf
accepts, so two things that `scan` refuses pass here: an action mask in several pieces, and one with
values above 1. No ML-Agents package sends either.
"""

from copy import copy
from math import isfinite
from typing import Any, Self

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from touchline.protocol import agents
from touchline.protocol.agents import Layout, explained
from touchline.protocol.errors import MalformedMessageError
from touchline.protocol.schema import MESSAGES


class ParsedAgents:
    """N agents of one behavior: found when made, checked by `check`, their observations unread.

    Raises a MalformedMessageError when made from bytes that are no ListAgentInfoProto.
    """

    numbers: NDArray[np.int32]
    """[4, N]: rows ID, GROUP, REWARD and GROUP_REWARD."""

    def __init__(self, behavior: str, message: bytes) -> None:
        try:
            parsed = MESSAGES.ListAgentInfoProto.FromString(message)
        except DecodeError as error:
            raise MalformedMessageError(
                f"agentInfos[{behavior!r}]: broken or cut off: {error}"
            ) from error
        # A slice, here and below: it is several times faster than iterating over a repeated field.
        self._infos: list[Any] = parsed.value[:]

    def __len__(self) -> int:
        return len(self._infos)

    def check(self, layout: Layout) -> None:
        """Read everything but the observations; call it before anything below.

        Raises the exception of `explained` for the first agent that does not fit the layout.
        """
        self._choices = layout.choices
        infos = self._infos
        rewards = [
            [info.reward for info in infos],
            [info.group_reward for info in infos],
        ]
        self.numbers = np.empty((agents.NUMBER_ROWS, len(infos)), np.int32)
        self.numbers[agents.ID] = [info.id for info in infos]
        self.numbers[agents.GROUP] = [info.group_id for info in infos]
        # As bits in the same table, as `scan` keeps them.
        as_floats = np.array(rewards, np.float32)
        self.numbers[agents.REWARD :] = as_floats.view(np.int32)
        self._ended = np.array([info.done for info in infos], np.bool_)
        self._observations: list[list[Any]] = [info.observations[:] for info in infos]
        shapes = [list(sensor.shape) for sensor in layout.spec.observation_specs]
        sizes = (4 * layout.sizes).tolist()
        for row, observations in enumerate(self._observations):
            for sensor, observation in enumerate(observations[: len(shapes)]):
                finding = _check_observation(observation, shapes[sensor], sizes[sensor])
                if finding:
                    raise explained(finding, layout, row, sensor)
            num_sent = len(observations)
            if num_sent > len(shapes):
                raise explained(agents.TOO_MANY_OBSERVATIONS, layout, row, len(shapes))
            if num_sent < len(shapes):
                raise explained(agents.TOO_FEW_OBSERVATIONS, layout, row, num_sent)
            finding = _check_numbers(infos[row], layout.choices)
            if finding:
                raise explained(finding, layout, row, 0)

    def ended_rows(self) -> NDArray[np.intp]:
        """Which entries end an episode; the others decide."""
        return self._ended.nonzero()[0]

    def interrupted(self) -> NDArray[np.bool_]:
        """[N]: whether the end of an episode is an interruption."""
        return np.array([info.max_step_reached for info in self._infos], np.bool_)

    def select(self, rows: NDArray[np.intp]) -> Self:
        """Only these agents."""
        chosen = copy(self)
        chosen._infos = [self._infos[row] for row in rows]
        chosen._observations = [self._observations[row] for row in rows]
        chosen.numbers = self.numbers[:, rows]
        chosen._ended = self._ended[rows]
        return chosen

    def masks(self) -> NDArray[np.bool_]:
        """[N, choices of all branches], True = forbidden; all False where an agent sent none."""
        masks = np.zeros((len(self), self._choices), np.bool_)
        for row, info in enumerate(self._infos):
            # Empty means that everything is allowed.
            mask = info.action_mask[:]
            if mask:
                masks[row] = mask
        return masks

    def image_rows(self, sensor: int) -> NDArray[np.intp]:
        """Which agents sent PNG files as this sensor's observation."""
        return np.flatnonzero(
            [
                observations[sensor].compression_type == agents.PNG_COMPRESSED
                for observations in self._observations
            ]
        )

    def image(self, row: int, sensor: int) -> Any:
        """The ObservationProto of one agent; raises a DecodeError if it cannot be parsed."""
        return self._observations[row][sensor]

    def copy_floats(
        self, sensor: int, rows: NDArray[np.intp] | None, out: NDArray[np.float32]
    ) -> int:
        """Copy the floats of these agents (None: of all) into the rows of `out` [K, size].

        Returns the first row of `out` that holds a NaN or an infinity, or -1.
        """
        if not len(out):
            return -1
        chosen = range(len(self)) if rows is None else rows.tolist()
        # `schema` declares the list of floats as bytes, so this joins little-endian floats.
        data = b"".join(
            [self._observations[row][sensor].float_data.data for row in chosen]
        )
        out[:] = np.frombuffer(data, "<f4").reshape(out.shape)
        finite = np.isfinite(out)
        if finite.all():
            return -1
        return int(np.flatnonzero(~finite.all(axis=1))[0])


def _check_numbers(info: Any, choices: int) -> int:
    if info.id < 0:
        return agents.NEGATIVE_ID
    if info.group_id < 0:
        return agents.NEGATIVE_GROUP
    if not isfinite(info.reward):
        return agents.REWARD_NOT_FINITE
    if not isfinite(info.group_reward):
        return agents.GROUP_REWARD_NOT_FINITE
    length = len(info.action_mask)
    # An agent that has ended may still show the mask of its last decision.
    if length and length != choices and not info.done:
        return agents.WRONG_MASK_LENGTH
    return agents.FINE


def _check_observation(observation: Any, shape: list[int], num_bytes: int) -> int:
    if observation.shape != shape:
        return agents.WRONG_SHAPE
    kind = observation.WhichOneof("observation_data")
    compression = observation.compression_type
    if kind == "float_data":
        if compression != agents.UNCOMPRESSED:
            return agents.WRONG_COMPRESSION
        has_size = len(observation.float_data.data) == num_bytes
        return agents.FINE if has_size else agents.WRONG_DATA_SIZE
    if kind is None:
        return agents.NO_DATA
    if compression != agents.PNG_COMPRESSED:
        return agents.WRONG_COMPRESSION
    return agents.FINE if len(shape) == 3 else agents.IMAGE_WITHOUT_3_AXES
