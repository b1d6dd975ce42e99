"""The ray perception sensor: a fan of spheres swept from every agent until they touch something.

What it leaves to others: where the shapes are (`shapes`) and how frames are stacked (`stacking`).
There is no rule about an agent's own body. As in Unity, a sensor does not detect a shape that the
sphere overlaps at its start.

Source: ML-Agents 3.0.0, `RayPerceptionSensor.cs`; checked against poses and observations logged in
Unity.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined, makes_arrays, record_type
from touchline.physics.ragdoll.lanes import minus, set_vector, vector_of
from touchline.physics.shapes import (
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
    Three,
    Vector,
    X,
    Y,
    Z,
)
from touchline.physics.sweeps import sweep_ball, sweep_box, sweep_level, sweep_round
from touchline.physics.threads import Threads
from touchline.sensors.stacking import Stack

_LANES = 8
"""Rays are handled in multiples of this: as many as the widest vector instructions take at once."""


@dataclass(frozen=True)
class RayFan:
    """The rays of one sensor, as Unity's inspector shows them; offsets are vertical."""

    rays_per_direction: int
    """Rays on either side of the one that points ahead."""
    max_degrees: float
    """The outermost rays' angle from ahead."""
    length_m: float
    """Level length."""
    radius_m: float = 0.5
    """Radius of the swept sphere."""
    start_m: float = 0.0
    """Height of the rays' starts above the agent's center."""
    end_m: float = 0.0
    """Height of their ends."""
    yaw_deg: float = 0.0
    """The whole fan's turn, clockwise from above."""
    tie_m: float = 0.0
    """A shape this close to the sphere at its start counts as overlapped.

    A soccer player that leans on a wall rests 1e-5 to 1e-3 m inside it in Unity, so that wall is
    invisible to all its rays; a solver that rests at gap 0 needs the tolerance. Boxes rest on
    either side of 0 in Unity too, and there the sign decides.
    """


def ray_angles_deg(rays_per_direction: int, max_degrees: float) -> list[float]:
    """The rays' angles from local x (right, 0) towards local z (ahead, 90), as Unity orders them:
    ahead, then right and left in turn.
    """
    if rays_per_direction == 0:
        return [90.0]
    step = max_degrees / rays_per_direction
    angles = [90.0]
    for k in range(1, rays_per_direction + 1):
        angles += [90.0 - k * step, 90.0 + k * step]
    return angles


class View(NamedTuple):
    """From where the agents of A areas look, and what rays may hit: a scene's own arrays.

    Shapes are rows of `physics.shapes`.
    """

    bodies: Floats
    """[A, S, x y z and more], of which the first G have sensors."""
    yaw: Floats
    """[A, G] rad"""
    fixed: Floats
    """[B, 9] boxes that every area has."""
    boxes: Floats
    """[A, B, 9] boxes of each area."""
    rounds: Floats
    """[A, S, 6] spheres and upright capsules of each area."""


class _Fan:
    """Rays that start at one height and rise alike: a record of `_FAN`, for kernels."""

    num_rays: int
    start_m: float
    rise: float
    """The vertical component of the rays' unit directions."""
    reach_m: float
    """The rays' length."""
    radius_m: float
    tie_m: float


_FAN = record_type(_Fan)
_SHARED = ["start_m", "rise", "reach_m", "radius_m", "tie_m"]
"""What rays of one fan have in common."""


class _Geometry(NamedTuple):
    """A sensor, for kernels."""

    directions: Floats
    """[rays, 3] unit vectors in the agent's frame."""
    fans: NDArray[np.void]
    """[fans] records of `_FAN`."""
    channel: NDArray[np.int64]
    """[known tags] each tag's place in a ray's one-hot, or -1."""
    num_tags: int
    sizes: NDArray[np.int64]
    """[sensors] numbers in a frame of each sensor that is read here."""


class Traces(NamedTuple):
    """What the rays of one agent met, in its area's frame, for drawing."""

    start: Floats
    """[rays, 3]"""
    end: Floats
    """[rays, 3]: the center of the sphere where it touches something, or the ray's end"""
    tag: NDArray[np.intp]
    """[rays] the place of the hit shape's tag among `tags`, -1: nothing that the sensor knows"""
    tags: tuple[str, ...]


class RaySensor:
    """One ray perception sensor: its rays and its tags.

    A frame has, for every ray: a one-hot of the hit shape's tag among `tags`; 1 if nothing was hit
    at all; and the traveled share of the ray's length (1 if nothing was hit).
    """

    def __init__(
        self, known_tags: Sequence[str], tags: Sequence[str], fan: RayFan
    ) -> None:
        """`known_tags` is the scene's list, whose indices the shapes carry."""
        angles_deg = ray_angles_deg(fan.rays_per_direction, fan.max_degrees)
        angles = np.radians(np.array(angles_deg) - fan.yaw_deg)
        rise_m = fan.end_m - fan.start_m
        ends = np.stack(
            [
                fan.length_m * np.cos(angles),
                np.full(len(angles), rise_m),
                fan.length_m * np.sin(angles),
            ],
            axis=1,
        )
        self.reach_m = math.hypot(fan.length_m, rise_m)
        self.directions: Floats = ends / self.reach_m
        # Unity scales the sphere with the ray when the two ends differ in height.
        self.radius_m = fan.radius_m * self.reach_m / fan.length_m
        rise = rise_m / self.reach_m
        numbers = (
            len(angles),
            fan.start_m,
            rise,
            self.reach_m,
            self.radius_m,
            fan.tie_m,
        )
        self._fans = np.array([numbers], _FAN)
        channel = [tags.index(tag) if tag in tags else -1 for tag in known_tags]
        self.channel = np.array(channel, np.int64)
        self.tags = tuple(tags)
        self.size = len(angles) * (len(tags) + 2)
        self.sizes = [self.size]
        """Size of each sensor, when several are read as one."""
        self._geometry = self._as_geometry()

    def joined_with(self, other: RaySensor) -> RaySensor:
        """Both sensors' rays in one frame, this one's first. They must have the same tags."""
        both = copy.copy(self)
        both.directions = np.concatenate([self.directions, other.directions])
        both._fans = np.concatenate([self._fans, other._fans])
        last = len(self._fans) - 1
        if both._fans[last][_SHARED] == both._fans[last + 1][_SHARED]:
            # One fan, as far as kernels care.
            both._fans["num_rays"][last + 1] += both._fans["num_rays"][last]
            both._fans = np.delete(both._fans, last)
        both.size = self.size + other.size
        both.sizes = self.sizes + other.sizes
        both._geometry = both._as_geometry()
        return both

    def _as_geometry(self) -> _Geometry:
        sizes = np.array(self.sizes)
        return _Geometry(
            self.directions, self._fans, self.channel, len(self.tags), sizes
        )

    def read(
        self, threads: Threads, agents: NDArray[np.intp], view: View
    ) -> NDArray[np.float32]:
        """One frame [K, size] for K agents, given by their indices a * G + g."""
        frame = np.empty((len(agents), self.size), np.float32)
        threads.run(_read, len(agents), agents, view, self._geometry, frame)
        return frame

    def traces(
        self, view: View, area: int, body: int, frame: NDArray[np.float32]
    ) -> Traces:
        """The rays of one body of one area, as long as its last frame [size] says."""
        rays = frame.reshape(len(self.directions), -1)  # [rays, tags + 2]
        count = self._fans["num_rays"]
        start = np.tile(view.bodies[area, body, X : Z + 1], (len(rays), 1))
        start[:, 1] += np.repeat(self._fans["start_m"], count)
        cos = math.cos(view.yaw[area, body])
        sin = math.sin(view.yaw[area, body])
        right, up, ahead = self.directions.T
        direction = np.stack(
            [right * cos + ahead * sin, up, ahead * cos - right * sin], axis=1
        )
        length = rays[:, -1] * np.repeat(self._fans["reach_m"], count)
        met = rays[:, :-2]
        tag = np.where(met.any(axis=1), met.argmax(axis=1), -1)
        return Traces(start, start + length[:, None] * direction, tag, self.tags)

    def observe(
        self, threads: Threads, stack: Stack, agents: NDArray[np.intp], view: View
    ) -> list[NDArray[Any]]:
        """Add a frame to the stack of K agents; their observations [K, depth * size] per sensor."""
        return observe_together(threads, view, [(self, stack, agents)])


def observe_together(
    threads: Threads,
    view: View,
    parts: Sequence[tuple[RaySensor, Stack, NDArray[np.intp]]],
) -> list[NDArray[Any]]:
    """As `RaySensor.observe` for agents of all parts, in order: their sensors have the same sizes,
    but different tags.
    """
    first_sensor, first_stack, _ = parts[0]
    depth = first_stack.frames.shape[1]
    count = sum(len(agents) for _, _, agents in parts)
    # One array for all sensors: each sensor's block [K, depth * size] follows the one before.
    flat = np.empty(count * depth * sum(first_sensor.sizes), np.float32)
    row = 0
    for sensor, stack, agents in parts:
        threads.run(
            _observe,
            len(agents),
            row,
            count,
            flat,
            stack.frames,
            agents,
            view,
            sensor._geometry,
        )
        row += len(agents)
    obs = []
    begin = 0
    for size in first_sensor.sizes:
        end = begin + count * depth * size
        obs.append(flat[begin:end].reshape(count, -1))
        begin = end
    return obs


class _NearBox:
    """A box that an agent's rays may hit: a record of `_NEAR_BOX`."""

    start: Three
    """The rays' start in the box's frame."""
    half: Three
    """Half sizes."""
    cos: float
    """Cosine of the box's yaw."""
    sin: float
    tag: float
    at_least: float
    """No ray travels less than this before it touches the box."""
    wx: float
    """The box's center from the rays' start, in the area's frame."""
    wz: float
    bound: float
    """The radius of a circle around the box that contains all centers of touching spheres."""
    level_radius: float
    """The radius of the sphere's section at the height where it passes the box, for level rays."""


class _NearRound:
    """A sphere or capsule that an agent's rays may hit: a record of `_NEAR_ROUND`."""

    start: Three
    """The rays' start relative to the shape's center."""
    radius: float
    """The shape's and the swept sphere's together."""
    half_height: float
    tag: float
    at_least: float
    """No ray travels less than this before it touches the shape."""


_NEAR_BOX = record_type(_NearBox)
_NEAR_ROUND = record_type(_NearRound)


class _Rays(NamedTuple):
    """The rays of one fan and one agent, in the area's frame, padded to `_LANES`."""

    dx: Floats
    dz: Floats
    best: Floats
    """How far each traveled; 0 for padding, so that it hits nothing."""
    tag: Floats
    """Tag of the shape that each has hit; ABSENT: none."""


class _Room(NamedTuple):
    """Workspace for one agent and one fan."""

    boxes: NDArray[np.void]
    """Records of `_NEAR_BOX`: those that its rays may hit."""
    rounds: NDArray[np.void]
    """Records of `_NEAR_ROUND`, likewise."""
    rays: _Rays


@inlined
def _find_boxes(
    shapes: Floats, start: Vector, fan: _Fan, near: NDArray[np.void], n: int
) -> int:
    """Add to the n boxes in `near` those of `shapes` that rays from here may hit; their number."""
    r, reach = fan.radius_m, fan.reach_m
    end = start[1] + fan.rise * reach
    low = min(start[1], end) - r
    high = max(start[1], end) + r
    for k in range(len(shapes)):
        hy = shapes[k, HALF_Y]
        is_above = shapes[k, Y] - hy > high
        is_below = shapes[k, Y] + hy < low
        if shapes[k, BOX_TAG] == ABSENT or is_above or is_below:
            continue
        hx = shapes[k, HALF_X]
        hz = shapes[k, HALF_Z]
        cos = shapes[k, COS]
        sin = shapes[k, SIN]
        wx, wy, wz = minus(start, vector_of(shapes[k]))
        # In the box's frame.
        lx = wx * cos - wz * sin
        lz = wx * sin + wz * cos
        gx = max(abs(lx) - hx, 0.0)
        gy = max(abs(wy) - hy, 0.0)
        gz = max(abs(lz) - hz, 0.0)
        distance = math.sqrt(gx * gx + gy * gy + gz * gz)
        # Unity's sweep ignores what the sphere overlaps at its start.
        if distance <= r + fan.tie_m or distance > reach + r:
            continue
        box = near[n]
        set_vector(box.start, (lx, wy, lz))
        set_vector(box.half, (hx, hy, hz))
        box.cos = cos
        box.sin = sin
        box.tag = shapes[k, BOX_TAG]
        # The sphere's surface has at least this far to go, whatever its direction.
        box.at_least = distance - r
        box.wx = -wx
        box.wz = -wz
        box.bound = math.sqrt(hx * hx + hz * hz) + r
        # A level ray passes at the height gy above or below the box, where the sphere is thinner.
        box.level_radius = math.sqrt(max(r * r - gy * gy, 0.0))
        n += 1
    return n


@inlined
def _find_rounds(
    shapes: Floats, start: Vector, fan: _Fan, near: NDArray[np.void]
) -> int:
    """Fill `near` with the round shapes that rays from here may hit; their number."""
    r, reach = fan.radius_m, fan.reach_m
    n = 0
    for k in range(len(shapes)):
        if shapes[k, ROUND_TAG] == ABSENT:
            continue
        wx, wy, wz = minus(start, vector_of(shapes[k]))
        gy = max(abs(wy) - shapes[k, HALF_HEIGHT], 0.0)
        distance = math.sqrt(wx * wx + gy * gy + wz * wz) - shapes[k, RADIUS]
        if distance <= r + fan.tie_m or distance > reach + r:
            continue
        shape = near[n]
        set_vector(shape.start, (wx, wy, wz))
        shape.radius = shapes[k, RADIUS] + r
        shape.half_height = shapes[k, HALF_HEIGHT]
        shape.tag = shapes[k, ROUND_TAG]
        shape.at_least = distance - r
        n += 1
    return n


@inlined
def _hit_round(shape: _NearRound, rays: _Rays, rise: float) -> None:
    """End those rays at a sphere or capsule that meet it before all else."""
    px, py, pz = vector_of(shape.start)
    radius, half_height = shape.radius, shape.half_height
    own, at_least = shape.tag, shape.at_least
    dx, dz, best, tag = rays
    if rise == 0.0 or half_height == 0.0:
        # The nearest point of the capsule's segment, at the height where a level ray passes. There
        # is no branch for a single ray, so the loop becomes vector instructions.
        py -= min(max(py, -half_height), half_height)
        for ray in range(len(best)):
            t = sweep_ball((px, py, pz), (dx[ray], rise, dz[ray]), radius)
            ends = (t < best[ray]) & (at_least < best[ray])
            best[ray] = t if ends else best[ray]
            tag[ray] = own if ends else tag[ray]
        return
    # A search takes longer than a branch.
    for ray in range(len(best)):
        if at_least < best[ray]:
            direction = (dx[ray], rise, dz[ray])
            t = sweep_round((px, py, pz), direction, radius, half_height)
            if t < best[ray]:
                best[ray] = t
                tag[ray] = own


@inlined
def _hit_box(box: _NearBox, rays: _Rays, rise: float, radius: float) -> None:
    """As `_hit_round` for a box."""
    start = vector_of(box.start)
    half = vector_of(box.half)
    cos, sin = box.cos, box.sin
    own, at_least = box.tag, box.at_least
    level_radius = box.level_radius
    dx, dz, best, tag = rays
    if rise == 0.0:
        for ray in range(len(best)):
            qx = dx[ray] * cos - dz[ray] * sin
            qz = dx[ray] * sin + dz[ray] * cos
            t = sweep_level(start[0], start[2], qx, qz, half[0], half[2], level_radius)
            ends = (t < best[ray]) & (at_least < best[ray])
            best[ray] = t if ends else best[ray]
            tag[ray] = own if ends else tag[ray]
        return
    for ray in range(len(best)):
        # Most rays pass next to most boxes: a cheap test before the search.
        beside = abs(box.wx * dz[ray] - box.wz * dx[ray])
        if at_least < best[ray] and beside <= box.bound:
            qx = dx[ray] * cos - dz[ray] * sin
            qz = dx[ray] * sin + dz[ray] * cos
            t = sweep_box(start, (qx, rise, qz), half, radius)
            if t < best[ray]:
                best[ray] = t
                tag[ray] = own


@makes_arrays
def _read(
    first: int,
    last: int,
    agents: NDArray[np.intp],
    view: View,
    geometry: _Geometry,
    frame: NDArray[np.float32],
) -> None:
    boxes = np.empty(len(view.fixed) + view.boxes.shape[1], _NEAR_BOX)
    rounds = np.empty(view.rounds.shape[1], _NEAR_ROUND)
    begin = 0
    for k in range(len(geometry.fans)):
        fan = geometry.fans[k]
        lanes = -(-fan.num_rays // _LANES) * _LANES  # rounded up
        # Padding keeps a unit direction, so that its arithmetic stays finite.
        rays = _Rays(
            dx=np.ones(lanes),
            dz=np.zeros(lanes),
            best=np.zeros(lanes),
            tag=np.empty(lanes),
        )
        room = _Room(boxes, rounds, rays)
        _read_fan(first, last, agents, view, geometry, fan, begin, room, frame)
        begin += fan.num_rays


@compiled
def _read_fan(
    first: int,
    last: int,
    agents: NDArray[np.intp],
    view: View,
    geometry: _Geometry,
    fan: _Fan,
    begin: int,
    room: _Room,
    frame: NDArray[np.float32],
) -> None:
    """Read the rays of one fan, from the sensor's ray `begin` on."""
    rise = fan.rise
    rays = room.rays
    for row in range(first, last):
        area, agent = divmod(agents[row], view.yaw.shape[1])
        body = view.bodies[area, agent]
        start = (body[X], body[Y] + fan.start_m, body[Z])
        yaw = view.yaw[area, agent]
        cos = math.cos(yaw)
        sin = math.sin(yaw)
        num_boxes = _find_boxes(view.fixed, start, fan, room.boxes, 0)
        num_boxes = _find_boxes(view.boxes[area], start, fan, room.boxes, num_boxes)
        num_rounds = _find_rounds(view.rounds[area], start, fan, room.rounds)
        for ray in range(fan.num_rays):
            lx = geometry.directions[begin + ray, 0]
            lz = geometry.directions[begin + ray, 2]
            rays.dx[ray] = lx * cos + lz * sin
            rays.dz[ray] = -lx * sin + lz * cos
            rays.best[ray] = fan.reach_m
            rays.tag[ray] = ABSENT
        # Shape by shape, and for each of them all rays at once.
        for k in range(num_rounds):
            _hit_round(room.rounds[k], rays, rise)
        for k in range(num_boxes):
            _hit_box(room.boxes[k], rays, rise, fan.radius_m)
        _write_frame(frame[row], begin, fan, rays, geometry)


@inlined
def _write_frame(
    frame: NDArray[np.float32], begin: int, fan: _Fan, rays: _Rays, geometry: _Geometry
) -> None:
    """What the rays of one fan have hit, as the sensor encodes it."""
    channel, num_tags = geometry.channel, geometry.num_tags
    for ray in range(fan.num_rays):
        at = (begin + ray) * (num_tags + 2)
        tag = int(rays.tag[ray])
        for k in range(num_tags + 1):
            frame[at + k] = 0.0
        share = rays.best[ray] / fan.reach_m
        frame[at + num_tags + 1] = 1.0 if tag == ABSENT else share
        if tag == ABSENT:
            frame[at + num_tags] = 1.0
        # Else it hit something without a listed tag.
        elif tag >= 0 and channel[tag] >= 0:
            frame[at + channel[tag]] = 1.0


@makes_arrays
def _observe(
    first: int,
    last: int,
    start: int,
    total: int,
    obs: NDArray[np.float32],
    frames: NDArray[np.float32],
    agents: NDArray[np.intp],
    view: View,
    geometry: _Geometry,
) -> None:
    """Agents first to last are rows from `start` + first on, of `total` in `obs`."""
    own = agents[first:last]
    frame = np.empty((len(own), frames.shape[2]), np.float32)
    _read(0, len(own), own, view, geometry, frame)
    _push_frames(frame, start + first, total, obs, frames, geometry.sizes, own)


@compiled
def _push_frames(
    frame: NDArray[np.float32],
    start: int,
    total: int,
    obs: NDArray[np.float32],
    frames: NDArray[np.float32],
    sizes: NDArray[np.int64],
    agents: NDArray[np.intp],
) -> None:
    """Add a frame to each agent's stack, and write the stacks into `obs`, sensor after sensor."""
    depth = frames.shape[1]
    for row in range(len(frame)):
        stack = frames[agents[row]]  # [depth, sum of sizes], oldest first
        # From the oldest on, so that each frame is read before it is overwritten.
        for d in range(depth - 1):
            _copy(stack[d + 1], stack[d])
        _copy(frame[row], stack[depth - 1])
        at, column = 0, 0
        for size in sizes:
            for d in range(depth):
                begin = at + ((start + row) * depth + d) * size
                _copy(stack[d, column : column + size], obs[begin : begin + size])
            at += total * depth * size
            column += size


@inlined
def _copy(source: NDArray[np.float32], target: NDArray[np.float32]) -> None:
    for i in range(len(source)):
        target[i] = source[i]
