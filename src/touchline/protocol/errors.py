"""What can go wrong between Python and a player, as one tree.

The `Unity…Exception` names are those that users of `mlagents_envs.exception` catch; the others are
more precise.

UnityException (a RunError)
├── UnityEnvironmentException        the player could not be started, or ended
│   ├── PlayerUsageError               arguments that contradict each other (also a UsageError)
│   ├── PlayerNotFoundError            nothing at that path (also a UsageError)
│   ├── PlayerNotExecutableError       no right to execute it (also a UsageError)
│   ├── WrongPlatformError             built for another system (also a UsageError)
│   ├── PlayerExitedError              exited with a code or a signal
│   └── VersionRefusedError            speaks a protocol that we do not, or refuses ours
├── UnityTimeOutException            nothing came in time
│   ├── NeverConnectedError            started, but never connected
│   └── NoAnswerError                  connected, but did not answer a reset or step
├── UnityCommunicatorStoppedException  closed by the user: a window, or the Editor's Play button
├── UnityCommunicationException      a message breaks the protocol
│   ├── OutOfTurnError                 a message that is not expected now
│   ├── MessageTooLargeError           more bytes than allowed
│   └── MalformedMessageError          the text names the field
│       └── UnityObservationException    the field belongs to an observation
├── BehaviorWithoutAgentsError       announced, but no agent has sent observations
├── UnitySideChannelException        a side-channel payload that cannot be read
│   ├── CutOffSideChannelError         without its end (also a UnityEnvironmentException)
│   └── SideChannelUsageError          a message that cannot be sent (also a UsageError)
└── UnityWorkerInUseException        the port is taken (also a UsageError)
"""

from touchline.errors import UnityException as UnityException
from touchline.errors import UsageError


class UnityEnvironmentException(UnityException):
    """The player could not be started, or ended."""


class PlayerUsageError(UnityEnvironmentException, UsageError):
    """Arguments for a player that contradict each other."""


class PlayerNotFoundError(UnityEnvironmentException, UsageError):
    """Nothing that could be a player at that path."""


class PlayerNotExecutableError(UnityEnvironmentException, UsageError):
    """A file without the right to execute it."""


class WrongPlatformError(UnityEnvironmentException, UsageError):
    """A player built for another system."""


class PlayerExitedError(UnityEnvironmentException):
    """The player's process ended: `return_code` as `subprocess` gives it, negative for a signal."""

    def __init__(self, message: str, return_code: int) -> None:
        super().__init__(message)
        self.return_code = return_code


class VersionRefusedError(UnityEnvironmentException):
    """Player and Python have no version in common."""


class UnityTimeOutException(UnityException):
    """The player did not answer in time."""


class NeverConnectedError(UnityTimeOutException):
    """The player, or the Editor, never connected."""


class NoAnswerError(UnityTimeOutException):
    """The player is connected but sent no answer to a reset or a step."""


class UnityCommunicatorStoppedException(UnityException):
    """The player said goodbye: its window was closed, or the Editor left play mode."""


class UnityCommunicationException(UnityException):
    """A message breaks the protocol."""


class OutOfTurnError(UnityCommunicationException):
    """A message that is not expected now."""


class MessageTooLargeError(UnityCommunicationException):
    """A message of more bytes than allowed."""


class MalformedMessageError(UnityCommunicationException):
    """A message with impossible content; the text names the field."""


class UnityObservationException(MalformedMessageError):
    """An observation whose content does not fit its shape."""


class BehaviorWithoutAgentsError(UnityException):
    """A behavior was announced, but none of its agents has sent observations yet."""


class UnitySideChannelException(UnityException):
    """A side-channel payload that cannot be read."""


class CutOffSideChannelError(UnitySideChannelException, UnityEnvironmentException):
    """A run of side-channel messages without its end."""


class SideChannelUsageError(UnitySideChannelException, UsageError):
    """A message that a side channel cannot carry."""


class UnityWorkerInUseException(UnityException, UsageError):
    """The port is taken: by another environment, or by another program."""
