"""The sweeps: one row after the other, each seeing what those before it changed.

A row is solved in three loops over the lanes, each of which writes to one record, so that all three
become vector instructions (`lanes`).
"""

from typing import Any

from touchline.physics.kernels import compiled, inlined
from touchline.physics.ragdoll.lanes import LANES, add, dot, get, minus, subtract, times
from touchline.physics.ragdoll.model import PartRecord
from touchline.physics.ragdoll.records import (
    ANCHORS,
    POINTS,
    Body,
    Friction,
    Normal,
    Patch,
    Row,
    Work,
)


@compiled
def sweep_joints(joints: Any, bodies: Any, rows: Any) -> None:
    """All rows of all joints, joint after joint: drive, locked axes, limits."""
    for j in range(len(joints)):
        joint = joints[j]
        owner = bodies[joint.owner]
        connected = bodies[joint.connected]
        at = joint.first_row
        for _ in range(joint.num_drive_rows):
            _solve_drive(rows[at], owner, connected)
            at += 1
        for _ in range(joint.num_equality_rows + joint.num_limit_rows):
            if rows[at].active:
                _solve_row(rows[at], owner, connected)
            at += 1


@inlined
def _set_impulse(row: Any, lane: int, impulse: float) -> None:
    """A row's impulse in all sweeps so far; the bodies still have to feel the change of it."""
    row.change[lane] = impulse - row.impulse[lane]
    row.impulse[lane] = impulse


@inlined
def _solve_drive(row: Row, owner: Body, connected: Body) -> None:
    for lane in range(LANES):
        # A drive turns both bodies by one Jacobian, so their relative spin is enough.
        spin = minus(get(owner.spin, lane), get(connected.spin, lane))
        speed = dot(get(row.turn0, lane), spin)
        impulse = row.decay[lane] * row.impulse[lane] - row.gain[lane] * speed
        impulse = max(impulse + row.constant[lane], -row.high[lane])
        impulse = min(impulse, row.high[lane])
        _set_impulse(row, lane, impulse)
    _turn(row, owner, connected)


@inlined
def _solve_row(row: Row, owner: Body, connected: Body) -> None:
    low = row.low
    for lane in range(LANES):
        velocity = minus(get(owner.velocity, lane), get(connected.velocity, lane))
        speed = dot(get(row.linear, lane), velocity)
        speed += dot(get(row.turn0, lane), get(owner.spin, lane))
        speed -= dot(get(row.turn1, lane), get(connected.spin, lane))
        # The sum over all sweeps is limited, not each change: a later sweep may take some of it
        # back.
        impulse = row.impulse[lane] - row.gain[lane] * speed + row.constant[lane]
        impulse = max(impulse, low)
        _set_impulse(row, lane, impulse)
    mass0 = row.mass0
    mass1 = row.mass1
    for lane in range(LANES):
        by = times(get(row.linear, lane), row.change[lane] * mass0)
        add(owner.velocity, lane, by)
    for lane in range(LANES):
        by = times(get(row.linear, lane), row.change[lane] * mass1)
        subtract(connected.velocity, lane, by)
    _turn(row, owner, connected)


@inlined
def _turn(row: Row, owner: Body, connected: Body) -> None:
    """What the change of a row's impulse does to the spins."""
    for lane in range(LANES):
        add(owner.spin, lane, times(get(row.push0, lane), row.change[lane]))
    for lane in range(LANES):
        subtract(connected.spin, lane, times(get(row.push1, lane), row.change[lane]))


@compiled
def sweep_ground(parts: Any, work: Work, with_friction: bool, friction: float) -> None:
    """All parts on the ground: of each patch its points, then its friction, anchor by anchor."""
    bodies, normals, frictions = work.bodies, work.normals, work.frictions
    for i in range(len(work.patches)):
        patch = work.patches[i]
        if patch.num_points == 0:
            continue
        for lane in range(LANES):
            patch.load[lane] = 0.0
            patch.slips[lane] = 0.0
        for k in range(patch.num_points):
            _solve_normal(normals[i * POINTS + k], patch, parts[i], bodies[i])
        if with_friction:
            for k in range(2 * patch.num_anchors):
                row = frictions[i * 2 * ANCHORS + k]
                _solve_friction(row, patch, parts[i], bodies[i], friction)


@inlined
def _solve_normal(row: Normal, patch: Patch, part: PartRecord, body: Body) -> None:
    for lane in range(LANES):
        # The ground's normal is y: of the velocity only that component counts.
        by_spin = dot(get(row.turn, lane), get(body.spin, lane))
        speed = body.velocity[1, lane] + by_spin
        impulse = row.impulse[lane] - row.gain[lane] * (speed + row.bias[lane])
        # The ground never pulls.
        impulse = max(impulse, 0.0)
        _set_impulse(row, lane, impulse)
    mass = part.inverse_mass
    for lane in range(LANES):
        body.velocity[1, lane] += row.change[lane] * mass
        add(body.spin, lane, times(get(row.push, lane), row.change[lane]))
    for lane in range(LANES):
        patch.load[lane] += row.impulse[lane]


@inlined
def _solve_friction(
    row: Friction, patch: Patch, part: PartRecord, body: Body, friction: float
) -> None:
    for lane in range(LANES):
        speed = dot(get(row.along, lane), get(body.velocity, lane))
        speed += dot(get(row.turn, lane), get(body.spin, lane))
        impulse = row.impulse[lane] - row.gain[lane] * (speed + row.bias[lane])
        # Coulomb's law, with the load that this sweep's contact points just found.
        most = friction * patch.load[lane]
        impulse = min(max(impulse, -most), most)
        _set_impulse(row, lane, impulse)
    for lane in range(LANES):
        most = friction * patch.load[lane]
        # Without a gain there is no such anchor in this lane.
        at_limit = (abs(row.impulse[lane]) >= most) & (row.gain[lane] > 0.0)
        patch.slips[lane] = 1.0 if at_limit else patch.slips[lane]
    mass = part.inverse_mass
    for lane in range(LANES):
        by = times(get(row.along, lane), row.change[lane] * mass)
        add(body.velocity, lane, by)
        add(body.spin, lane, times(get(row.push, lane), row.change[lane]))


@compiled
def keep_velocity(joints: Any, work: Work) -> None:
    """From here on errors are not corrected: what the sweeps reach is the velocity that is kept."""
    # Only what is not yet touched or crossed keeps its constant: it stops what would cross within
    # this step. Springs continue as before.
    for j in range(len(joints)):
        joint = joints[j]
        first = joint.first_row + joint.num_drive_rows
        last = first + joint.num_equality_rows + joint.num_limit_rows
        for i in range(first, last):
            row = work.rows[i]
            for lane in range(LANES):
                row.constant[lane] = row.kept_constant[lane]
    for i in range(len(work.normals)):
        normal = work.normals[i]
        for lane in range(LANES):
            normal.bias[lane] = normal.kept_bias[lane]
    for i in range(len(work.frictions)):
        row = work.frictions[i]
        for lane in range(LANES):
            row.bias[lane] = 0.0
