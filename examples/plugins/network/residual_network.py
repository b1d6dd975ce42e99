"""A network of another package: dense layers, each of which adds to what the one before it found.

A behavior's spec names its network; `ResidualBasic` is the scene Basic with this one.

Source: He et al. 2016, "Deep Residual Learning for Image Recognition", arXiv:1512.03385.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import nn

from touchline.errors import UsageError
from touchline.policies.distributions import ActionDistribution, masked_log_probs
from touchline.scenes.basic import Basic


class ResidualNetwork(nn.Module):
    """Policy and values on one stack of layers; for vector observations and discrete actions."""

    memory_shape = None
    has_gradient = False
    normalizer = None

    def __init__(self, spec, architecture, num_signals=1):
        super().__init__()
        shapes = [sensor.shape for sensor in spec.observation_specs]
        has_more = spec.action_spec.continuous_size or architecture.normalize
        if has_more or any(len(shape) > 1 for shape in shapes):
            raise UsageError(
                "the residual network expects vectors, discrete actions and normalize: false"
            )
        self.spec, self.architecture = spec, architecture
        self.num_signals = num_signals
        self.branches = spec.action_spec.discrete_branches
        width = architecture.hidden_units
        self.first = nn.Linear(sum(size for (size,) in shapes), width)
        layers = range(architecture.num_layers)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in layers)
        self.choices = nn.Linear(width, sum(self.branches))
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
        logits = self.choices(features).split(self.branches, dim=1)
        masks = [None] * len(logits)
        if allowed is not None:
            masks = allowed.split(self.branches, dim=1)
        parts = [masked_log_probs(*pair) for pair in zip(logits, masks, strict=True)]
        none = features[:, :0]
        return ActionDistribution(none, features.new_zeros(0), parts)

    # The contract has these two for networks with a memory, and with a gradient of their own.
    def step(self, obs, allowed, memory):
        raise NotImplementedError("only networks with a memory_shape are stepped")

    def gradient(self, obs, allowed, actions, output_gradients, entropy_gradient, out):
        raise NotImplementedError(
            "only networks with has_gradient have one written out"
        )


class ResidualBasic(Basic):
    """Basic, whose agent is trained with this network."""

    behaviors: ClassVar = {
        name: replace(spec, network="residual")
        for name, spec in Basic.behaviors.items()
    }
