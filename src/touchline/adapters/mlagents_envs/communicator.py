"""What carries messages between Python and a player."""

from collections.abc import Callable
from typing import Any

# A star: scripts import from here whatever the official module imports, too.
from touchline.adapters.mlagents_envs.communicator_objects import *  # noqa: F403

PollCallback = Callable[[], None]
"""Called again and again during a wait; what it raises ends the wait."""


class Communicator:
    """The interface: `initialize` once, then `exchange`, then `close`."""

    def __init__(self, worker_id: int = 0, base_port: int = 5005) -> None:
        """`base_port` + `worker_id` is the port of a player."""

    def initialize(self, inputs: Any, poll_callback: PollCallback | None = None) -> Any:
        """Send the UnityInputProto that welcomes the player; returns its UnityOutputProto."""
        # An interface, as in ML-Agents: each subclass has a way of its own to a player.
        raise NotImplementedError(f"{type(self).__name__} has no initialize()")

    def exchange(self, inputs: Any, poll_callback: PollCallback | None = None) -> Any:
        """Send a UnityInputProto; returns the UnityOutputProto that answers it, or None if the
        player leaves.
        """
        # As in `initialize`.
        raise NotImplementedError(f"{type(self).__name__} has no exchange()")

    def close(self) -> None:
        """Let the player quit."""
