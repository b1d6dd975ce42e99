"""A network of another package: dense layers, each of which adds to what the one before it found.

`network_settings.type: residual` trains with it, in PPO, POCA and SAC. Without the package it is
`type: residual_network:ResidualNetwork`, from the folder of this file.

Source: He et al. 2016, "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
"""

import torch
from torch import nn

from touchline.errors import UsageError
from touchline.policies.distributions import (
    ActionDistribution,
    SquashedDistribution,
    masked_log_probs,
)


class ResidualNetwork(nn.Module):
    """Policy and values on one stack of layers, for vector observations."""

    memory_shape = None
    has_gradient = False
    normalizer = None

    def __init__(self, spec, architecture, num_signals=1):
        super().__init__()
        shapes = [sensor.shape for sensor in spec.observation_specs]
        if architecture.normalize or any(len(shape) > 1 for shape in shapes):
            raise UsageError(
                "the residual network expects vectors and normalize: false"
            )
        self.spec, self.architecture = spec, architecture
        self.num_signals = num_signals
        self.branches = spec.action_spec.discrete_branches
        self.numbers = spec.action_spec.continuous_size
        width = architecture.hidden_units
        self.first = nn.Linear(sum(size for (size,) in shapes), width)
        layers = range(architecture.num_layers)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in layers)
        # SAC wants a spread for each situation.
        spreads = self.numbers if architecture.squashed else 0
        self.log_std = nn.Parameter(torch.zeros(self.numbers - spreads))
        self.sections = [self.numbers, spreads, *self.branches]
        self.outputs = nn.Linear(width, sum(self.sections))
        self.values = nn.Linear(width, num_signals)

    def normalized(self, obs):
        return obs

    def compact(self, obs):
        return obs

    def features(self, obs):
        x = self.first(obs[0])
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x

    def forward(self, obs, allowed, sequences=None):
        features = self.features(obs)
        return self.distribution_of(features, allowed), self.values(features)

    def distribution(self, obs, allowed):
        return self.distribution_of(self.features(obs), allowed)

    def actor(self):
        return self.distribution

    def value(self, obs):
        return self.values(self.features(obs))

    def distribution_of(self, features, allowed):
        outputs = self.outputs(features).split(self.sections, dim=1)
        mean, log_std, *logits = outputs
        masks = [None] * len(logits)
        if allowed is not None:
            masks = allowed.split(self.branches, dim=1)
        parts = [masked_log_probs(*pair) for pair in zip(logits, masks, strict=True)]
        if self.architecture.squashed:
            return SquashedDistribution(mean, log_std.clamp(-20.0, 2.0), parts)
        return ActionDistribution(mean, self.log_std, parts)

    # The contract has these two for networks with a memory, and with a gradient of their own; they
    # are never called for others.
    def step(self, obs, allowed, memory):
        raise NotImplementedError("only networks with a memory_shape are stepped")

    def gradient(self, obs, allowed, actions, output_gradients, entropy_gradient, out):
        raise NotImplementedError(
            "only networks with has_gradient have one written out"
        )
