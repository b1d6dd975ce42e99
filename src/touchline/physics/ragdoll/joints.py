"""The rows of a joint: its drive, its locked axes, and (from `limits`) its limits.

All are built once per step from the poses before it. An error is what a row should remove: the
position sweeps correct all of it in one step.

The Jacobian of a relative rotation. For frames p and q, J ω = ½ vec(p* (ω, 0) q) is the change of
the vector part of p* q by an angular velocity ω. Drives and locked axes use rows of this J, which
is about half of the frame's rotation matrix, with errors that are about half of an angle. So a
drive acts like a torsion spring with a quarter of its spring and damper, and half of its limit.
"""

import math
from typing import Any

from touchline.physics.kernels import compiled, inlined
from touchline.physics.ragdoll.lanes import (
    LANES,
    apply,
    columns,
    conjugate,
    cross,
    dot,
    get,
    get_axis,
    get_symmetric,
    get_turn,
    minus,
    multiply,
    plus,
    put,
    put_axis,
    put_turn,
    rotate,
    same_half,
    times,
    turn_of,
    vector_of,
)
from touchline.physics.ragdoll.limits import add_limits
from touchline.physics.ragdoll.model import (
    IS_LIMITED,
    IS_LOCKED,
    JointRecord,
    Settings,
)
from touchline.physics.ragdoll.records import Body, JointFrame, Row
from touchline.physics.shapes import Floats


@compiled
def build_joint(
    joint: JointRecord,
    bodies: Any,
    parts: Any,
    frame: JointFrame,
    rows: Any,
    settings: Settings,
) -> None:
    """Fill a joint's rows but for its drive's."""
    owner = bodies[joint.owner]
    connected = bodies[joint.connected]
    place_frames(joint, owner, connected, parts, frame)
    # Equality rows before limit rows: each row is made orthogonal to the equality rows before
    # it.
    first = joint.first_row + joint.num_drive_rows
    first_limit = first + joint.num_equality_rows
    end = first_limit + joint.num_limit_rows
    _lock_axes(joint, rows, first, frame)
    add_limits(joint, rows, first_limit, frame)
    mass0 = parts[joint.owner].inverse_mass * joint.owner_scale
    mass1 = parts[joint.connected].inverse_mass * joint.connected_scale
    for i in range(first, end):
        row = rows[i]
        is_limit = i >= first_limit
        row.mass0 = mass0
        row.mass1 = mass1
        # A limit only pushes away from itself.
        row.low = 0.0 if is_limit else -math.inf
        if not is_limit:
            row.active = 1
        if row.active:
            _weigh(row, owner, connected, joint.owner_scale, joint.connected_scale)
            _keep_error(row, is_limit)
            if joint.preprocess:
                # Limits are not made orthogonal to each other, nor are drives to anything: as
                # PhysX does.
                for p in range(first, min(i, first_limit)):
                    _make_orthogonal(row, rows[p])
            _finish(row, settings.dt)


@compiled
def _lock_axes(joint: JointRecord, rows: Any, at: int, frame: JointFrame) -> None:
    """Fill the equality rows from `at` on; their order is PhysX's, and decides the result."""
    if joint.swing == IS_LIMITED:
        _locked_swing(rows[at], frame)
        at += 1
    _linear_rows(rows[at], rows[at + 1], rows[at + 2], frame)
    at += 3
    if joint.swing == IS_LOCKED:
        _relative_turn(frame, frame.owner, frame.connected)
        if joint.twist == IS_LOCKED:
            _turn_row(rows[at], frame, 0)
            at += 1
        _turn_row(rows[at], frame, 1)
        _turn_row(rows[at + 1], frame, 2)


@compiled
def build_drive(
    joint: JointRecord,
    bodies: Any,
    frame: JointFrame,
    rows: Any,
    settings: Settings,
) -> None:
    """Fill the rows of a joint's drive; `frame` is placed and holds target and torque."""
    for lane in range(LANES):
        # The target was given as the owner sees it.
        target = multiply(get_turn(frame.owner, lane), get_turn(frame.target, lane))
        # The nearer of q and −q, because otherwise a drive would turn the long way round.
        nearer = same_half(target, get_turn(frame.connected, lane))
        put_turn(frame.target, lane, nearer)
    _relative_turn(frame, frame.target, frame.connected)
    owner = bodies[joint.owner]
    connected = bodies[joint.connected]
    for k in range(joint.num_drive_rows):
        row = rows[joint.first_row + k]
        _turn_row(row, frame, k)
        # No drive is on the one joint with scaled masses (the Worm's mouth).
        _weigh(row, owner, connected, 1.0, 1.0)
        _spring(row, frame.torque, settings)


@compiled
def place_frames(
    joint: JointRecord, owner: Body, connected: Body, parts: Any, frame: JointFrame
) -> None:
    """Where the joint's frames are in the world."""
    # Levers start at the center of mass, frames are given from the body's origin.
    center0 = vector_of(parts[joint.owner].center)
    center1 = vector_of(parts[joint.connected].center)
    p0 = minus(vector_of(joint.owner_position), center0)
    p1 = minus(vector_of(joint.connected_position), center1)
    f0 = turn_of(joint.owner_rotation)
    f1 = turn_of(joint.connected_rotation)
    for lane in range(LANES):
        q0 = get_turn(owner.rotation, lane)
        q1 = get_turn(connected.rotation, lane)
        a = multiply(q0, f0)
        b = same_half(multiply(q1, f1), a)
        put_turn(frame.owner, lane, a)
        put_turn(frame.connected, lane, b)
        put_turn(frame.relative, lane, multiply(conjugate(a), b))
        x, y, z = columns(a)
        put_axis(frame.axes, 0, lane, x)
        put_axis(frame.axes, 1, lane, y)
        put_axis(frame.axes, 2, lane, z)
        twist_axis, _, _ = columns(b)
        put(frame.twist_axis, lane, twist_axis)
        arm0 = rotate(q0, p0)
        arm1 = rotate(q1, p1)
        put(frame.owner_arm, lane, arm0)
        put(frame.connected_arm, lane, arm1)
        between = minus(get(connected.center, lane), get(owner.center, lane))
        offset = minus(plus(between, arm1), arm0)
        put(frame.offset, lane, offset)


@compiled
def _relative_turn(frame: JointFrame, p: Floats, q: Floats) -> None:
    """Jacobian and vector part of p* q."""
    # With p = (u, s), q = (v, t), c = s v + t u, k = s t − u · v:
    # J[i][j] = ½ (u_j v_i + v_j u_i + k δ_ij + ε_ijm c_m)
    for lane in range(LANES):
        u0, u1, u2, s = get_turn(p, lane)
        v0, v1, v2, t = get_turn(q, lane)
        k = s * t - (u0 * v0 + u1 * v1 + u2 * v2)
        c0 = s * v0 + t * u0
        c1 = s * v1 + t * u1
        c2 = s * v2 + t * u2
        j = frame.jacobian
        j[0, lane] = 0.5 * (2.0 * u0 * v0 + k)
        j[1, lane] = 0.5 * (u1 * v0 + v1 * u0 + c2)
        j[2, lane] = 0.5 * (u2 * v0 + v2 * u0 - c1)
        j[3, lane] = 0.5 * (u0 * v1 + v0 * u1 - c2)
        j[4, lane] = 0.5 * (2.0 * u1 * v1 + k)
        j[5, lane] = 0.5 * (u2 * v1 + v2 * u1 + c0)
        j[6, lane] = 0.5 * (u0 * v2 + v0 * u2 + c1)
        j[7, lane] = 0.5 * (u1 * v2 + v1 * u2 - c0)
        j[8, lane] = 0.5 * (2.0 * u2 * v2 + k)
        x, y, z, _ = multiply((-u0, -u1, -u2, s), (v0, v1, v2, t))  # p* q
        put(frame.error, lane, (x, y, z))


@inlined
def _turn_row(row: Row, frame: JointFrame, i: int) -> None:
    """A row that turns the relative rotation's component i to 0."""
    for lane in range(LANES):
        jacobian = get_axis(frame.jacobian, i, lane)
        put(row.linear, lane, (0.0, 0.0, 0.0))
        put(row.turn0, lane, jacobian)
        put(row.turn1, lane, jacobian)
        row.error[lane] = -frame.error[i, lane]


@inlined
def _locked_swing(row: Row, frame: JointFrame) -> None:
    """Where only z is locked: the connected x stays orthogonal to the owner's y."""
    for lane in range(LANES):
        x = get(frame.twist_axis, lane)
        y = get_axis(frame.axes, 1, lane)
        turn = cross(x, y)
        put(row.linear, lane, (0.0, 0.0, 0.0))
        put(row.turn0, lane, turn)
        put(row.turn1, lane, turn)
        row.error[lane] = -dot(x, y)


@compiled
def _linear_rows(x: Row, y: Row, z: Row, frame: JointFrame) -> None:
    """The anchors stay together, along each of the owner's axes."""
    _linear_row(x, frame, 0)
    _linear_row(y, frame, 1)
    _linear_row(z, frame, 2)


@inlined
def _linear_row(row: Row, frame: JointFrame, k: int) -> None:
    for lane in range(LANES):
        axis = get_axis(frame.axes, k, lane)
        put(row.linear, lane, axis)
        put(row.turn0, lane, cross(get(frame.owner_arm, lane), axis))
        put(row.turn1, lane, cross(get(frame.connected_arm, lane), axis))
        row.error[lane] = -dot(axis, get(frame.offset, lane))


@compiled
def _weigh(row: Row, owner: Body, connected: Body, s0: float, s1: float) -> None:
    """What an impulse of this row does to the bodies' spins."""
    for lane in range(LANES):
        turned0 = apply(get_symmetric(owner.inertia, lane), get(row.turn0, lane))
        turned1 = apply(get_symmetric(connected.inertia, lane), get(row.turn1, lane))
        put(row.push0, lane, times(turned0, s0))
        put(row.push1, lane, times(turned1, s1))


@inlined
def _response(row: Row, lane: int) -> float:
    """The change of a row's speed by an impulse of 1."""
    linear = get(row.linear, lane)
    by_masses = (row.mass0 + row.mass1) * dot(linear, linear)
    by_owner = dot(get(row.turn0, lane), get(row.push0, lane))
    by_connected = dot(get(row.turn1, lane), get(row.push1, lane))
    response: float = by_masses + by_owner + by_connected
    return response


@inlined
def _spring(row: Row, limit: Floats, settings: Settings) -> None:
    """An implicit spring and damper: the same constants in all sweeps."""
    h = settings.dt
    # Implicit Euler: the force is that of the position and speed after the step, so stiff
    # springs stay stable at any time step.
    alpha = h * h * settings.spring + h * settings.damper
    for lane in range(LANES):
        beta = -h * settings.spring * row.error[lane]
        by_owner = dot(get(row.turn0, lane), get(row.push0, lane))
        by_connected = dot(get(row.turn1, lane), get(row.push1, lane))
        response = by_owner + by_connected
        x = 1.0 / (1.0 + alpha * response)
        row.decay[lane] = 1.0 - x
        row.gain[lane] = x * alpha
        row.constant[lane] = x * beta
        # A limit of force becomes one of impulse per step.
        row.high[lane] = limit[lane] * h
        row.impulse[lane] = 0.0


@inlined
def _keep_error(row: Row, is_limit: bool) -> None:
    """What remains of the error in the sweeps for the kept velocity: only a limit's free way."""
    for lane in range(LANES):
        ahead = max(row.error[lane], 0.0)
        row.kept_constant[lane] = ahead if is_limit else 0.0


@compiled
def _make_orthogonal(row: Row, earlier: Row) -> None:
    """Take from a row what an earlier row of a locked axis already does."""
    masses = row.mass0 + row.mass1
    for lane in range(LANES):
        # What an impulse of the earlier row does to the speed of this one.
        by_masses = masses * dot(get(row.linear, lane), get(earlier.linear, lane))
        by_owner = dot(get(row.turn0, lane), get(earlier.push0, lane))
        by_connected = dot(get(row.turn1, lane), get(earlier.push1, lane))
        shared = by_masses + by_owner + by_connected
        s = shared * earlier.gain[lane]
        for k in range(3):
            row.linear[k, lane] -= s * earlier.linear[k, lane]
            row.turn0[k, lane] -= s * earlier.turn0[k, lane]
            row.turn1[k, lane] -= s * earlier.turn1[k, lane]
            row.push0[k, lane] -= s * earlier.push0[k, lane]
            row.push1[k, lane] -= s * earlier.push1[k, lane]
        # `kept_constant` was taken from the error before this change, as in PhysX.
        row.error[lane] -= s * earlier.error[lane]


@compiled
def _finish(row: Row, dt: float) -> None:
    """Gain and constants of a row of a locked axis or limit: its full error in one step."""
    for lane in range(LANES):
        response = _response(row, lane)
        # Lanes far from a limit have rows of zeros.
        gain = 1.0 / response if response > 0.0 else 0.0
        row.gain[lane] = gain
        # The whole error in one step, where contacts remove 80 % of theirs.
        row.constant[lane] = -gain * row.error[lane] / dt
        row.kept_constant[lane] *= -gain / dt
        row.impulse[lane] = 0.0
