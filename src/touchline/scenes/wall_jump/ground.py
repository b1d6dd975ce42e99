"""What is below a body: rays and boxes cast downwards, as Unity's script does.

All functions take the fixed boxes [F, 9] and the boxes [B, 9] of one area.
"""

from touchline.physics.kernels import compiled
from touchline.physics.shapes import COS, HALF_X, HALF_Y, HALF_Z, SIN, Floats, X, Y, Z
from touchline.physics.upright.boxes import box_gap
from touchline.scenes.wall_jump.course import AGENT, BLOCK, GROUND, WALL_BOX

DEEP_M = 20.0
"""No collider within this distance below: fallen off."""


@compiled
def stands(fixed: Floats, shapes: Floats) -> bool:
    """Whether the agent has something to stand on within a meter of just below its center."""
    x = shapes[AGENT, X]
    y = shapes[AGENT, Y] - 0.05
    z = shapes[AGENT, Z]
    return (
        _top_below(fixed[GROUND], x, y, z, 1.0)
        or _top_below(shapes[BLOCK], x, y, z, 1.0)
        or _top_below(shapes[WALL_BOX], x, y, z, 1.0)
    )


@compiled
def has_ground(fixed: Floats, shapes: Floats) -> bool:
    """Whether the agent's foot touches something: its own box, a little lower and narrower."""
    agent = shapes[AGENT]
    y = agent[Y]
    half_x = agent[HALF_X]
    half_z = agent[HALF_Z]
    # 0.05 and 0.95 of a meter: the script's Physics.OverlapBox. The agent's own row is used and
    # put back, since kernels make no arrays.
    agent[Y] -= 0.05
    agent[HALF_X] = agent[HALF_Z] = 0.475
    touches = (
        box_gap(agent, fixed[GROUND])[0] < 0.0
        or box_gap(agent, shapes[BLOCK])[0] < 0.0
        or box_gap(agent, shapes[WALL_BOX])[0] < 0.0
    )
    agent[Y] = y
    agent[HALF_X] = half_x
    agent[HALF_Z] = half_z
    return touches


@compiled
def has_fallen(fixed: Floats, shapes: Floats) -> bool:
    """Whether agent or block has nothing at all below it."""
    return not (
        _is_above(fixed, shapes, AGENT, AGENT)
        and _is_above(fixed, shapes, BLOCK, BLOCK)
    )


@compiled
def may_fall(fixed: Floats, shapes: Floats) -> bool:
    """Whether `has_fallen` may be true once the agent has acted.

    Acting moves nothing, but it turns the agent, on which a block may stand: so the agent does not
    count as something below a block.
    """
    return not (
        _is_above(fixed, shapes, AGENT, AGENT)
        and _is_above(fixed, shapes, BLOCK, AGENT)
    )


@compiled
def _is_above(fixed: Floats, shapes: Floats, body: int, but: int) -> bool:
    """Whether any box, `but` one of the shapes, lies below a body's center."""
    x = shapes[body, X]
    y = shapes[body, Y]
    z = shapes[body, Z]
    found = False
    for k in range(len(fixed)):
        found = found or _top_below(fixed[k], x, y, z, DEEP_M)
    for k in range(len(shapes)):
        if k != but:
            found = found or _top_below(shapes[k], x, y, z, DEEP_M)
    return found


@compiled
def _top_below(shape: Floats, x: float, y: float, z: float, depth_m: float) -> bool:
    """Whether a ray straight down from a point hits this box's top; one from within does not."""
    wx = x - shape[X]
    wz = z - shape[Z]
    lx = wx * shape[COS] - wz * shape[SIN]
    lz = wx * shape[SIN] + wz * shape[COS]
    top = shape[Y] + shape[HALF_Y]
    return bool(
        abs(lx) <= shape[HALF_X]
        and abs(lz) <= shape[HALF_Z]
        and y - depth_m <= top <= y
    )
