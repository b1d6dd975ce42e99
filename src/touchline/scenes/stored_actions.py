"""What agents do between their decisions: an agent repeats its last action until the next one."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.specs import ActionTuple, BehaviorSpec


class StoredActions:
    """The actions of A areas of G agents, as wide as the widest of their behaviors needs."""

    def __init__(
        self,
        behaviors: Mapping[str, BehaviorSpec],
        num_areas: int,
        agents_per_area: int,
    ) -> None:
        specs = {name: spec.action_spec for name, spec in behaviors.items()}
        most_continuous = max(spec.continuous_size for spec in specs.values())
        most_discrete = max(spec.discrete_size for spec in specs.values())
        shape = (num_areas, agents_per_area)
        self.continuous = np.zeros((*shape, most_continuous), np.float32)
        self.discrete = np.zeros((*shape, most_discrete), np.int32)
        num_agents = num_areas * agents_per_area
        continuous = self.continuous.reshape(num_agents, most_continuous)
        discrete = self.discrete.reshape(num_agents, most_discrete)
        self._of_all: list[NDArray[Any]] = [continuous, discrete]
        """[A * G, actions]: views."""
        self._columns: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        """The columns that each behavior uses: views."""
        for name, spec in specs.items():
            self._columns[name] = (
                continuous[:, : spec.continuous_size],
                discrete[:, : spec.discrete_size],
            )

    def store(
        self, behavior: str, agents: NDArray[np.intp], actions: ActionTuple
    ) -> None:
        """The actions of K agents of one behavior, a row for each."""
        continuous, discrete = self._columns[behavior]
        if continuous.shape[1]:
            continuous[agents] = actions.continuous
        if discrete.shape[1]:
            discrete[agents] = actions.discrete

    def forget(self, agents: NDArray[np.intp]) -> None:
        """Let these agents do nothing (zeros) until their next decision."""
        for actions in self._of_all:
            actions[agents] = 0
