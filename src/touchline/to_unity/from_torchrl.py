"""Actors of TorchRL that were trained over `touchline.make_torchrl`.

Their modules are called one after the other with plain tensors: a tensordict has no place in an
ONNX file. Of the last one, the distribution is read.

Checked against TorchRL 0.14.1.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict.nn import ProbabilisticTensorDictModule, TensorDictModule
from tensordict.nn.sequence import TensorDictSequential
from torch import Tensor, nn
from torchrl.modules import LSTMModule
from torchrl.modules.tensordict_module.actors import QValueModule

from touchline.adapters.layout import Layout
from touchline.errors import UsageError
from touchline.policies.files.onnx_policy import LOGITS, MEMORY, Acting, Given, Results
from touchline.specs import BehaviorSpec
from touchline.to_unity.actions import (
    arranged,
    certain,
    clipped,
    drawn,
    greedy,
    lstm_step,
)

NORMALS = ("Normal", "IndependentNormal", "TanhNormal")
DELTAS = ("Delta", "TanhDelta")
CHOICES = (
    "Categorical",
    "OneHotCategorical",
    "MaskedCategorical",
    "MaskedOneHotCategorical",
)
"""Distributions by the names of their classes."""


class FromTorchRL(Acting):
    """An actor: modules of tensordict in a row."""

    def __init__(self, actor: Any, spec: BehaviorSpec) -> None:
        super().__init__(spec)
        self.policy: Any = actor
        self.parts = list(_parts(actor))
        # What comes after the action, such as a critic or the noise of exploration, is not needed.
        while self.parts and not _gives_action(self.parts[-1]):
            self.parts.pop()
        if not self.parts:
            raise UsageError(
                f"the actor gives {actor.out_keys}; expected a key `action`"
            )
        self.lstm: nn.LSTM | None = None
        for part in self.parts:
            if isinstance(part, LSTMModule):
                self.lstm = part.lstm
                self.memory_size = 2 * self.lstm.num_layers * self.lstm.hidden_size
        names = [sensor.name for sensor in spec.observation_specs]
        has_joined = any(
            _words(key)[-1] == "vector"
            for key in self.policy.in_keys
            if "vector" not in names
        )
        self.layout = Layout(spec, join_vectors=has_joined)

    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        views = arranged(self.layout, obs)
        by_name = dict(zip([v.name for v in self.layout.views], views, strict=True))
        values: dict[Any, Any] = {
            key: self._given(key, by_name, masks) for key in self.policy.in_keys
        }
        found: dict[str, Tensor] = {}
        for part in self.parts:
            if isinstance(part, LSTMModule):
                assert memory is not None
                assert self.lstm is not None
                features = values[part.in_keys[0]]
                out, found[MEMORY] = lstm_step(self.lstm, features, memory)
                values[part.out_keys[0]] = out
            elif part is self.parts[-1] and isinstance(
                part, ProbabilisticTensorDictModule
            ):
                return {**found, **self._distributed(part, values)}
            elif part is self.parts[-1] and isinstance(part, QValueModule):
                return {**found, **greedy(values[part.in_keys[0]], masks)}
            elif type(part).forward is not TensorDictModule.forward:
                raise UsageError(
                    f"a {type(part).__name__} of TorchRL has no ONNX form here"
                )
            else:
                results = part.module(*(values[key] for key in part.in_keys))
                results = results if isinstance(results, tuple) else (results,)
                # A module may return more than it has keys for.
                values |= zip(part.out_keys, results, strict=False)
        (action,) = (
            values[key] for key in part.out_keys if _words(key)[-1] == "action"
        )
        return {**found, **certain(action)}

    def _given(
        self, key: Any, views: Mapping[str, Tensor], masks: Tensor | None
    ) -> Tensor | None:
        """What the environment has under a key."""
        words = _words(key)
        if words[-1] == "action_mask" and masks is not None:
            return masks > 0.5
        if words[-1] == "observation" and len(views) == 1:
            return next(iter(views.values()))
        if words[-1] in views:
            return views[words[-1]]
        if self.lstm is not None:
            return None  # its states, and whether an episode begins
        raise UsageError(
            f"the actor reads {key!r}, which the behavior does not have; it has observations "
            f"{', '.join(views)}"
        )

    def _distributed(
        self, part: ProbabilisticTensorDictModule, values: Mapping[Any, Tensor]
    ) -> dict[str, Tensor]:
        given = {
            name: values[key]
            for name, key in zip(part.dist_keys, part.in_keys, strict=True)
        }
        more = part.distribution_kwargs
        kind = getattr(
            part.distribution_class, "__name__", str(part.distribution_class)
        )
        if kind in NORMALS:
            _refuse_other_limits(more)
            mean = given["loc"]
            # TorchRL bounds the mean before it draws.
            if more.get("tanh_loc", False):
                mean = torch.tanh(mean / more.get("upscale", 5.0)) * more.get(
                    "upscale", 5.0
                )
            limit = torch.tanh if kind == "TanhNormal" else clipped
            return drawn(mean, given["scale"], limit)
        if kind in DELTAS:
            _refuse_other_limits(more)
            (action,) = given.values()
            return certain(torch.tanh(action) if kind == "TanhDelta" else action)
        if kind in CHOICES and "logits" in given:
            return {LOGITS: given["logits"]}
        if kind in CHOICES and "probs" in given:
            return {LOGITS: torch.log(given["probs"])}
        raise UsageError(
            f"a distribution of the class {kind} has no ONNX form; expected one of "
            f"{', '.join((*NORMALS, *DELTAS, *CHOICES))}"
        )


def _parts(module: nn.Module) -> Iterator[Any]:
    """The modules of an actor in the order in which they are called."""
    if isinstance(module, TensorDictSequential):
        for part in module.module:
            yield from _parts(part)
    else:
        yield module


def _gives_action(part: Any) -> bool:
    kinds = ProbabilisticTensorDictModule, QValueModule
    is_known = isinstance(part, kinds) or type(part).forward is TensorDictModule.forward
    return is_known and any(_words(key)[-1] == "action" for key in part.out_keys)


def _words(key: Any) -> tuple[str, ...]:
    return key if isinstance(key, tuple) else (key,)


def _refuse_other_limits(settings: Mapping[str, Any]) -> None:
    for name, limit in {"low": -1.0, "high": 1.0}.items():
        given = torch.as_tensor(settings.get(name, limit))
        if not bool((given == limit).all()):
            raise UsageError(
                f"the actor's actions have {name} {given.tolist()}; expected {limit}"
            )
