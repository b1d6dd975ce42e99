"""Contacts among the parts of one agent: spheres and capsules, one point per pair.

Approximations: PhysX may make two points for parallel capsules, collides boxes too, and keeps
friction anchors; here a new anchor is made in each step. These contacts are rare, so each lane
solves its own, one after the other.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, inlined
from touchline.physics.ragdoll.ground import (
    FRICTION_GAIN,
    MAX_REMOVAL_MPS,
    REMOVED_SHARE,
    STILL_SQUARE,
)
from touchline.physics.ragdoll.lanes import (
    LANES,
    add,
    apply,
    columns,
    cross,
    dot,
    get,
    get_symmetric,
    get_turn,
    minus,
    multiply,
    plus,
    set_vector,
    subtract,
    times,
    turn_of,
    vector_of,
)
from touchline.physics.ragdoll.model import PartRecord, Settings
from touchline.physics.ragdoll.records import OWN_CONTACTS, Body, OwnContact, Work
from touchline.physics.shapes import Floats, Vector


@compiled
def find_own_contacts(
    pairs: NDArray[np.int64], parts: Any, work: Work, count: int, settings: Settings
) -> None:
    """List the contacts of each lane in `work.own`, in one block's room."""
    bodies, contacts, num_contacts = work.bodies, work.own, work.num_own
    near = work.frames[0].near
    for lane in range(LANES):
        num_contacts[lane] = 0
    for i in range(len(pairs)):
        a = pairs[i, 0]
        b = pairs[i, 1]
        bound = parts[a].bound + parts[b].bound
        # The cheap check runs for all lanes at once; few pairs pass it.
        if _mark_near(bodies[a], bodies[b], bound, near):
            for lane in range(count):
                n = num_contacts[lane]
                if near[lane] > 0.0 and n < OWN_CONTACTS:
                    contact = contacts[lane * OWN_CONTACTS + n]
                    contact.a = a
                    contact.b = b
                    if _touch(contact, parts, bodies, lane, settings):
                        num_contacts[lane] += 1


@compiled
def _mark_near(a: Body, b: Body, bound: float, near: Floats) -> bool:
    """Which lanes' two parts may touch, by their bounding spheres; whether any."""
    for lane in range(LANES):
        between = minus(get(a.center, lane), get(b.center, lane))
        reach = bound + a.reach[lane] + b.reach[lane]
        near[lane] = 1.0 if dot(between, between) < reach * reach else 0.0
    # A loop of its own, because vector instructions cannot leave one early.
    found = 0.0
    for lane in range(LANES):
        found = max(found, near[lane])
    return found > 0.0


@inlined
def _half_axis(part: PartRecord, body: Body, lane: int) -> Vector:
    """From a capsule's center to the center of its first cap; of a sphere, zero."""
    rotation = get_turn(body.rotation, lane)
    # A capsule lies along x; half the length of a sphere is 0.
    x, _, _ = columns(multiply(rotation, turn_of(part.turn)))
    return times(x, part.half[1])


@compiled
def _touch(
    contact: OwnContact, parts: Any, bodies: Any, lane: int, settings: Settings
) -> bool:
    """Fill a contact of two parts if they are near enough."""
    part_a = parts[contact.a]
    part_b = parts[contact.b]
    a = bodies[contact.a]
    b = bodies[contact.b]
    center_a = get(a.center, lane)
    center_b = get(b.center, lane)
    axis_a = _half_axis(part_a, a, lane)
    axis_b = _half_axis(part_b, b, lane)
    between = minus(center_a, center_b)
    s, t = _closest(axis_a, axis_b, between)
    on_a = plus(center_a, times(axis_a, s))
    on_b = plus(center_b, times(axis_b, t))
    apart = minus(on_a, on_b)
    distance = math.sqrt(dot(apart, apart))
    gap = distance - part_a.half[0] - part_b.half[0]
    # Where two axes cross there is no direction in which to part them.
    if gap > a.reach[lane] + b.reach[lane] or distance == 0.0:
        return False
    normal = times(apart, 1.0 / distance)
    # In the middle of the gap, or of the overlap.
    point = plus(on_b, times(normal, part_b.half[0] + 0.5 * gap))
    arm_a = minus(point, center_a)
    arm_b = minus(point, center_b)
    set_vector(contact.normal, normal)
    set_vector(contact.arm_a, arm_a)
    set_vector(contact.arm_b, arm_b)
    sliding = minus(get(a.velocity, lane), get(b.velocity, lane))
    along = sliding_direction(sliding, normal)
    set_vector(contact.along, along)
    # As at the ground: a deep overlap must not throw the parts apart, and what removes it is not
    # kept.
    speed = REMOVED_SHARE * gap / settings.dt
    contact.bias = max(speed, -MAX_REMOVAL_MPS)
    contact.kept_bias = max(speed, 0.0)
    masses = part_a.inverse_mass + part_b.inverse_mass
    contact.gain = 1.0 / _response(a, b, lane, arm_a, arm_b, normal, masses)
    response = _response(a, b, lane, arm_a, arm_b, along, masses)
    contact.t_gain = FRICTION_GAIN / response
    aside = cross(normal, along)
    response = _response(a, b, lane, arm_a, arm_b, aside, masses)
    contact.u_gain = FRICTION_GAIN / response
    contact.impulse = 0.0
    contact.t_impulse = 0.0
    contact.u_impulse = 0.0
    return True


@inlined
def _closest(a: Vector, b: Vector, between: Vector) -> tuple[float, float]:
    """Where in [−1, 1] the segments s a and t b, whose centers are `between` apart, are closest."""
    # Source: Ericson, "Real-Time Collision Detection", 5.1.9.
    aa = dot(a, a)
    bb = dot(b, b)
    ab = dot(a, b)
    a_between = dot(a, between)
    b_between = dot(b, between)
    # 0 for parallel segments, and for spheres, whose segments have no length.
    slope = aa * bb - ab * ab
    s = 0.0
    if slope > 1e-12 * aa * bb:
        on_line = (ab * b_between - a_between * bb) / slope
        s = min(max(on_line, -1.0), 1.0)
    t = (ab * s + b_between) / bb if bb > 0.0 else 0.0
    t = min(max(t, -1.0), 1.0)
    if aa > 0.0:
        # Again, because t may have been cut to its segment.
        on_line = (ab * t - a_between) / aa
        s = min(max(on_line, -1.0), 1.0)
    return s, t


@inlined
def sliding_direction(velocity: Vector, n: Vector) -> Vector:
    """The first direction of friction: along the sliding, or a fixed one where there is none."""
    sliding = minus(velocity, times(n, dot(velocity, n)))
    square = dot(sliding, sliding)
    if square <= STILL_SQUARE:
        # PhysX's choice: across x, unless the normal is nearly along it (√½).
        fixed = (0.0, -n[2], n[1]) if abs(n[0]) < 0.7071 else (-n[1], n[0], 0.0)
        return times(fixed, 1.0 / math.sqrt(dot(fixed, fixed)))
    return times(sliding, 1.0 / math.sqrt(square))


@inlined
def _response(
    a: Body,
    b: Body,
    lane: int,
    arm_a: Vector,
    arm_b: Vector,
    along: Vector,
    masses: float,
) -> float:
    turn_a = cross(arm_a, along)
    turn_b = cross(arm_b, along)
    by_a = dot(turn_a, apply(get_symmetric(a.inertia, lane), turn_a))
    by_b = dot(turn_b, apply(get_symmetric(b.inertia, lane), turn_b))
    return masses + by_a + by_b


@compiled
def sweep_own_contacts(
    parts: Any, work: Work, is_moving: bool, with_friction: bool, friction: float
) -> None:
    """One sweep over all lanes' own contacts."""
    bodies = work.bodies
    for lane in range(LANES):
        for i in range(work.num_own[lane]):
            contact = work.own[lane * OWN_CONTACTS + i]
            _solve(contact, parts, bodies, lane, is_moving, with_friction, friction)


@compiled
def _solve(
    contact: OwnContact,
    parts: Any,
    bodies: Any,
    lane: int,
    is_moving: bool,
    with_friction: bool,
    friction: float,
) -> None:
    """The normal, f ← max(0, f − gain (v + bias)), then two directions of friction up to ± μ f."""
    a = bodies[contact.a]
    b = bodies[contact.b]
    masses = (parts[contact.a].inverse_mass, parts[contact.b].inverse_mass)
    arms = (vector_of(contact.arm_a), vector_of(contact.arm_b))
    normal = vector_of(contact.normal)
    bias = contact.bias if is_moving else contact.kept_bias
    speed = _speed(a, b, lane, arms, normal)
    impulse = max(contact.impulse - contact.gain * (speed + bias), 0.0)
    _push(a, b, lane, arms, normal, impulse - contact.impulse, masses)
    contact.impulse = impulse
    if not with_friction:
        return
    most = friction * impulse
    along = vector_of(contact.along)
    impulse = contact.t_impulse - contact.t_gain * _speed(a, b, lane, arms, along)
    impulse = min(max(impulse, -most), most)
    _push(a, b, lane, arms, along, impulse - contact.t_impulse, masses)
    contact.t_impulse = impulse
    aside = cross(normal, along)
    impulse = contact.u_impulse - contact.u_gain * _speed(a, b, lane, arms, aside)
    impulse = min(max(impulse, -most), most)
    _push(a, b, lane, arms, aside, impulse - contact.u_impulse, masses)
    contact.u_impulse = impulse


@inlined
def _speed(
    a: Body, b: Body, lane: int, arms: tuple[Vector, Vector], along: Vector
) -> float:
    """How fast the point of a moves from that of b."""
    by_spin_a = cross(get(a.spin, lane), arms[0])
    by_spin_b = cross(get(b.spin, lane), arms[1])
    at_a = plus(get(a.velocity, lane), by_spin_a)
    at_b = plus(get(b.velocity, lane), by_spin_b)
    return dot(along, minus(at_a, at_b))


@inlined
def _push(
    a: Body,
    b: Body,
    lane: int,
    arms: tuple[Vector, Vector],
    along: Vector,
    impulse: float,
    masses: tuple[float, float],
) -> None:
    add(a.velocity, lane, times(along, impulse * masses[0]))
    subtract(b.velocity, lane, times(along, impulse * masses[1]))
    turned_a = apply(get_symmetric(a.inertia, lane), cross(arms[0], along))
    add(a.spin, lane, times(turned_a, impulse))
    turned_b = apply(get_symmetric(b.inertia, lane), cross(arms[1], along))
    subtract(b.spin, lane, times(turned_b, impulse))
