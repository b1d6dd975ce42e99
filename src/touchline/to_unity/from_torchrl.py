"""Actors of TorchRL that were trained over `touchline.make_torchrl`.

Their modules are called one after the other with plain tensors: a tensordict has no place in an
ONNX file. Of the last one, the distribution is read.

Checked against TorchRL 0.14.1.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from operator import eq
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import (
    CompositeDistribution,
    InteractionType,
    ProbabilisticTensorDictModule,
    TensorDictModule,
    set_interaction_type,
)
from tensordict.nn.sequence import TensorDictSequential
from torch import Tensor, nn
from torchrl.modules import GRUModule, LSTMModule, TanhModule
from torchrl.modules.tensordict_module.actors import QValueModule

from touchline.adapters.layout import Layout
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
CATEGORICALS = (
    "Categorical",
    "OneHotCategorical",
    "MaskedCategorical",
    "MaskedOneHotCategorical",
)
"""Distributions by the names of their classes."""
PARAMETERS = ("loc", "scale", "param", "logits", "probs")


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
        last = self.parts[-1]
        if isinstance(last, QValueModule):
            self.sharpness = FORBIDDEN
        self.heads: dict[str, _Head] = {}
        if isinstance(last, ProbabilisticTensorDictModule):
            self.heads = _heads(last)
            wanted = _action_names(spec)
            if self.heads.keys() != set(wanted):
                raise UsageError(
                    f"the actor draws {', '.join(self.heads)}; expected {', '.join(wanted)}"
                )
        self.lstm: nn.LSTM | None = None
        for part in self.parts:
            if isinstance(part, GRUModule) or (
                isinstance(part, LSTMModule) and self.lstm
            ):
                raise UsageError(
                    "expected one LSTMModule at most as the memory of an actor of TorchRL, and no "
                    "GRUModule"
                )
            if isinstance(part, LSTMModule):
                self.lstm = part.lstm
                self.memory_size = 2 * self.lstm.num_layers * self.lstm.hidden_size
        names = [sensor.name for sensor in spec.observation_specs]
        has_joined = any(
            # The name that `join_vectors` gives, unless a sensor has it.
            _words(key)[-1] == "vector"
            for key in self.policy.in_keys
            if "vector" not in names
        )
        self.layout = Layout(spec, join_vectors=has_joined)

    def act(self, obs: Sequence[Tensor], masks: Given, memory: Given) -> Results:
        values = self._values(obs, masks)
        found: dict[str, Tensor] = {}
        for part in self.parts:
            if isinstance(part, LSTMModule):
                assert memory is not None
                assert self.lstm is not None
                features = values[part.in_keys[0]]
                out, found[MEMORY] = lstm_step(self.lstm, features, memory)
                values[part.out_keys[0]] = out
            elif part is self.parts[-1] and self.heads:
                return {**found, **self._drawn(values)}
            elif part is self.parts[-1] and isinstance(part, QValueModule):
                return {**found, **greedy(values[part.in_keys[0]], masks)}
            elif isinstance(part, TanhModule):
                keys = zip(part.out_keys, part.in_keys, strict=True)
                values |= {after: torch.tanh(values[before]) for after, before in keys}
            elif type(part).forward is not TensorDictModule.forward:
                raise UsageError(
                    f"a {type(part).__name__} of TorchRL has no ONNX form here"
                )
            else:
                values |= _outputs(part, [values[key] for key in part.in_keys])
        given = [values[key] for key in part.out_keys if "action" in _words(key)]
        return {**found, **certain(torch.cat(given, dim=1))}

    def original(self, *inputs: Tensor) -> Results:
        obs, masks, memory = self.parted(inputs)
        tensordict = TensorDict({}, [len(obs[0])])
        for key, value in self._values(obs, masks).items():
            if value is not None:
                tensordict.set(key, value)
        for part in self.parts:
            if isinstance(part, LSTMModule):
                assert memory is not None
                states = memory.view(len(memory), 2, part.lstm.num_layers, -1)
                tensordict.set(part.in_keys[1], states[:, 0])
                tensordict.set(part.in_keys[2], states[:, 1])
                begins = torch.zeros(len(memory), 1, dtype=torch.bool)
                tensordict.set(part.in_keys[3], begins)
        with set_interaction_type(InteractionType.DETERMINISTIC):
            done = self.policy(tensordict)
        keys = {_words(key)[-1]: key for key in self.parts[-1].out_keys}
        actions = [done.get(keys[name]) for name in _action_names(self.spec)]
        found: dict[str, Tensor] = {}
        if self.spec.action_spec.continuous_size:
            found[DETERMINISTIC] = actions.pop(0)
        if actions:
            # One-hot, or the number of the choice.
            choices = [a.int().argmax(-1) if a.dim() > 1 else a for a in actions]
            found[CHOICES] = torch.stack(choices, dim=1)
        return found

    def _values(self, obs: Sequence[Tensor], masks: Given) -> dict[Any, Any]:
        """What the environment has, by the keys that the actor reads."""
        views = arranged(self.layout, obs)
        by_name = dict(zip([v.name for v in self.layout.views], views, strict=True))
        written: list[tuple[str, ...]] = []
        given: dict[Any, Any] = {}
        for part in self.parts:
            for key in part.in_keys:
                words = _words(key)
                # What a part before has written, the group that it has written into, or a part of
                # the TensorDict that it has written.
                if not any(all(map(eq, own, words)) for own in written):
                    given[key] = self._given(key, by_name, masks)
            written += map(_words, part.out_keys)
        return given

    def _given(
        self, key: Any, views: Mapping[str, Tensor], masks: Tensor | None
    ) -> Tensor | None:
        """What the environment has under a key."""
        words = _words(key)
        if "action_mask" in words and masks is not None:
            # Unity sends masks as floats; in training these modules got booleans.
            return self._masks(words[-1], masks > 0.5)
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

    def _masks(self, name: str, masks: Tensor) -> Tensor:
        """Those of one branch where they are nested."""
        sizes = list(self.spec.action_spec.discrete_branches)
        parts: Sequence[Tensor] = torch.split(masks, sizes, dim=1)
        by_name = {f"branch_{i}": part for i, part in enumerate(parts)}
        return by_name.get(name, masks)

    def _drawn(self, values: Mapping[Any, Tensor]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        logits = []
        for name in _action_names(self.spec):
            results = _distributed(self.heads[name], values)
            logits += [results.pop(LOGITS)] if LOGITS in results else []
            found |= results
        return {**found, LOGITS: torch.cat(logits, dim=1)} if logits else found


def _outputs(part: Any, tensors: Sequence[Any]) -> dict[Any, Tensor]:
    """What a `TensorDictModule` computes, called as tensordict calls it."""
    named = {}
    if part._kwargs is not None:
        named, tensors = dict(zip(part._kwargs, tensors, strict=True)), ()
    results = part._call_module(tensors, **named)
    if isinstance(results, Mapping) and all(key in results for key in part.out_keys):
        return {key: results[key] for key in part.out_keys}
    results = results if isinstance(results, tuple) else (results,)
    found: dict[Any, Tensor] = {}
    # A module may return more than it has keys for.
    for key, result in zip(part.out_keys, results, strict=False):
        if isinstance(result, TensorDictBase):
            leaves = result.items(True, True)
            found |= {(*_words(key), *_words(below)): leaf for below, leaf in leaves}
        found[key] = result
    return found


class _Head(NamedTuple):
    """The distribution of one part of the action."""

    kind: str
    settings: Mapping[str, Any]
    parameters: Mapping[str, Any]
    """The key of each of its parameters, by the parameter's name."""


def _heads(part: ProbabilisticTensorDictModule) -> dict[str, _Head]:
    """By the part of the action: `action` where there is one alone."""
    make: Any = part.distribution_class
    more = dict(part.distribution_kwargs)
    if isinstance(make, functools.partial):
        make, more = make.func, {**make.keywords, **more}
    if make is not CompositeDistribution:
        names = [_words(key)[-1] for key in part.dist_keys]
        parameters = dict(zip(names, part.in_keys, strict=True))
        return {"action": _head(make, more, parameters)}
    heads = {}
    (group,) = part.in_keys
    for key, kind in more["distribution_map"].items():
        name = _words((more.get("name_map") or {}).get(key, key))[-1]
        settings = (more.get("extra_kwargs") or {}).get(key, {})
        where = (*_words(group), *_words(key))
        parameters = {p: (*where, p) for p in PARAMETERS}
        heads[name] = _head(kind, settings, parameters)
    return heads


def _head(
    make: Any, settings: Mapping[str, Any], parameters: Mapping[str, Any]
) -> _Head:
    kind = getattr(make, "__name__", str(make))
    known = (*NORMALS, *DELTAS, *CATEGORICALS)
    if kind not in known:
        raise UsageError(
            f"a distribution of the class {kind} has no ONNX form; expected one of "
            f"{', '.join(known)}"
        )
    if kind not in CATEGORICALS:
        _refuse_other_limits(settings)
    return _Head(kind, settings, parameters)


def _distributed(head: _Head, values: Mapping[Any, Tensor]) -> dict[str, Tensor]:
    kind, more, parameters = head
    given = {p: values[key] for p, key in parameters.items() if key in values}
    if kind in NORMALS:
        mean = given["loc"]
        # TorchRL bounds the mean before it draws.
        if kind == "TanhNormal" and more.get("tanh_loc", False):
            # 5 is TorchRL's default.
            scale = more.get("upscale", 5.0)
            mean = torch.tanh(mean / scale) * scale
        limit = torch.tanh if kind == "TanhNormal" else clipped
        return drawn(mean, given["scale"], limit)
    if kind in DELTAS:
        action = given["param"]
        return certain(torch.tanh(action) if kind == "TanhDelta" else action)
    if "probs" in given:
        return {LOGITS: torch.log(given["probs"])}
    return {LOGITS: given["logits"]}


def _action_names(spec: BehaviorSpec) -> list[str]:
    """Of the parts of an action, as `make_torchrl` names them."""
    action = spec.action_spec
    names = ["continuous"] if action.continuous_size else []
    names += [f"branch_{i}" for i in range(len(action.discrete_branches))]
    return names if len(names) > 1 else ["action"]


def _parts(module: nn.Module) -> Iterator[Any]:
    """The modules of an actor in the order in which they are called."""
    if isinstance(module, TensorDictSequential):
        for part in module.module:
            yield from _parts(part)
    else:
        yield module


def _gives_action(part: Any) -> bool:
    kinds = ProbabilisticTensorDictModule, QValueModule, TanhModule
    is_known = isinstance(part, kinds) or type(part).forward is TensorDictModule.forward
    return is_known and any("action" in _words(key) for key in part.out_keys)


def _words(key: Any) -> tuple[str, ...]:
    return key if isinstance(key, tuple) else (key,)


def _refuse_other_limits(settings: Mapping[str, Any]) -> None:
    for name, limit in {"low": -1.0, "high": 1.0}.items():
        given = torch.as_tensor(settings.get(name, limit))
        if not bool((given == limit).all()):
            raise UsageError(
                f"the actor's actions have {name} {given.tolist()}; expected {limit}"
            )
