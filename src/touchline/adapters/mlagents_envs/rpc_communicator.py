"""A communicator to a player or the Editor, over Touchline's own server."""

from multiprocessing import Pipe
from typing import Any

# Stars: scripts import from here whatever the official module imports, too.
from touchline.adapters.mlagents_envs.communicator import *  # noqa: F403
from touchline.adapters.mlagents_envs.communicator import Communicator, PollCallback
from touchline.adapters.mlagents_envs.communicator_objects import UnityMessageProto
from touchline.adapters.mlagents_envs.communicator_objects.unity_to_external_pb2_grpc import *  # noqa: F403
from touchline.adapters.mlagents_envs.communicator_objects.unity_to_external_pb2_grpc import (
    UnityToExternalProtoServicer,
)
from touchline.adapters.mlagents_envs.exception import *  # noqa: F403
from touchline.adapters.mlagents_envs.exception import (
    UnityCommunicatorStoppedException,
    UnityTimeOutException,
)
from touchline.envs.player_connection import EDITOR_QUIT_S
from touchline.envs.wire_server import WireServer
from touchline.protocol.session import OK, parse_message

MOST_MESSAGE_BYTES = 1 << 28
"""As much as `UnityEnvironment` accepts unless asked otherwise."""


class UnityToExternalServicerImplementation(UnityToExternalProtoServicer):
    """For a server of grpcio: passes each call through a pipe to whoever holds `parent_conn`.

    `RpcCommunicator` does without it.
    """

    def __init__(self) -> None:
        self.parent_conn, self.child_conn = Pipe()

    def Exchange(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Send the request, and wait for what is sent back."""
        self.child_conn.send(request)
        return self.child_conn.recv()

    Initialize = Exchange


class RpcCommunicator(Communicator):
    """Listens on this machine for one player; raises a UnityWorkerInUseException if it cannot.

    The player is answered only while a method waits: call `initialize` within the 20 s after which
    a player gives up.
    """

    def __init__(
        self, worker_id: int = 0, base_port: int = 5005, timeout_wait: float = 30
    ) -> None:
        super().__init__(worker_id, base_port)
        self.port = base_port + worker_id
        self.worker_id = worker_id
        self.timeout_wait = timeout_wait
        """Seconds to wait for each message."""
        self.is_open = False
        self._arrived: Any = None
        self.create_server()

    def create_server(self) -> None:
        self.server = WireServer(self.port, MOST_MESSAGE_BYTES)
        self.is_open = True

    def check_port(self, port: int) -> None:
        """Raise a UnityWorkerInUseException if the port is taken."""
        WireServer(port, MOST_MESSAGE_BYTES).close()

    def poll_for_timeout(self, poll_callback: PollCallback | None = None) -> None:
        """Wait for the player's next message; raises a UnityTimeOutException if none comes.

        Raises a UnityCommunicatorStoppedException after `close`.
        """
        if self._arrived is not None:
            return
        self._require_open()
        data = self.server.receive(self.timeout_wait, poll_callback or (lambda: None))
        if data is None:
            raise UnityTimeOutException(
                f"no message came to port {self.port} within {self.timeout_wait:g} s: does the "
                "player run, and does its scene hold an agent whose Behavior Type is Default?"
            )
        self._arrived = parse_message(data, UnityMessageProto)

    def initialize(self, inputs: Any, poll_callback: PollCallback | None = None) -> Any:
        """Welcome the player and wait until its scene is loaded; returns its introduction."""
        introduction = self._received(poll_callback)
        self._reply(inputs)
        self._received(poll_callback)
        return introduction.unity_output

    def exchange(self, inputs: Any, poll_callback: PollCallback | None = None) -> Any:
        self._reply(inputs)
        answer = self._received(poll_callback)
        return answer.unity_output if answer.header.status == OK else None

    def close(self) -> None:
        """Let the player quit and release the port. Idempotent."""
        if self.is_open:
            self.is_open = False
            self.server.say_goodbye(EDITOR_QUIT_S)
            self.server.close()

    def _require_open(self) -> None:
        if not self.is_open:
            raise UnityCommunicatorStoppedException(
                f"port {self.port} was closed; make another communicator"
            )

    def _received(self, poll_callback: PollCallback | None) -> Any:
        self.poll_for_timeout(poll_callback)
        message, self._arrived = self._arrived, None
        return message

    def _reply(self, inputs: Any) -> None:
        self._require_open()
        message = UnityMessageProto(unity_input=inputs)
        message.header.status = OK
        self.server.reply(message.SerializeToString())
