"""Which message may be sent when: one connection between a player and Python, without a socket.

The rule is the table `NEXT`: state x kind of message -> next state. Both ends follow the same
table, Python's end in `TrainerSession`, the player's in `PlayerSession`; they turn messages into
bytes and back.

    player                       Python
    INTRODUCTION  ------------>
                  <------------  WELCOME
    READY         ------------>                (the player now waits, its first scene loaded)
                  <------------  COMMAND       (RESET or STEP, with actions and side channels)
    EXCHANGE      ------------>                (who must decide, who ended)
                  <------------  COMMAND       … and so on.

The player may send FAREWELL whenever it is its turn, Python GOODBYE whenever it is its own. A
FAREWELL must be answered with GOODBYE at once, because the player's window stands still until then.

Source: `RpcCommunicator.cs` of com.unity.ml-agents 1.0 to 3.0 and `environment.py` of mlagents-envs
1.1.0, as described in docs/protocol.md.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.message import DecodeError

from touchline.protocol.decoding import ExchangeDecoder
from touchline.protocol.dialect import (
    API_VERSION,
    CAPABILITIES,
    Dialect,
    version_numbers,
)
from touchline.protocol.encoding import decode_actions, encode_actions, encode_output
from touchline.protocol.errors import (
    MalformedMessageError,
    OutOfTurnError,
    VersionRefusedError,
)
from touchline.protocol.schema import MESSAGES
from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec
from touchline.steps import Exchange

OK, LEAVING = 200, 400
"""The two statuses that a header can have."""


class State(enum.Enum):
    """Whose turn it is, and what is expected."""

    PLAYER_INTRODUCES = "the player introduces itself"
    TRAINER_WELCOMES = "Python welcomes the player"
    PLAYER_LOADS = "the player loads its scene and reports that it is ready"
    TRAINER_COMMANDS = "Python commands a reset or a step"
    PLAYER_SIMULATES = "the player simulates until an agent decides or has ended"
    TRAINER_RELEASES = "Python answers the player's farewell"
    CLOSED = "the connection is closed"


class MessageKind(enum.Enum):
    """What a message is for."""

    INTRODUCTION = "introduction"
    READY = "ready"
    EXCHANGE = "exchange"
    FAREWELL = "farewell"
    WELCOME = "welcome"
    COMMAND = "command"
    GOODBYE = "goodbye"


NEXT: Mapping[tuple[State, MessageKind], State] = {
    (State.PLAYER_INTRODUCES, MessageKind.INTRODUCTION): State.TRAINER_WELCOMES,
    (State.PLAYER_INTRODUCES, MessageKind.FAREWELL): State.TRAINER_RELEASES,
    (State.TRAINER_WELCOMES, MessageKind.WELCOME): State.PLAYER_LOADS,
    (State.TRAINER_WELCOMES, MessageKind.GOODBYE): State.CLOSED,
    (State.PLAYER_LOADS, MessageKind.READY): State.TRAINER_COMMANDS,
    (State.PLAYER_LOADS, MessageKind.FAREWELL): State.TRAINER_RELEASES,
    (State.TRAINER_COMMANDS, MessageKind.COMMAND): State.PLAYER_SIMULATES,
    (State.TRAINER_COMMANDS, MessageKind.GOODBYE): State.CLOSED,
    (State.PLAYER_SIMULATES, MessageKind.EXCHANGE): State.TRAINER_COMMANDS,
    (State.PLAYER_SIMULATES, MessageKind.FAREWELL): State.TRAINER_RELEASES,
    (State.TRAINER_RELEASES, MessageKind.GOODBYE): State.CLOSED,
}


class Command(enum.IntEnum):
    """What Python can command a player to do; numbers as on the wire."""

    STEP = 0
    RESET = 1
    QUIT = 2


def advance(state: State, kind: MessageKind) -> State:
    """The state after a message, or an OutOfTurnError that names what was expected."""
    try:
        return NEXT[state, kind]
    except KeyError:
        expected = [other.value for at, other in NEXT if at is state] or ["nothing"]
        raise OutOfTurnError(
            f"{state.value}: expected {' or '.join(expected)}, got {kind.value}"
        ) from None


@dataclass(frozen=True)
class Received:
    """A player's message. An exchange comes with its side-channel bytes."""

    kind: MessageKind
    exchange: Exchange | None = None
    side_channel: bytes = b""


class TrainerSession:
    """Python's end of a connection.

    `receive` a message, then answer it with `welcome`, `command` or `goodbye`.
    """

    def __init__(self, image_layout: str | None = None) -> None:
        self.state = State.PLAYER_INTRODUCES
        self.dialect = Dialect(image_layout=image_layout)
        self._decoder = ExchangeDecoder(self.dialect)

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        """Full name -> spec of the behaviors of which an agent has come."""
        return self._decoder.behaviors

    @property
    def announced(self) -> Mapping[str, ActionSpec]:
        """Full name -> actions of behaviors that are announced, but of which no agent has come."""
        return self._decoder.announced

    def receive(self, data: bytes) -> Received:
        """Decode the player's message. The state does not change when this raises."""
        message = parse_message(data)
        kind = self._kind_of(message)
        # Checked before decoding, and kept only after it: a message that cannot be decoded
        # leaves the state alone.
        state = advance(self.state, kind)
        received = Received(kind)
        if kind is MessageKind.INTRODUCTION:
            self._learn_dialect(message.unity_output.rl_initialization_output)
        elif kind is MessageKind.EXCHANGE:
            exchange = self._decoder.decode(message.unity_output)
            received = Received(
                kind, exchange, message.unity_output.rl_output.side_channel
            )
        self.state = state
        return received

    def welcome(self, seed: int, num_areas: int = 1) -> bytes:
        """Answer the introduction. Does not raise on a version mismatch: see `check_version`."""
        self.state = advance(self.state, MessageKind.WELCOME)
        message = _message(OK)
        reply = message.unity_input.rl_initialization_input
        reply.seed = seed
        reply.num_areas = num_areas
        reply.communication_version = API_VERSION
        reply.package_version = _trainer_version(self.dialect.package_version)
        # All of them, whatever the player has: a player that lacks one sends less.
        for capability in CAPABILITIES:
            setattr(reply.capabilities, capability, True)
        return bytes(message.SerializeToString())

    def check_version(self) -> None:
        """Raise a VersionRefusedError unless the player's protocol has our major number.

        Welcome such a player all the same, so that its log, too, shows both versions.
        """
        theirs = version_numbers(self.dialect.communication_version)
        ours = version_numbers(API_VERSION)
        if theirs[0] != ours[0]:
            raise VersionRefusedError(
                f"the player (com.unity.ml-agents {self.dialect.package_version}) speaks "
                f"communication version {self.dialect.communication_version}, Touchline speaks "
                f"{API_VERSION}; versions must agree in their first number: build the player with "
                "package 1.0 or later"
            )

    def command(
        self,
        command: Command,
        actions: Mapping[str, ActionTuple] | None = None,
        side_channel: bytes = b"",
    ) -> bytes:
        """Command a reset or a step, with actions for the agents that decide."""
        self.state = advance(self.state, MessageKind.COMMAND)
        message = _message(OK)
        reply = message.unity_input.rl_input
        reply.SetInParent()  # a player takes a reply without rl_input for a failed connection
        reply.command = int(command)
        reply.side_channel = side_channel
        for name, chosen in (actions or {}).items():
            reply.agent_actions[name] = encode_actions(chosen, self.dialect)
        return bytes(message.SerializeToString())

    def goodbye(self) -> bytes:
        """End the session, or answer the player's farewell."""
        self.state = advance(self.state, MessageKind.GOODBYE)
        return GOODBYE

    def _learn_dialect(self, introduction: Any) -> None:
        theirs = introduction.capabilities
        has = frozenset(name for name in CAPABILITIES if getattr(theirs, name))
        self.dialect = replace(
            self.dialect,
            communication_version=introduction.communication_version,
            package_version=introduction.package_version,
            capabilities=has,
        )
        # The first one has decoded nothing yet: behaviors come after the introduction.
        self._decoder = ExchangeDecoder(self.dialect)

    @staticmethod
    def _kind_of(message: Any) -> MessageKind:
        # A farewell has status 400 and nothing else that tells it from a READY.
        if message.header.status != OK:
            return MessageKind.FAREWELL
        output = message.unity_output
        # An exchange may announce behaviors, too, so this is looked for first.
        if output.HasField("rl_output"):
            return MessageKind.EXCHANGE
        if output.HasField("rl_initialization_output"):
            return MessageKind.INTRODUCTION
        # The player reports that its scene is loaded by a message with nothing but status 200.
        return MessageKind.READY


@dataclass(frozen=True)
class Order:
    """A command as a player receives it: actions by behavior, still encoded; side-channel bytes."""

    command: Command
    actions: Mapping[str, bytes]
    side_channel: bytes


@dataclass(frozen=True)
class Welcome:
    """What a player learns about Python. `num_areas` 1 means the scene's own number."""

    seed: int
    num_areas: int
    package_version: str


class PlayerSession:
    """The player's end of a connection.

    Send `introduction`, `ready`, `exchange` or `farewell`, then `receive` the answer.
    """

    def __init__(
        self, specs: Mapping[str, BehaviorSpec], dialect: Dialect | None = None
    ) -> None:
        self.state = State.PLAYER_INTRODUCES
        self.dialect = dialect or Dialect()
        self.specs = specs
        self._announced: set[str] = set()

    def introduction(self) -> bytes:
        self.state = advance(self.state, MessageKind.INTRODUCTION)
        message = _message(OK)
        output = message.unity_output.rl_initialization_output
        # The name that Unity's Academy sends; nothing depends on it.
        output.name = "AcademySingleton"
        output.communication_version = self.dialect.communication_version
        output.package_version = self.dialect.package_version
        for capability in self.dialect.capabilities:
            setattr(output.capabilities, capability, True)
        return bytes(message.SerializeToString())

    def ready(self) -> bytes:
        self.state = advance(self.state, MessageKind.READY)
        return bytes(_message(OK).SerializeToString())

    def exchange(self, exchange: Exchange, side_channel: bytes = b"") -> bytes:
        """Who must decide and who ended. A behavior is announced with its first agents."""
        self.state = advance(self.state, MessageKind.EXCHANGE)
        message = _message(OK)
        output = encode_output(exchange, self.specs, self._announced, side_channel)
        # A message field cannot be assigned in protobuf.
        message.unity_output.CopyFrom(output)
        return bytes(message.SerializeToString())

    def farewell(self) -> bytes:
        self.state = advance(self.state, MessageKind.FAREWELL)
        return bytes(_message(LEAVING).SerializeToString())

    def receive(self, data: bytes) -> Welcome | Order | None:
        """Decode Python's answer: a welcome, an order, or None when it is time to quit."""
        message = parse_message(data)
        reply = message.unity_input
        if message.header.status != OK or reply.rl_input.command == Command.QUIT:
            self.state = State.CLOSED
            return None
        if reply.HasField("rl_input"):
            return self._receive_order(reply.rl_input)
        return self._receive_welcome(reply.rl_initialization_input)

    def _receive_order(self, sent: Any) -> Order:
        self.state = advance(self.state, MessageKind.COMMAND)
        # proto3 keeps numbers that its enum does not name.
        if sent.command not in (Command.STEP, Command.RESET):
            raise MalformedMessageError(
                f"rl_input.command: expected 0, 1 or 2, got {sent.command}"
            )
        return Order(Command(sent.command), dict(sent.agent_actions), sent.side_channel)

    def _receive_welcome(self, sent: Any) -> Welcome:
        self.state = advance(self.state, MessageKind.WELCOME)
        theirs = version_numbers(sent.communication_version)
        ours = version_numbers(self.dialect.communication_version)
        if theirs[0] != ours[0]:
            raise VersionRefusedError(
                f"the trainer speaks communication version {sent.communication_version}, this "
                f"player {self.dialect.communication_version}; versions must agree in their first "
                "number"
            )
        return Welcome(sent.seed, sent.num_areas, sent.package_version)

    def actions(self, order: Order, behavior: str, count: int) -> ActionTuple:
        """The order's actions for the `count` agents of a behavior that decided.

        Zeros where the order has none.
        """
        data = order.actions.get(behavior, b"")
        return decode_actions(
            data, self.specs[behavior].action_spec, count, self.dialect
        )


def parse_message(data: bytes, kind: Any = MESSAGES.UnityMessageProto) -> Any:
    """The UnityMessageProto in `data`; raises a MalformedMessageError if there is none."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise MalformedMessageError(
            f"UnityMessageProto: {len(data)} bytes that are no such message: {error}"
        ) from error


def _message(status: int) -> Any:
    return MESSAGES.UnityMessageProto(header=MESSAGES.HeaderProto(status=status))


GOODBYE = bytes(_message(LEAVING).SerializeToString())


def _trainer_version(package: str) -> str:
    """The package version that we send to a player of this package version."""
    # Packages 1.0.6 to 1.0.8 expect a trainer of their own time: 1.0.8 stops answering for good
    # when it reads a version above 0.25. Later packages only log it.
    return "0.20.0" if re.match(r"1\.0\.[678]\b", package) else "1.1.0"
