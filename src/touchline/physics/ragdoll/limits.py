"""The rows of a joint's limits: they exist only near a limit, and only push away from it.

The relative rotation is split into a swing and a twist about x. Angles are those of PhysX: the
twist φ = 2 atan2(x, w), the swings 4 atan2(y or z, 1 + w).
"""

import math
from typing import Any

from touchline.physics.kernels import compiled, inlined
from touchline.physics.ragdoll.lanes import (
    LANES,
    Quaternion,
    columns,
    conjugate,
    cross,
    dot,
    get,
    get_axis,
    get_turn,
    multiply,
    plus,
    put,
    times,
)
from touchline.physics.ragdoll.model import IS_CONE, IS_LIMITED, JointRecord
from touchline.physics.ragdoll.records import JointFrame, Row
from touchline.physics.shapes import Vector

_MARGIN_RAD = 0.1
_MARGIN_SHARE = 0.49
"""A limit's row appears within the smaller of 0.1 rad and 0.49 of the range; that of a single
swing within 0.49 of the smaller of 0.1 rad and the range."""


@compiled
def add_limits(joint: JointRecord, rows: Any, at: int, frame: JointFrame) -> None:
    """Fill the limit rows from `at` on: swing, then twist. Lanes far from a limit get zeros."""
    if joint.swing == IS_CONE or joint.swing == IS_LIMITED:
        _clear(rows[at])
        for lane in range(LANES):
            if joint.swing == IS_CONE:
                _cone_limit(joint, rows[at], frame, lane)
            else:
                _swing_limit(joint, rows[at], frame, lane)
        at += 1
    if joint.twist == IS_LIMITED:
        _clear(rows[at])
        for lane in range(LANES):
            _twist_limit(joint, rows[at], frame, lane)


@compiled
def _clear(row: Row) -> None:
    row.active = 0
    row.error[:] = 0.0
    row.linear[:] = 0.0
    row.turn0[:] = 0.0
    row.turn1[:] = 0.0


@inlined
def _set(row: Row, lane: int, axis: Vector, error: float) -> None:
    row.active = 1
    put(row.turn0, lane, axis)
    put(row.turn1, lane, axis)
    row.error[lane] = error


@inlined
def _twist_of(q: Quaternion) -> Quaternion:
    x, _, _, w = q
    length = math.sqrt(x * x + w * w)
    # Half a turn of pure swing has no defined twist.
    if x == 0.0 or length == 0.0:
        return 0.0, 0.0, 0.0, 1.0
    return x / length, 0.0, 0.0, w / length


@compiled
def _twist_limit(joint: JointRecord, row: Row, frame: JointFrame, lane: int) -> None:
    margin = min(_MARGIN_RAD, _MARGIN_SHARE * (joint.high - joint.low))
    twist = _twist_of(get_turn(frame.relative, lane))
    angle = 2.0 * math.atan2(twist[0], twist[3])
    axis = get(frame.twist_axis, lane)
    if angle < joint.low + margin:
        _set(row, lane, times(axis, -1.0), angle - joint.low)
    elif angle > joint.high - margin:
        _set(row, lane, axis, joint.high - angle)


@inlined
def _swing_of(frame: JointFrame, lane: int) -> Quaternion:
    relative = get_turn(frame.relative, lane)
    return multiply(relative, conjugate(_twist_of(relative)))


@compiled
def _swing_limit(joint: JointRecord, row: Row, frame: JointFrame, lane: int) -> None:
    """A swing about the owner's y, where z is locked."""
    margin = _MARGIN_SHARE * min(joint.y, _MARGIN_RAD)
    swing = _swing_of(frame, lane)
    angle = 4.0 * math.atan2(swing[1], 1.0 + swing[3])
    axis = get_axis(frame.axes, 1, lane)
    if angle < margin - joint.y:
        _set(row, lane, times(axis, -1.0), angle + joint.y)
    elif angle > joint.y - margin:
        _set(row, lane, axis, joint.y - angle)


@compiled
def _cone_limit(joint: JointRecord, row: Row, frame: JointFrame, lane: int) -> None:
    """A swing within an ellipse: its row turns across the nearest point of the cone."""
    # Both the connected x and the cone are taken as directions u seen from the owner.
    width, height = joint.y, joint.z
    margin = min(_MARGIN_RAD, _MARGIN_SHARE * min(width, height))
    swing = _swing_of(frame, lane)
    y = 4.0 * math.atan2(swing[1], 1.0 + swing[3])
    z = 4.0 * math.atan2(swing[2], 1.0 + swing[3])
    grown_y = (abs(y) + margin) / width
    grown_z = (abs(z) + margin) / height
    # Well inside the ellipse there is no row, which is the common case.
    if grown_y * grown_y + grown_z * grown_z <= 1.0:
        return
    y, z = _nearest_on_ellipse(y, z, width, height)
    # The ellipse's normal there: the gradient of its equation, up to a factor.
    out = (y / (width * width), z / (height * height))
    u, across = _cone_direction(math.tan(0.25 * y), math.tan(0.25 * z), out)
    length = math.sqrt(dot(across, across))
    if length == 0.0:
        return
    axis = cross(u, times(across, 1.0 / length))
    connected_x, _, _ = columns(swing)
    error = dot(cross(u, axis), connected_x)
    # Columns of the owner's matrix, scaled and added: from the owner's frame to the world's.
    along_x = times(get_axis(frame.axes, 0, lane), axis[0])
    along_y = times(get_axis(frame.axes, 1, lane), axis[1])
    along_z = times(get_axis(frame.axes, 2, lane), axis[2])
    world = plus(plus(along_x, along_y), along_z)
    _set(row, lane, world, error)


@compiled
def _nearest_on_ellipse(
    y: float, z: float, width: float, height: float
) -> tuple[float, float]:
    """The point of (y / width)² + (z / height)² = 1 that is nearest to (y, z)."""
    # It is (width² y / (t + width²), …) for the greatest root t of a convex falling function, which
    # Newton's method approaches from the left. Source: Eberly, "Distance from a Point to an
    # Ellipse".
    ww = width * width
    hh = height * height
    a = abs(y)
    b = abs(z)
    # There one of the two squares is 1, so the value is not negative: left of the root.
    t = max(width * a - ww, height * b - hh)
    # It converges in a handful; the bound only keeps a NaN from looping forever.
    for _ in range(30):
        p = width * a / (t + ww)
        q = height * b / (t + hh)
        value = p * p + q * q - 1.0
        slope = -2.0 * (p * p / (t + ww) + q * q / (t + hh))
        if slope == 0.0 or abs(value) < 1e-14:
            break
        t -= value / slope
    nearest_y = ww * y / (t + ww)
    nearest_z = hh * z / (t + hh)
    return nearest_y, nearest_z


@inlined
def _cone_direction(
    r1: float, r2: float, out: tuple[float, float]
) -> tuple[Vector, Vector]:
    """The x axis swung by (r1, r2) = tan(angle / 4), and its derivative along `out`."""
    # The swing's quaternion is (0, 2 r1, 2 r2, 1 − r²) / (1 + r²).
    square = r1 * r1 + r2 * r2
    scale = 1.0 / (1.0 + square)
    a = 2.0 * r1 * scale
    b = 2.0 * r2 * scale
    w = (1.0 - square) * scale
    change = 2.0 * (r1 * out[0] + r2 * out[1])
    da = (2.0 * out[0] - a * change) * scale
    db = (2.0 * out[1] - b * change) * scale
    dw = -2.0 * change * scale * scale
    u = (1.0 - 2.0 * (a * a + b * b), 2.0 * w * b, -2.0 * w * a)
    du = (
        -4.0 * (a * da + b * db),
        2.0 * (dw * b + w * db),
        -2.0 * (dw * a + w * da),
    )
    return u, du
