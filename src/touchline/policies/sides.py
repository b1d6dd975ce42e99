"""Policies for the sides of a game: one for the lowest team, another for all others."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.policies.actors import Actors, SlotActor
from touchline.policies.files.run_choice import with_run
from touchline.policies.loading import load_policies
from touchline.specs import team_of

PolicySource = str | os.PathLike[str]
"""`[BEHAVIOR=]FILE`: a run folder, a checkpoint, an ONNX file, `random`, `zero`, or
`greedy` (Match3)."""
# Added to the seed for the other side, so that the two do not draw the same noise.
_OTHER_SEED = 1000


def sources_in(policy: PolicySource | Sequence[PolicySource]) -> list[str]:
    """Policies as texts, of several seeds the best; those of a text may have commas between."""
    given = [policy] if isinstance(policy, str | os.PathLike) else policy
    return [
        with_run(source)
        for sources in [os.fspath(source) for source in given]
        # A file name may hold a comma, too.
        for source in ([sources] if Path(sources).exists() else sources.split(","))
    ]


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
