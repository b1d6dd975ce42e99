"""Generative adversarial imitation learning: an agent is paid for looking like demonstrations.

A discriminator learns to tell an agent's actions from a demonstrator's; whatever it takes for the
demonstrator's is paid.

Sources: Ho & Ermon 2016, arXiv:1606.03476 (GAIL); Peng et al. 2018, arXiv:1810.00821 (VAIL);
Gulrajani et al. 2017, arXiv:1704.00028, section 4 (gradient penalty); Kostrikov et al. 2018,
arXiv:1809.02925, section 4 (ends). Sizes and weights of ML-Agents 1.1.0
(`torch_entities/components/reward_providers/gail_reward_provider.py`).
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import softplus

from touchline.errors import UsageError
from touchline.policies.nets.bodies import Body
from touchline.policies.nets.dense import linear
from touchline.policies.nets.encoders import Sensors, with_vector
from touchline.policies.nets.normalizer import RunningNormalizer
from touchline.policies.network import Obs, side_by_side
from touchline.specs import BehaviorSpec
from touchline.training.algorithms.learner import SettingError
from touchline.training.demonstrations import Demonstration, read_demonstration
from touchline.training.experience.transitions import Transitions
from touchline.training.rewards.learned import (
    Figures,
    LearnedSignal,
    SignalModel,
    body_architecture,
    require_standard,
)
from touchline.training.rewards.settings import GAILSettings
from touchline.training.rewards.signal import SignalSetup

PENALTY_WEIGHT = 10.0
"""λ of Gulrajani et al. 2017."""
CODE_SIZE = 128
"""Numbers that go through VAIL's bottleneck."""
MOST_INFORMATION = 0.5
"""I_c of VAIL, in nats: what may go through."""
BETA_STEP = 5e-4
"""How fast the price of information follows, per gradient step."""


def make(name: str, settings: GAILSettings, setup: SignalSetup) -> LearnedSignal:
    """The signal; raises a SettingError for demonstrations that cannot be read or do not fit."""
    require_standard(name, setup)
    try:
        demonstration = read_demonstration(
            settings.demo_path,
            setup.spec,
            behavior=setup.behavior,
            pairing=settings.demo_actions,
        )
    except UsageError as error:
        raise SettingError(f"reward_signals.{name}.demo_path", str(error)) from None
    for line in demonstration.lines:
        setup.log(f"{setup.behavior}: {name}: {line}")
    return imitation(name, settings, setup, demonstration)


def imitation(
    name: str,
    settings: GAILSettings,
    setup: SignalSetup,
    demonstration: Demonstration,
) -> LearnedSignal:
    """The signal with this demonstration, which fits the behavior."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(setup.seed)
        discriminator = Discriminator(settings, setup.spec)
    experts = Experts(demonstration)
    model = GAIL(settings, discriminator.to(setup.device), experts)
    return LearnedSignal(name, settings, setup, model, ignores_ends=False)


class Experts:
    """The actions of a demonstration, to be drawn from."""

    def __init__(self, demonstration: Demonstration) -> None:
        self._seen = side_by_side(demonstration.seen)
        self._demonstration = demonstration

    def draw(self, count: int, generator: torch.Generator) -> Transitions:
        """So many, evenly and with replacement."""
        size = len(self._demonstration)
        index = torch.randint(size, (count,), generator=generator)
        return self.at(index.numpy())

    def at(self, index: NDArray[np.int_]) -> Transitions:
        """Those with these numbers; without what they led to, which is not judged."""
        demonstration = self._demonstration
        row = demonstration.row[index]
        obs = tuple(torch.from_numpy(part[row]) for part in self._seen)
        return Transitions(
            obs=obs,
            next_obs=obs,
            continuous=torch.from_numpy(demonstration.actions.continuous[index]),
            discrete=torch.from_numpy(demonstration.actions.discrete[index]),
            terminated=torch.from_numpy(demonstration.terminated[index]),
        )

    @property
    def vectors(self) -> NDArray[np.float32]:
        """[M, V] of what was observed before all actions."""
        return self._seen[0][self._demonstration.row]


class Discriminator(nn.Module):
    """The logit of D, the chance that an action is a demonstrator's."""

    def __init__(
        self, settings: GAILSettings, spec: BehaviorSpec, code_size: int = CODE_SIZE
    ) -> None:
        super().__init__()
        actions, network = spec.action_spec, settings.network_settings
        self._branches = actions.discrete_branches
        self.use_actions = settings.use_actions
        self.absorbing_ends = settings.absorbing_ends
        size = Sensors.from_spec(spec).vector_size
        self.normalizer = None
        if network.normalize and size:
            self.normalizer = RunningNormalizer(size)
        more = int(self.absorbing_ends)
        if self.use_actions:
            more += actions.continuous_size + actions.mask_size + 1
        judged = with_vector(spec, more, "action and end")
        self.body = Body(judged, body_architecture(network))
        self.bottleneck = None
        if settings.use_vail:
            self.bottleneck = Bottleneck(self.body.size, code_size)
        self.code_size = code_size if settings.use_vail else 0
        # A small gain, as in ML-Agents: the first estimates are near ½.
        self.estimate = linear(self.code_size or self.body.size, 1, gain=0.2)

    def inputs(self, transitions: Transitions) -> Obs:
        """What is judged: observations, normalized, and with `use_actions` what was done."""
        vectors, *others = transitions.obs
        if self.normalizer is not None:
            vectors = self.normalizer(vectors)
        parts = [vectors]
        if self.use_actions:
            parts.append(transitions.flat_actions(self._branches))
            parts.append(transitions.terminated[:, None].to(vectors.dtype))
        if self.absorbing_ends:
            parts.append(vectors.new_zeros(len(vectors), 1))
        return torch.cat(parts, dim=1), *others

    def after_the_end(self, inputs: Obs, count: int) -> Obs:
        """So many rows that say only that the episode is over: nothing, and a 1 at the end."""
        rows = [part.new_zeros(count, *part.shape[1:]) for part in inputs]
        rows[0][:, -1] = 1.0
        return tuple(rows)

    def forward(
        self, inputs: Obs, noise: Float[Tensor, "B Z"] | None = None
    ) -> Float[Tensor, " B"]:
        """Without noise, by the middle of the bottleneck's code."""
        return self.logit(self.code(inputs), noise)

    def code(self, inputs: Obs) -> Float[Tensor, "B Z"]:
        """What the logit is made of: with a bottleneck, the means of its code."""
        hidden = self.body.features(inputs)
        if self.bottleneck is None:
            return hidden
        means: Tensor = self.bottleneck.mean(hidden)
        return means

    def logit(
        self, code: Float[Tensor, "B Z"], noise: Float[Tensor, "B Z"] | None = None
    ) -> Float[Tensor, " B"]:
        """Of a code, with noise in it."""
        if self.bottleneck is not None and noise is not None:
            code = code + self.bottleneck.spread * noise
        logits: Tensor = self.estimate(code)
        return logits[:, 0]


class Bottleneck(nn.Module):
    """A code of limited information: means that depend on the input, one spread for all."""

    def __init__(self, size: int, code_size: int) -> None:
        super().__init__()
        self.mean = linear(size, code_size, gain=0.1)
        self.spread = nn.Parameter(torch.ones(code_size))

    def information(
        self, policy: Float[Tensor, "P Z"], expert: Float[Tensor, "E Z"]
    ) -> Float[Tensor, ""]:
        """KL divergence of the codes from a standard normal, of both sides together."""
        # −Σ (1 + ln σ² − ½ μ_e² − ½ μ_p² − σ²): as in ML-Agents, each side's half, added up.
        variance = self.spread.square()
        of_spread = (variance - 1.0 - variance.log()).sum()
        of_means = [mu.square().sum(dim=1).mean() for mu in (policy, expert)]
        return of_spread + 0.5 * (of_means[0] + of_means[1])


class GAIL(SignalModel):
    """The discriminator as what judges transitions."""

    beta: Float[Tensor, ""]
    """β of VAIL: the price of information."""

    def __init__(
        self, settings: GAILSettings, discriminator: Discriminator, experts: Experts
    ) -> None:
        super().__init__()
        self.discriminator = discriminator
        self._experts = experts
        self._form = settings.reward_form
        self._discount = settings.gamma
        device = discriminator.estimate.bias.device
        self.register_buffer("beta", torch.zeros((), device=device))
        # What demonstrators see is all that it ever knows, as in ML-Agents.
        if discriminator.normalizer is not None:
            vectors = torch.from_numpy(experts.vectors)
            discriminator.normalizer.update(vectors.to(device))

    def reward(self, transitions: Transitions) -> Float[Tensor, " B"]:
        """The chosen form of D; with `absorbing_ends` an end is paid for as if it lasted."""
        # Σ_{k≥1} γᵏ r_end = γ / (1 − γ) r_end.
        inputs = self.discriminator.inputs(transitions)
        reward = reward_of(self.discriminator(inputs), self._form)
        if not self.discriminator.absorbing_ends:
            return reward
        # One row: all ends look alike.
        after = self.discriminator.after_the_end(inputs, 1)
        end_reward = reward_of(self.discriminator(after), self._form)
        forever = self._discount / (1.0 - self._discount)
        return reward + transitions.terminated * forever * end_reward

    def loss(
        self, transitions: Transitions, generator: torch.Generator
    ) -> tuple[Float[Tensor, ""], Figures]:
        """Separation, gradient penalty and, with VAIL, the price of information."""
        size = len(transitions)
        discriminator = self.discriminator
        # As many of each side, so that D = ½ means that they look the same.
        experts = self._experts.draw(size, generator).to(self.beta.device)
        policy = discriminator.inputs(transitions)
        expert = discriminator.inputs(experts)
        # Drawn on the CPU, so that a run has the same draws everywhere.
        weight = torch.rand(size, 1, generator=generator).to(self.beta.device)
        mixed = between(policy, expert, weight)
        if discriminator.absorbing_ends:
            policy = self._with_ends(policy, transitions.terminated)
            expert = self._with_ends(expert, experts.terminated)
        noise: list[Tensor | None] = [None, None, None]
        if discriminator.bottleneck is not None:
            counts = (len(policy[0]), len(expert[0]), size)
            noise = [self._noise(count, generator) for count in counts]
        return self.loss_of(policy, expert, mixed, noise)

    def loss_of(
        self, policy: Obs, expert: Obs, mixed: Obs, noise: Sequence[Tensor | None]
    ) -> tuple[Float[Tensor, ""], Figures]:
        """The loss of these rows, with this noise in the bottleneck's code of each kind of row."""
        discriminator = self.discriminator
        codes = discriminator.code(policy), discriminator.code(expert)
        of_policy, of_expert = map(discriminator.logit, codes, noise[:2])
        separation = separation_loss(of_policy, of_expert)
        penalty = PENALTY_WEIGHT * gradient_penalty(discriminator, mixed, noise[2])
        figures = {
            "gail_policy_estimate": torch.sigmoid(of_policy).mean(),
            "gail_expert_estimate": torch.sigmoid(of_expert).mean(),
            "gail_loss": separation,
            "gail_grad_mag_loss": penalty,
        }
        loss = separation + penalty
        if discriminator.bottleneck is not None:
            information = discriminator.bottleneck.information(*codes)
            too_much = information - MOST_INFORMATION
            loss = loss + self.beta * too_much
            # Dual ascent, as in Peng et al. 2018: the price rises while too much goes
            # through. `detach`, because the loss may not move it.
            price = self.beta + BETA_STEP * too_much.detach()
            price = price.clamp(min=0.0)
            figures |= {"gail_kl_loss": information, "gail_beta": price}
        return loss, figures

    def learned(self, figures: Figures) -> None:
        """The price of information follows what went through."""
        if "gail_beta" in figures:
            self.beta.copy_(figures["gail_beta"])

    def _noise(self, count: int, generator: torch.Generator) -> Float[Tensor, "B Z"]:
        size = self.discriminator.code_size
        return torch.randn(count, size, generator=generator).to(self.beta.device)

    def _with_ends(self, inputs: Obs, terminated: Bool[Tensor, " B"]) -> Obs:
        """One more row for each end."""
        count = int(terminated.sum())
        ends = self.discriminator.after_the_end(inputs, count)
        return tuple(map(torch.cat, zip(inputs, ends, strict=True)))


def reward_of(logit: Float[Tensor, " B"], form: str) -> Float[Tensor, " B"]:
    """−ln(1 − D), ln D − ln(1 − D) or ln D, of the logit of D."""
    # By softplus, because ln of a D that rounds to 0 or 1 is infinite.
    if form == "positive":
        return softplus(logit)
    if form == "signed":
        return logit
    return -softplus(-logit)


def separation_loss(
    policy: Float[Tensor, " P"], expert: Float[Tensor, " E"]
) -> Float[Tensor, ""]:
    """−⟨ln D⟩ of a demonstrator's actions and −⟨ln(1 − D)⟩ of the agent's, of their logits."""
    return softplus(-expert).mean() + softplus(policy).mean()


def between(policy: Obs, expert: Obs, weight: Float[Tensor, "B 1"]) -> Obs:
    """Points on the lines between pairs of rows; all parts of a row share one weight."""
    # ML-Agents 1.1.0 draws a weight for each number.
    mixed = []
    for one, other in zip(policy, expert, strict=True):
        ones = [1] * (one.dim() - 1)
        share = weight.view(-1, *ones)
        mixed.append(share * one + (1.0 - share) * other)
    return tuple(mixed)


def gradient_penalty(
    discriminator: nn.Module, mixed: Sequence[Tensor], noise: Tensor | None = None
) -> Float[Tensor, ""]:
    """⟨(‖∂D/∂x‖ − 1)²⟩ over all inputs x of each row."""
    # ML-Agents 1.1.0 takes the first observation alone, and of pictures each pixel by itself.
    inputs = tuple(part.detach().requires_grad_() for part in mixed)
    estimate = torch.sigmoid(discriminator(inputs, noise))
    gradients = torch.autograd.grad(
        estimate.sum(), inputs, create_graph=True, materialize_grads=True
    )
    squares = [gradient.flatten(1).square().sum(dim=1) for gradient in gradients]
    # The root has no finite slope at 0.
    square = torch.stack(squares).sum(dim=0)
    norm = torch.sqrt(square + 1e-7)
    return (norm - 1.0).square().mean()
