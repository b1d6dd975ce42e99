"""Random network distillation: an agent is paid for observations unlike those seen so far.

A network learns what another one, random and fixed, makes of observations. Where it still errs,
little like that was seen before; the error is the reward.

Source: Burda et al. 2018, "Exploration by Random Network Distillation", arXiv:1810.12894; ML-Agents
1.1.0 (`torch_entities/components/reward_providers/rnd_reward_provider.py`) for the form that is not
normalized, with one fix: there the networks' normalizers learn with every forward pass, so that the
fixed target moves.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from touchline.policies.nets.attention import EntityAttention
from touchline.policies.nets.bodies import Body
from touchline.policies.nets.dense import linear
from touchline.policies.nets.encoders import Sensors
from touchline.policies.nets.normalizer import RunningNormalizer
from touchline.policies.network import Obs
from touchline.specs import BehaviorSpec
from touchline.training.experience.transitions import Transitions
from touchline.training.rewards.learned import (
    Figures,
    LearnedSignal,
    ReturnScale,
    SignalModel,
    body_architecture,
    require_standard,
)
from touchline.training.rewards.settings import RNDSettings
from touchline.training.rewards.signal import SignalSetup


def make(name: str, settings: RNDSettings, setup: SignalSetup) -> LearnedSignal:
    """The signal; raises a SettingError for behaviors that it cannot judge."""
    require_standard(name, setup)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(setup.seed)
        model = RND(settings, setup.spec).to(setup.device)
    scale = ReturnScale(settings.gamma) if settings.normalized else None
    # "Non-episodic": section 2.3 of the paper.
    return LearnedSignal(name, settings, setup, model, ignores_ends=True, scale=scale)


class RND(SignalModel):
    """The fixed random network, and the one that predicts it."""

    def __init__(self, settings: RNDSettings, spec: BehaviorSpec) -> None:
        super().__init__()
        sensors = Sensors.from_spec(spec)
        network = settings.network_settings
        self._normalized = settings.normalized
        vectors_only = network.normalize and not settings.normalized
        self.normalizers = nn.ModuleDict()
        for i, shape in enumerate(sensors.shapes):
            if settings.normalized or (vectors_only and i == 0):
                size = shape[-1] if i in sensors.entities else torch.Size(shape).numel()
                if size:  # a behavior without vectors has [B, 0] in their place
                    self.normalizers[str(i)] = RunningNormalizer(size)
        self._entities = sensors.entities
        # In this order: the seed gives the target its weights first.
        self.target = self._network(settings, spec)
        self.predictor = self._network(settings, spec)
        self.target.requires_grad_(False)

    def _network(self, settings: RNDSettings, spec: BehaviorSpec) -> nn.Sequential:
        """ML-Agents' ends with an activation; the paper's with a linear layer."""
        network = settings.network_settings
        body = Body(spec, body_architecture(network))
        if not settings.normalized:
            return nn.Sequential(Features(body))
        return nn.Sequential(Features(body), linear(body.size, body.size))

    def observe(self, transitions: Transitions) -> None:
        """Include what was observed in the normalizers."""
        for key, normalizer in self.normalizers.items():
            assert isinstance(normalizer, RunningNormalizer)
            part = self._judged(transitions)[int(key)]
            # Empty rows are no observations; their zeros would pull the mean down.
            if int(key) in self._entities:
                part = part[EntityAttention.is_present(part)]
            normalizer.update(part.reshape(-1, len(normalizer.mean)))

    def reward(self, transitions: Transitions) -> Float[Tensor, " B"]:
        """The predictor's error."""
        obs = self._inputs(transitions)
        return squared_distance(self.predictor(obs), self.target(obs))

    def loss(
        self, transitions: Transitions, generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], Figures]:
        """Its mean: equation 1 of the paper."""
        loss = self.reward(transitions).mean()
        return loss, {"rnd_loss": loss}

    def _judged(self, transitions: Transitions) -> Obs:
        """What an action led to; in ML-Agents, what was observed before it."""
        return transitions.next_obs if self._normalized else transitions.obs

    def _inputs(self, transitions: Transitions) -> Obs:
        """Normalized, clipped to ±5: section 2.4 of the paper."""
        parts = list(self._judged(transitions))
        for key, normalizer in self.normalizers.items():
            assert isinstance(normalizer, RunningNormalizer)
            i = int(key)
            part = parts[i]
            normalized = normalizer(part.reshape(-1, len(normalizer.mean)))
            parts[i] = normalized.view_as(part)
            if i in self._entities:  # a row of zeros stays none
                parts[i] = parts[i] * EntityAttention.is_present(part)[..., None]
        return tuple(parts)


class Features(nn.Module):
    """A body as one layer of a `Sequential`."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body

    def forward(self, obs: Sequence[Tensor]) -> Float[Tensor, "B H"]:
        return self.body.features(tuple(obs))


def squared_distance(
    predicted: Float[Tensor, "B H"], target: Float[Tensor, "B H"]
) -> Float[Tensor, " B"]:
    """‖f̂(o) − f(o)‖²."""
    return (predicted - target).square().sum(dim=1)
