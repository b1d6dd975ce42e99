"""What can go wrong, as one small tree.

TouchlineError
├── UsageError       the call, a configuration or a file was wrong: correct it and call again
│   ├── MissingError   something needed is not installed; the text names what to install
│   └── NotDrawableError  a scene that does not state what it looks like
└── RunError         the run failed although the call was right
    ├── FileHeldError    another program has a file open that must be replaced (Windows alone)
    ├── NonFiniteError   a NaN or an infinity at a border; the text names behavior, agent and step
    │                    (also a RuntimeError, which ML-Agents raises)
    └── UnityException   anything about a player; its tree is in `protocol.errors`
        └── ActionError    an action that agents cannot take (also a UsageError)

The command line turns a UsageError into exit code 2 and a RunError into 1, each as one line.
Leaves that belong to one module (the wire's, for example) are defined there and derive from
these.
"""


class TouchlineError(Exception):
    """Base class of all errors that Touchline raises."""


class UsageError(TouchlineError):
    """The call, a configuration or a file was wrong.

    The text says what was expected, what was given, and what to do.
    """


class MissingError(UsageError):
    """A library is not installed; the text names the install command."""


class NotDrawableError(UsageError):
    """A scene that does not state what it looks like."""


class RunError(TouchlineError):
    """The run failed, although the call was correct."""


class FileHeldError(RunError):
    """Another program has a file open, which Windows then refuses to replace or delete."""


class NonFiniteError(RunError, RuntimeError):
    """A NaN or an infinity arrived where numbers are expected."""


class UnityException(RunError):  # noqa: N818 - the name that ML-Agents' users catch
    """Anything that goes wrong with a player."""


class ActionError(UnityException, UsageError):
    """An action of the wrong shape, out of its range, or forbidden by a mask.

    Users of `mlagents_envs` catch it as a UnityException, or as a UnityActionException.
    """


def shortened(text: str, most: int = 200) -> str:
    """On one line, cut to a number of characters; for text of any length from elsewhere."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."
