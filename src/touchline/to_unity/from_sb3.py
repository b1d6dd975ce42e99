"""Models of Stable-Baselines3 and sb3-contrib that were trained over `touchline.make_sb3`.

The layout of the observations is found by the model's observation space. Observations are
normalized as the model's `VecNormalize` does, where it has one.

Checked against Stable-Baselines3 and sb3-contrib 2.9.
"""

import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from torch import Tensor, nn

from touchline.adapters.layout import Layout
from touchline.adapters.to_sb3 import TouchlineVecEnv
from touchline.errors import UsageError
from touchline.policies.files.onnx_policy import (
    CHOICES,
    DETERMINISTIC,
    FORBIDDEN,
    LOGITS,
    MEMORY,
    Acting,
    Given,
    Results,
)
from touchline.specs import BehaviorSpec, describe_actions, describe_spec
from touchline.to_unity.actions import (
    arranged,
    certain,
    clipped,
    drawn,
    greedy,
    lstm_step,
)

SINGLE = "observation"
"""The name of an observation that has none."""


def from_sb3(model: Any, spec: BehaviorSpec) -> Acting:
    """What a model does; a policy alone (`model.policy`) is taken, too."""
    policy = getattr(model, "policy", model)
    if getattr(policy, "use_sde", False) or getattr(model, "use_sde", False):
        raise UsageError("use_sde: noise that depends on the state has no ONNX form")
    _check_actions(policy.action_space, spec)
    # By their parts, because sb3-contrib, which has some of these, need not be installed.
    if hasattr(policy, "lstm_actor"):
        return _Recurrent(model, spec)
    # After recurrent policies, which have one, too.
    if hasattr(policy, "action_net"):
        return _ActorCritic(model, spec)
    if hasattr(policy, "q_net"):
        return _Q(model, spec)
    if hasattr(getattr(policy, "actor", None), "get_action_dist_params"):
        return _Squashed(model, spec)
    if hasattr(policy, "actor"):
        return _Certain(model, spec)
    raise UsageError(
        f"{type(policy).__name__}: expected a policy of PPO, A2C, SAC, TD3, DDPG, DQN, "
        "RecurrentPPO or MaskablePPO"
    )


def _check_actions(space: spaces.Space[Any], spec: BehaviorSpec) -> None:
    action = spec.action_spec
    is_fit = False
    match space:
        case spaces.Box():
            limits = np.allclose(space.low, -1) and np.allclose(space.high, 1)
            size = (action.continuous_size,)
            is_fit = limits and space.shape == size and not action.discrete_size
        case spaces.Discrete():
            is_fit = action.discrete_branches == (space.n,)
        case spaces.MultiDiscrete():
            is_fit = action.discrete_branches == tuple(space.nvec)
    if not is_fit or (not isinstance(space, spaces.Box) and action.continuous_size):
        raise UsageError(
            f"the model's actions are {space}, the behavior takes {describe_actions(action)}; "
            "expected a model that was trained over make_sb3 without flatten_branches"
        )


def _layout(space: spaces.Space[Any], spec: BehaviorSpec, *, has_bytes: bool) -> Layout:
    """How the observations were arranged for the model."""
    has_names = isinstance(space, spaces.Dict)
    parts = dict(space.spaces) if has_names else {SINGLE: space}
    wanted = {name: part.shape for name, part in parts.items()}
    # SB3 moves the channels of pictures of bytes to the front (`VecTransposeImage`).
    for join, is_moved in product((False, True), (has_bytes, not has_bytes)):
        layout = Layout(
            spec,
            channels_last=not is_moved,
            join_vectors=join,
            uint8_images=has_bytes,
            name_single=has_names,
        )
        named = layout.named([view.shape for view in layout.views])
        if (named if layout.has_names else {SINGLE: named}) == wanted:
            return layout
    raise UsageError(
        f"the model observes {space}, the behavior has {describe_spec(spec)}; expected a model "
        "that was trained over make_sb3"
    )


def _below(env: Any) -> spaces.Space[Any]:
    """What a `VecNormalize` observes."""
    below = env.venv.observation_space
    if not isinstance(below, spaces.Dict) or not env.norm_obs:
        return below
    pictures = [name for name in env.obs_rms if len(below[name].shape) == 3]
    if not pictures:
        return below
    # Of a dict, `VecNormalize` overwrites the spaces of what is below it.
    world = env.unwrapped
    if not isinstance(world, TouchlineVecEnv):
        raise UsageError(
            f"VecNormalize over {pictures[0]}, a picture in a dict, hides whether it had bytes; "
            "expected a model that was trained over make_sb3"
        )
    return world.env.single_observation_space


class _Model(Acting):
    """What all models have in common: how they see."""

    def __init__(self, model: Any, spec: BehaviorSpec) -> None:
        super().__init__(spec)
        self.policy: Any = getattr(model, "policy", model)
        self.normalizers = nn.ModuleDict()
        find = getattr(model, "get_vec_normalize_env", lambda: None)
        env: Any = find()
        if getattr(model, "env", None) is None:
            warnings.warn(
                "this policy has no environment: if VecNormalize scaled what it observed, the file "
                "acts wrongly; pass the model, loaded with that VecNormalize as `env`",
                # The line that called `export_policy`, which is four calls above.
                stacklevel=5,
            )
        space = self.policy.observation_space
        before = space if env is None else _below(env)
        spaces_before = (
            before.spaces if isinstance(before, spaces.Dict) else {"": before}
        )
        has_bytes = any(part.dtype == np.uint8 for part in spaces_before.values())
        by_name: dict[str, Any] = {}
        if env is not None and env.norm_obs:
            figures = env.obs_rms
            by_name = figures if isinstance(figures, dict) else {SINGLE: figures}
        self.layout = _layout(space, spec, has_bytes=has_bytes)
        for name, figures in by_name.items():
            variance = figures.var + env.epsilon
            self.normalizers[name] = _Normalizer(figures.mean, variance, env.clip_obs)

    def original(self, *inputs: Tensor) -> Results:
        obs, _, memory = self.parted(inputs)
        return self._results(self._predicted(self.seen(obs), memory))

    def _predicted(self, seen: Any, memory: Given) -> Tensor:
        """Actions by the policy's own method."""
        found: Tensor = self.policy._predict(seen, deterministic=True)
        return found

    def _results(self, actions: Tensor) -> Results:
        if not self.spec.action_spec.discrete_size:
            return {DETERMINISTIC: actions}
        return {CHOICES: actions.reshape(len(actions), -1)}

    def seen(self, obs: Sequence[Tensor]) -> Any:
        """The observations as the model's policy takes them."""
        views = arranged(self.layout, obs)
        if not self.layout.has_names:
            return self._normalized(SINGLE, views[0])
        named = self.layout.named(views)
        return {name: self._normalized(name, x) for name, x in named.items()}

    def features(self, obs: Sequence[Tensor], extractor: nn.Module) -> Tensor:
        """What the layers after `extractor` take."""
        seen = self.seen(obs)
        space = self.policy.observation_space
        if isinstance(space, spaces.Dict):
            seen = {name: self._scaled(space[name], x) for name, x in seen.items()}
        else:
            seen = self._scaled(space, seen)
        return extractor(seen)  # type: ignore[no-any-return]

    def _scaled(self, space: spaces.Space[Any], x: Tensor) -> Tensor:
        is_bytes = self.policy.normalize_images and is_image_space(space)
        return x / 255.0 if is_bytes else x

    def _normalized(self, name: str, x: Tensor) -> Tensor:
        return self.normalizers[name](x) if name in self.normalizers else x


class _Normalizer(nn.Module):
    """`VecNormalize` for one observation."""

    mean: Tensor
    spread: Tensor

    def __init__(self, mean: Any, variance: Any, limit: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32))
        spread = torch.as_tensor(np.sqrt(variance), dtype=torch.float32)
        self.register_buffer("spread", spread)
        self.limit = float(limit)

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.spread).clamp(-self.limit, self.limit)


class _ActorCritic(_Model):
    """PPO, A2C, MaskablePPO: a normal distribution, or choices."""

    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        return self._actions(self.features(obs, self.policy.pi_features_extractor))

    def _actions(self, features: Tensor) -> dict[str, Tensor]:
        latent = self.policy.mlp_extractor.forward_actor(features)
        # Not by `get_distribution`: its checks of the values cannot be traced.
        outputs = self.policy.action_net(latent)
        if self.spec.action_spec.discrete_size:
            return {LOGITS: outputs}
        return drawn(outputs, self.policy.log_std.exp(), clipped)


class _Recurrent(_ActorCritic):
    """RecurrentPPO: the memory holds the hidden states of all layers, then their cells."""

    def __init__(self, model: Any, spec: BehaviorSpec) -> None:
        super().__init__(model, spec)
        lstm = self.policy.lstm_actor
        self.memory_size = 2 * lstm.num_layers * lstm.hidden_size

    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        assert memory is not None
        features = self.features(obs, self.policy.pi_features_extractor)
        latent, after = lstm_step(self.policy.lstm_actor, features, memory)
        return {**self._actions(latent), MEMORY: after}

    def _predicted(self, seen: Any, memory: Given) -> Tensor:
        assert memory is not None
        lstm = self.policy.lstm_actor
        parts = memory.view(-1, 2, lstm.num_layers, lstm.hidden_size)
        hidden, cell = parts.permute(1, 2, 0, 3).contiguous()
        starts = torch.zeros(len(memory))
        found: Tensor = self.policy._predict(seen, (hidden, cell), starts, True)[0]
        return found


class _Squashed(_Model):
    """SAC."""

    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        actor = self.policy.actor
        latent = actor.latent_pi(self.features(obs, actor.features_extractor))
        # The limits of SB3's `sac/policies.py`.
        log_std = actor.log_std(latent).clamp(-20.0, 2.0)
        return drawn(actor.mu(latent), log_std.exp(), torch.tanh)


class _Certain(_Model):
    """TD3, DDPG."""

    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        actor = self.policy.actor
        return certain(actor.mu(self.features(obs, actor.features_extractor)))


class _Q(_Model):
    """DQN."""

    sharpness = FORBIDDEN

    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        network = self.policy.q_net
        return greedy(
            network.q_net(self.features(obs, network.features_extractor)), masks
        )
