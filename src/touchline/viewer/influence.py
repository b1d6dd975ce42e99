"""What each observation does to an agent's action, by occlusion.

One part of an observation after the other is replaced by what the agent usually observes there, and
the policy is computed again: the more the action moves, the more that part decided. This needs no
gradient, so it works for checkpoints and ONNX files alike.

Source: Zeiler and Fergus 2014, arXiv:1311.2901, section 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots.rows import select_rows
from touchline.policies.policy import Outlook, Transparent
from touchline.specs import ObservationSpec
from touchline.viewer.fans import FanReader, is_ray_sensor
from touchline.viewer.history import Moment
from touchline.viewer.insight import Insight, memory_of

MOST_MOMENTS = 200
"""The newest, whose mean is what an agent usually observes."""
PATCHES = 4
"""Rows, and columns, of the patches into which an image is divided."""
MOST_PARTS = 400
"""The most of one sensor; the rest of a longer vector is not looked at."""


class Influence(NamedTuple):
    """How far the action moves when a part of the observations is hidden."""

    sensor: int
    part: str
    """Empty: the whole sensor."""
    effect: float
    """0 to 1: the largest shift of a branch's probability, or of an action's range."""


def influences(
    insight: Insight, usual: Sequence[NDArray[Any]]
) -> list[Influence] | None:
    """Of every sensor and its parts; None for a policy that shows nothing.

    `usual` [*shape] of each sensor is what takes the place of a hidden part.
    """
    policy = insight.policy
    if not isinstance(policy, Transparent):
        return None
    found = []
    for number, sensor in enumerate(insight.spec.observation_specs):
        if number >= len(insight.obs):
            break  # for critics alone
        own = np.asarray(insight.obs[number])
        parts = list(_parts(sensor, own))[:MOST_PARTS]
        # First as it is, then with each part hidden in turn.
        hidden = np.repeat(own[None], len(parts) + 1, axis=0)
        for row, (_, where) in enumerate(parts, start=1):
            hidden[row][where] = usual[number][where]
        effects = _effects(policy, insight, number, hidden)
        found += [
            Influence(number, name, float(effect))
            for (name, _), effect in zip(parts, effects, strict=True)
        ]
    return found


def usual_obs(insight: Insight, moments: Sequence[Moment]) -> list[NDArray[np.float64]]:
    """The mean of what an agent observed in these moments, for each sensor; 0 without any."""
    seen = [moment.rows[insight.behavior].obs for moment in moments[-MOST_MOMENTS:]]
    if not seen:
        return [np.zeros(obs.shape) for obs in insight.obs]
    return [
        np.mean([obs[insight.slot] for obs in of_sensor], axis=0)
        for of_sensor in zip(*seen, strict=True)
    ]


def _parts(
    sensor: ObservationSpec, own: NDArray[Any]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The whole sensor, then its rays, patches, entities or numbers, as masks [*shape]."""
    yield "", np.ones(own.shape, np.bool_)
    index = np.arange(own.size).reshape(own.shape)
    layout = FanReader(sensor).read(own) if is_ray_sensor(sensor) else None
    if layout is not None:
        # Modulo the rays, so that one is hidden in all stacked frames at once.
        ray = index // (layout.tags + 2) % layout.rays
        for number in range(layout.rays):
            # Unity's order is 90°, 90° - d, 90° + d, 90° - 2 d, ..., where 0° is to the right.
            side = "ahead" if number == 0 else "left" if number % 2 == 0 else "right"
            yield f"ray {number} {side}", ray == number
    elif own.ndim == 3:
        _, height, width = own.shape
        row, column = np.mgrid[:height, :width]
        patch = row * PATCHES // height * PATCHES + column * PATCHES // width
        for number in np.unique(patch):
            rows, columns = row[patch == number], column[patch == number]
            name = f"rows {rows.min()}-{rows.max()}, columns {columns.min()}-{columns.max()}"
            yield name, np.broadcast_to(patch == number, own.shape)
    elif own.size > 1:
        kind = "entity" if own.ndim == 2 else "index"
        for number in range(len(own)):
            where = np.zeros(own.shape, np.bool_)
            where[number] = True
            yield f"{kind} {number}", where


def _effects(
    policy: Transparent, insight: Insight, number: int, hidden: NDArray[Any]
) -> NDArray[np.float64]:
    """By how much the action of each row of `hidden` differs from the first row's."""
    rows = select_rows(insight.rows, np.zeros(len(hidden), np.intp))
    obs = [*rows.obs[:number], hidden, *rows.obs[number + 1 :]]
    rows = replace(rows, obs=tuple(obs))
    own = insight.memory
    memory = None if own is None else memory_of(own.values, [0] * len(hidden))
    outlook: Outlook = policy.outlook(rows, memory)
    # The total variation distance; actions from -1 to 1 are at most 2 apart, hence both halves.
    shifts = [np.abs(p[1:] - p[0]).sum(axis=1) / 2 for p in outlook.probabilities]
    if outlook.continuous.size:
        actions = outlook.continuous
        shifts.append(np.abs(actions[1:] - actions[0]).max(axis=1) / 2)
    # Choices that depend on each other have no probabilities of their own.
    if not shifts:
        return np.zeros(len(hidden) - 1)
    return np.asarray(np.max(shifts, axis=0), np.float64)
