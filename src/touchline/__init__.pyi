# What `import touchline` offers: each name, and the module that it is loaded from.

from touchline.adapters.to_gymnasium import make_gymnasium as make_gymnasium
from touchline.adapters.to_pettingzoo import make_pettingzoo as make_pettingzoo
from touchline.adapters.to_sb3 import make_sb3 as make_sb3
from touchline.adapters.to_torchrl import make_torchrl as make_torchrl
from touchline.envs.actions import allowed_actions as allowed_actions
from touchline.envs.env import Env as Env
from touchline.envs.env import EnvRecipe as EnvRecipe
from touchline.envs.env import make as make
from touchline.envs.inspection import describe as describe
from touchline.envs.inspection import inspect as inspect
from touchline.envs.slots import SlotRows as SlotRows
from touchline.envs.slots import Slots as Slots
from touchline.envs.unity_env import UnityActionException as UnityActionException
from touchline.envs.unity_env import UnityEnvironment as UnityEnvironment
from touchline.errors import MissingError as MissingError
from touchline.errors import NonFiniteError as NonFiniteError
from touchline.errors import RunError as RunError
from touchline.errors import TouchlineError as TouchlineError
from touchline.errors import UsageError as UsageError
from touchline.film import film_demonstration as film_demonstration
from touchline.film import play as play
from touchline.hub import Upload as Upload
from touchline.hub import pull as pull
from touchline.hub import push as push
from touchline.policies.files.onnx_out import export as export
from touchline.policies.loading import load_policies as load_policies
from touchline.policies.loading import load_policy as load_policy
from touchline.policies.policy import SlotActor as SlotActor
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
from touchline.protocol.side_channels import (
    EngineConfigurationChannel as EngineConfigurationChannel,
)
from touchline.protocol.side_channels import (
    EnvironmentParametersChannel as EnvironmentParametersChannel,
)
from touchline.protocol.side_channels import (
    FloatPropertiesChannel as FloatPropertiesChannel,
)
from touchline.protocol.side_channels import IncomingMessage as IncomingMessage
from touchline.protocol.side_channels import OutgoingMessage as OutgoingMessage
from touchline.protocol.side_channels import RawBytesChannel as RawBytesChannel
from touchline.protocol.side_channels import SideChannel as SideChannel
from touchline.protocol.side_channels import StatsSideChannel as StatsSideChannel
from touchline.specs import ActionSpec as ActionSpec
from touchline.specs import ActionTuple as ActionTuple
from touchline.specs import BehaviorSpec as BehaviorSpec
from touchline.specs import DimensionProperty as DimensionProperty
from touchline.specs import ObservationSpec as ObservationSpec
from touchline.specs import ObservationType as ObservationType
from touchline.statistics import StatsAggregationMethod as StatsAggregationMethod
from touchline.steps import DecisionStep as DecisionStep
from touchline.steps import DecisionSteps as DecisionSteps
from touchline.steps import TerminalStep as TerminalStep
from touchline.steps import TerminalSteps as TerminalSteps
from touchline.studies.compare import RunComparison as RunComparison
from touchline.studies.compare import compare as compare
from touchline.studies.distill import distill as distill
from touchline.studies.exploit import exploit as exploit
from touchline.studies.parity import parity as parity
from touchline.studies.plan import Plan as Plan
from touchline.studies.plan import plan as plan
from touchline.studies.plot import plot as plot
from touchline.studies.seeds import SeedFigures as SeedFigures
from touchline.studies.seeds import SeedsResult as SeedsResult
from touchline.studies.seeds import train_seeds as train_seeds
from touchline.studies.tournament import tournament as tournament
from touchline.studies.tune import tune as tune
from touchline.studies.tune_report import TrialFigures as TrialFigures
from touchline.studies.tune_report import TuneResult as TuneResult
from touchline.to_unity.export import export_policy as export_policy
from touchline.training.config.old_formats import convert as convert
from touchline.training.demonstrations import (
    inspect_demonstration as inspect_demonstration,
)
from touchline.training.evaluation import evaluate as evaluate
from touchline.training.evaluation import evaluate_opponents as evaluate_opponents
from touchline.training.evaluation_figures import BehaviorFigures as BehaviorFigures
from touchline.training.evaluation_figures import Evaluation as Evaluation
from touchline.training.evaluation_figures import GameFigures as GameFigures
from touchline.training.recording import record as record
from touchline.training.run.result import BehaviorResult as BehaviorResult
from touchline.training.run.result import TrainingResult as TrainingResult
from touchline.training.start import train as train
from touchline.version import __version__ as __version__
from touchline.viewer.opening import view as view

_HOME: dict[str, str]
