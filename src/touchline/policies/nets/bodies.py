"""Actor and critic of any kind, in plain PyTorch: images, entities, goals, memory, shared layers.

Sizes, activations and first weights follow ML-Agents 1.1.0
(`torch_entities/{layers,encoders,networks}.py`).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from touchline.policies.memory import MemoryCell, make_memory
from touchline.policies.nets.attention import ATTENTION_SIZE, EntityAttention
from touchline.policies.nets.dense import (
    HIDDEN_GAIN,
    ORTHOGONAL_POLICY_GAIN,
    HyperLinear,
    linear,
)
from touchline.policies.nets.encoders import Sensors, image_encoder
from touchline.policies.nets.memory import Sequences
from touchline.policies.nets.twin_mlp import ACTOR, CRITIC
from touchline.policies.network import Architecture, Obs
from touchline.specs import BehaviorSpec

CHUNK_SIZE = 2048
"""Without gradients, this many observations at a time go through the encoders: their intermediate
pictures are large."""


class Body(nn.Module):
    """One network up to its last layer: encoders, dense layers (goals steer the last), memory."""

    def __init__(
        self,
        spec: BehaviorSpec,
        architecture: Architecture,
        *,
        encoders_only: bool = False,
    ) -> None:
        """With `encoders_only`, neither dense layers nor memory; goals are inputs like others."""
        super().__init__()
        self.sensors = sensors = Sensors.from_spec(spec)
        hidden = architecture.hidden_units
        others = [o for o in spec.observation_specs if len(o.shape) != 1]
        self.images = nn.ModuleList(
            # The first part of `Obs` is all vectors, so part i is sensor i - 1 of the others.
            image_encoder(architecture.vis_encode_type, others[i - 1], hidden)
            for i in sensors.images
        )
        size = sensors.vector_size + hidden * len(sensors.images)
        self.attention = None
        if sensors.entities:
            shapes = [sensors.shapes[i] for i in sensors.entities]
            self.attention = EntityAttention(size, shapes)
            size += ATTENTION_SIZE
        has_goals = sensors.goal_size > 0
        is_steered = has_goals and architecture.goal_conditioning_type == "hyper"
        self.goal_layer = None
        layers: list[nn.Module] = []
        num_layers = 0 if encoders_only else architecture.num_layers
        for layer in range(num_layers):
            is_last = layer == num_layers - 1
            # As in ML-Agents (`ConditionalEncoder`), goals steer the last layer alone.
            if is_last and is_steered:
                self.goal_layer = HyperLinear(size, hidden, sensors.goal_size)
            else:
                layers += [linear(size, hidden), nn.SiLU()]
            size = hidden
        self.dense = nn.Sequential(*layers)
        self.memory: MemoryCell | None = None
        if architecture.memory_size and not encoders_only:
            self.memory = make_memory(
                architecture.memory_type, size, architecture.memory_size
            )
            size = self.memory.width
        self.size = size
        """H: width of the result."""

    def forward(
        self, obs: Obs, sequences: Sequences | None, which: int
    ) -> Float[Tensor, "B H"]:
        """`which` says whose part of the sequences' memories this is."""
        x = self.features(obs)
        if self.memory is None:
            return x
        assert sequences is not None
        return self.memory.run(x, sequences.of(which))

    def step(
        self, obs: Obs, memory: Float[Tensor, "B M"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B M"]]:
        """The result and the next memory.

        Of a critic in a world that shows no state, nothing is known: zeros, and the same memory.
        """
        assert self.memory is not None
        if obs[0].shape[1] < self.sensors.vector_size:
            return memory.new_zeros(len(memory), self.size), memory
        return self.memory.step(self.features(obs), memory)

    def features(self, obs: Obs) -> Float[Tensor, "B H"]:
        """Everything but the memory."""
        if torch.is_grad_enabled() or len(obs[0]) <= CHUNK_SIZE:
            return self._features(obs)
        by_part = [torch.split(part, CHUNK_SIZE) for part in obs]
        chunks = zip(*by_part, strict=True)
        return torch.cat([self._features(chunk) for chunk in chunks])

    def _features(self, obs: Obs) -> Float[Tensor, "B H"]:
        # The state, which only a critic sees, comes after all other vectors.
        x = obs[0][:, : self.sensors.vector_size]
        pairs = zip(self.images, self.sensors.images, strict=True)
        encoded = [encode(obs[i]) for encode, i in pairs]
        if encoded:
            x = torch.cat([x, *encoded], dim=1)
        if self.attention is not None:
            lists = [obs[i] for i in self.sensors.entities]
            x = torch.cat([x, self.attention(x, lists)], dim=1)
        x = self.dense(x)
        if self.goal_layer is not None:
            goals = self.sensors.goals(obs[0])
            x = nn.functional.silu(self.goal_layer(x, goals))
        return x


class Bodies(nn.Module):
    """Actor and critic: outputs [B, P] and values [B, S].

    A shared critic is one more head of the actor.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        architecture: Architecture,
        output_gains: Float[Tensor, " P"],
        num_signals: int,
    ) -> None:
        super().__init__()
        count = 1 if architecture.shared_critic else 2
        # The critic may see the state of the world, too.
        seen = [spec.observed, spec][:count]
        self.bodies = nn.ModuleList(Body(own, architecture) for own in seen)
        size = self.actor.size
        self.policy_head = linear(size, len(output_gains))
        self.value_head = linear(size, num_signals)
        with torch.no_grad():
            self.policy_head.weight *= output_gains[:, None]
        memory_size = architecture.memory_size
        self.memory_shape = (count, memory_size) if memory_size else None

    @property
    def actor(self) -> Body:
        return self._body(ACTOR)

    def forward(
        self, obs: Obs, sequences: Sequences | None
    ) -> tuple[Float[Tensor, "B P"], Float[Tensor, "B S"]]:
        actor = self.actor(obs, sequences, ACTOR)
        is_shared = len(self.bodies) == 1
        critic = actor if is_shared else self._body(CRITIC)(obs, sequences, CRITIC)
        return self.policy_head(actor), self.value_head(critic)

    def step(
        self, obs: Obs, memory: Float[Tensor, "B W M"]
    ) -> tuple[Float[Tensor, "B P"], Float[Tensor, "B S"], Float[Tensor, "B W M"]]:
        """Outputs, values and the next memory of agents with memory, one step on."""
        count = len(self.bodies)
        steps = [self._body(i).step(obs, memory[:, i]) for i in range(count)]
        actor, critic = steps[0][0], steps[-1][0]  # one where both share a body
        after = torch.stack([own for _, own in steps], dim=1)  # [B, W, M]
        return self.policy_head(actor), self.value_head(critic), after

    def network(self, obs: Obs, which: int) -> Float[Tensor, "B P"]:
        """One of the two alone; the critic's P is S."""
        head = self.policy_head if which == ACTOR else self.value_head
        return torch.as_tensor(head(self._body(which).features(obs)))

    @torch.no_grad()
    def initialize_orthogonally(self) -> None:
        """Orthogonal first weights, but for layers that goals steer: those sum up many matrices,
        and are made so that the sum has the right spread.
        """
        steered = [m for m in self.modules() if isinstance(m, HyperLinear)]
        kept = {part for layer in steered for part in layer.modules()}
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d) and module not in kept:
                nn.init.orthogonal_(module.weight, HIDDEN_GAIN)
        nn.init.orthogonal_(self.policy_head.weight, ORTHOGONAL_POLICY_GAIN)
        nn.init.orthogonal_(self.value_head.weight)
        for index in range(len(self.bodies)):
            memory = self._body(index).memory
            if memory is not None:
                memory.first_weights(orthogonal=True)

    def _body(self, which: int) -> Body:
        """The actor's or the critic's, which may be one."""
        body = self.bodies[min(which, len(self.bodies) - 1)]
        assert isinstance(body, Body)
        return body
