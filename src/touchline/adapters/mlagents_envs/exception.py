"""What goes wrong with a player; the tree is in `touchline.protocol.errors`."""

from touchline.envs.unity_env import UnityActionException as UnityActionException
from touchline.protocol.errors import *  # noqa: F403
from touchline.protocol.errors import UnityException


class UnityPolicyException(UnityException):
    """Something that ML-Agents' trainers raise; nothing here does."""
