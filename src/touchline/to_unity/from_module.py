"""Plain torch modules, and agents in the manner of CleanRL, which are torch modules, too.

CleanRL has no base classes; its files agree in the names of an agent's parts. Of these:

- `actor_mean` and `actor_logstd` (`ppo_continuous_action.py`): a normal distribution;
- `actor`, after `network` where there is one (`ppo.py`, `ppo_atari.py`): logits of all branches;
- `fc_mean` and `fc_logstd` (`sac_continuous_action.py`): a squashed normal;
- a class `QNetwork` (`dqn.py`): values of all choices.

What lies between parts that have other names cannot be known, so such agents are refused.

Source: https://docs.cleanrl.dev, version 1.2.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from touchline.errors import UsageError
from touchline.policies.files.onnx_policy import (
    CONTINUOUS,
    DETERMINISTIC,
    FORBIDDEN,
    LOGITS,
    MEMORY,
    Acting,
    Given,
    Results,
)
from touchline.specs import BehaviorSpec
from touchline.to_unity.actions import certain, clipped, drawn, greedy

RESULTS = (CONTINUOUS, DETERMINISTIC, LOGITS, MEMORY)
PARTS = {"actor_mean": ("actor_mean", "actor_logstd"), "actor": ("network", "actor")}
"""The parts of agents without a `forward`, by the one that acts; there are critics, too."""
SQUASHED = ("fc_mean", "fc_logstd", "action_scale", "action_bias")
MASKS = "action_masks"


def from_module(module: nn.Module, spec: BehaviorSpec) -> Acting:
    # An agent of CleanRL's PPO has parts, and no `forward` that uses them.
    has_forward = type(module).forward is not nn.Module.forward
    is_agent = not has_forward and any(hasattr(module, part) for part in PARTS)
    # One of its SAC has all of these; other modules may have some of the names.
    is_agent |= all(hasattr(module, part) for part in SQUASHED)
    if is_agent or type(module).__name__ == "QNetwork":
        return FromCleanRL(module, spec)
    return FromModule(module, spec)


class FromModule(Acting):
    """A module that takes one observation [B, *shape] for each sensor.

    After these it gets `action_masks` [B, choices] (1 = allowed) and `memory` [B, M] where its
    `forward` has parameters of these names; its attribute `memory_size` is M. It returns one
    tensor, the continuous actions in [-1, 1] followed by the logits of all branches, or a dict with
    the keys of `Acting.act`.
    """

    def __init__(self, module: nn.Module, spec: BehaviorSpec) -> None:
        super().__init__(spec)
        self.policy = module
        self.memory_size = getattr(module, "memory_size", 0)
        if not isinstance(self.memory_size, int) or self.memory_size < 0:
            raise UsageError(
                f"memory_size: expected a whole number from 0 on, got {self.memory_size!r}"
            )
        self._parameters_of = set(inspect.signature(module.forward).parameters)
        if MASKS in self._parameters_of and not spec.action_spec.discrete_size:
            raise UsageError(
                f"the policy takes {MASKS}, but the behavior has no branches, so Unity sends none"
            )
        if self.memory_size and MEMORY not in self._parameters_of:
            raise UsageError(
                f"the policy has a memory_size of {self.memory_size}; expected that its forward "
                "takes a parameter `memory`"
            )

    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        given: dict[str, Any] = {MASKS: masks, MEMORY: memory}
        more = {n: v for n, v in given.items() if n in self._parameters_of}
        found = self.policy(*obs, **more)
        if isinstance(found, Tensor):
            size = self.spec.action_spec.continuous_size
            named = {**certain(found[:, :size]), LOGITS: found[:, size:]}
            if not size:
                named = {LOGITS: found}
            elif not self.spec.action_spec.discrete_size:
                named = certain(found)
            return named
        if not isinstance(found, Mapping) or not found.keys() <= set(RESULTS):
            keys = sorted(found) if isinstance(found, Mapping) else type(found).__name__
            raise UsageError(
                f"the policy returns {keys}; expected a tensor, or a dict of tensors with the keys "
                f"{', '.join(RESULTS)}"
            )
        if CONTINUOUS in found and DETERMINISTIC not in found:
            return {**found, DETERMINISTIC: found[CONTINUOUS]}
        return found


class FromCleanRL(Acting):
    """An agent in the manner of CleanRL; vectors of several sensors are joined."""

    def __init__(self, agent: nn.Module, spec: BehaviorSpec) -> None:
        super().__init__(spec)
        self.policy: Any = agent
        _refuse_other_parts(agent)
        if type(agent).__name__ == "QNetwork":
            self.sharpness = FORBIDDEN
        ranks = [len(o.shape) for o in spec.observation_specs]
        if len(ranks) > 1 and max(ranks) > 1:
            raise UsageError(
                "an agent of CleanRL takes one observation; wrap it in a module that takes one "
                "for each sensor"
            )
        if type(agent).__name__ == "QNetwork" and max(ranks) > 1:
            raise UsageError(
                "a QNetwork that sees pictures divides them by 255, or does not; wrap it in a "
                "torch module that takes colors from 0 to 1 and export that"
            )

    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        policy = self.policy
        x = obs[0] if len(obs) == 1 else torch.cat(list(obs), dim=1)
        if hasattr(policy, "actor_mean"):
            return drawn(policy.actor_mean(x), policy.actor_logstd.exp(), clipped)
        if hasattr(policy, "fc_mean"):
            mean, log_std = policy(x)
            return drawn(mean, log_std.exp(), self._scaled)
        if hasattr(policy, "actor"):
            network = getattr(policy, "network", nn.Identity())
            return {LOGITS: policy.actor(network(x))}
        return greedy(policy(x), masks)

    def _scaled(self, u: Tensor) -> Tensor:
        squashed = torch.tanh(u)
        scaled: Tensor = squashed * self.policy.action_scale + self.policy.action_bias
        return scaled


def _refuse_other_parts(agent: nn.Module) -> None:
    known = next((PARTS[name] for name in PARTS if hasattr(agent, name)), None)
    if known is None or type(agent).forward is not nn.Module.forward:
        return  # its own `forward` says what it does with its parts
    own = [*dict(agent.named_children()), *agent.state_dict()]
    names = dict.fromkeys(name.partition(".")[0] for name in own)
    others = [n for n in names if n not in known and "critic" not in n]
    if others:
        raise UsageError(
            f"an agent in the manner of CleanRL: expected the parts {' and '.join(known)}, and "
            f"critics, got {', '.join(others)}; wrap what acts in a torch module and export that"
        )
