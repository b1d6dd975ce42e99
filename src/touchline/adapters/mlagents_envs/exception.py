"""What goes wrong with a player; the tree is in `touchline.protocol.errors`."""

from touchline.envs.unity_env import UnityActionException as UnityActionException
from touchline.protocol.errors import (
    UnityCommunicationException as UnityCommunicationException,
)
from touchline.protocol.errors import (
    UnityCommunicatorStoppedException as UnityCommunicatorStoppedException,
)
from touchline.protocol.errors import (
    UnityEnvironmentException as UnityEnvironmentException,
)
from touchline.protocol.errors import UnityException as UnityException
from touchline.protocol.errors import (
    UnityObservationException as UnityObservationException,
)
from touchline.protocol.errors import (
    UnitySideChannelException as UnitySideChannelException,
)
from touchline.protocol.errors import UnityTimeOutException as UnityTimeOutException
from touchline.protocol.errors import (
    UnityWorkerInUseException as UnityWorkerInUseException,
)


class UnityPolicyException(UnityException):
    """Something that ML-Agents' trainers raise; nothing here does."""
