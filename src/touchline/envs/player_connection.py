"""One connection to a player or the Editor: its process, its socket and its session.

Opening it starts the process and waits until the first scene is loaded. Whatever fails raises the
exception that says why (`protocol.errors`), and leaves neither a process nor a port behind.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from touchline.envs.giving_up import check_not_given_up
from touchline.envs.player_process import QUIT_S, PlayerProcess
from touchline.envs.wire_server import HungUpError, WireServer
from touchline.errors import UsageError
from touchline.interrupts import held_back
from touchline.protocol.decoding import warm_up
from touchline.protocol.errors import (
    NeverConnectedError,
    NoAnswerError,
    UnityCommunicationException,
    UnityCommunicatorStoppedException,
    UnityException,
)
from touchline.protocol.recording import Recorder, describe_behaviors
from touchline.protocol.session import (
    Command,
    MessageKind,
    Received,
    State,
    TrainerSession,
)
from touchline.specs import ActionTuple
from touchline.steps import Exchange
from touchline.version import __version__

EDITOR_QUIT_S = 1.0
"""How long the Editor may take to close the connection after the message to quit."""
EXIT_CODE_S = 2.0
"""How long a process may take to end after it closed the connection, so that its exit code can be
reported."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlayerLaunch:
    """How to start a player, or to wait for the Editor."""

    name: str
    """What messages call it."""
    path: Path | None
    """Its executable; None for the Editor, which the user starts."""
    port: int | None
    """Port on which the player calls; None finds a free one."""
    no_graphics: bool
    log_file: Path | None
    """File of the player's log; None keeps the log only for messages."""
    additional_args: Sequence[str]
    num_areas: int
    max_message_bytes: int
    image_layout: str | None


def require_seed(launch: PlayerLaunch, seed: int) -> None:
    """Raise a UsageError for a seed that no message has room for (`rl_initialization_input`)."""
    if not -(2**31) <= seed < 2**31:
        raise UsageError(
            f"{launch.name}: seed: a player takes {-(2**31)} to {2**31 - 1}, got {seed}"
        )


class PlayerConnection:
    """A connected player. `parameters` is a live view of what was set, for a recording's header."""

    def __init__(
        self,
        launch: PlayerLaunch,
        seed: int,
        timeout_s: float,
        *,
        record_wire: Path | None,
        parameters: Mapping[str, Any],
    ) -> None:
        require_seed(launch, seed)
        self.launch = launch
        self.seed = seed
        self.timeout_s = timeout_s
        """How long to wait for each message; may be changed."""
        self.waited_s = 0.0
        self.session = TrainerSession(launch.image_layout)
        self.exchange: Exchange | None = None
        """The last exchange; None before the first reset."""
        self.num_exchanges = 0
        self._parameters = parameters
        self._failure: Exception | None = None
        self._recorder: Recorder | None = None
        self._server: WireServer | None = None
        self._process: PlayerProcess | None = None
        try:
            if record_wire is not None:
                self._recorder = Recorder(record_wire)
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> int | None:
        return None if self._server is None else self._server.port

    @property
    def pid(self) -> int | None:
        """The player's process, None for the Editor."""
        return None if self._process is None else self._process.pid

    def check_usable(self) -> None:
        """Raise if an earlier command failed, since the state of the player is unknown then."""
        if self._failure is not None:
            raise UnityException(
                f"{self.launch.name}: the connection failed before ({self._failure}); close it "
                "and make a new one"
            )

    def command(
        self, command: Command, actions: Mapping[str, ActionTuple], side_channel: bytes
    ) -> bytes:
        """Command a reset or a step and wait for the exchange that follows.

        The exchange is kept as `exchange`; its side-channel bytes are returned.
        """
        self.check_usable()
        try:
            self._send(self.session.command(command, actions, side_channel))
            doing = "in a reset" if command is Command.RESET else "in a step"
            received = self._receive(doing)
            if received.kind is not MessageKind.EXCHANGE:
                raise UnityCommunicationException(
                    f"{self.launch.name}: expected an exchange, got {received.kind.value}"
                )
        except Exception as error:
            self._failure = error
            raise
        self.exchange = received.exchange
        self.num_exchanges += 1
        return received.side_channel

    def fail(self, error: Exception) -> None:
        """Remember an error after which the connection must not be used any more."""
        self._failure = error

    def close(self) -> None:
        """Let the player quit and release process and port. Idempotent."""
        server, process = self._server, self._process
        # Taken away first, so that a second call, or one from a failing constructor, finds
        # nothing to do.
        self._server = self._process = None
        # One budget for both: to read the goodbye, and to quit.
        patience_s = EDITOR_QUIT_S if process is None else QUIT_S
        deadline = time.monotonic() + patience_s
        try:
            if server is not None:
                # A player that is let go quits by itself, with its log complete; a kill would
                # cut that off.
                server.say_goodbye(patience_s)
            if process is not None:
                # A player that never connected cannot know that it should quit.
                has_heard = server is not None and server.connected
                remaining = max(0.0, deadline - time.monotonic())
                process.stop(remaining if has_heard else 0.0)
        finally:
            if server is not None:
                server.close()
            if self._recorder is not None:
                self._recorder.close(self._header())
                self._recorder = None

    def _start(self) -> None:
        """Open the port, start the process and follow the session up to the loaded scene."""
        launch = self.launch
        self._server = WireServer(launch.port, launch.max_message_bytes)
        if launch.path is None:
            logger.info(
                "waiting for the Editor on port %d: press Play", self._server.port
            )
        else:
            with held_back():
                self._process = PlayerProcess(
                    launch.path,
                    self._server.port,
                    no_graphics=launch.no_graphics,
                    log_file=launch.log_file,
                    additional_args=launch.additional_args,
                )
        # The player is answered first: gRPC gives up when nothing answers within 20 s of its
        # call, and the first compilation can take longer. From its welcome on it waits for us
        # without a limit, and it is busy with loading its scene.
        self._receive("before it connected")
        self._send(self.session.welcome(self.seed, launch.num_areas))
        self.session.check_version()
        warm_up()
        self._receive("while it loaded its scene")

    def _send(self, data: bytes) -> None:
        assert self._server is not None
        if self._recorder is not None:
            self._recorder.reply(data)
        try:
            self._server.reply(data)
        except HungUpError as error:
            self._explain_hanging_up("between two commands", error)

    def _receive(self, doing: str) -> Received:
        """The player's next message. Raises what explains its absence.

        `doing` says in messages what the player should have been doing.
        """
        assert self._server is not None
        began = time.perf_counter()
        try:
            data = self._server.receive(
                self.timeout_s, lambda: self._check_process(doing)
            )
        except HungUpError as error:
            self._explain_hanging_up(doing, error)
        self.waited_s += time.perf_counter() - began
        if data is None:
            self._explain_silence(doing)
        if self._recorder is not None:
            self._recorder.request(data)
        received = self.session.receive(data)
        if received.kind is MessageKind.FAREWELL:
            # The player's window stands still until its farewell is answered.
            self._send(self.session.goodbye())
            self._explain_farewell(doing)
        return received

    def _check_process(self, doing: str) -> None:
        check_not_given_up(self.launch.name)
        if self._process is not None:
            self._process.check(doing)

    def _log_tail(self) -> str:
        return "" if self._process is None else self._process.log_tail()

    def _explain_hanging_up(self, doing: str, error: HungUpError) -> NoReturn:
        # The socket closes a moment before the process ends, and its exit code says more than
        # "hung up".
        if self._process is not None and self._process.has_ended(EXIT_CODE_S):
            self._process.check(doing)
        raise UnityCommunicatorStoppedException(
            f"{self.launch.name} hung up {doing}: {error}{self._log_tail()}"
        ) from error

    def _explain_farewell(self, doing: str) -> NoReturn:
        # A player that failed says goodbye, too; then its exit code and its log say more.
        if self._process is not None and self._process.has_ended(EXIT_CODE_S):
            self._process.check_success(doing)
        raise UnityCommunicatorStoppedException(
            f"{self.launch.name} said goodbye {doing}: its window was closed, or the Editor left "
            "play mode"
        )

    def _explain_silence(self, doing: str) -> NoReturn:
        assert self._server is not None
        name, waited = self.launch.name, f"{self.timeout_s:g} s"
        if self._server.connected:
            is_first_reset = (
                self.exchange is None and self.session.state is State.PLAYER_SIMULATES
            )
            hint = (
                "; does the scene hold an enabled agent whose Behavior Type is Default, and does "
                "it ask for decisions?"
            )
            raise NoAnswerError(
                f"{name} is connected, but sent nothing for {waited} {doing}"
                f"{hint if is_first_reset else ''}{self._log_tail()}"
            )
        port = self._server.port
        if self._process is None:
            raise NeverConnectedError(
                f"the Editor did not connect to port {port} within {waited}: press Play after "
                "this program has started; the scene needs an agent whose Behavior Type is Default"
            )
        raise NeverConnectedError(
            f"{name} runs, but did not connect to port {port} within {waited}: was it built with "
            f"com.unity.ml-agents, and does its first scene hold an agent?{self._log_tail()}"
        )

    def _header(self) -> dict[str, Any]:
        numbers = {
            name: value
            for name, value in self._parameters.items()
            # The format's header holds numbers only; samplers cross the wire in side channels,
            # which are recorded.
            if isinstance(value, (int, float))
        }
        return {
            "player": self.launch.name,
            "package": self.session.dialect.package_version,
            "communicator": self.session.dialect.communication_version,
            "client": f"touchline {__version__}",
            "seed": self.seed,
            "environment_parameters": numbers,
            "behaviors": describe_behaviors(self.session.behaviors),
        }
