"""A recorded session as an Env: the same exchanges again, without Unity.

`step` leads to the next exchange that was recorded, whatever the actions; `reset` goes to where the
session was reset next, or back to its start. Stepping over a recorded reset is an error, because
nothing was recorded that could follow.
"""

# ruff: noqa: ARG002 - the contract of Env has arguments that a recording cannot use
from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from touchline.envs.env import EnvRecipe, MLAgentsEnv
from touchline.errors import RunError, UsageError
from touchline.parameters import ParameterValue
from touchline.protocol import recording
from touchline.protocol.session import (
    Command,
    MessageKind,
    Order,
    PlayerSession,
    State,
    TrainerSession,
    advance,
)
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.steps import Exchange


class SessionResetError(UsageError):
    """The recorded session was reset here."""


class RecordingEndedError(RunError):
    """The recording has no further exchange."""


def open_recording(recipe: EnvRecipe) -> RecordedEnv:
    """The world "recording".

    Option: `image_layout` ("HWC" or "CHW"), when the package version misleads.
    """
    recipe.check_options("image_layout")
    if recipe.num_areas is not None or recipe.parameters:
        raise UsageError(
            f"{recipe.target}: a recording has the areas and the parameters that it was made with; "
            "leave --num-areas and --parameter away"
        )
    return RecordedEnv(recipe.target, recipe.options.get("image_layout"))


class RecordedEnv(MLAgentsEnv):
    """A recording, exchange by exchange. Use as a context manager, or call `close`."""

    def __init__(self, path: str | Path, image_layout: str | None = None) -> None:
        self.path = Path(path)
        self.name = str(path)
        self.header = recording.read_header(self.path)
        self._image_layout = image_layout
        self._rewind()

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return self._session.behaviors

    def capacity(self, behavior: str) -> int | None:
        """None: the recording does not say how many agents there may be."""
        return None

    def reset(
        self,
        seed: int | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        """Continue after the recorded reset if one is due now; otherwise start again.

        A seed always starts again.
        """
        if self.next_command is not Command.RESET or seed is not None:
            self._rewind()
            while self.next_command is not Command.RESET:
                if self.next_command is None:
                    raise RecordingEndedError(
                        f"{self.path}: the session ended before its first reset"
                    )
                self._advance()
        self._advance()

    def set_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        if parameters:
            raise UsageError(
                f"{self.path}: a recording takes no parameters: {', '.join(parameters)}"
            )

    def execute(self, behavior: str, actions: ActionTuple) -> None:
        """Nothing: actions are checked, and change nothing."""

    def step(self) -> None:
        """Go to the next recorded exchange.

        Raises a SessionResetError where the session was reset, a RecordingEndedError at its end.
        """
        if self._exchange is None:
            self.reset()
        elif self.next_command is Command.RESET:
            raise SessionResetError(
                f"{self._so_far()}, and then the session was reset: play fewer episodes, or call "
                "reset() to continue"
            )
        elif self.next_command is None:
            raise RecordingEndedError(
                f"{self._so_far()}, and then it ends: play fewer episodes; reset() starts again"
            )
        else:
            self._advance()

    @property
    def next_command(self) -> Command | None:
        """What Python commanded next in the session, or None at its end."""
        return None if self._order is None else self._order.command

    def recorded_actions(self, behavior: str) -> ActionTuple:
        """The actions that Python sent after this exchange; zeros where it sent none."""
        count = len(self.steps(behavior)[0])
        player = PlayerSession(self.behaviors, self._session.dialect)
        # An order without actions decodes to zeros.
        order = self._order or Order(Command.QUIT, {}, b"")
        return player.actions(order, behavior, count)

    def replay(self) -> Iterator[Exchange]:
        """Every exchange of the session from its start, resets included."""
        self._rewind()
        while self.next_command is not None:
            try:
                self._advance()
            except RecordingEndedError:
                return  # the player failed before it answered the last command
            assert self._exchange is not None
            yield self._exchange

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._frames.close()

    def _actions_so_far(self, behavior: str) -> None:
        """None: they change nothing."""

    def _so_far(self) -> str:
        count = "1 episode" if self._ended == 1 else f"{self._ended:,} episodes"
        return (
            f"{self.path}: the recording holds {count} in {self.exchanges:,} exchanges"
        )

    def _rewind(self) -> None:
        self._session = TrainerSession(self._image_layout)
        self._frames = recording.read_frames(self.path)
        self._exchange = None
        self._order: Order | None = None
        self.exchanges = 0
        self._ended = 0
        while self._session.state is not State.TRAINER_COMMANDS:
            if not self._receive():
                raise UsageError(
                    f"{self.path}: the session ended before the player was ready"
                )
        self._read_order()

    def _advance(self) -> None:
        """Read the next exchange, and the reply that followed it."""
        # The recorded reply holds the command; the session only has to know that one was sent.
        self._session.state = advance(self._session.state, MessageKind.COMMAND)
        if not self._receive():
            raise RecordingEndedError(
                f"{self._so_far()}, and then it ends: play fewer episodes; reset() starts again"
            )
        self.exchanges += 1
        self._ended += sum(len(terminals) for _, terminals in self.exchange.values())
        self._read_order()

    def _receive(self) -> bool:
        """Read the player's next message; False at a farewell or at the end."""
        for kind, data in self._frames:
            if kind == recording.REQUEST:
                received = self._session.receive(data)
                self._exchange = received.exchange
                return received.kind is not MessageKind.FAREWELL
            # A reply of Python's, which this session did not write: the first one is the welcome.
            if self._session.state is State.TRAINER_WELCOMES:
                self._session.state = advance(self._session.state, MessageKind.WELCOME)
        return False

    def _read_order(self) -> None:
        player = PlayerSession(self.behaviors)
        # Played backwards, as it were: the recorded reply is read as the player read it.
        player.state = State.TRAINER_COMMANDS
        # At the end of the file a request that says nothing stands in for "no reply".
        kind, data = next(self._frames, (recording.REQUEST, b""))
        received = player.receive(data) if kind == recording.REPLY else None
        self._order = received if isinstance(received, Order) else None
