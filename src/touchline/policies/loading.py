"""Policies from the texts that name them: `[BEHAVIOR=]SOURCE`.

Random and zero policies need no torch: what reads files is imported when there is a file.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from touchline.envs.env import EnvRecipe, Staffed
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.extras import explain_missing
from touchline.known_files import refuse_other_kinds
from touchline.log import Log, silent
from touchline.policies.files.run_layout import (
    CHECKPOINT,
    MODEL,
    RunLayout,
    is_one,
    path_of,
    run_of,
    with_run,
)
from touchline.policies.policy import (
    Actors,
    Policy,
    RandomPolicy,
    SlotActor,
    ZeroPolicy,
)
from touchline.specs import BehaviorSpec, Specs, base_name, team_of


def _greedy(spec: BehaviorSpec) -> Policy:
    from touchline.policies.greedy import GreedyPolicy  # it brings compiled code

    return GreedyPolicy(spec)


BUILT_IN: Mapping[str, Callable[[BehaviorSpec], Policy]] = {
    "random": RandomPolicy,
    "zero": ZeroPolicy,
    "greedy": _greedy,
}
"""Policies that need no file, by the name that stands for them; `greedy` plays Match3 alone."""


def load_policies(
    sources: Iterable[str],
    behaviors: Specs,
    *,
    deterministic: bool = False,
    seed: int = 0,
    world: object = None,
) -> dict[str, SlotActor]:
    """One actor for each of these behaviors (full names), from `[BEHAVIOR=]SOURCE` texts.

    A source is one of `BUILT_IN`, an ONNX file, a checkpoint or a run folder, or the name of a
    policy of the `world` itself. One without BEHAVIOR acts for every behavior that it fits. Raises
    a UsageError when a behavior is left over, a named one does not fit, or a second file fits.
    """
    named, unnamed = _split_sources(sources, behaviors)
    own = world.own_policies if isinstance(world, Staffed) else {}
    actors: dict[str, SlotActor] = {}
    for number, (behavior, spec) in enumerate(behaviors.items()):
        chosen = named.get(behavior) or named.get(base_name(behavior))
        candidates = [chosen] if chosen else unnamed
        source = candidates[0] if candidates else ""
        if source in own:
            policy = own[source](behavior)
        else:
            source, policy = _only_that_fits(
                candidates, behavior, spec, deterministic=deterministic
            )
        # A stream of its own for each behavior, or teams that share a policy would draw the
        # same noise.
        actors[behavior] = SlotActor(policy, spec, seed + number, source)
    used = {*BUILT_IN, *own, *(actor.name for actor in actors.values())}
    for source in unnamed:
        if source not in used:
            if not path_of(source).exists():
                raise UsageError(f"{source}: no such policy file")
            _refuse_idle(source, actors, deterministic=deterministic)
    return actors


def load_policy(
    source: str | Path,
    behavior: str | None = None,
    spec: BehaviorSpec | None = None,
    *,
    deterministic: bool = False,
    seed: int = 0,
) -> SlotActor:
    """An actor for one behavior, from a source as in `load_policies`.

    `behavior` is needed for a run of several behaviors, `spec` for those of `BUILT_IN`; a given
    `spec` is checked. Raises a UsageError when the policy cannot be loaded or does not fit.
    """
    name = None if behavior is None else base_name(behavior)
    policy = _load(str(source), name, spec, deterministic=deterministic)
    if spec is not None:
        policy.check(behavior or "the behavior", spec)
    return SlotActor(policy, spec, seed, str(source))


def _split_sources(
    sources: Iterable[str], behaviors: Iterable[str]
) -> tuple[dict[str, str], list[str]]:
    known = {base_name(behavior) for behavior in behaviors} | set(behaviors)
    named: dict[str, str] = {}
    unnamed: list[str] = []
    for source in sources:
        # A full name has an equals sign of its own: Ball?team=0=FILE.
        given = [name for name in known if source.startswith(f"{name}=")]
        if given and not Path(source).exists():
            behavior = max(given, key=len)
            rest = source.removeprefix(f"{behavior}=")
            if behavior in named:
                raise UsageError(
                    f"two policies for {behavior}: {named[behavior]} and {rest}"
                )
            named[behavior] = rest
        # A file name may hold an equals sign, too.
        elif "=" in source and not Path(source).exists():
            behavior, names = source.rpartition("=")[0], ", ".join(sorted(known))
            raise UsageError(
                f"the policy {source}: no behavior {behavior!r}; behaviors: {names}"
            )
        else:
            unnamed.append(source)
    return named, unnamed


def _refuse_idle(
    source: str, actors: Mapping[str, SlotActor], *, deterministic: bool
) -> None:
    """Raises a UsageError for a file whose behavior has another policy already."""
    run = RunLayout(run_of(Path(source))) if Path(source).is_dir() else None
    if run is None or not run.behaviors():
        # Raises for what is no policy at all.
        _load(source, None, None, deterministic=deterministic)
    for behavior, actor in actors.items():
        spec = actor.spec
        assert spec is not None
        try:
            policy = _load(
                source, base_name(behavior), spec, deterministic=deterministic
            )
            policy.check(behavior, spec)
        # It may be for a behavior that is still to come.
        except UsageError:
            continue
        raise UsageError(f"two policies for {behavior}: {actor.name} and {source}")


def _only_that_fits(
    sources: Sequence[str], behavior: str, spec: BehaviorSpec, *, deterministic: bool
) -> tuple[str, Policy]:
    """The policy with the source that it is from."""
    refusals = []
    fitting: dict[str, Policy] = {}
    for source in dict.fromkeys(sources):
        # Loaded again for every behavior: `random` and `zero` are made from its spec, and a run
        # folder holds a policy for each.
        policy = _load(source, base_name(behavior), spec, deterministic=deterministic)
        try:
            policy.check(behavior, spec)
        except UsageError as refusal:
            # Kept: where none fits, the error names the reason of each.
            refusals.append(str(refusal))
        else:
            fitting[source] = policy
    # `random` and the like may follow a file, for the behaviors that are left.
    rivals = [source for source in fitting if source not in BUILT_IN] or list(fitting)
    if len(rivals) > 1:
        first, second, *_ = rivals
        name = base_name(behavior)
        raise UsageError(
            f"two policies for {behavior}: {first} and {second}; say which one: "
            f"{name}={first}"
        )
    if rivals:
        return rivals[0], fitting[rivals[0]]
    why = "; ".join(refusals) or f"no policy given for {behavior}"
    raise UsageError(f"{why}; add the policy random, or {base_name(behavior)}=FILE")


def _load(
    source: str, behavior: str | None, spec: BehaviorSpec | None, *, deterministic: bool
) -> Policy:
    """The policy of a source, not yet checked; `behavior` is a base name, None: the only one."""
    if source in BUILT_IN:
        if spec is None:
            raise UsageError(
                f"the policy {source!r} needs the spec of a behavior to act for"
            )
        return BUILT_IN[source](spec)
    path = Path(source)
    if path.is_dir():
        path = RunLayout(run_of(path)).newest(behavior)
    refuse_other_kinds(
        path, "a run folder, a checkpoint or an .onnx file", CHECKPOINT, MODEL, ".pt"
    )
    with explain_missing(f"the policy {path}"):
        if path.suffix == CHECKPOINT:
            from touchline.policies.files.checkpoints import load_network
            from touchline.policies.network_policy import NetworkPolicy

            network = load_network(path)
            return NetworkPolicy(network, deterministic=deterministic, source=str(path))
        if path.suffix == ".pt":
            raise UsageError(
                f"{path}: a checkpoint of ML-Agents is for training to start with (init_path); "
                "to act, give the .onnx next to it"
            )
        from touchline.policies.files.onnx_in import OnnxPolicy

        return OnnxPolicy(path, deterministic=deterministic)


PolicySource = str | os.PathLike[str]
"""`[BEHAVIOR=]FILE`: a run folder, a checkpoint, an ONNX file, `random`, `zero`, or
`greedy` (Match3)."""
# Added to the seed for the other side, so that the two do not draw the same noise.
_OTHER_SEED = 1000


def sources_in(policy: PolicySource | Sequence[PolicySource]) -> list[str]:
    """Policies as texts, of several seeds the best; those of a text may have commas between."""
    given = [policy] if isinstance(policy, str | os.PathLike) else policy
    texts = [os.fspath(source) for source in given]
    if not all(text.strip() for text in texts):
        raise UsageError(
            "--policy: expected a run folder, a checkpoint, an ONNX file, random or zero, got "
            "an empty text"
        )
    parts = [[text] if is_one(text) else text.split(",") for text in texts]
    return [with_run(source) for some in parts for source in some]


def two_sides(names: Iterable[str], world: str) -> tuple[list[str], list[str]]:
    """The behaviors of the lowest team, and all others; raises a UsageError for only one team."""
    names = list(names)
    teams = sorted({team_of(name) for name in names})
    if len(teams) < 2:
        raise UsageError(
            f"--versus: {world} has only one team; both must be there in its first exchange"
        )
    own = [name for name in names if team_of(name) == teams[0]]
    return own, [name for name in names if name not in own]


def load_sides(
    sources: Sequence[str],
    versus: Sequence[str],
    slots: Slots,
    world: str,
    *,
    deterministic: bool,
    seed: int,
) -> Actors:
    """An actor for each behavior: `sources` for all, or with `versus` for the lowest team alone.

    Raises a UsageError where a policy does not fit, or the world has only one team for two sides.
    """
    first = _lowest_team(slots)

    def of(
        some: Sequence[str], names: Iterable[str], seed: int
    ) -> dict[str, SlotActor]:
        chosen = {name: slots.behaviors[name] for name in names}
        return load_policies(
            some, chosen, deterministic=deterministic, seed=seed, world=slots.env
        )

    def load() -> Mapping[str, SlotActor]:
        if not versus:
            return of(sources, slots.behaviors, seed)
        # Those who play already would have to change sides.
        if _lowest_team(slots) < first:
            raise UsageError(
                f"--versus: team {_lowest_team(slots)} of {world} came after team {first} had "
                "begun to play as the lowest one; it must be there in the first exchange"
            )
        own, others = two_sides(slots.behaviors, world)
        return of(sources, own, seed) | of(versus, others, seed + _OTHER_SEED)

    return Actors(load)


def _lowest_team(slots: Slots) -> int:
    return min(map(team_of, slots.behaviors), default=0)


logger = logging.getLogger(__name__)

_SWITCHES = {"true": "1", "false": "0"}


def as_trained(
    recipe: EnvRecipe, sources: Iterable[str], log: Log = logger.warning
) -> EnvRecipe:
    """The recipe with the options that its policies were trained with, where it names no others.

    `sources` are policies as `load_policies` takes them. Where several differ, the first decides.
    `log` gets a line for options that were filled in, and for each policy that meets other ones.
    """
    # A policy of a MicroRTS game that is turned by half for player 1 loses where nothing is turned,
    # and nothing fails. So checkpoints hold such options, and whatever plays a policy uses them.
    options = dict(recipe.options)
    for source in sources:
        trained = trained_options(source, recipe.world)
        added = {name: trained[name] for name in trained if name not in options}
        options |= added
        here = {name: _plain(options[name]) for name in trained}
        other = {name: here[name] for name in trained if here[name] != trained[name]}
        if other:
            before = {name: trained[name] for name in other}
            log(f"{source} was trained with {_text(before)}, and plays {_text(other)}")
        used = {name: value for name, value in added.items() if value != "0"}
        if used:
            log(f"{source} plays {_text(used)}, as it was trained")
    return replace(recipe, options=options)


def trained_options(source: str, world: str) -> Mapping[str, str]:
    """The options in the checkpoint or run folder of a source; none in anything else."""
    path = path_of(source)
    if path.is_dir():
        path = next(iter(RunLayout(run_of(path, silent)).checkpoints().values()), path)
    if path.suffix != CHECKPOINT or not path.is_file():
        return {}
    from touchline.policies.files.checkpoints import read_metadata

    try:
        about: Mapping[str, Any] = read_metadata(path).get("world", {})
    except UsageError:
        return {}  # loading it is refused with the reason
    options: Mapping[str, str] = about.get("options", {})
    return options if about.get("kind") == world else {}


def _plain(value: object) -> str:
    text = str(value).lower()
    return _SWITCHES.get(text, text)


def _text(options: Mapping[str, str]) -> str:
    return "&".join(f"{name}={value}" for name, value in options.items())
