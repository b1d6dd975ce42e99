"""Whether a scene matches Unity: the same policy in a scene and in Unity, figure by figure.

The reference is a Unity player, figures that were measured in Unity, or the normalizer that the
policy carries (`references`). What is compared, and how much chance explains: `comparison`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from touchline.envs.env import Env, EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.log import Progress, no_progress
from touchline.policies.loading import (
    BUILT_IN,
    PolicySource,
    as_trained,
    load_sides,
    sources_in,
)
from touchline.specs import BehaviorSpec
from touchline.studies.comparison import EPISODE_FIGURES, Comparison, Figures, compare
from touchline.studies.plot import write_figure
from touchline.studies.references import Reference, find_reference, write_statistics
from touchline.studies.tournament import check_picture
from touchline.studies.units import EPISODES, Units, observation_names, play_units
from touchline.whole import require_writable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIRST_OBS = len(EPISODE_FIGURES)
_SHOWN = 20
"""Observations in the table: those that differ most."""
# A number with a smaller spread hardly varies; its spread is no measure.
_HARDLY = 1e-4


def parity(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource],
    *,
    reference: str | Path | EnvRecipe | None = None,
    save: Annotated[Path | str | None, Flag(metavar="FILE.json")] = None,
    episodes: Annotated[int, Flag(min=2)] = 100,
    picture: Path | str | None = None,
    deterministic: bool = False,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Compare a scene with Unity: the same policy plays in both, and returns, lengths and
    observations are compared with the differences that chance explains.

    Without --env and --statistics, the reference is what is stored of Unity for this scene and
    policy, else the policy's own normalizer.

    Parameters
    ----------
    reference
        A Unity player to compare with, or a file of figures (`*.json`) that `save` wrote.
    save
        Save the player's figures for --statistics.
    episodes
        Episodes per behavior in each of the two; with groups of agents, games.
    picture
        Draw all differences into this file.
    progress
        Called often with the episodes that are done, and their total.

    Returns
    -------
    dict
        The keys of `touchline parity --json` (`docs/unity.md`, "Comparing a scene with Unity").

    Raises
    ------
    UsageError
        Nothing to compare with, what does not fit together, or a file that cannot be written.
    RunError
        No episode ends, or the player failed.

    Notes
    -----
    The player gets the seed after that of `env`.
    """
    check_picture(picture)
    sources = sources_in(policy)
    recipe = as_trained(EnvRecipe.parse(env), sources)
    player, statistics = None, None
    if isinstance(reference, str | Path) and str(reference).endswith(".json"):
        statistics = Path(reference)
    elif reference is not None:
        name = str(reference) if isinstance(reference, Path) else reference
        # With the same seed a player made of the scene would repeat it, and show nothing.
        player = replace(
            EnvRecipe.parse(name),
            seed=recipe.seed + 1,
            parameters=recipe.parameters,
        )
    if save is not None and player is None:
        raise UsageError("only a player's figures can be saved: give --env PLAYER, too")
    if save is not None:
        if Path(save).suffix != ".json":
            raise UsageError(f"--save {save}: expected a file NAME.json")
        require_writable(Path(save))
    with ExitStack() as worlds:
        here = _Side(worlds.enter_context(make(recipe)), recipe, sources, deterministic)
        if player is None:
            found = find_reference(recipe.target, here.actors, statistics)
            known: Mapping[str, Units | Figures] = found.figures
            played = here.play(episodes, progress)
        else:
            there = _Side(
                worlds.enter_context(make(player)), player, sources, deterministic
            )
            _require_same(here, there, is_over=False)
            found = Reference("player", player.target, {})
            known = there.play(episodes, _part(progress, 0))
            if save is not None:
                write_statistics(Path(save), known)
            played = here.play(episodes, _part(progress, 1))
            _require_same(here, there, is_over=True)
    behaviors = {}
    for name, units in played.items():
        if name in known:
            names = observation_names(here.specs[name])
            behaviors[name] = _behavior_figures(names, units, known[name], recipe.seed)
    figures = {
        "scene": recipe.target,
        "policy": ", ".join(sources),
        "seed": recipe.seed,
        "reference": {"kind": found.kind, "name": found.name},
        "differs": any(b["differing"] for b in behaviors.values()),
        "behaviors": behaviors,
    }
    if picture is not None:
        draw_parity(figures, Path(picture))
    return figures


class _Side:
    """One of the two worlds, with its policies."""

    def __init__(
        self, world: Env, recipe: EnvRecipe, sources: Sequence[str], greedy: bool
    ) -> None:
        self.target, self._seed = recipe.target, recipe.seed
        self._slots = Slots(world)
        self._slots.reset(recipe.seed)
        self.actors = load_sides(
            sources,
            (),
            self._slots,
            recipe.target,
            deterministic=greedy,
            seed=recipe.seed,
        )

    @property
    def specs(self) -> Mapping[str, BehaviorSpec]:
        """Of the behaviors that it has shown so far."""
        return self._slots.behaviors

    def play(self, episodes: int, progress: Progress) -> dict[str, Units]:
        played = play_units(self._slots, self.actors, episodes, self._seed, progress)
        return {name: units for name, units in played.items() if len(units)}


def _require_same(here: _Side, there: _Side, *, is_over: bool) -> None:
    # Until all `is_over`, one of them may show more behaviors later.
    both = [name for name in here.specs if name in there.specs]
    is_same = len(both) == len(here.specs) == len(there.specs)
    if not is_same and (is_over or not both):
        raise UsageError(
            f"{there.target}: its behaviors are {', '.join(there.specs)}, those of {here.target} "
            f"are {', '.join(here.specs)}; parity compares behaviors of the same names"
        )
    for name in both:
        own, other = (
            [o.shape for o in side.specs[name].observation_specs]
            for side in (here, there)
        )
        if own != other:
            raise UsageError(
                f"{there.target}: {name} observes the shapes {other}, in {here.target} {own}; "
                "parity compares the same observations"
            )


def _part(progress: Progress, number: int) -> Progress:
    """Progress of the first or the second of two tasks of the same size."""

    def report(done: int, total: int) -> None:
        progress(number * total + done, 2 * total)

    return report


def _behavior_figures(
    names: Sequence[str], here: Units, reference: Units | Figures, seed: int
) -> dict[str, Any]:
    result = compare(here, reference, seed)
    size = len(names)
    means = slice(FIRST_OBS, FIRST_OBS + size)
    spreads = slice(FIRST_OBS + size, None)
    # Differences of means are measured in spreads, except of numbers that hardly vary.
    spread = result.reference[spreads]
    scale = np.where(spread > _HARDLY, spread, np.nan)
    shift = result.difference[means] / scale
    known = np.isfinite(shift)
    units = reference.num_units if isinstance(reference, Figures) else len(reference)
    return {
        "episodes": int(here.sums[:, EPISODES].sum()),
        "units": [len(here), units],
        "differing": int(result.differs.sum()),
        "differing_means": int(result.differs[means].sum()),
        "differing_spreads": int(result.differs[spreads].sum()),
        "rms_of_means": float(np.sqrt(np.mean(shift[known] ** 2)))
        if any(known)
        else 0.0,
        "figures": {
            name: _row(result, k)
            for k, name in enumerate(EPISODE_FIGURES)
            if not np.isnan(result.reference[k])
        },
        "observations": [
            {
                "name": name,
                "mean": _row(result, FIRST_OBS + k),
                "spread": _row(result, FIRST_OBS + size + k),
                "shift": _plain(shift[k]),
                "shift_by_chance": _plain(result.chance[FIRST_OBS + k] / scale[k]),
            }
            for k, name in enumerate(names)
            if not np.isnan(result.reference[FIRST_OBS + k])
        ],
    }


def _row(result: Comparison, k: int) -> dict[str, Any]:
    return {
        "here": float(result.here[k]),
        "reference": float(result.reference[k]),
        "chance": float(result.chance[k]),
        "differs": bool(result.differs[k]),
    }


def _plain(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


# for people


def parity_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    kind, name = figures["reference"]["kind"], figures["reference"]["name"]
    yield f"{figures['scene']} compared with {name} ({kind}), policy {figures['policy']}"
    if kind == "statistics" and figures["policy"] in BUILT_IN:
        yield (
            f"These figures may be of another policy than {figures['policy']}: then a difference "
            "says nothing about the scene."
        )
    for behavior, own in figures["behaviors"].items():
        theirs = own["units"][1]
        count = "" if theirs is None else f"; reference: {theirs}"
        yield (
            f"{behavior}: {own['episodes']} episodes in {own['units'][0]} independent units"
            f"{count}"
        )
        yield from _table(own)
    if kind == "normalizer":
        yield (
            "A normalizer has seen the whole training, its beginning too: a difference beyond "
            "chance need not be a fault of the scene."
        )


def _table(own: Mapping[str, Any]) -> Iterator[str]:
    rows = list(own["figures"].items())
    observations = own["observations"]
    first = sorted(observations, key=_size_of_difference, reverse=True)
    differing = [o for o in first if o["mean"]["differs"] or o["spread"]["differs"]]
    for observation in differing[:_SHOWN]:
        parts = [p for p in ("mean", "spread") if observation[p]["differs"]]
        rows += [(f"{p} of {observation['name']}", observation[p]) for p in parts]
    width = max([len("figure"), *(len(name) for name, _ in rows)])
    yield f"  {'figure':{width}}  {'here':>10} {'reference':>10} {'difference':>10} {'chance':>9}"
    for name, row in rows:
        difference = row["here"] - row["reference"]
        mark = "  differs" if row["differs"] else ""
        yield (
            f"  {name:{width}}  {row['here']:10.4f} {row['reference']:10.4f} "
            f"{difference:+10.4f} {row['chance']:9.4f}{mark}"
        )
    if len(differing) > _SHOWN:
        yield f"  ... and {len(differing) - _SHOWN} observations more (--json has all)"
    yield (
        f"  of {len(observations)} observations, {own['differing_means']} means and "
        f"{own['differing_spreads']} spreads differ by more than chance explains; means differ by "
        f"{own['rms_of_means']:.3f} spreads (root mean square)"
    )


def _size_of_difference(observation: Mapping[str, Any]) -> float:
    mean = observation["mean"]
    spread = observation["spread"]
    scale = max(spread["reference"], 1e-9)
    shift = abs(mean["here"] - mean["reference"]) / scale
    stretch = abs(spread["here"] / scale - 1.0)
    return float(max(shift, stretch))


def draw_parity(figures: Mapping[str, Any], path: Path) -> None:
    """A picture: how far means and spreads differ, index by index, next to what chance explains."""
    from matplotlib.figure import Figure

    behaviors = figures["behaviors"]
    count = max(len(behaviors), 1)
    figure = Figure(figsize=(12, 5 * count), layout="constrained")
    axes = figure.subplots(2 * count, 1, squeeze=False)[:, 0]
    for row, (behavior, own) in enumerate(behaviors.items()):
        means, spreads = axes[2 * row : 2 * row + 2]
        observations = own["observations"]
        shifts = [(o["shift"], o["shift_by_chance"]) for o in observations]
        _draw_differences(means, shifts)
        _draw_differences(spreads, [_spread_point(o["spread"]) for o in observations])
        title = f"{behavior}: {_title(own)}"
        means.set(title=title, ylabel="difference of means, in spreads")
        spreads.set(ylabel="difference of spreads, as a share")
        spreads.set(xlabel="observation index")
    reference = figures["reference"]["name"]
    figure.suptitle(
        f"{figures['scene']} compared with {reference}; gray: chance explains it"
    )
    write_figure(figure, path, dpi=110)


def _title(own: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {row['here']:.3g} and {row['reference']:.3g} (chance {row['chance']:.2g})"
        for name, row in own["figures"].items()
        if name in ("return", "length")
    )


def _spread_point(row: Mapping[str, Any]) -> tuple[float, float]:
    scale = row["reference"]
    if scale <= _HARDLY:
        return np.nan, np.nan
    return row["here"] / scale - 1.0, row["chance"] / scale


def _draw_differences(
    axes: Axes, points: Sequence[tuple[float | None, float | None]]
) -> None:
    """Draw (difference, what chance explains) of each observation; None where not known."""
    difference, chance = np.array(points, np.float64).reshape(-1, 2).T
    place = np.arange(len(points))
    axes.bar(place, 2 * chance, bottom=-chance, width=1.0, color="0.85")
    beyond = np.abs(difference) > chance
    axes.plot(place[~beyond], difference[~beyond], ".", color="0.4")
    axes.plot(place[beyond], difference[beyond], "o", color="C3")
    axes.axhline(0.0, color="0.5", linewidth=0.8)
    axes.margins(x=0.01)
