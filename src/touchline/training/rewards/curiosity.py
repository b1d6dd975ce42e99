"""Curiosity: an agent is paid where it could not predict what its action would lead to.

Features φ of observations are learned by telling from two observations which action lay between
them, so that they hold what the agent can influence and not, say, moving clouds. A second network
predicts the next features; its error is the reward.

Source: Pathak et al. 2017, "Curiosity-driven Exploration by Self-supervised Prediction",
arXiv:1705.05363, section 2; sizes and weights of ML-Agents 1.1.0
(`torch_entities/components/reward_providers/curiosity_reward_provider.py`).
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

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
from touchline.training.rewards.settings import CuriositySettings
from touchline.training.rewards.signal import SignalSetup

HIDDEN_UNITS = 256
"""Width of the layer within the inverse and the forward model."""
FORWARD_SHARE = 0.2
"""β of the paper: the forward model's share in the loss."""
LOSS_WEIGHT = 10.0
"""1 / λ of the paper."""


def make(name: str, settings: CuriositySettings, setup: SignalSetup) -> LearnedSignal:
    """The signal; raises a SettingError for behaviors that it cannot judge."""
    require_standard(name, setup)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(setup.seed)
        model = Curiosity(settings, setup.spec).to(setup.device)
    scale = ReturnScale(settings.gamma) if settings.normalized else None
    # An agent that knew of the end could avoid it to stay curious, or seek it: as in ML-Agents,
    # curiosity's value continues past it.
    return LearnedSignal(name, settings, setup, model, ignores_ends=True, scale=scale)


class Curiosity(SignalModel):
    """Features, inverse model and forward model of one behavior."""

    has_learned: Tensor

    def __init__(self, settings: CuriositySettings, spec: BehaviorSpec) -> None:
        super().__init__()
        actions = spec.action_spec
        self._branches = actions.discrete_branches
        self._sections = [actions.continuous_size, *self._branches]
        self._normalized = settings.normalized
        self._most = math.inf if settings.normalized else 1.0 / settings.strength
        sensors = Sensors.from_spec(spec)
        network = settings.network_settings
        self.normalizer = None
        if network.normalize and sensors.vector_size:
            self.normalizer = RunningNormalizer(sensors.vector_size)
        self.body = Body(spec, body_architecture(network))
        size = self.body.size
        num_actions = sum(self._sections)
        self.inverse = nn.Sequential(
            linear(2 * size, HIDDEN_UNITS), nn.SiLU(), linear(HIDDEN_UNITS, num_actions)
        )
        self.predict = nn.Sequential(
            linear(size + num_actions, HIDDEN_UNITS),
            nn.SiLU(),
            linear(HIDDEN_UNITS, size),
        )
        self.register_buffer("has_learned", torch.zeros((), dtype=torch.bool))

    def observe(self, transitions: Transitions) -> None:
        """Include the vectors in the normalizer; ML-Agents 1.1.0 never does."""
        if self.normalizer is not None:
            self.normalizer.update(transitions.obs[0])

    def reward(self, transitions: Transitions) -> Float[Tensor, " B"]:
        """The forward model's error; if not normalized, `strength` times it is 1 at most."""
        # 0 before the first gradient step: a network that has seen nothing is surprised by all.
        after = self._features(transitions.next_obs)
        error = squared_distance(after, self._predicted(transitions))
        return error.clamp(max=self._most) * self.has_learned

    def loss(
        self, transitions: Transitions, generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], Figures]:
        """10 (0.2 L_F + 0.8 L_I)."""
        before = self._features(transitions.obs)
        after = self._features(transitions.next_obs)
        inferred = self.inverse(torch.cat([before, after], dim=1))
        numbers, *choices = torch.split(inferred, self._sections, dim=1)
        log_probs = [torch.log_softmax(logits, dim=1) for logits in choices]
        predicted = self._predicted(transitions, before)
        # Features that are all alike would make prediction easy. ML-Agents lets them shrink, and
        # its strengths are meant for rewards of that size.
        target = after.detach() if self._normalized else after
        forward = squared_distance(target, predicted).mean()
        inverse = inverse_loss(
            numbers, transitions.continuous, log_probs, transitions.discrete
        )
        figures = {
            "curiosity_forward_loss": forward,
            "curiosity_inverse_loss": inverse,
        }
        return total_loss(forward, inverse), figures

    def learned(self, figures: Figures) -> None:
        self.has_learned.fill_(True)

    def _predicted(
        self, transitions: Transitions, before: Tensor | None = None
    ) -> Float[Tensor, "B F"]:
        if before is None:
            before = self._features(transitions.obs)
        actions = transitions.flat_actions(self._branches)
        predicted: Tensor = self.predict(torch.cat([before, actions], dim=1))
        return predicted

    def _features(self, obs: Obs) -> Float[Tensor, "B F"]:
        if self.normalizer is not None:
            obs = self.normalizer(obs[0]), *obs[1:]
        return self.body.features(obs)


def squared_distance(
    features: Float[Tensor, "B F"], predicted: Float[Tensor, "B F"]
) -> Float[Tensor, " B"]:
    """½ ‖φ(o') − φ̂'‖²: equations 5 and 7 of the paper."""
    return 0.5 * (features - predicted).square().sum(dim=1)


def inverse_loss(
    numbers: Float[Tensor, "B C"],
    continuous: Float[Tensor, "B C"],
    log_probs: Sequence[Float[Tensor, "B _"]],
    discrete: Int[Tensor, "B D"],
) -> Float[Tensor, ""]:
    """⟨Σ (a − â)²⟩ of continuous actions and ⟨−Σ log p(a)⟩ of the choices: equation 3."""
    loss = (continuous - numbers).square().sum(dim=1)
    for branch, of_choices in enumerate(log_probs):
        chosen = discrete[:, branch, None].long()
        loss = loss - of_choices.gather(1, chosen)[:, 0]
    return loss.mean()


def total_loss(
    forward: Float[Tensor, ""], inverse: Float[Tensor, ""]
) -> Float[Tensor, ""]:
    """Equation 8 of the paper, without the policy's part."""
    return LOSS_WEIGHT * (FORWARD_SHARE * forward + (1.0 - FORWARD_SHARE) * inverse)
