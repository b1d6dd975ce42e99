"""A player's messages to specs and exchanges.

Arrays, not one Python object per agent or float; the agents are found by one of the two readers
described in `agents`. Decoding trusts nothing that a message claims. What a message means, and in
which version: docs/protocol.md. PNG images: `images`. The other direction: `encoding`.
"""

import logging
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from touchline.errors import NonFiniteError, shortened
from touchline.protocol.agents import GROUP, GROUP_REWARD, ID, REWARD, Layout
from touchline.protocol.dialect import Dialect
from touchline.protocol.errors import MalformedMessageError, UnityObservationException
from touchline.protocol.images import MOST_IMAGE_VALUES, ImageBudget, decode_png
from touchline.protocol.parsed_agents import ParsedAgents
from touchline.protocol.schema import MESSAGES
from touchline.specs import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    describe_actions,
    describe_branches,
)
from touchline.steps import DecisionSteps, Exchange, TerminalSteps

if TYPE_CHECKING:
    from touchline.protocol.scan import ScannedAgents

MOST_CHOICES = 1 << 20
"""The most continuous actions, or choices of all branches together, that a behavior may have.
ML-Agents' largest example, GridWorld with masks, has thousands."""
MOST_MASK_BYTES = 1 << 28
"""The most that the masks of one message may take in memory: as much as a message may be long."""
MOST_AXES = 8
"""ML-Agents' sensors have up to 3."""

COMPILE_S = 7
"""Seconds that compiling takes."""

Pair = tuple[DecisionSteps, TerminalSteps]
Agents: TypeAlias = "ParsedAgents | ScannedAgents"
AgentReader = Callable[[str, bytes], "Agents"]
"""The class of a reader: called with behavior and ListAgentInfoProto."""

logger = logging.getLogger(__name__)


@cache
def fastest_reader() -> AgentReader:
    """The scan by numba where numba can be imported, else protobuf's runtime."""
    try:
        from touchline.physics.kernels import announce_as
        from touchline.protocol.scan import ScannedAgents
    # Also an installed numba that refuses this Python or NumPy.
    except ImportError as error:
        logger.info("decoding without numba: %s", error)
        return ParsedAgents
    announce_as("the decoder of the player's messages", COMPILE_S)
    return ScannedAgents


@cache
def warm_up() -> None:
    """Import and compile the fastest reader now, not within the first exchange."""
    # Compiled code is kept on disk, so only the first call on a machine takes long; a line in the
    # log announces it.
    # One agent with everything that the reader compiles.
    spec = BehaviorSpec((ObservationSpec((1,)),), ActionSpec(0, (2,)))
    message = MESSAGES.ListAgentInfoProto()
    agent = message.value.add(action_mask=[False, False])
    observation = agent.observations.add(shape=[1])
    observation.float_data.data = bytes(4)
    agents = fastest_reader()("warm-up", message.SerializeToString())
    agents.check(Layout.of("warm-up", spec))
    agents.masks()
    agents.copy_floats(0, None, np.empty((1, 1), np.float32))


class ExchangeDecoder:
    """Turns a player's messages into exchanges; learns the behaviors on the way.

    `reader` defaults to the fastest one that is installed.
    """

    def __init__(self, dialect: Dialect, reader: AgentReader | None = None) -> None:
        self.dialect = dialect
        self.behaviors: dict[str, BehaviorSpec] = {}
        self.announced: dict[str, ActionSpec] = {}
        """Behaviors whose actions are known, but of which no agent has sent observations yet."""
        self.exchanges = 0
        """How many messages have been decoded."""
        self._reader = reader
        self._layouts: dict[str, Layout] = {}
        self._empty: dict[str, Pair] = {}

    def decode(self, output: Any) -> Exchange:
        """The exchange in a UnityOutputProto."""
        self.exchanges += 1
        for parameters in output.rl_initialization_output.brain_parameters:
            self._announce(parameters)
        budget = ImageBudget()
        infos = dict(output.rl_output.agentInfos.items())
        # Behaviors that are not in this message are in the exchange all the same, with no
        # agents.
        exchange = dict(self._empty)
        # protobuf's maps have no order of their own, so behaviors keep that of their announcement.
        for name in dict.fromkeys([*self.behaviors, *self.announced, *infos]):
            if name in infos:
                pair = self._decode_behavior(name, infos[name], budget)
                if pair is not None:
                    exchange[name] = pair
        return exchange

    def _announce(self, parameters: Any) -> None:
        name = parameters.brain_name
        spec = action_spec(parameters)
        if name in self.behaviors:
            known = self.behaviors[name].action_spec
        else:
            known = self.announced.setdefault(name, spec)
        if known != spec:
            raise MalformedMessageError(
                f"brain_parameters: behavior {name!r} was announced with "
                f"{describe_actions(known)} before, now with {describe_actions(spec)}"
            )

    def _decode_behavior(
        self, name: str, message: bytes, budget: ImageBudget
    ) -> Pair | None:
        """Who decides and who ended; None for a behavior of which no agent has come yet."""
        # Chosen here, not when the decoder is made: importing numba takes longer than connecting.
        reader = self._reader or fastest_reader()
        agents = reader(name, message)
        if not len(agents):
            return self._empty.get(name)
        if name not in self.behaviors:
            self._learn(name, message)
        layout = self._layouts[name]
        count = len(agents)
        if count * layout.choices > MOST_MASK_BYTES:
            raise MalformedMessageError(
                f"agentInfos[{name!r}]: {count} agents x {layout.choices} choices to mask"
            )
        agents.check(layout)
        no_decisions, no_terminals = self._empty[name]
        ended = agents.ended_rows()
        if not len(ended):  # in most messages
            return self._decisions(agents, layout, budget), no_terminals
        ending = agents.select(ended)
        terminals = TerminalSteps(
            interrupted=ending.interrupted(),
            **self._common(ending, layout, budget, "terminal"),
        )
        if len(ended) == count:
            return no_decisions, terminals
        deciding = np.delete(np.arange(count), ended)
        return self._decisions(agents.select(deciding), layout, budget), terminals

    def _learn(self, name: str, message: bytes) -> None:
        """Take a behavior's sensors from its first agent; later ones must send the same."""
        if name not in self.announced:
            known = ", ".join([*self.behaviors, *self.announced]) or "none"
            raise MalformedMessageError(
                f"agentInfos[{name!r}]: unknown behavior; announced so far: {known}"
            )
        try:
            # By protobuf, once per behavior: the readers below need to know the layout
            # beforehand.
            first = MESSAGES.ListAgentInfoProto.FromString(message).value[0]
        except DecodeError as error:
            raise MalformedMessageError(f"agentInfos[{name!r}]: {error}") from error
        sensors = []
        for i, observation in enumerate(first.observations):
            field = f"agentInfos[{name!r}].observations[{i}]"
            sensors.append(observation_spec(field, observation, self.dialect))
        self.expect(name, BehaviorSpec(tuple(sensors), self.announced.pop(name)))

    def expect(self, name: str, spec: BehaviorSpec) -> None:
        """From now on, this behavior's agents must fit this spec."""
        self.behaviors[name] = spec
        self._layouts[name] = Layout.of(name, spec)
        self._empty[name] = DecisionSteps.empty(spec), TerminalSteps.empty(spec)

    def _decisions(
        self, agents: Agents, layout: Layout, budget: ImageBudget
    ) -> DecisionSteps:
        masks = None
        branches = layout.spec.action_spec.discrete_branches
        if branches:
            flat = agents.masks()  # [N, choices]
            masks = []
            for end, width in zip(accumulate(branches), branches, strict=True):
                masks.append(flat[:, end - width : end])
        return DecisionSteps(
            action_mask=masks, **self._common(agents, layout, budget, "decision")
        )

    def _common(
        self, agents: Agents, layout: Layout, budget: ImageBudget, kind: str
    ) -> dict[str, Any]:
        """The fields that decision steps and terminal steps share."""
        numbers = agents.numbers
        ids = numbers[ID]
        # A set of Python ints is quicker than sorting for the few agents that one message
        # mostly holds.
        if len(ids) > 1 and len(set(ids.tolist())) != len(ids):
            values, counts = np.unique(ids, return_counts=True)
            raise MalformedMessageError(
                f"agentInfos[{layout.name!r}].id: two {kind} entries share the id "
                f"{values[counts > 1][0]}"
            )
        sensors = range(len(layout.spec.observation_specs))
        return {
            "obs": [
                self._observation(agents, layout, sensor, budget) for sensor in sensors
            ],
            "agent_id": ids,
            "group_id": numbers[GROUP],
            # The readers kept rewards as bits; a view gives the very floats that crossed the
            # wire.
            "reward": numbers[REWARD].view(np.float32),
            "group_reward": numbers[GROUP_REWARD].view(np.float32),
        }

    def _observation(
        self, agents: Agents, layout: Layout, sensor: int, budget: ImageBudget
    ) -> NDArray[np.float32]:
        """[N, *shape] of one sensor."""
        out, bad_row = read_sensor(
            agents, layout, sensor, budget, channels_first=self.dialect.channels_first
        )
        if bad_row >= 0:
            name = layout.spec.observation_specs[sensor].name
            row = out[bad_row].ravel()
            values = np.array2string(row, threshold=12, precision=4)
            raise NonFiniteError(
                f"{layout.name}: agent {agents.numbers[ID, bad_row]} sent a NaN or an infinity in "
                f"observation {sensor} ({name!r}) at exchange {self.exchanges}: {values}"
            )
        return out


def read_sensor(
    agents: Agents,
    layout: Layout,
    sensor: int,
    budget: ImageBudget,
    *,
    channels_first: bool,
) -> tuple[NDArray[np.float32], int]:
    """[N, *shape] of one sensor, and the first row with a NaN or an infinity, or -1.

    The agents are checked already. `channels_first` is the axis order of images in `layout`.
    """
    spec = layout.spec.observation_specs[sensor]
    # `check` let images pass for sensors of 3 axes only.
    images = agents.image_rows(sensor) if len(spec.shape) == 3 else ()
    if len(images):
        values = len(images) * prod(spec.shape)
        budget.spend(values, f"{layout.name}: observation {spec.name!r}")
    out = np.empty((len(agents), *spec.shape), np.float32)
    flat = out.reshape(len(out), -1)
    if not len(images):
        return out, agents.copy_floats(sensor, None, flat)
    for row in images:
        what = (
            f"agentInfos[{layout.name!r}], agent {agents.numbers[ID, row]}, "
            f"observation {spec.name!r}"
        )
        try:
            observation = agents.image(int(row), sensor)
        except DecodeError as error:
            raise UnityObservationException(f"{what}: {error}") from error
        out[row] = decode_png(
            observation.compressed_data,
            spec.shape,
            list(observation.compressed_channel_mapping),
            channels_first=channels_first,
            what=what,
        )
    # Some agents of one behavior may send floats where others send images.
    others = np.setdiff1d(np.arange(len(out)), images)
    raw = np.empty((len(others), flat.shape[1]), np.float32)
    bad = agents.copy_floats(sensor, others, raw)
    flat[others] = raw
    return out, int(others[bad]) if bad >= 0 else -1


def observation_spec(field: str, observation: Any, dialect: Dialect) -> ObservationSpec:
    """The sensor that an ObservationProto describes. `field` names it in errors."""
    shape = tuple(observation.shape)
    has_sizes = len(shape) <= MOST_AXES and all(n >= 1 for n in shape)
    if not has_sizes or prod(shape) > MOST_IMAGE_VALUES:
        raise UnityObservationException(
            f"{field}.shape: expected up to {MOST_AXES} sizes of 1 or more, together at most "
            f"{MOST_IMAGE_VALUES} values, got {shortened(str(shape))}"
        )
    properties = tuple(observation.dimension_properties)
    if properties and len(properties) != len(shape):
        raise UnityObservationException(
            f"{field}.dimension_properties: expected {len(shape)} values for shape {shape} or "
            f"none, got {shortened(str(properties))}"
        )
    # Three flags make 0 to 7.
    if any(not 0 <= p <= 7 for p in properties):
        raise UnityObservationException(
            f"{field}.dimension_properties: expected bits 1, 2 and 4, "
            f"got {shortened(str(properties))}"
        )
    if not properties and len(shape) == 3:
        # Packages before 1.8 send no properties. Slots find the channels by the flag NONE.
        moved = (DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,) * 2
        channels = (DimensionProperty.NONE,)
        properties = channels + moved if dialect.channels_first else moved + channels
    if observation.observation_type not in (0, 1):
        raise UnityObservationException(
            f"{field}.observation_type: expected 0 or 1, got {observation.observation_type}"
        )
    return ObservationSpec(
        shape,
        tuple(DimensionProperty(p) for p in properties),
        ObservationType(observation.observation_type),
        observation.name,
    )


def action_spec(parameters: Any) -> ActionSpec:
    """The actions that a BrainParametersProto announces."""
    # Packages since 1.7 fill its `action_spec`, older ones the deprecated fields.
    field = f"brain_parameters[{parameters.brain_name!r}]"
    stated = parameters.action_spec
    sizes = tuple(parameters.vector_action_size_deprecated)
    continuous = stated.num_continuous_actions
    branches = tuple(stated.discrete_branch_sizes)
    # An absent message and an empty one read the same, so what is filled decides.
    if continuous or branches or stated.num_discrete_actions:
        if stated.num_discrete_actions != len(branches):
            raise MalformedMessageError(
                f"{field}.action_spec.num_discrete_actions: {stated.num_discrete_actions} stated, "
                f"but {len(branches)} branch sizes"
            )
    # SpaceTypeProto.continuous.
    elif parameters.vector_action_space_type_deprecated == 1:
        continuous = sizes[0] if sizes else 0
        branches = ()
    else:
        continuous = 0
        branches = sizes
    if not 0 <= continuous <= MOST_CHOICES:
        raise MalformedMessageError(
            f"{field}.num_continuous_actions: expected 0 to {MOST_CHOICES}, got {continuous}"
        )
    if any(n < 1 for n in branches) or sum(branches) > MOST_CHOICES:
        raise MalformedMessageError(
            f"{field}.discrete_branch_sizes: expected sizes of 1 or more, together at most "
            f"{MOST_CHOICES}, got {describe_branches(branches)}"
        )
    return ActionSpec(continuous, branches)
