"""Demonstration files (`.demo`): what an agent observed, did and was paid, record by record.

    byte 0    length (varint), DemonstrationMetaProto, zeros up to byte 33
    byte 33   length (varint), BrainParametersProto
    then      length (varint), AgentInfoActionPairProto: one for each decision and each end

Unity writes the metadata when it closes a file, and again behind the last record. So the records
end after `number_steps` of them, or, in a file that was never closed, where the data ends.
A file is arrays here, as its bytes have it (`read_demo`, `encode_demo`). Which record holds the
action of an observation is decided in `training/demonstrations`.

Source: com.unity.ml-agents 3.0, `DemonstrationWriter.cs`; mlagents 1.1.0, `demo_loader.py`.
"""

import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from touchline.bounded import MOST_DATA, read_bounded
from touchline.errors import NonFiniteError, UsageError, shortened
from touchline.protocol.agents import (
    GROUP,
    GROUP_REWARD,
    PNG_COMPRESSED,
    REWARD,
    Layout,
)
from touchline.protocol.decoding import action_spec, observation_spec, read_sensor
from touchline.protocol.dialect import Dialect
from touchline.protocol.encoding import encode_brain, encode_sensor, varint
from touchline.protocol.errors import MalformedMessageError
from touchline.protocol.images import ImageBudget, encode_png
from touchline.protocol.parsed_agents import ParsedAgents
from touchline.protocol.schema import MESSAGES
from touchline.specs import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DimensionProperty,
    describe_actions,
)

SUFFIX = ".demo"
BRAIN_AT = 33
"""32 bytes for the metadata, and one for their length."""
API_VERSIONS = (0, 1)
"""What mlagents 1.1.0 reads; Unity writes 1."""
MOST_IMAGE_VALUES = 1 << 28
"""The most floats that the images of one file may unpack to: 1 GiB, 12,000 pictures of 84 x 84."""
LONGEST_NAME = 16
"""So much of a demonstration's name is kept, so that the metadata fits."""
_PNG_SIZE_AT = 16
"""Offset of width and height in a PNG file."""


class _BrokenFileError(Exception):
    """What is wrong with a file; the name of the file is not known here."""


@dataclass(frozen=True)
class DemoFile:
    """All R records of a file, in order."""

    behavior: str
    """The name of the behavior, of old packages the name of its Brain."""
    spec: BehaviorSpec
    """Observations as sent: whether images are HWC or CHW is in their dimension properties."""
    obs: list[NDArray[np.float32]]
    """[R, *shape] per sensor. Sensors of size 0, which some old packages send, are left out."""
    forbidden: NDArray[np.bool_] | None
    """[R, choices] the action mask, True = forbidden; None without discrete branches."""
    actions: ActionTuple
    """[R, ...] the action of each record."""
    reward: NDArray[np.float32]
    """[R] own reward since the record before."""
    group_reward: NDArray[np.float32]
    """[R] the group's reward since the record before."""
    done: NDArray[np.bool_]
    """[R] whether the record ends an episode."""
    interrupted: NDArray[np.bool_]
    """[R] whether that end is an interruption."""
    agent_id: NDArray[np.int32]
    """[R]: packages since 1.0 give each episode another id."""
    group_id: NDArray[np.int32]
    """[R] the agent's group, 0 = none."""
    has_current_actions: bool
    """Whether actions are in the fields of packages since 1.7."""
    name: str
    """The demonstration's name, from the metadata."""

    def __len__(self) -> int:
        return len(self.reward)


def read_demo(path: Path) -> DemoFile:
    """The records of a file of any package version.

    Raises a UsageError of one line that names the file.
    """
    data = read_bounded(path, MOST_DATA)
    try:
        return _decoded(data)
    except (_BrokenFileError, MalformedMessageError, NonFiniteError) as error:
        raise UsageError(f"{path}: {shortened(str(error), 400)}") from error


def encode_demo(file: DemoFile) -> bytes:
    """The bytes of a file as com.unity.ml-agents 3.0 writes it.

    Pictures and grids of several channels in whole 255ths are written as PNG files, as Unity writes
    those of cameras and grid sensors; other observations as floats. Other than Unity's, the
    metadata count the episodes that ended, and their mean return counts group rewards, too. There
    is no second copy of it at the end: readers stop at the number of records.
    """
    # In float64: a file may hold a million small rewards.
    own = file.reward.sum(dtype=np.float64)
    total = float(own + file.group_reward.sum(dtype=np.float64))
    num_episodes = int(file.done.sum())
    meta = MESSAGES.DemonstrationMetaProto(
        api_version=API_VERSIONS[-1],
        # As `DemonstrationRecorder.SanitizeName` does it in Unity.
        demonstration_name=re.sub(r"[^A-Za-z0-9 -]", "", file.name)[:LONGEST_NAME],
        number_steps=len(file),
        number_episodes=num_episodes,
        mean_reward=total / max(1, num_episodes),
    )
    while meta.ByteSize() >= BRAIN_AT:
        # From 16,384 episodes on their number takes a byte more.
        meta.demonstration_name = meta.demonstration_name[:-1]
    brain = encode_brain(file.behavior, file.spec.action_spec, is_training=False)
    head = _with_length(meta.SerializeToString()).ljust(BRAIN_AT, b"\0")
    parts = [head, _with_length(brain.SerializeToString())]
    pairs = (_pair(file, record) for record in range(len(file)))
    parts += [_with_length(pair.SerializeToString()) for pair in pairs]
    return b"".join(parts)


def _pair(file: DemoFile, record: int) -> Any:
    info = MESSAGES.AgentInfoProto(
        reward=file.reward[record],
        group_reward=file.group_reward[record],
        done=file.done[record],
        max_step_reached=file.interrupted[record],
        id=file.agent_id[record],
        group_id=file.group_id[record],
    )
    if file.forbidden is not None:
        info.action_mask[:] = file.forbidden[record].tolist()
    for sensor, obs in zip(file.spec.observation_specs, file.obs, strict=True):
        observation = info.observations.add()
        observation.CopyFrom(encode_sensor(sensor))
        png = encode_png(obs[record]) if len(sensor.shape) == 3 else None
        if png is None:
            observation.float_data.data = obs[record].astype("<f4").tobytes()
        else:
            observation.compressed_data = png
            observation.compression_type = PNG_COMPRESSED
    action = MESSAGES.AgentActionProto(
        continuous_actions=file.actions.continuous[record].astype("<f4").tobytes(),
        discrete_actions=file.actions.discrete[record].tolist(),
    )
    return MESSAGES.AgentInfoActionPairProto(agent_info=info, action_info=action)


def _with_length(message: bytes) -> bytes:
    return varint(len(message)) + message


def _decoded(data: bytes) -> DemoFile:
    meta, brain = _header(data)
    actions_of = action_spec(brain)
    if not actions_of.continuous_size and not actions_of.discrete_branches:
        raise _BrokenFileError("its header describes no action")
    pairs = _pairs(data, meta.number_steps)
    _check_extent(data, len(pairs), actions_of)
    infos = [pair.agent_info for pair in pairs]
    agent_id = np.array([info.id for info in infos], np.int32)
    for info in infos:
        # Before package 1.0 an id is Unity's instance id, which is mostly negative.
        info.id = 0
        # The end of an episode may repeat the mask of its last decision; nothing is decided there.
        if info.done:
            info.ClearField("action_mask")
    _leave_out_empty_sensors(infos)
    dialect = Dialect(image_layout=_image_layout(infos[0]))
    sensors = tuple(
        observation_spec(f"record 0: observations[{i}]", observation, dialect)
        for i, observation in enumerate(infos[0].observations)
    )
    spec = BehaviorSpec(sensors, actions_of)
    layout = Layout.of(brain.brain_name, spec)
    message = MESSAGES.ListAgentInfoProto(value=infos).SerializeToString()
    # Not the compiled scan: a file is read once, which takes less time than compiling.
    agents = ParsedAgents(layout.name, message)
    agents.check(layout)
    numbers = agents.numbers
    actions, has_current_actions = _actions(pairs, actions_of)
    return DemoFile(
        behavior=brain.brain_name,
        spec=spec,
        obs=_observations(agents, layout, channels_first=dialect.channels_first),
        forbidden=agents.masks() if layout.choices else None,
        actions=actions,
        reward=numbers[REWARD].view(np.float32),
        group_reward=numbers[GROUP_REWARD].view(np.float32),
        done=np.array([info.done for info in infos], np.bool_),
        interrupted=agents.interrupted(),
        agent_id=agent_id,
        group_id=numbers[GROUP],
        has_current_actions=has_current_actions,
        name=meta.demonstration_name,
    )


def _header(data: bytes) -> tuple[Any, Any]:
    if not data:
        raise _BrokenFileError("expected a demonstration, the file is empty")
    if len(data) <= BRAIN_AT:
        raise _BrokenFileError(f"cut off: {len(data)} bytes are less than a header")
    try:
        meta = MESSAGES.DemonstrationMetaProto.FromString(_delimited(data, 0)[0])
        brain = MESSAGES.BrainParametersProto.FromString(_delimited(data, BRAIN_AT)[0])
    except (DecodeError, _BrokenFileError) as error:
        raise _BrokenFileError(
            f"not a demonstration file, or cut off in its header ({error})"
        ) from error
    if meta.api_version not in API_VERSIONS:
        raise _BrokenFileError(
            f"expected a demonstration of version 0 or 1, got version {meta.api_version}"
        )
    if not brain.brain_name:
        raise _BrokenFileError("not a demonstration file: no behavior is named in it")
    return meta, brain


MOST_RECORDS = 500_000
"""Records of one file. Each takes some 2 kB of memory and 20 us while it is read; a day of playing
by hand at ten decisions a second has 864,000, which fit into two files."""
MOST_NUMBERS = 2**28
"""Continuous actions of a file, all records together: a GiB."""


def parts_of(file: DemoFile, most: int = MOST_RECORDS) -> list[DemoFile]:
    """A file as several that `read_demo` takes, cut where episodes end."""
    begin, parts = 0, []
    ends = np.append(np.flatnonzero(file.done) + 1, len(file))
    while begin < len(file):
        fitting = ends[(ends > begin) & (ends <= begin + most)]
        end = int(fitting[-1]) if len(fitting) else begin + most
        parts.append(_part(file, slice(begin, end)))
        begin = end
    return parts


def _part(file: DemoFile, records: slice) -> DemoFile:
    return replace(
        file,
        obs=[array[records] for array in file.obs],
        forbidden=None if file.forbidden is None else file.forbidden[records],
        actions=file.actions.select(records),
        reward=file.reward[records],
        group_reward=file.group_reward[records],
        done=file.done[records],
        interrupted=file.interrupted[records],
        agent_id=file.agent_id[records],
        group_id=file.group_id[records],
    )


def _check_extent(data: bytes, num_records: int, actions: ActionSpec) -> None:
    """Raise before memory is taken for more than a demonstration can hold."""
    numbers = num_records * (actions.continuous_size + sum(actions.discrete_branches))
    # Actions are sent as numbers of four bytes, or not at all; a file of branches alone is small.
    if numbers > max(MOST_NUMBERS, len(data)):
        raise _BrokenFileError(
            f"{num_records:,} records of {actions.continuous_size:,} continuous actions and "
            f"{actions.discrete_size:,} branches are more than a demonstration can hold"
        )


def _pairs(data: bytes, count: int) -> list[Any]:
    """Every AgentInfoActionPairProto: `count` of them, or as many as come where it is 0."""
    pairs: list[Any] = []
    most = count if count > 0 else MOST_RECORDS + 1
    try:
        _, at = _delimited(data, BRAIN_AT)
        while at < len(data) and len(pairs) < most and count <= MOST_RECORDS:
            record, at = _delimited(data, at)
            pairs.append(MESSAGES.AgentInfoActionPairProto.FromString(record))
    except (DecodeError, _BrokenFileError) as error:
        # Unity may have been stopped in the middle of a record.
        if count:
            raise _BrokenFileError(
                f"cut off or broken at record {len(pairs)} of {count} ({error})"
            ) from error
    if max(count, len(pairs)) > MOST_RECORDS:
        raise _BrokenFileError(
            f"more than {MOST_RECORDS:,} records; cut the demonstration into several files"
        )
    if not pairs:
        raise _BrokenFileError("the demonstration is empty: it holds no record")
    if len(pairs) < count:
        raise _BrokenFileError(f"cut off after {len(pairs)} of {count} records")
    return pairs


def _delimited(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes behind the length at `at`, and where they end."""
    length = shift = 0
    while True:
        # Five bytes of seven bits hold any length of 32 bits.
        if at >= len(data) or shift > 28:
            raise _BrokenFileError(f"no length at byte {at}")
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    end = at + length
    if end > len(data):
        raise _BrokenFileError(
            f"{length} bytes expected at byte {at}, {len(data) - at} came"
        )
    return data[at:end], end


def _leave_out_empty_sensors(infos: list[Any]) -> None:
    """Packages of 2018 and 2019 send a vector of no numbers next to a camera."""
    sensors = infos[0].observations
    empty = [i for i, sensor in enumerate(sensors) if 0 in sensor.shape]
    for info in infos if empty else ():
        # From the last to the first, because each deletion moves what is behind it.
        for i in reversed(empty):
            if i < len(info.observations):
                del info.observations[i]


def _image_layout(info: Any) -> str:
    """HWC or CHW, by the first image that shows it."""
    # A file does not name its package. Since 1.8 the dimension properties show the axis of
    # channels; before, a PNG file shows width and height, and images of floats are HWC.
    none = DimensionProperty.NONE
    for observation in info.observations:
        shape = tuple(observation.shape)
        if len(shape) != 3:
            continue
        properties = tuple(observation.dimension_properties)
        if len(properties) == 3:
            return "CHW" if properties[0] == none != properties[2] else "HWC"
        png = observation.compressed_data
        if observation.compression_type == PNG_COMPRESSED and len(png) >= 24:
            width, height = struct.unpack_from(">II", png, _PNG_SIZE_AT)
            is_channels_last = shape[:2] == (height, width)
            return "HWC" if is_channels_last else "CHW"
    return "HWC"


def _observations(
    agents: ParsedAgents, layout: Layout, *, channels_first: bool
) -> list[NDArray[np.float32]]:
    budget = ImageBudget(MOST_IMAGE_VALUES, of="file")
    found = []
    for i, sensor in enumerate(layout.spec.observation_specs):
        out, bad = read_sensor(agents, layout, i, budget, channels_first=channels_first)
        if bad >= 0:
            raise _BrokenFileError(
                f"record {bad}: observation {i} ({sensor.name!r}) holds a NaN or an infinity"
            )
        found.append(out)
    return found


def _actions(pairs: list[Any], spec: ActionSpec) -> tuple[ActionTuple, bool]:
    """The action of each record, and whether they are in the fields of packages since 1.7."""
    infos = [pair.action_info for pair in pairs]
    is_current = any(
        action.continuous_actions or action.discrete_actions for action in infos
    )
    if is_current:
        continuous = [action.continuous_actions for action in infos]
        discrete = [action.discrete_actions[:] for action in infos]
    else:
        old = [action.vector_actions_deprecated[:] for action in infos]
        is_continuous = spec.continuous_size > 0
        continuous = [np.array(row, "<f4").tobytes() for row in old if is_continuous]
        discrete = [[] if is_continuous else row for row in old]
    actions = spec.empty_action(len(pairs))
    if spec.continuous_size:
        _fill_floats(actions.continuous, continuous)
    if spec.discrete_branches:
        _fill_choices(actions.discrete, discrete, spec)
    return actions, is_current


def _fill_floats(out: NDArray[np.float32], rows: list[bytes]) -> None:
    """Records without an action, such as an episode's first, stay zeros."""
    width = out.shape[1]
    sizes = np.array([len(row) for row in rows])
    wrong = np.flatnonzero((sizes != 0) & (sizes != 4 * width))
    if len(wrong):
        raise _BrokenFileError(
            f"record {wrong[0]}: expected {width} continuous actions, "
            f"got {sizes[wrong[0]]} bytes"
        )
    given = sizes > 0
    out[given] = np.frombuffer(b"".join(rows), "<f4").reshape(-1, width)
    bad = np.flatnonzero(~np.isfinite(out).all(axis=1))
    if len(bad):
        raise _BrokenFileError(f"record {bad[0]}: an action is a NaN or an infinity")


def _fill_choices(out: NDArray[np.int32], rows: list[Any], spec: ActionSpec) -> None:
    sizes = np.array([len(row) for row in rows])
    wrong = np.flatnonzero((sizes != 0) & (sizes != out.shape[1]))
    if len(wrong):
        raise _BrokenFileError(
            f"record {wrong[0]}: expected {describe_actions(spec)}, "
            f"got {sizes[wrong[0]]} choices"
        )
    given = [row for row in rows if row]
    # float64, which holds every int32 of today's files and every float32 of old ones.
    chosen = np.array(given, np.float64).reshape(-1, out.shape[1])
    # Choices are sent as floats.
    is_whole = chosen == chosen.round()
    legal = (chosen >= 0) & (chosen < spec.branch_sizes) & is_whole
    bad = np.flatnonzero(~legal.all(axis=1))
    if len(bad):
        row = np.flatnonzero(sizes)[bad[0]]
        raise _BrokenFileError(
            f"record {row}: expected choices of {describe_actions(spec)}, "
            f"got {chosen[bad[0]].tolist()}"
        )
    out[sizes > 0] = chosen
