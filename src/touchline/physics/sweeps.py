"""How far a sphere travels along a ray until it touches a shape: for sensors and fast bodies.

Rays are given in the shape's frame. `sweep_ball` and `sweep_level` compute both sides of every
choice and select one, so that a caller's loop over rays becomes vector instructions. A branch per
ray, which no processor can predict, costs five times as much.
"""

import math

import numpy as np

from touchline.physics.kernels import compiled, inlined
from touchline.physics.shapes import Vector

_TOUCHING_M = 1e-10
"""A sphere this close to a shape touches it: where Newton's method stops."""
_MAX_ITERATIONS = 60
_PARALLEL = 1e-12
"""A unit vector with a smaller component than this runs parallel to the faces across it."""


@compiled
def sweep_box(start: Vector, direction: Vector, half: Vector, r: float) -> float:
    """How far a sphere of radius r travels until it touches a box at the origin, or inf.

    `direction` is a unit vector, `half` the box's half sizes. The sphere does not overlap the box
    at its start. It touches where its center is r away from the box: it enters the box grown by r,
    and if that is not above a face, Newton's method finds the place. The distance to a convex shape
    is convex along a line, so the steps never overshoot.
    """
    px, py, pz = start
    dx, dy, dz = direction
    hx, hy, hz = half
    # When the sphere's center enters and leaves the box grown by r.
    t = 0.0
    leave = np.inf
    for p, d, h in ((px, dx, hx + r), (py, dy, hy + r), (pz, dz, hz + r)):
        if abs(d) < _PARALLEL:
            if abs(p) > h:
                return np.inf
        else:
            near = (-h - p) / d
            far = (h - p) / d
            t = max(t, min(near, far))
            leave = min(leave, max(near, far))
    if t > leave:
        return np.inf
    for _ in range(_MAX_ITERATIONS):
        x = px + t * dx
        y = py + t * dy
        z = pz + t * dz
        # Now the vector from the nearest point of the box to the sphere's center.
        x -= min(max(x, -hx), hx)
        y -= min(max(y, -hy), hy)
        z -= min(max(z, -hz), hz)
        distance = math.sqrt(x * x + y * y + z * z)
        if distance - r <= _TOUCHING_M:
            return t
        slope = x * dx + y * dy + z * dz  # times the distance
        if slope >= 0.0:  # it moves away from here on
            return np.inf
        # Newton's step on distance(t) - r = 0, whose derivative is slope / distance.
        t -= (distance - r) * distance / slope
        if t > leave:
            return np.inf
    return np.inf


@compiled
def sweep_round(
    start: Vector, direction: Vector, radius: float, half_height: float
) -> float:
    """As `sweep_box` for a point that meets an upright capsule (or sphere) at the origin."""
    px, py, pz = start
    dx, dy, dz = direction
    if half_height == 0.0 or dy == 0.0:  # a sphere, at the height where the ray passes
        py -= min(max(py, -half_height), half_height)
        return sweep_ball((px, py, pz), direction, radius)
    t = 0.0
    for _ in range(_MAX_ITERATIONS):
        x = px + t * dx
        y = py + t * dy
        z = pz + t * dz
        y -= min(max(y, -half_height), half_height)
        distance = math.sqrt(x * x + y * y + z * z)
        if distance - radius <= _TOUCHING_M:
            return t
        slope = x * dx + y * dy + z * dz
        if slope >= 0.0:
            return np.inf
        t -= (distance - radius) * distance / slope
    return np.inf


@inlined
def sweep_ball(start: Vector, direction: Vector, radius: float) -> float:
    """As `sweep_round` for a sphere."""
    px, py, pz = start
    dx, dy, dz = direction
    along = px * dx + py * dy + pz * dz
    outside = px * px + py * py + pz * pz - radius * radius
    root = along * along - outside
    # A miss has a negative root: its magnitude gives a number, which is discarded below.
    t = -along - math.sqrt(abs(root))
    # `&`, not `and`: a branch would keep callers' loops from becoming vector instructions.
    meets = (along < 0.0) & (root >= 0.0)
    return t if meets else np.inf


@inlined
def sweep_level(
    px: float, pz: float, dx: float, dz: float, hx: float, hz: float, r: float
) -> float:
    """As `sweep_box` in a plane: a level ray against a rectangle with corners rounded by r."""
    # A ray that enters the rectangle grown by r next to a corner meets that corner's circle or
    # nothing.
    near_x, far_x, beside_x = _cross(px, dx, hx + r)
    near_z, far_z, beside_z = _cross(pz, dz, hz + r)
    t = max(0.0, near_x, near_z)
    x = px + t * dx
    z = pz + t * dz
    # The corner on whose side the ray enters.
    corner_x = math.copysign(hx, x)
    corner_z = math.copysign(hz, z)
    from_corner = (px - corner_x, 0.0, pz - corner_z)
    corner = sweep_ball(from_corner, (dx, 0.0, dz), r)
    enters_face = (abs(x) <= hx) | (abs(z) <= hz)
    met = t if enters_face else corner
    misses = (t > min(far_x, far_z)) | beside_x | beside_z
    return np.inf if misses else met


@inlined
def _cross(p: float, d: float, h: float) -> tuple[float, float, bool]:
    """When a point at p with speed d enters and leaves [-h, h].

    The third result: whether it runs parallel to that interval's ends, outside of them.
    """
    inverse = 1.0 / d  # infinite for d = 0, which `is_parallel` catches
    first = (-h - p) * inverse
    second = (h - p) * inverse
    is_parallel = abs(d) <= _PARALLEL
    near = -np.inf if is_parallel else min(first, second)
    far = np.inf if is_parallel else max(first, second)
    return near, far, is_parallel & (abs(p) > h)
