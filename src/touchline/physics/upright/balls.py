"""Contacts of balls, and of other bodies that touch in one point."""

import math

from touchline.physics.kernels import compiled
from touchline.physics.shapes import (
    COS,
    HALF_X,
    HALF_Y,
    HALF_Z,
    SIN,
    Floats,
    Vector,
    X,
    Y,
    Z,
)
from touchline.physics.upright.contacts import (
    ROUND,
    Contacts,
    add_friction,
    begin_contact,
    set_direction,
    set_target_velocity,
)


@compiled
def touch_at(
    contacts: Contacts,
    n: int,
    a: int,
    b: int,
    normal: Vector,
    gap: float,
    arm_a: Vector,
    arm_b: Vector,
    friction: float,
    bounce: float,
) -> int:
    """Add a contact in one point, the normal from b to a, at arms from both; their number."""
    contact = contacts.records[n]
    velocity, inverse = contacts.velocity, contacts.inverse
    begin_contact(contact, a, b, ROUND, friction, friction, 0.0)
    set_direction(contact, contact.normal, normal, arm_a, arm_b, inverse)
    set_target_velocity(contact, contact.normal, gap, bounce, velocity)
    add_friction(contact, normal, arm_a, arm_b, velocity, inverse)
    return n + 1


@compiled
def add_floor_friction(
    contacts: Contacts,
    n: int,
    a: int,
    arm_m: float,
    impulse_moving: float,
    impulse_kept: float,
    friction: float,
) -> int:
    """Add the friction of a floor `arm_m` below the center of a body whose height is locked.

    The normal impulses are given, in N s, while poses move and afterwards; the number of contacts.
    """
    contact = contacts.records[n]
    velocity, inverse = contacts.velocity, contacts.inverse
    static = len(velocity) - 1
    begin_contact(contact, a, static, ROUND, friction, friction, 0.0)
    nowhere = (0.0, 0.0, 0.0)
    # A normal without a direction has no mass: `solve` takes its targets for the impulses.
    set_direction(contact, contact.normal, nowhere, nowhere, nowhere, inverse)
    contact.normal.target_moving = impulse_moving
    contact.normal.target_kept = impulse_kept
    up = (0.0, 1.0, 0.0)
    arm = (0.0, -arm_m, 0.0)
    add_friction(contact, up, arm, nowhere, velocity, inverse)
    return n + 1


@compiled
def nearest_on_box(
    x: float, y: float, z: float, box: Floats
) -> tuple[float, float, float, float]:
    """The distance of a point from a box (negative inside), and the unit normal away from the box,
    from inside through the nearest face.
    """
    wx = x - box[X]
    ly = y - box[Y]
    wz = z - box[Z]
    cos = box[COS]
    sin = box[SIN]
    lx = wx * cos - wz * sin
    lz = wx * sin + wz * cos
    gx = abs(lx) - box[HALF_X]
    gy = abs(ly) - box[HALF_Y]
    gz = abs(lz) - box[HALF_Z]
    nx, ny, nz = 0.0, 0.0, 0.0
    if gx <= 0.0 and gy <= 0.0 and gz <= 0.0:
        distance = max(gx, gy, gz)
        if gx == distance:
            nx = math.copysign(1.0, lx)
        elif gz == distance:
            nz = math.copysign(1.0, lz)
        else:
            ny = math.copysign(1.0, ly)
    else:
        nx = math.copysign(max(gx, 0.0), lx)
        ny = math.copysign(max(gy, 0.0), ly)
        nz = math.copysign(max(gz, 0.0), lz)
        distance = math.sqrt(nx * nx + ny * ny + nz * nz)
        nx = nx / distance
        ny = ny / distance
        nz = nz / distance
    return distance, nx * cos + nz * sin, ny, -nx * sin + nz * cos
