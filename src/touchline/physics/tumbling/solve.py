"""The sweeps over all contacts of an area: each row sees what those before it changed.

PhysX's rule and numbers (`upright.solve` has it in words): 12 sweeps that also remove penetrations,
the last three of them with friction, give the velocity that moves poses; 12 more without that
removal, all with friction, give the velocity that is kept. Unity's Pyramids asks for 12 and 12.

A contact is left out of a sweep if neither of its bodies has changed since it was last solved: it
would find its own answer again. A cube at rest on the floor is done after a few sweeps, whatever
happens elsewhere.
"""

from typing import Any

from touchline.physics.kernels import compiled, inlined
from touchline.physics.ragdoll.lanes import dot, minus, plus, times, vector_of
from touchline.physics.shapes import Floats, Vector
from touchline.physics.tumbling.patches import ROWS, Contacts, Patch
from touchline.physics.tumbling.touch import MAX_POINTS
from touchline.physics.upright.contacts import Direction
from touchline.physics.upright.solve import copy_velocity

SWEEPS, FRICTION_SWEEPS = 12, 3
"""Sweeps of either phase, and those at the end of the first phase that apply friction."""
STILL_MPS = 1e-4
"""A body whose velocity changes by less is taken as unchanged. The step of gravity is 2000 times as
much; no difference was seen against 1e-7."""

Motion = tuple[Vector, Vector, Vector, Vector]
"""Velocity and spin of a, then of b."""


@compiled
def solve(
    contacts: Contacts, n: int, velocity: Floats, inverse: Floats, moving: Floats
) -> None:
    """Solve the first n contacts.

    `velocity` [bodies + 1, 6] becomes the velocity that is kept, `moving` of the same shape the one
    that poses move with; `inverse` [bodies + 1, 2] are inverse masses and moments of inertia.
    """
    contacts.changed_at[:] = 0
    tick = 0
    bodies = velocity, inverse
    tick = _sweep(contacts, n, bodies, SWEEPS - FRICTION_SWEEPS, True, False, tick)
    tick = _sweep(contacts, n, bodies, FRICTION_SWEEPS, True, True, tick)
    copy_velocity(velocity, moving)
    # Impulses are not reset: these sweeps continue from those above, towards other targets.
    _sweep(contacts, n, bodies, SWEEPS, False, True, tick)


@compiled
def _sweep(
    contacts: Contacts,
    n: int,
    bodies: tuple[Floats, Floats],
    sweeps: int,
    is_moving: bool,
    with_friction: bool,
    tick: int,
) -> int:
    """Solve contact after contact, up to so many times; returns the tick, which counts on."""
    changed_at = contacts.changed_at
    static = len(bodies[0]) - 1
    for sweep in range(sweeps):
        any_solved = False
        for i in range(n):
            patch = contacts.patches[i]
            a, b = patch.a, patch.b
            last = patch.solved_at
            # In the first sweep the targets are new.
            if sweep > 0 and changed_at[a] <= last and changed_at[b] <= last:
                continue
            any_solved = True
            tick += 1
            patch.solved_at = tick
            change = _solve_patch(
                patch, contacts.rows, i * ROWS, bodies, is_moving, with_friction
            )
            if change > STILL_MPS:
                # Later than `solved_at`: what moved its own bodies is solved again.
                tick += 1
                changed_at[a] = tick
                # Nothing moves what is static, so it connects nothing.
                if b < static:
                    changed_at[b] = tick
        if not any_solved:
            break
    return tick


@compiled
def _solve_patch(
    patch: Patch,
    rows: Any,
    first: int,
    bodies: tuple[Floats, Floats],
    is_moving: bool,
    with_friction: bool,
) -> float:
    """All normals of a patch, then its friction; returns the greatest change of a velocity."""
    velocity, inverse = bodies
    a, b = patch.a, patch.b
    masses = inverse[a, 0], inverse[a, 1], inverse[b, 0], inverse[b, 1]
    # In registers from here on: the compiler cannot know that no row is part of `velocity`.
    motion = (
        vector_of(velocity[a]),
        vector_of(velocity[a], 3),
        vector_of(velocity[b]),
        vector_of(velocity[b], 3),
    )
    most: float = 0.0
    force = 0.0
    for k in range(patch.num_points):
        row = rows[first + k]
        target = row.target_moving if is_moving else row.target_kept
        # The sum over all sweeps must push, not each change: later sweeps may take some of it back.
        impulse = row.impulse + row.mass * (target - _speed(row, motion))
        impulse = max(impulse, 0.0)
        growth = impulse - row.impulse
        row.impulse = impulse
        motion = _pushed(row, motion, growth, masses)
        force += impulse
        most = max(most, abs(growth))
    if with_friction:
        limit = patch.friction * force
        start = first + MAX_POINTS
        for k in range(2 * patch.num_anchors):
            row = rows[start + k]
            impulse = row.impulse - row.mass * _speed(row, motion)
            impulse = min(max(impulse, -limit), limit)
            growth = impulse - row.impulse
            row.impulse = impulse
            motion = _pushed(row, motion, growth, masses)
            most = max(most, abs(growth))
    for d in range(3):
        velocity[a, d] = motion[0][d]
        velocity[a, 3 + d] = motion[1][d]
        velocity[b, d] = motion[2][d]
        velocity[b, 3 + d] = motion[3][d]
    fastest: float = most * max(masses[0], masses[2])
    return fastest


@inlined
def _speed(row: Direction, motion: Motion) -> float:
    """How fast a's point moves away from b's along the row's direction."""
    speed = dot(vector_of(row.along), minus(motion[0], motion[2]))
    speed += dot(vector_of(row.turn_a), motion[1])
    return speed + dot(vector_of(row.turn_b), motion[3])


@inlined
def _pushed(
    row: Direction,
    motion: Motion,
    growth: float,
    masses: tuple[float, float, float, float],
) -> Motion:
    """The velocities after the row's impulse has grown."""
    along = vector_of(row.along)
    turn_a = vector_of(row.turn_a)
    turn_b = vector_of(row.turn_b)
    return (
        plus(motion[0], times(along, growth * masses[0])),
        plus(motion[1], times(turn_a, growth * masses[1])),
        minus(motion[2], times(along, growth * masses[2])),
        plus(motion[3], times(turn_b, growth * masses[3])),
    )
