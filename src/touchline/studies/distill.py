"""A small network that plays like a large one: a student learns from its teacher's decisions.

The student sees what it will see: first the teacher plays, then more and more the student, and at
every decision the teacher says what it would do. All that was seen so far is learned from again
after each round.

Source: Ross et al. 2011, "A Reduction of Imitation Learning and Structured Prediction to No-Regret
Online Learning" (DAgger), arXiv:1011.0686.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import cos, pi, prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from touchline.bounded import read_json
from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import SlotRows, Slots
from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.log import Progress, no_progress
from touchline.policies.distributions import CONTINUOUS_LIMIT, ActionDistribution
from touchline.policies.files.onnx_in import OnnxPolicy, load_model
from touchline.policies.files.onnx_out import build_onnx
from touchline.policies.files.run_layout import RunLayout, is_run, path_of
from touchline.policies.loading import (
    PolicySource,
    as_trained,
    load_policies,
    sources_in,
)
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.network import Architecture, side_by_side
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.policy import SlotActor, Transparent
from touchline.specs import ActionTuple, BehaviorSpec, base_name
from touchline.training.evaluation import evaluate
from touchline.whole import require_writable, write_whole

ROUNDS = 10
AREAS = 32
"""Areas of a scene that are played in; chosen by trial, as the figures below."""
BATCH = 512
PASSES, LAST_PASSES = 2, 20
"""Over all that was seen so far, after each round and at the end."""
RATE = 2e-3
"""Adam's step size; at the end it falls to 0 along half a cosine."""
TIMED = 2_000
"""Decisions of which the median time is taken."""


def distill(
    run: Annotated[PolicySource | Sequence[PolicySource], Flag("RUN")],
    output: Annotated[str | os.PathLike[str], Flag(short="-o")],
    *,
    world: Annotated[str | None, Flag("--env", "ENV")] = None,
    behavior: str | None = None,
    hidden_units: Annotated[int, Flag(min=1)] = 32,
    num_layers: Annotated[int, Flag(min=1)] = 1,
    decisions: Annotated[int, Flag(min=10)] = 200_000,
    episodes: Annotated[int, Flag(min=1)] = 100,
    deterministic: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Train a small network on the play of a trained policy, and compare both.

    Parameters
    ----------
    run
        The teacher: a run folder, a checkpoint or an ONNX file; all of them where each of several
        behaviors has a file of its own.
    output
        The ONNX file of the student.
    world
        The environment to play in, where RUN is no run of a built-in scene.
    behavior
        Which behavior, when the environment has several.
    hidden_units
        Width of each of the student's dense layers.
    num_layers
        The student's dense layers.
    decisions
        Decisions of the teacher to learn from.
    episodes
        Episodes of the comparison, for each of the two.
    deterministic
        As in `evaluate`.
    seed
        Seed of all random numbers.
    progress
        Called with the decisions that were learned from, and their total.

    Returns
    -------
    dict
        `teacher` and `student`, each with `policy`, `mean_return`, `ci95`, `weights`, `bytes` and
        `decision_us`, the median time of one decision in ONNX Runtime; and `kept`, the student's
        share of the teacher's return.

    Raises
    ------
    UsageError
        The teacher cannot be loaded, has a memory, or is smaller than the student.
    """
    numbers = {
        "hidden_units": (hidden_units, 1),
        "num_layers": (num_layers, 1),
        "decisions": (decisions, 10),
        "episodes": (episodes, 1),
    }
    for name, (given, least) in numbers.items():
        if not isinstance(given, int) or given < least:
            raise UsageError(
                f"{name}: expected a whole number from {least} on, got {given!r}"
            )
    sources, target = sources_in(run), Path(output)
    if target.suffix != ".onnx":
        raise UsageError(f"{target}: expected a file NAME.onnx")
    teachers = filter(Path.exists, map(path_of, sources))
    is_teacher = target.exists() and any(map(target.samefile, teachers))
    if is_teacher or target.is_dir():
        kind = "the teacher" if is_teacher else "a folder"
        raise UsageError(f"--output {target} is {kind}; expected another file")
    require_writable(target)
    recipe = replace(_world_of(sources, world), seed=seed)
    with make(recipe) as env:
        slots = Slots(env)
        rows = slots.reset(seed)
        name = _chosen(slots.behaviors, behavior)
        actors = load_policies(sources, slots.behaviors, seed=seed, world=env)
        full = next(n for n in actors if base_name(n) == name)
        teachers_of = {a.name for n, a in actors.items() if base_name(n) == name}
        if len(teachers_of) > 1:
            raise UsageError(
                f"{name} has two teachers, {' and '.join(sorted(teachers_of))}; expected one"
            )
        before, spec = _teacher_model(actors[full], name), slots.behaviors[full]
        student = _new_student(spec, Architecture(hidden_units, num_layers, True), seed)
        _refuse_larger(before, build_onnx(student))
        lessons = _Lessons(student, spec, seed)
        for number in range(ROUNDS):
            wanted = (number + 1) * decisions // ROUNDS
            share = number / (ROUNDS - 1)
            while len(lessons) < wanted:
                rows = _step(slots, rows, actors, lessons, name, share)
                progress(min(len(lessons), decisions), decisions)
            lessons.learn(PASSES)
        lessons.learn(LAST_PASSES, falls=True)
    model = build_onnx(student)
    write_whole(target, model.SerializeToString())
    figures: dict[str, Any] = {}
    others = {base_name(full): actor.name for full, actor in actors.items()}
    for role, policy, graph in (
        ("teacher", others[name], before),
        ("student", str(target), model),
    ):
        players = {**others, name: policy}
        played = evaluate(
            recipe,
            [f"{own}={source}" for own, source in players.items()],
            episodes=episodes,
            deterministic=deterministic,
            # Other games than those that it learned from.
            seed=seed + 1,
        )["behaviors"][name]
        figures[role] = {
            "policy": policy,
            "mean_return": played["mean_return"],
            "ci95": played["ci95"],
            **_size(graph),
        }
    returns = [figures[role]["mean_return"] for role in ("student", "teacher")]
    return {
        "scene": recipe.target,
        "behavior": name,
        "decisions": len(lessons),
        **figures,
        # Of a return below zero, a share says nothing.
        "kept": returns[0] / returns[1] if returns[1] > 0 else None,
    }


def distill_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{figures['scene']}, {figures['behavior']}: learned from "
        f"{figures['decisions']:,} decisions of the teacher"
    )
    yield f"{'':8}{'return':>20}{'weights':>12}{'bytes':>12}{'one decision':>16}"
    for role in ("teacher", "student"):
        own = figures[role]
        played = f"{own['mean_return']:.2f}"
        if own["ci95"] is not None:
            played += f" ± {(own['ci95'][1] - own['ci95'][0]) / 2:.2f}"
        yield (
            f"{role:8}{played:>20}{own['weights']:>12,}{own['bytes']:>12,}"
            f"{own['decision_us']:>13.1f} µs"
        )
    if figures["kept"] is not None:
        yield f"the student keeps {100 * figures['kept']:.1f} % of the return"
    yield f"wrote {figures['student']['policy']}"


def _world_of(sources: Sequence[str], world: str | None) -> EnvRecipe:
    source = path_of(sources[0])
    if world is None and is_run(source):
        status = read_json(RunLayout(source).status)
        world = str(status.get("target")) if status.get("world") == "scene" else None
    if world is None and not source.exists():
        raise UsageError(f"{source}: no such run or policy file")
    if world is None:
        raise UsageError(f"{source}: name the environment to play in, --env ENV")
    recipe = as_trained(EnvRecipe.parse(world), sources)
    return replace(recipe, num_areas=AREAS) if recipe.kind.is_scene else recipe


def _chosen(behaviors: Mapping[str, BehaviorSpec], wanted: str | None) -> str:
    """The base name of the behavior to distill."""
    names = list(dict.fromkeys(map(base_name, behaviors)))
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted not in names:
        given = "--behavior" if wanted is None else f"--behavior {wanted}"
        raise UsageError(f"{given}: expected one of {', '.join(names)}")
    return wanted


def _teacher_model(teacher: SlotActor, name: str) -> onnx.ModelProto:
    """The teacher's ONNX model. Raises a UsageError for a teacher that cannot be learned from."""
    policy, source = teacher.policy, teacher.name
    if teacher.memory is not None:
        raise UsageError(
            f"{source}: the teacher of {name} has a memory; only policies without one are distilled"
        )
    if isinstance(policy, NetworkPolicy):
        return build_onnx(policy.network)
    if isinstance(policy, OnnxPolicy):
        return load_model(policy.path)
    raise UsageError(f"{source}: expected a trained policy as the teacher")


def _new_student(
    spec: BehaviorSpec, architecture: Architecture, seed: int
) -> ActorCritic:
    # The caller's random numbers stay as they are; nothing here is on a GPU.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ActorCritic(spec.observed, architecture)


def _refuse_larger(teacher: onnx.ModelProto, student: onnx.ModelProto) -> None:
    own, most = _num_weights(student), _num_weights(teacher)
    if own > most:
        raise UsageError(
            f"the student would have {own:,} weights, its teacher has {most:,}; take fewer "
            "--hidden-units or --num-layers"
        )


def _step(
    slots: Slots,
    rows: Mapping[str, SlotRows],
    actors: Mapping[str, SlotActor],
    lessons: _Lessons,
    name: str,
    share: float,
) -> dict[str, SlotRows]:
    """One decision of all agents; the student acts for this share of those that it imitates."""
    actions = {}
    for full, row in rows.items():
        actor = actors[full]
        actions[full] = actor.act(row)
        if base_name(full) == name:
            actions[full] = lessons.observe(row, actor, actions[full], share)
    return slots.step(actions)


class _Lessons:
    """A student with all decisions that it has seen, in pieces."""

    def __init__(self, student: ActorCritic, spec: BehaviorSpec, seed: int) -> None:
        self.student = student
        self._obs: list[tuple[NDArray[np.float32], ...]] = []
        self._masks: list[NDArray[np.bool_]] = []
        self._shown: list[NDArray[np.float32]] = []
        """[N, C], most likely continuous actions, and the probabilities of all choices."""
        self._noise: list[NDArray[np.float32]] = []
        """[N, C], how far drawn actions were from those; NaN where one of them met a limit."""
        self._size = spec.action_spec.continuous_size
        self._actor = SlotActor(NetworkPolicy(student), spec, seed + 1)
        self._random = np.random.default_rng(seed)
        self._generator = torch.Generator().manual_seed(seed)
        # The spread is computed from the teacher's actions (`_set_spread`), not learned.
        weights = [p for n, p in student.named_parameters() if n != "log_std"]
        # PyTorch's own, because speed does not matter here.
        self._adam = torch.optim.Adam(weights, RATE)

    def __len__(self) -> int:
        return sum(map(len, self._shown))

    def observe(
        self, rows: SlotRows, teacher: SlotActor, taken: ActionTuple, share: float
    ) -> ActionTuple:
        """Keep what the teacher would do now; returns what is done."""
        deciding = np.flatnonzero(rows.deciding)
        if not len(deciding):
            return taken
        assert isinstance(teacher.policy, Transparent)
        outlook = teacher.policy.outlook(rows, None)
        obs = side_by_side(rows.obs)
        self._obs.append(tuple(part[deciding] for part in obs))
        if rows.action_mask is not None:
            self._masks.append(rows.action_mask[deciding])
        mode = outlook.continuous[deciding]
        parts = [mode, *(p[deciding] for p in outlook.probabilities)]
        self._shown.append(np.concatenate(parts, axis=1).astype(np.float32))
        drawn = taken.continuous[deciding]
        # Near a limit half of the noise is cut off, and the spread would seem smaller than it is.
        is_free = (np.abs(mode) < 0.5) & (np.abs(drawn) < 1.0)
        self._noise.append(np.where(is_free, drawn - mode, np.nan))
        own = self._actor.act(rows)
        is_own = (self._random.random(len(rows)) < share)[:, None]
        return ActionTuple(
            np.where(is_own, own.continuous, taken.continuous),
            np.where(is_own, own.discrete, taken.discrete),
        )

    def learn(self, passes: int, *, falls: bool = False) -> None:
        """Learn from everything this many times; with `falls`, in smaller and smaller steps."""
        columns = list(zip(*self._obs, strict=True))
        raw = tuple(torch.from_numpy(np.concatenate(column)) for column in columns)
        shown = torch.from_numpy(np.concatenate(self._shown))
        masks = None
        if self._masks:
            masks = torch.from_numpy(np.concatenate(self._masks))
        normalizer = self.student.normalizer
        if normalizer is not None:
            fresh = type(normalizer)(raw[0].shape[1])
            fresh.update(raw[0])
            normalizer.load_state_dict(fresh.state_dict())
        self._set_spread()
        total = passes * -(-len(shown) // BATCH)
        done = 0
        for _ in range(passes):
            order = torch.randperm(len(shown), generator=self._generator)
            for index in torch.split(order, BATCH):
                if falls:
                    rate = RATE * 0.5 * (1.0 + cos(pi * done / total))
                    self._adam.param_groups[0]["lr"] = rate
                obs = self.student.normalized(tuple(part[index] for part in raw))
                allowed = None if masks is None else masks[index]
                loss = self._loss(self.student.distribution(obs, allowed), shown[index])
                self._adam.zero_grad()
                torch.autograd.backward(loss)
                self._adam.step()
                done += 1
        # The policy acts by what it has prepared from the weights, which have changed.
        self._actor.policy.forget_actor()  # type: ignore[attr-defined]

    def _set_spread(self) -> None:
        """The spread of the teacher's actions, where neither limit was met."""
        if self.student.log_std is None:
            return
        spread = np.nanstd(np.concatenate(self._noise), axis=0)
        # A deterministic teacher has none.
        spread = np.maximum(np.nan_to_num(spread, nan=0.1), 1e-4)
        with torch.no_grad():
            raw = torch.from_numpy(CONTINUOUS_LIMIT * spread)
            self.student.log_std.copy_(torch.log(raw))

    def _loss(self, own: Any, shown: Float[Tensor, "B A"]) -> Float[Tensor, ""]:
        """E[(a − a*)²] of continuous actions − E[Σ p* ln p] of all choices."""
        assert isinstance(own, ActionDistribution)
        loss = shown.new_zeros(())
        if self._size:
            action = own.mean / CONTINUOUS_LIMIT
            wanted = shown[:, : self._size]
            # Beyond a limit all actions are the same.
            error = torch.where(
                (wanted.abs() >= 1.0) & (action * wanted >= 1.0), 0.0, action - wanted
            )
            loss = loss + error.square().mean()
        if len(own.log_probs):
            log_probs = torch.cat(list(own.log_probs), dim=1)
            chances = shown[:, self._size :]
            # What is masked has the chance 0, and a logarithm of about -1e8.
            terms = torch.where(chances > 0, chances * log_probs, 0.0)
            loss = loss - terms.sum(dim=1).mean() / len(own.log_probs)
        return loss


def _num_weights(model: onnx.ModelProto) -> int:
    """The numbers of a model that were learned, and its few constants."""
    floats = [
        t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT
    ]
    return sum(prod(tensor.dims) for tensor in floats)


def _size(model: onnx.ModelProto) -> dict[str, Any]:
    """How large a model is, and how long one decision of one agent takes."""
    content = model.SerializeToString()
    options = ort.SessionOptions()
    # For one agent, handing work to a second thread takes longer than the work.
    options.intra_op_num_threads = 1
    # 3 is errors: warnings about initializers that are not used are of no use here.
    options.log_severity_level = 3
    session = ort.InferenceSession(content, options, ["CPUExecutionProvider"])
    feeds = {}
    for given in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in given.shape]
        feeds[given.name] = np.ones(shape, np.float32)
    names = [o.name for o in session.get_outputs() if "actions" in o.name]
    times = []
    for _ in range(TIMED):
        started = time.perf_counter()
        session.run(names, feeds)
        times.append(time.perf_counter() - started)
    return {
        "weights": _num_weights(model),
        "bytes": len(content),
        "decision_us": round(1e6 * float(np.median(times)), 1),
    }
