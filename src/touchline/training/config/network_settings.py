"""Settings of a network: the `network_settings` block of a behavior, and of a reward signal.

Keys, meanings and defaults are those of `mlagents-learn` 1.1.0, except where a key says otherwise.
"""

from typing import Annotated, Literal

from pydantic import Field

from touchline.flag import Flag
from touchline.policies.memory import DEFAULT_MEMORY, MEMORIES, MEMORY_PLUGINS
from touchline.training.config.values import Part, Switch, Text, Whole, known_in

WIDEST, DEEPEST = 65_536, 1_000
"""Units and layers; a layer between two of that width has 17 GB of weights."""


MemoryType = Annotated[
    Text,
    known_in(MEMORY_PLUGINS),
    Field(json_schema_extra={"enum": list(MEMORIES)}),
]


class MemorySettings(Part):
    """A recurrent network's memory."""

    type: MemoryType = DEFAULT_MEMORY
    """Which memory; ML-Agents has the default only."""
    memory_size: Annotated[Whole, Field(multiple_of=2, le=WIDEST)] = 128
    """Numbers kept from decision to decision."""
    sequence_length: Whole = 64
    """Decisions that gradients flow back through."""


class NetworkSettings(Part):
    """A reward signal's network."""

    normalize: Switch = False
    """Shift and scale vector observations by their running mean and spread; part of the exported
    model."""
    hidden_units: Annotated[Whole, Field(le=WIDEST)] = 128
    """Width of each dense layer."""
    num_layers: Annotated[Whole, Field(le=DEEPEST)] = 2
    """Dense layers."""
    vis_encode_type: Literal[
        "simple", "nature_cnn", "resnet", "match3", "fully_connected"
    ] = "simple"
    """What images go through first."""
    goal_conditioning_type: Literal["hyper", "none"] = "hyper"
    """How goal signals enter: their values make the weights, or they are inputs like others."""
    memory: MemorySettings | None = None
    """What agents remember from decision to decision; None: nothing."""
    orthogonal_init: Switch = False
    """First weights are orthogonal, but for a group's critic (not in ML-Agents)."""
    deterministic: Annotated[Switch, Flag("--deterministic")] = False
    """Act with the most likely action instead of sampling."""


class PolicyNetworkSettings(NetworkSettings):
    """The policy's and the value function's network."""

    type: Text | None = None
    """Another network than the behavior's own: one that a package adds, or MODULE:CLASS (not in
    ML-Agents)."""
