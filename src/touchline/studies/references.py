"""What a scene is compared with where no player is at hand: figures from Unity, or a normalizer.

`unity/` holds what policies did in running Unity scenes: ML-Agents' players (packages 2.1 to 3.0),
played with the official client, actions drawn as Unity draws them. The policies are those that ship
with ML-Agents Release 22, which their SHA-256 identifies, and uniform random ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from jaxtyping import Float

from touchline.bounded import MOST_JSON, read_bounded
from touchline.errors import UsageError, shortened
from touchline.policies.files.onnx_in import OnnxPolicy, load_model
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.policy import Policy, RandomPolicy, SlotActor
from touchline.specs import BehaviorSpec
from touchline.studies.comparison import EPISODE_FIGURES, Figures, figures_of
from touchline.studies.units import EPISODES, GAMES, Units, flat_size, observation_names
from touchline.whole import write_whole

UNITY = Path(__file__).parent / "unity"
"""`<scene>.<policy>.json`: figures measured in Unity."""
# Stored observations have four decimals.
_ROUNDING = 0.5e-4
_MOST_OF_A_FIRST_GUESS = 1e-3
"""What is left of it after a million observations."""


@dataclass(frozen=True)
class Reference:
    """Figures to compare with, by full behavior name."""

    kind: str
    """`player`, `statistics` or `normalizer`."""
    name: str
    figures: Mapping[str, Figures]


def find_reference(
    scene: str, actors: Mapping[str, SlotActor], statistics: Path | None
) -> Reference:
    """The figures of `statistics`, else those that are stored for this scene and these policies,
    else the policies' normalizers.

    Raises a UsageError for a file that cannot be used, and where there is nothing to compare with.
    """
    specs = {name: _spec(actor) for name, actor in actors.items()}
    policies = {name: actor.policy for name, actor in actors.items()}
    path = statistics or _stored(scene, policies)
    if path is not None:
        return Reference("statistics", path.stem, read_statistics(path, specs))
    figures = {}
    for name, policy in policies.items():
        normalizers = normalizers_of(policy, specs[name])
        if normalizers:
            figures[name] = _of_normalizers(normalizers, specs[name])
    if figures:
        return Reference("normalizer", "the policy's normalizer", figures)
    known = [file.stem for file in sorted(UNITY.glob("*.json"))]
    raise UsageError(
        f"nothing to compare {scene} with: this policy has no normalizer, and no figures from "
        f"Unity are stored for it (stored: {', '.join(known)}); give --env PLAYER or "
        "--statistics FILE"
    )


def read_statistics(
    path: Path, specs: Mapping[str, BehaviorSpec]
) -> dict[str, Figures]:
    """Full behavior name -> the figures in a file, as in `unity/`.

    Raises a UsageError for a file that is not one, or is about other behaviors.
    """
    try:
        behaviors: Any = json.loads(read_bounded(path, MOST_JSON))["behaviors"]
        found = {name: behaviors[name] for name in specs if name in behaviors}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{path}: not a file of statistics (expected JSON with 'behaviors'): "
            f"{shortened(str(error))}"
        ) from None
    if not found:
        raise UsageError(
            f"{path}: about other behaviors: it has {', '.join(behaviors) or 'none'}, the world "
            f"has {', '.join(specs)}"
        )
    return {name: _of_file(path, name, own, specs[name]) for name, own in found.items()}


def _of_file(path: Path, name: str, own: Any, spec: BehaviorSpec) -> Figures:
    size = len(observation_names(spec))
    parts = []
    unknown = [np.nan] * size
    for key in ("observation_mean", "observation_std"):
        # What is no mapping fails the next check, whose message shows what was expected.
        numbers = own.get(key, unknown) if isinstance(own, Mapping) else []
        if not isinstance(numbers, list) or len(numbers) != size:
            raise UsageError(
                f"{path}: {name}: {key}: expected a list of {size} numbers, one for each "
                f"observation index, got {shortened(repr(numbers), 40)}"
            )
        parts.append(numbers)
    episodes = own.get("episodes", 0)
    if not isinstance(episodes, int) or episodes < 1:
        raise UsageError(
            f"{path}: {name}: episodes: expected 1 or more, got {episodes!r}"
        )
    keys = ("mean_return", "mean_group_reward", "mean_length_decisions")
    first = [own.get(key, np.nan) for key in keys]
    first.append(own.get("interrupted", np.nan) / episodes)
    values = np.array([*first, *parts[0], *parts[1]], np.float64)
    # Members of a group share their games.
    num_units = max(episodes // own.get("group_size", 1), 1)
    return Figures(values, num_units, _ROUNDING)


def write_statistics(path: Path, played: Mapping[str, Units]) -> None:
    """Keep figures of units, so that `read_statistics` gives them."""
    behaviors = {}
    for name, units in played.items():
        values = figures_of(units)
        episodes = float(units.sums[:, EPISODES].sum())
        games = float(units.sums[:, GAMES].sum())
        first = len(EPISODE_FIGURES)
        means, spreads = np.split(values[first:], 2)
        behaviors[name] = {
            "episodes": round(episodes),
            "group_size": max(round(episodes / games), 1),
            "mean_return": values[0],
            "mean_group_reward": values[1],
            "mean_length_decisions": values[2],
            "interrupted": round(values[3] * episodes),
            "observation_mean": np.round(means, 4).tolist(),
            "observation_std": np.round(spreads, 4).tolist(),
        }
    write_whole(path, (json.dumps({"behaviors": behaviors}) + "\n").encode())


def _of_normalizers(normalizers: list[Normalizer], spec: BehaviorSpec) -> Figures:
    """Means and spreads where a normalizer has them; nothing is known of episodes."""
    sizes = [flat_size(sensor) for sensor in spec.observation_specs]
    ends = np.cumsum(sizes)
    mean = np.full(ends[-1], np.nan)
    spread = np.full(ends[-1], np.nan)
    for own in normalizers:
        # One normalizer may serve several sensors, side by side.
        places = [np.arange(ends[i] - sizes[i], ends[i]) for i in own.sensors]
        at = np.concatenate(places)
        mean[at] = own.mean
        spread[at] = _without_first_guess(own.spread)
    unknown = np.full(len(EPISODE_FIGURES), np.nan)
    return Figures(np.concatenate([unknown, mean, spread]), num_units=None)


def _without_first_guess(spread: Float[np.ndarray, " O"]) -> Float[np.ndarray, " O"]:
    """Spreads with 0 for what never varied."""
    # ML-Agents' normalizer begins with a variance of 1, as if that had been observed once. Of a
    # constant that leaves 1/√n after n observations: 0.0002 after 30 million, the least of all.
    least = spread.min()
    # All constants were observed equally often, so they share the least spread but for rounding.
    is_constant = (spread < 1.01 * least) & (least < _MOST_OF_A_FIRST_GUESS)
    return np.where(is_constant, 0.0, spread)


def _stored(scene: str, policies: Mapping[str, Policy]) -> Path | None:
    """The file of `unity/` for this scene, if all of its behaviors have the policy it is about."""
    for path in sorted(UNITY.glob(f"{scene}.*.json")):
        wanted = json.loads(path.read_text(encoding="utf-8"))["policy_sha256"]
        if all(_identity(policy) == wanted for policy in policies.values()):
            return path
    return None


def _identity(policy: Policy) -> str | None:
    if isinstance(policy, RandomPolicy):
        return "random"
    if isinstance(policy, OnnxPolicy):
        return hashlib.sha256(policy.path.read_bytes()).hexdigest()
    return None


def _spec(actor: SlotActor) -> BehaviorSpec:
    assert actor.spec is not None
    return actor.spec


# means and spreads of observations that a policy keeps to normalize them


class Normalizer(NamedTuple):
    """What a policy observed while it was trained, for some of its observations."""

    sensors: list[int]
    """Numbers of the sensors, whose values are side by side."""
    mean: Float[np.ndarray, " O"]
    spread: Float[np.ndarray, " O"]
    """Standard deviations."""


def normalizers_of(policy: Policy, spec: BehaviorSpec) -> list[Normalizer]:
    """The normalizers of a policy that fits `spec`; empty for one without."""
    vectors = [i for i, o in enumerate(spec.observation_specs) if len(o.shape) == 1]
    if isinstance(policy, OnnxPolicy):
        return list(_in_graph(policy.path, vectors))
    if isinstance(policy, NetworkPolicy) and policy.network.normalizer is not None:
        own = policy.network.normalizer
        mean = own.mean.numpy(force=True)
        scale = own.scale.numpy(force=True)
        return [Normalizer(vectors, mean.astype(np.float64), 1.0 / scale)]
    return []


def _in_graph(path: Path, vectors: list[int]) -> Iterator[Normalizer]:
    """Every (inputs - mean) / spread of a graph; Touchline's own multiply with 1 / spread."""
    graph = load_model(path).graph
    constants = {
        constant.name: onnx.numpy_helper.to_array(constant)
        for constant in graph.initializer
    }
    inputs = {given.name for given in graph.input}
    joined = {}
    shifted = {}
    for node in graph.node:
        if node.op_type == "Concat":
            joined[node.output[0]] = list(node.input)
        if node.op_type == "Sub":
            shifted[node.output[0]] = node
    # A normalizer is (x - mean) / spread, or times 1 / spread.
    for node in graph.node:
        before = shifted.get(node.input[0]) if node.input else None
        if before is None or node.op_type not in ("Div", "Mul"):
            continue
        names = joined.get(before.input[0], [before.input[0]])
        mean = constants.get(before.input[1])
        scale = constants.get(node.input[1])
        if mean is None or scale is None or not inputs.issuperset(names):
            continue
        spread = scale if node.op_type == "Div" else 1.0 / scale
        sensors = [number for name in names for number in _sensors(name, vectors)]
        means = np.ravel(mean).astype(np.float64)
        yield Normalizer(sensors, means, np.ravel(spread))


def _sensors(name: str, vectors: list[int]) -> list[int]:
    """The sensors that an input holds: one, or all vectors in model API 2."""
    return vectors if name == "vector_observation" else [int(name.rpartition("_")[2])]
