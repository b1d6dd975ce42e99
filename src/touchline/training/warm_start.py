"""Starting a run with networks of an earlier one: `initialize_from` and `init_path`.

The earlier one may be a run of ML-Agents: its `.pt` checkpoints and any of its ONNX files serve.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from touchline.errors import UsageError
from touchline.policies.files.checkpoints import read_checkpoint, spec_of
from touchline.policies.files.run_layout import CHECKPOINT, MODEL, RunLayout
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.network import TakesOtherSizes
from touchline.policies.policy import require_fit
from touchline.specs import BehaviorSpec
from touchline.training.algorithms.learner import Learner, TakesOfficialNetworks
from touchline.training.config.settings import CheckpointSettings, RunConfig

_NETWORK = "network."
"""The prefix of the policy's parameters in a checkpoint."""


def first_checkpoint(config: RunConfig, behavior: str) -> Path | None:
    """The checkpoint that a behavior starts with, which exists; None: it starts from nothing."""
    settings, behavior_config = config.checkpoint_settings, config.behavior(behavior)
    given = behavior_config.init_path if behavior_config else None
    if given is None and settings.initialize_from is None:
        return None
    path = _path(settings, behavior, given)
    if not path.is_file():
        raise UsageError(f"{path}: no such checkpoint to start {behavior} with")
    own = Path(settings.results_dir, settings.run_id).resolve()
    if settings.force and own in path.resolve().parents:
        raise UsageError(
            f"{path}: --force would delete it before {behavior} starts with it; "
            "choose another --run-id"
        )
    return path


def _path(settings: CheckpointSettings, behavior: str, given: str | None) -> Path:
    """`given` is a path, or a file's bare name in the run of `initialize_from`."""
    if given is None:
        return _earlier_run(settings).start(behavior)
    is_bare = Path(given).name == given
    if is_bare and settings.initialize_from is not None:
        hint = f"; if {given} is a file here, write ./{given}"
        return _earlier_run(settings, hint).folder(behavior) / given
    path = Path(given)
    if not path.is_dir():
        return path
    if RunLayout(path).folder(behavior).is_dir():
        return RunLayout(path).start(behavior)
    return RunLayout(path.parent).start(path.name)


def _earlier_run(settings: CheckpointSettings, hint: str = "") -> RunLayout:
    """The run of `initialize_from`, which exists."""
    assert settings.initialize_from is not None
    if settings.initialize_from == settings.run_id:
        raise UsageError(
            f"initialize_from: the run {settings.run_id} cannot start from itself; "
            "--resume continues it"
        )
    run = RunLayout(Path(settings.results_dir) / settings.initialize_from)
    if not run.path.is_dir():
        raise UsageError(
            f"initialize_from: there is no run {run.path}; train it first, or name another{hint}"
        )
    return run


def warm_start(
    learner: Learner, behavior: str, path: Path, signals: Sequence[str]
) -> None:
    """Give a new learner the networks and optimizer of a checkpoint.

    Files of ML-Agents give networks without optimizer and temperatures, ONNX files and published
    checkpoints the policy alone; so does a policy for another size of the same game, where the
    network can take one.
    `signals` are the reward signals of the learner's value heads. Its steps and random draws stay
    its own.
    Raises a UsageError when the file does not fit.
    """
    if path.suffix != CHECKPOINT:
        learner.load_state(_official_state(learner, behavior, path, signals))
        return
    saved, metadata = read_checkpoint(path)
    # Published policies are kept in 16 bits; learning adds steps that are too small for these.
    state = {n: t.float() if t.dtype == torch.float16 else t for n, t in saved.items()}
    spec = spec_of(path, metadata)
    heads = metadata.get("reward_signals", [])
    draws = learner.generator.get_state()
    try:
        resized = _resized(learner, spec, state)
        if resized is None:
            # Shapes only: sensors may have other names, and 0.1.0 marked fewer of their
            # dimensions.
            require_fit(str(path), spec, behavior, learner.policy.network.spec)
        if heads and heads != list(signals):
            raise UsageError(
                f"{path}: its values are of the reward signals {', '.join(heads)}; expected those "
                f"of the configured ones, {', '.join(signals)}, in this order"
            )
        if resized is None and all(name.startswith(_NETWORK) for name in state):
            resized = _besides_network(learner) | state
        learner.load_state(state if resized is None else resized)
    except (KeyError, RuntimeError) as error:
        reason = str(error).replace("\n", " ")
        raise UsageError(
            f"{path}: does not fit the configured network: {reason}"
        ) from None
    # The new run's seed decides its draws, not the checkpoint's.
    learner.generator.set_state(draws)


def _resized(
    learner: Learner, spec: BehaviorSpec, state: Mapping[str, Tensor]
) -> dict[str, Tensor] | None:
    """A learner's state with the weights of another size of its game; None if it is not one."""
    network = learner.policy.network
    if not isinstance(network, TakesOtherSizes):
        return None
    weights = {
        name.removeprefix(_NETWORK): tensor
        for name, tensor in state.items()
        if name.startswith(_NETWORK)
    }
    found = network.resized(spec, weights)
    if found is None:
        return None
    named = {_NETWORK + name: tensor for name, tensor in found.items()}
    return _besides_network(learner) | named


def _besides_network(learner: Learner) -> dict[str, Tensor]:
    """What a learner has learned but for the policy: a file has to bring all of that."""
    learned = learner.learned()
    return {n: part for n, part in learned.items() if not n.startswith(_NETWORK)}


def _official_state(
    learner: Learner, behavior: str, path: Path, signals: Sequence[str]
) -> dict[str, Tensor]:
    # onnxruntime, which other starts do not need, takes half a second to load.
    from touchline.policies.files.official_weights import (
        read_official,
        with_official_weights,
    )
    from touchline.policies.files.onnx_in import OnnxPolicy

    network = learner.policy.network
    if not isinstance(network, ActorCritic):
        raise UsageError(
            f"{path}: ML-Agents has no network like {network.spec.network!r} of {behavior}"
        )
    if path.suffix == MODEL:
        OnnxPolicy(path).check(behavior, network.spec)
    weights = read_official(path)
    if isinstance(learner, TakesOfficialNetworks):
        return learner.learned() | learner.official_networks(weights, signals)
    # Where a critic of its own holds the value heads, the network has only the first.
    filled = with_official_weights(network, weights, signals[: network.num_signals])
    own = {_NETWORK + name: tensor for name, tensor in filled.items()}
    return learner.learned() | own
