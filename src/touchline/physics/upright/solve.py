"""Sequential impulses: solves the contacts of one area for one time step.

PhysX's own contact rule (`docs/scenes.md`, "Contacts"):

    v ← (v + push + g dt)(1 − drag dt)
    shapes less than 0.02 m apart touch: sequential impulses, with removal of penetration → the
        velocity that moves the poses
    the same without that removal → the velocity that is kept

Pushes, drag and gravity come before, poses are moved afterwards; `boxes` does both for boxes.
Velocities and inverse masses are rows of six, as `contacts` describes.
"""

import math

from touchline.physics.kernels import compiled, inlined
from touchline.physics.shapes import Floats
from touchline.physics.upright.contacts import (
    COUPLED,
    FLAT,
    STRAIGHT,
    Contact,
    Contacts,
    Direction,
    relative_speed,
)

_SWEEPS_MOVING, _SWEEPS_FRICTION, _SWEEPS_KEPT = 12, 3, 12
"""Sweeps while poses move, the last of which apply friction, and sweeps for the velocity that is
kept."""
_STILL_MPS = 1e-7
"""A sweep that changes no contact's speed by more than this is the last one."""


@compiled
def solve(contacts: Contacts, n: int, moving: Floats) -> None:
    """Solve the first n contacts: their velocity becomes the one that is kept, `moving` of the same
    shape the one that poses move with.
    """
    if _are_independent(contacts, n):
        _sweep(contacts, n, True, 1, True)
        copy_velocity(contacts.velocity, moving)
        # Where nothing penetrates and nothing approaches, both velocities are the same.
        if _targets_differ(contacts, n):
            _sweep(contacts, n, False, 1, True)
        return
    # As PhysX does: friction only in the last sweeps, when the normal forces are nearly known.
    _sweep(contacts, n, True, _SWEEPS_MOVING - _SWEEPS_FRICTION, False)
    _sweep(contacts, n, True, _SWEEPS_FRICTION, True)
    copy_velocity(contacts.velocity, moving)
    # Impulses are not reset: these sweeps continue from those above, towards other targets.
    _sweep(contacts, n, False, _SWEEPS_KEPT, True)


@compiled
def copy_velocity(source: Floats, target: Floats) -> None:
    for i in range(len(source)):
        for k in range(6):
            target[i, k] = source[i, k]


@compiled
def _are_independent(contacts: Contacts, n: int) -> bool:
    """Whether no contact disturbs another: one sweep is exact, and the common case."""
    static = len(contacts.velocity) - 1
    met = 0  # a bit per body
    for c in range(n):
        contact = contacts.records[c]
        both = 1 << contact.a
        # The static row may be met by any number of contacts: it passes nothing on.
        if contact.b < static:
            both |= 1 << contact.b
        if contact.kind == COUPLED or met & both:
            return False
        met |= both
    return True


@compiled
def _targets_differ(contacts: Contacts, n: int) -> bool:
    """Whether a second sweep, towards the kept speeds, changes anything; one normal each."""
    for c in range(n):
        normal = contacts.records[c].normal
        if normal.target_moving != normal.target_kept:
            return True
    return False


@compiled
def _sweep(
    contacts: Contacts, n: int, is_moving: bool, sweeps: int, with_friction: bool
) -> None:
    """Solve contact after contact, up to `sweeps` times, until no speed changes any more."""
    velocity, inverse = contacts.velocity, contacts.inverse
    for _ in range(sweeps):
        change = 0.0
        for c in range(n):
            contact = contacts.records[c]
            if contact.kind == COUPLED:
                changed = _solve_in_turn(
                    contact, is_moving, with_friction, velocity, inverse
                )
            else:
                changed = _solve_at_once(
                    contact, is_moving, with_friction, velocity, inverse
                )
            change = max(change, changed)
        if change < _STILL_MPS:
            return


@inlined
def normal_impulse(normal: Direction, is_moving: bool, speed: float) -> float:
    """The impulse that turns a normal's speed into its target; it can only push.

    A normal without a mass has a given impulse, its target (`balls.add_floor_friction`).
    """
    target = normal.target_moving if is_moving else normal.target_kept
    if normal.mass == 0.0:
        return target
    # The sum over all sweeps must push, not each change: later sweeps may take some of it back.
    return max(normal.impulse + normal.mass * (target - speed), 0.0)


@inlined
def friction_impulse(
    contact: Contact, direction: Direction, normal_force: float, speed: float
) -> float:
    """The impulse that stops a direction of friction, or the most that friction can give."""
    impulse = direction.impulse - direction.mass * speed
    if abs(impulse) > contact.static * normal_force:  # it slides
        return math.copysign(contact.dynamic * normal_force, impulse)
    return impulse


@inlined
def set_impulse(direction: Direction, impulse: float) -> tuple[float, float]:
    """Set an impulse; by how much it grew, and by how much the direction's speed will change."""
    growth = impulse - direction.impulse
    direction.impulse = impulse
    if direction.mass > 0.0:
        return growth, abs(growth) / direction.mass
    return 0.0, 0.0


@compiled
def _solve_in_turn(
    contact: Contact,
    is_moving: bool,
    with_friction: bool,
    velocity: Floats,
    inverse: Floats,
) -> float:
    """Solve a COUPLED contact direction after direction; returns the greatest change of a speed."""
    force = 0.0
    change = 0.0
    normals = contact.normal, contact.second_normal
    for k in range(contact.num_normals):
        speed = relative_speed(contact, normals[k], velocity)
        impulse = normal_impulse(normals[k], is_moving, speed)
        force += impulse
        changed = _push(contact, normals[k], impulse, velocity, inverse)
        change = max(change, changed)
    # Friction after the normals, because its limit is their force.
    if with_friction:
        for tangent in (contact.tangent, contact.second_tangent):
            speed = relative_speed(contact, tangent, velocity)
            impulse = friction_impulse(contact, tangent, force, speed)
            changed = _push(contact, tangent, impulse, velocity, inverse)
            change = max(change, changed)
    return change


@compiled
def _push(
    contact: Contact,
    direction: Direction,
    impulse: float,
    velocity: Floats,
    inverse: Floats,
) -> float:
    """Set a direction's impulse and push both bodies; returns the change of its speed."""
    growth, change = set_impulse(direction, impulse)
    a, b = contact.a, contact.b
    for k in range(3):
        velocity[a, k] += inverse[a, k] * direction.along[k] * growth
        velocity[b, k] -= inverse[b, k] * direction.along[k] * growth
        velocity[a, 3 + k] += inverse[a, 3 + k] * direction.turn_a[k] * growth
        velocity[b, 3 + k] += inverse[b, 3 + k] * direction.turn_b[k] * growth
    return change


@inlined
def _solve_at_once(
    contact: Contact,
    is_moving: bool,
    with_friction: bool,
    velocity: Floats,
    inverse: Floats,
) -> float:
    """As `_solve_in_turn` where directions do not disturb each other: no one waits for another."""
    n = contact.normal
    t = contact.tangent
    u = contact.second_tangent
    # All speeds before any impulse: independent arithmetic, which a processor overlaps.
    speed_n = relative_speed(contact, n, velocity)
    speed_t = relative_speed(contact, t, velocity)
    speed_u = relative_speed(contact, u, velocity)
    force = normal_impulse(n, is_moving, speed_n)
    by_n, change = set_impulse(n, force)
    by_t, by_u, by_spin = 0.0, 0.0, 0.0
    a, b = contact.a, contact.b
    if with_friction:
        along_t = friction_impulse(contact, t, force, speed_t)
        along_u = friction_impulse(contact, u, force, speed_u)
        by_t, change_t = set_impulse(t, along_t)
        by_u, change_u = set_impulse(u, along_u)
        change = max(change, change_t, change_u)
        if contact.kind == FLAT:
            spin = velocity[a, 4] - velocity[b, 4]
            impulse = friction_impulse(
                contact, contact.spin, force * contact.lever, spin
            )
            by_spin, change_spin = set_impulse(contact.spin, impulse)
            change = max(change, change_spin)
    for k in range(3):
        push = n.along[k] * by_n + t.along[k] * by_t + u.along[k] * by_u
        velocity[a, k] += inverse[a, k] * push
        # The row of all that is static has inverse masses of 0, so b needs no branch.
        velocity[b, k] -= inverse[b, k] * push
    if contact.kind != STRAIGHT:
        for k in range(3):
            turn_a = n.turn_a[k] * by_n + t.turn_a[k] * by_t + u.turn_a[k] * by_u
            turn_b = n.turn_b[k] * by_n + t.turn_b[k] * by_t + u.turn_b[k] * by_u
            velocity[a, 3 + k] += inverse[a, 3 + k] * turn_a
            velocity[b, 3 + k] += inverse[b, 3 + k] * turn_b
        velocity[a, 4] += inverse[a, 4] * by_spin
        velocity[b, 4] -= inverse[b, 4] * by_spin
    return change
