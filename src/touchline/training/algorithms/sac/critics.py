"""What actions are worth: networks that see observations and the continuous action beside them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from touchline.policies.nets.bodies import Body
from touchline.policies.nets.encoders import Sensors, with_vector
from touchline.policies.nets.heads import first_value_weight
from touchline.policies.nets.memory import Sequences
from touchline.policies.network import Architecture, Obs
from touchline.specs import BehaviorSpec


class Critic(nn.Module):
    """Q(o, a) by signal: one number for each choice of all branches, or one without branches."""

    def __init__(
        self, spec: BehaviorSpec, architecture: Architecture, num_signals: int
    ) -> None:
        super().__init__()
        size = spec.action_spec.continuous_size
        self.spec = with_vector(spec, size, "continuous action")
        """What it observes, the action as the last sensor."""
        self.body = Body(self.spec, Sensors.from_spec(self.spec), architecture)
        outputs = num_signals * max(1, spec.action_spec.mask_size)
        self.head = nn.Linear(self.body.size, outputs)
        self.num_signals = num_signals
        with torch.no_grad():
            self.head.weight.copy_(first_value_weight(outputs, self.body.size))
            self.head.bias.zero_()

    def forward(
        self,
        obs: Obs,
        continuous: Float[Tensor, "B C"],
        sequences: Sequences | None = None,
    ) -> Float[Tensor, "B S P"]:
        """The action is in [-1, 1]; with a memory, of the sequences that the batch consists of."""
        features = self.body(_with(obs, continuous), sequences, 0)
        q: Tensor = self.head(features)
        return q.view(len(q), self.num_signals, -1)

    def remembered(
        self, obs: Obs, continuous: Float[Tensor, "B C"]
    ) -> Float[Tensor, "B M"]:
        """The memory after the first action of a sequence, before which there is none."""
        memory = self.body.memory
        assert memory is not None
        nothing = continuous.new_zeros(len(continuous), memory.size)
        _, after = self.body.step(_with(obs, continuous), nothing)
        return after


def _with(obs: Obs, continuous: Float[Tensor, "B C"]) -> Obs:
    return torch.cat([obs[0], continuous], dim=1), *obs[1:]
