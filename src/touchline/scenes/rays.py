"""The ray perception sensor: a fan of spheres swept from every agent until they touch something.

What it leaves to others: where the shapes are (`shapes`) and stacking (`stacking`). There is no rule about an
agent's own body: as in Unity, a shape that the sphere overlaps at its start is not seen by that sensor.

Source: ML-Agents 3.0.0, `RayPerceptionSensor.cs`; checked against poses and observations logged in Unity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from touchline.scenes.compiled import Threads, compiled
from touchline.scenes.shapes import (
    ABSENT,
    BOX_TAG,
    COS,
    HALF_HEIGHT,
    HALF_X,
    HALF_Y,
    HALF_Z,
    RADIUS,
    ROUND_TAG,
    SIN,
    Floats,
    X,
    Y,
    Z,
)

_TIE_M = 1e-5
"""A touching shape counts as overlapped. In Unity a body leaning on a wall rests 1e-5 to 1e-3 m inside it, so
that wall is invisible to all its rays; a solver that rests at gap 0 needs this much tolerance."""

_SURE_M = 1e-10
_TRIES = 60


def ray_angles_deg(rays_per_direction: int, max_degrees: float) -> list[float]:
    """The rays' directions from local x (right, 0) towards local z (ahead, 90): ahead, then right, left, …"""
    if rays_per_direction == 0:
        return [90.0]
    step = max_degrees / rays_per_direction
    return [90.0] + [90.0 + side * k * step for k in range(1, rays_per_direction + 1) for side in (-1.0, 1.0)]


class RaySensor:
    """One ray perception sensor: its geometry and its tags.

    A frame has, for every ray: a one-hot of the hit shape's tag among `tags`; 1 if nothing was hit at all;
    and the travelled share of the ray's length (1 if nothing was hit).
    """

    def __init__(
        self,
        known_tags: Sequence[str],
        tags: Sequence[str],
        *,
        rays_per_direction: int,
        max_degrees: float,
        length_m: float,
        radius_m: float = 0.5,
        start_m: float = 0.0,
        end_m: float = 0.0,
        turned_deg: float = 0.0,
    ) -> None:
        """`known_tags` is the scene's list, whose indices the shapes carry. Offsets are vertical."""
        angles = np.radians(np.array(ray_angles_deg(rays_per_direction, max_degrees)) - turned_deg)
        reach = math.hypot(length_m, end_m - start_m)
        level = np.full(len(angles), end_m - start_m)
        self.directions: Floats = np.stack([length_m * np.cos(angles), level, length_m * np.sin(angles)], 1) / reach
        self.reach_m = reach
        self.start_m = start_m
        # Unity scales the sphere with the ray when the two ends differ in height.
        self.radius_m = radius_m * reach / length_m
        self.channel = np.full(len(known_tags), -1, np.int64)
        for index, tag in enumerate(tags):
            self.channel[known_tags.index(tag)] = index
        self.num_tags = len(tags)
        self.size = len(angles) * (len(tags) + 2)

    def read(
        self,
        threads: Threads,
        agents: NDArray[np.intp],
        areas: NDArray[np.intp],
        eyes: Floats,
        fixed: Floats,
        boxes: Floats,
        rounds: Floats,
    ) -> NDArray[np.float32]:
        """One frame [K, size] for K agents.

        `areas` and `eyes` (x, y, z, yaw in radians) are for all agents, addressed by `agents`; `fixed` [B, 9]
        are the boxes that every area has, `boxes` [A, B, 9] and `rounds` [A, S, 6] those of each area.
        """
        frame = np.zeros((len(agents), self.size), np.float32)
        threads.run(
            _read,
            len(agents),
            agents,
            areas,
            eyes,
            fixed,
            boxes,
            rounds,
            self.directions,
            self.start_m,
            self.reach_m,
            self.radius_m,
            self.channel,
            self.num_tags,
            frame,
        )
        return frame


@compiled
def sweep_box(
    px: float, py: float, pz: float, dx: float, dy: float, dz: float, hx: float, hy: float, hz: float, r: float
) -> float:
    """How far a sphere travels from p along the unit vector d until it touches a box at the origin, or inf.

    The sphere does not overlap the box at its start. It touches where its centre is r away from the box: it
    enters the box grown by r, and if that is not above a face, Newton's method finds the place. The distance
    to a convex shape is convex along a line, so the steps never overshoot.
    """
    t = 0.0
    leave = np.inf
    for p, d, h in ((px, dx, hx + r), (py, dy, hy + r), (pz, dz, hz + r)):
        if abs(d) < 1e-12:
            if abs(p) > h:
                return np.inf
        else:
            near, far = (-h - p) / d, (h - p) / d
            t = max(t, min(near, far))
            leave = min(leave, max(near, far))
    if t > leave:
        return np.inf
    for _ in range(_TRIES):
        x, y, z = px + t * dx, py + t * dy, pz + t * dz
        x -= min(max(x, -hx), hx)
        y -= min(max(y, -hy), hy)
        z -= min(max(z, -hz), hz)
        distance = math.sqrt(x * x + y * y + z * z)
        if distance - r <= _SURE_M:
            return t
        slope = x * dx + y * dy + z * dz
        if slope >= 0.0:
            return np.inf
        t -= (distance - r) * distance / slope
        if t > leave:
            return np.inf
    return np.inf


@compiled
def sweep_round(
    px: float, py: float, pz: float, dx: float, dy: float, dz: float, radius: float, half_height: float
) -> float:
    """As `sweep_box` for a point that meets an upright capsule (or sphere) at the origin."""
    if half_height == 0.0 or dy == 0.0:
        py -= min(max(py, -half_height), half_height)
        along = px * dx + py * dy + pz * dz
        outside = px * px + py * py + pz * pz - radius * radius
        root = along * along - outside
        return -along - math.sqrt(root) if along < 0.0 and root >= 0.0 else np.inf
    t = 0.0
    for _ in range(_TRIES):
        x, y, z = px + t * dx, py + t * dy, pz + t * dz
        y -= min(max(y, -half_height), half_height)
        distance = math.sqrt(x * x + y * y + z * z)
        if distance - radius <= _SURE_M:
            return t
        slope = x * dx + y * dy + z * dz
        if slope >= 0.0:
            return np.inf
        t -= (distance - radius) * distance / slope
    return np.inf


@compiled
def _seen_boxes(
    shapes: Floats, x: float, y: float, z: float, r: float, reach: float, low: float, high: float, near: Floats, n: int
) -> int:
    """Add to `near` the boxes that rays from here may hit: rows px, py, pz, half sizes, cos, sin, tag, bound."""
    for k in range(len(shapes)):
        shape = shapes[k]
        if shape[BOX_TAG] == ABSENT or abs(y - shape[Y]) > 1e6:
            continue
        hx, hy, hz = shape[HALF_X], shape[HALF_Y], shape[HALF_Z]
        if shape[Y] - hy - r > high or shape[Y] + hy + r < low:
            continue
        wx, wy, wz = x - shape[X], y - shape[Y], z - shape[Z]
        lx = wx * shape[COS] - wz * shape[SIN]
        lz = wx * shape[SIN] + wz * shape[COS]
        gx, gy, gz = max(abs(lx) - hx, 0.0), max(abs(wy) - hy, 0.0), max(abs(lz) - hz, 0.0)
        distance = math.sqrt(gx * gx + gy * gy + gz * gz)
        if distance <= r + _TIE_M or distance > reach + r:
            continue
        row = near[n]
        row[0], row[1], row[2] = lx, wy, lz
        row[3], row[4], row[5] = hx, hy, hz
        row[6], row[7], row[8] = shape[COS], shape[SIN], shape[BOX_TAG]
        row[9] = distance - r
        n += 1
    return n


@compiled
def _read(
    first: int,
    last: int,
    agents: NDArray[np.intp],
    areas: NDArray[np.intp],
    eyes: Floats,
    fixed: Floats,
    boxes: Floats,
    rounds: Floats,
    directions: Floats,
    start: float,
    reach: float,
    radius: float,
    channel: NDArray[np.int64],
    num_tags: int,
    frame: NDArray[np.float32],
) -> None:
    near = np.empty((len(fixed) + boxes.shape[1], 10))
    near_round = np.empty((rounds.shape[1], 6))
    rise = directions[0, 1] * reach
    for row in range(first, last):
        agent = agents[row]
        area = areas[agent]
        x, y, z = eyes[agent, 0], eyes[agent, 1] + start, eyes[agent, 2]
        cos, sin = math.cos(eyes[agent, 3]), math.sin(eyes[agent, 3])
        low, high = min(y, y + rise), max(y, y + rise)
        n = _seen_boxes(fixed, x, y, z, radius, reach, low, high, near, 0)
        n = _seen_boxes(boxes[area], x, y, z, radius, reach, low, high, near, n)
        m = 0
        for k in range(rounds.shape[1]):
            shape = rounds[area, k]
            if shape[ROUND_TAG] == ABSENT:
                continue
            wx, wy, wz = x - shape[X], y - shape[Y], z - shape[Z]
            gy = max(abs(wy) - shape[HALF_HEIGHT], 0.0)
            distance = math.sqrt(wx * wx + gy * gy + wz * wz) - shape[RADIUS]
            if distance <= radius + _TIE_M or distance > reach + radius:
                continue
            near_round[m, 0], near_round[m, 1], near_round[m, 2] = wx, wy, wz
            near_round[m, 3], near_round[m, 4] = shape[RADIUS] + radius, shape[HALF_HEIGHT]
            near_round[m, 5] = shape[ROUND_TAG]
            m += 1
        for ray in range(len(directions)):
            lx, dy, lz = directions[ray, 0], directions[ray, 1], directions[ray, 2]
            dx, dz = lx * cos + lz * sin, -lx * sin + lz * cos
            best, tag = reach, ABSENT
            for k in range(n):
                s = near[k]
                if s[9] >= best:
                    continue
                t = sweep_box(
                    s[0], s[1], s[2], dx * s[6] - dz * s[7], dy, dx * s[7] + dz * s[6], s[3], s[4], s[5], radius
                )
                if t < best:
                    best, tag = t, int(s[8])
            for k in range(m):
                s = near_round[k]
                t = sweep_round(s[0], s[1], s[2], dx, dy, dz, s[3], s[4])
                if t < best:
                    best, tag = t, int(s[5])
            at = ray * (num_tags + 2)
            if tag == ABSENT:
                frame[row, at + num_tags] = 1.0
                frame[row, at + num_tags + 1] = 1.0
            else:
                if tag >= 0 and channel[tag] >= 0:
                    frame[row, at + channel[tag]] = 1.0
                frame[row, at + num_tags + 1] = best / reach
