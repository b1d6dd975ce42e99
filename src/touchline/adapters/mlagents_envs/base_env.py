"""What environments send and take."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from touchline.envs.env import MLAgentsEnv
from touchline.envs.unity_env import UnityActionException as UnityActionException
from touchline.specs import ActionSpec as ActionSpec
from touchline.specs import ActionTuple as ActionTuple
from touchline.specs import BehaviorSpec as BehaviorSpec
from touchline.specs import DimensionProperty as DimensionProperty
from touchline.specs import ObservationSpec as ObservationSpec
from touchline.specs import ObservationType as ObservationType
from touchline.steps import DecisionStep as DecisionStep
from touchline.steps import DecisionSteps as DecisionSteps
from touchline.steps import TerminalStep as TerminalStep
from touchline.steps import TerminalSteps as TerminalSteps

AgentId = int
GroupId = int
BehaviorName = str


class BehaviorMapping(Mapping[str, BehaviorSpec]):
    """A read-only view of specs by behavior name."""

    def __init__(self, specs: dict[str, BehaviorSpec]) -> None:
        self._specs = specs

    def __getitem__(self, behavior: str) -> BehaviorSpec:
        return self._specs[behavior]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


class BaseEnv(ABC):
    """The interface of ML-Agents' environments; derive from it to write one of your own.

    Every world of Touchline counts as a subclass, and all adapters take subclasses.
    """

    @abstractmethod
    def step(self) -> None: ...

    @abstractmethod
    def reset(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @property
    @abstractmethod
    def behavior_specs(self) -> Mapping[str, BehaviorSpec]: ...

    @abstractmethod
    def set_actions(self, behavior_name: str, action: ActionTuple) -> None: ...

    @abstractmethod
    def set_action_for_agent(
        self, behavior_name: str, agent_id: int, action: ActionTuple
    ) -> None: ...

    @abstractmethod
    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]: ...


# Not by inheritance: `envs` is a lower layer and may not import this one.
BaseEnv.register(MLAgentsEnv)  # type: ignore[type-abstract]
