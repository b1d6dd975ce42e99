"""The network of a policy: what agents see in, a distribution over actions and a value out.

Actor and critic are separate networks of one shape, as in ML-Agents, evaluated together: at these sizes a
step costs calls, not arithmetic.

Sizes, activations and first weights follow ML-Agents 1.1.0 (`torch_entities/{layers,encoders,networks}.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from touchline.errors import UsageError
from touchline.policies.distributions import ActionDistribution, masked_log_probs
from touchline.specs import BehaviorSpec

ACTOR, CRITIC = 0, 1
"""The two networks of a TwinMLP."""
NORMALIZED_LIMIT = 5.0
"""Normalised observations are clipped to ±5."""


class ActorCritic(nn.Module):
    """A policy and its value function for one behavior."""

    def __init__(self, spec: BehaviorSpec, *, hidden_units: int, num_layers: int, normalize: bool) -> None:
        super().__init__()
        other = [o for o in spec.observation_specs if len(o.shape) != 1]
        if other:
            raise UsageError(
                f"observation {other[0].name!r} of shape {other[0].shape}: the trainer learns from vectors only so far"
            )
        self.spec = spec
        size = sum(o.shape[0] for o in spec.observation_specs)
        actions = spec.action_spec
        self._sections = [actions.continuous_size, *actions.discrete_branches]
        self.normalizer = RunningNormalizer(size) if normalize else None
        gains = torch.tensor([0.2] * actions.continuous_size + [0.1] * actions.mask_size)
        self.mlp = TwinMLP(size, hidden_units, num_layers, gains)
        self.log_std = nn.Parameter(torch.zeros(actions.continuous_size)) if actions.continuous_size else None

    def normalized(self, obs: Float[Tensor, "B O"]) -> Float[Tensor, "B O"]:
        """What the network takes: the vectors of all sensors side by side, normalised if the behavior asks for it."""
        return obs if self.normalizer is None else cast("Tensor", self.normalizer(obs))

    def forward(
        self, normalized: Float[Tensor, "B O"], allowed: Bool[Tensor, "B M"] | None
    ) -> tuple[ActionDistribution, Float[Tensor, " B"]]:
        """Distribution and value."""
        outputs, value = self.mlp(normalized)
        return self._distribution(outputs, allowed), value

    def distribution(
        self, normalized: Float[Tensor, "B O"], allowed: Bool[Tensor, "B M"] | None
    ) -> ActionDistribution:
        """The actor alone, without gradients."""
        return self._distribution(self.mlp.network(normalized, ACTOR), allowed)

    def value(self, normalized: Float[Tensor, "B O"]) -> Float[Tensor, " B"]:
        """The critic alone, without gradients."""
        return self.mlp.network(normalized, CRITIC)[:, 0]

    def _distribution(self, outputs: Float[Tensor, "B P"], allowed: Bool[Tensor, "B M"] | None) -> ActionDistribution:
        log_std = outputs[0, :0] if self.log_std is None else self.log_std
        if len(self._sections) == 1:
            return ActionDistribution(outputs, log_std, ())
        mean, *logits = torch.split(outputs, self._sections, dim=1)
        masks: Sequence[Tensor | None] = [None] * len(logits)
        if allowed is not None:
            masks = torch.split(allowed, self._sections[1:], dim=1)
        branches = [masked_log_probs(branch, mask) for branch, mask in zip(logits, masks, strict=True)]
        return ActionDistribution(mean, log_std, branches)


class RunningNormalizer(nn.Module):
    """Shifts and scales each number by the mean and spread of all that was ever seen of it.

    Source: Chan et al. 1979, the pairwise update of mean and squared deviations.
    """

    mean: Tensor
    scale: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))  # 1 / standard deviation
        self.register_buffer("count", torch.ones((), dtype=torch.float64))

    def forward(self, obs: Float[Tensor, "B O"]) -> Float[Tensor, "B O"]:
        return ((obs - self.mean) * self.scale).clamp(-NORMALIZED_LIMIT, NORMALIZED_LIMIT)

    @torch.no_grad()
    def update(self, obs: Float[Tensor, "B O"]) -> None:
        """Count these observations in."""
        before, added = float(self.count), len(obs)
        total = before + added
        difference = obs.mean(dim=0) - self.mean
        deviations = self.scale.pow(-2) * before + (obs - obs.mean(dim=0)).square().sum(dim=0)
        deviations += difference.square() * (before * added / total)
        self.mean += difference * (added / total)
        self.scale.copy_(torch.rsqrt((deviations / total).clamp(min=1e-12)))
        self.count += added


class TwinMLP(nn.Module):
    """Two networks of dense layers with SiLU between them, over one input: outputs [B, P] and a value [B].

    Their weights lie side by side, so that one call serves both. The value is the first number of the second
    network; its last layer is as wide as the first one's, and the rest of it stays unused.
    """

    def __init__(self, inputs: int, hidden: int, layers: int, output_gains: Float[Tensor, " P"]) -> None:
        super().__init__()
        outputs = len(output_gains)
        self.hidden = hidden
        self.first_weight = nn.Parameter(torch.randn(inputs, 2 * hidden) / max(inputs, 1) ** 0.5)
        self.first_bias = nn.Parameter(torch.zeros(2 * hidden))
        self.weights = nn.ParameterList(torch.randn(2, hidden, hidden) / hidden**0.5 for _ in range(layers - 1))
        self.biases = nn.ParameterList(torch.zeros(2, 1, hidden) for _ in range(layers - 1))
        last = torch.zeros(2, hidden, outputs)
        last[ACTOR] = torch.randn(hidden, outputs) * output_gains / hidden**0.5
        last[CRITIC, :, 0] = nn.init.xavier_uniform_(torch.empty(1, hidden))[0]
        self.weights.append(last)
        self.biases.append(torch.zeros(2, 1, outputs))

    def forward(self, x: Float[Tensor, "B I"]) -> tuple[Float[Tensor, "B P"], Float[Tensor, " B"]]:
        later = [p for pair in self._later for p in pair]
        outputs, value = _TwinMLPFunction.apply(x, self.first_weight, self.first_bias, *later)  # type: ignore[no-untyped-call]
        return outputs, value

    def network(self, x: Float[Tensor, "B I"], which: int) -> Float[Tensor, "B P"]:
        """One of the two networks alone."""
        columns = slice(which * self.hidden, (which + 1) * self.hidden)
        h = torch.addmm(self.first_bias[columns], x, self.first_weight[:, columns])
        for weight, bias in self._later:
            h = torch.addmm(bias[which], nn.functional.silu(h), weight[which])
        return h

    @property
    def _later(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Weight and bias of every layer but the first; a ParameterList is slow to walk."""
        weights, biases = self.weights._parameters, self.biases._parameters
        return zip(weights.values(), biases.values(), strict=True)  # type: ignore[arg-type]


class _TwinMLPFunction(torch.autograd.Function):
    """Both networks with their gradient written out.

    Autograd would record some twenty small operations here, and their bookkeeping costs more than their
    arithmetic. A test holds this against autograd's own gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, first_weight: Tensor, first_bias: Tensor, *later: Tensor
    ) -> tuple[Tensor, Tensor]:
        flat = torch.addmm(first_bias, x, first_weight)  # [B, 2 H]
        before = [flat]  # what each SiLU takes
        after = [nn.functional.silu(flat).view(len(x), 2, -1).transpose(0, 1)]  # what it gives, [2, B, H]
        *hidden, last = zip(later[::2], later[1::2], strict=True)
        for weight, bias in hidden:
            before.append(torch.baddbmm(bias, after[-1], weight))
            after.append(nn.functional.silu(before[-1]))
        out = torch.baddbmm(last[1], after[-1], last[0])  # [2, B, P]
        ctx.save_for_backward(x, first_weight, *later[::2], *before, *after)
        ctx.depth = len(before)
        return out[ACTOR], out[CRITIC, :, 0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        to_outputs, to_value = gradients
        depth: int = ctx.depth
        x, first_weight, *saved = ctx.saved_tensors
        weights, before, after = saved[:depth], saved[depth : 2 * depth], saved[2 * depth :]
        gradient = to_outputs.new_zeros(2, *to_outputs.shape)
        gradient[ACTOR] = to_outputs
        gradient[CRITIC, :, 0] = to_value
        later: list[Tensor] = []
        for layer in range(depth - 1, -1, -1):
            later = [torch.bmm(after[layer].transpose(1, 2), gradient), gradient.sum(dim=1, keepdim=True), *later]
            gradient = torch.bmm(gradient, weights[layer].transpose(1, 2))
            if layer == 0:
                gradient = gradient.transpose(0, 1).reshape(before[0].shape)
            gradient = torch.ops.aten.silu_backward(gradient, before[layer])
        to_input = gradient @ first_weight.t() if ctx.needs_input_grad[0] else None
        return to_input, x.t() @ gradient, gradient.sum(dim=0), *later
