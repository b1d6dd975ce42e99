"""What a memory offers to networks, and which memories there are.

A memory is the last part of a recurrent network. What it keeps for an agent is one vector of
`size` numbers, zero before an episode's first action; only the memory itself knows what they mean.
To add one, write its class in a module of its own, and name it here. Each class takes
`(inputs, size)`: the width of what it sees, and how many numbers it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from touchline.errors import UsageError
from touchline.plugins import Plugins

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor, nn

    from touchline.policies.nets.memory import Sequences

MEMORIES = {
    "lstm": "touchline.policies.nets.lstm:LSTM",
    "gru": "touchline.policies.nets.gru:GRU",
}
"""Value of `network_settings.memory.type` -> "module:Class"; imported when used."""
MEMORY_PLUGINS = Plugins(
    "a memory", "touchline.memories", MEMORIES, f"{__name__}:MemoryCell"
)
"""These and those of other packages."""

DEFAULT_MEMORY = "lstm"
"""ML-Agents' only one."""


@runtime_checkable
class MemoryCell(Protocol):
    """A memory of one network; a `torch.nn.Module`."""

    size: int
    """M: how many numbers it keeps for an agent."""
    width: int
    """H: how many numbers its result has."""

    def step(
        self, x: Float[Tensor, "B I"], memory: Float[Tensor, "B M"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B M"]]:
        """Results and the next memories of agents, one step on."""

    def run(
        self, x: Float[Tensor, "B I"], sequences: Sequences
    ) -> Float[Tensor, "B H"]:
        """Results of whole sequences, which hold one network's memories [S, 1, M]."""

    def first_weights(self, *, orthogonal: bool) -> None:
        """Draw the weights that learning starts with, in place."""

    def official_parameters(self) -> Mapping[str, nn.Parameter]:
        """The parameters by the names that ML-Agents has for them; none where it has no such
        memory.
        """

    def onnx(self, graph: Any, x: str, memory: str) -> tuple[str, str]:
        """Add one step to a `touchline.policies.files.onnx_graph.OnnxGraph`.

        From the names of inputs [B, I] and memories [1, B, M] to those of results [B, H] and the
        next memories [1, B, M]. Unity's importer must know the operators.
        """


def make_memory(name: str, inputs: int, size: int) -> MemoryCell:
    """A memory with its first weights; a UsageError for a name that is not in `MEMORIES`."""
    if name not in MEMORY_PLUGINS:
        names = ", ".join(sorted(MEMORY_PLUGINS.names()))
        raise UsageError(f"no memory is called {name!r}; there are: {names}")
    memory: MemoryCell = MEMORY_PLUGINS.load(name)(inputs, size)
    return memory
