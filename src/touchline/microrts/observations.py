"""What an agent observes of a board: one-hot planes, and the cells that its units can see."""

import numpy as np
from numpy.typing import NDArray

from touchline.microrts.kernels import fill_planes
from touchline.microrts.rules import FIRST_PLANE, PLANE_GROUPS, PLANES, SIGHT_RADIUS

_OWNER = FIRST_PLANE["owner"]
_UNIT_TYPE = FIRST_PLANE["unit_type"]
_OWNED_BY_NONE, _OWNED_BY_US = _OWNER, _OWNER + 1
_RESOURCE = _UNIT_TYPE + 1


def board_planes(
    board: NDArray[np.int32],
    player: NDArray[np.int32],
    num_planes: int = PLANES,
    *,
    compat: bool = False,
) -> NDArray[np.float32]:
    """[R, num_planes, h, w] from the engine's [R, h, w, PLANES]: one plane per group is 1."""
    # The engine leaves all groups of a cell without a unit at zero (D6). Here the first plane of
    # each group, which means "none", is 1. Planes beyond the engine's are zero.
    num_rows, height, width = board.shape[:3]
    planes = np.zeros((num_rows, num_planes, height, width), np.float32)
    # Both are [R, ..., cells] views: the kernel needs no second axis for cells.
    fill_planes(
        board.reshape(num_rows, -1, PLANES), planes.reshape(num_rows, num_planes, -1)
    )
    if compat:  # D2: gym-microrts shows player 1 the neutral resources as its own
        second = np.flatnonzero(player)
        resource = planes[second, _RESOURCE]
        planes[second, _OWNED_BY_NONE] -= resource
        planes[second, _OWNED_BY_US] += resource
    return planes


def visible_cells(planes: NDArray[np.float32]) -> NDArray[np.bool_]:
    """[R, h, w] the cells within the sight radius of any own unit."""
    num_rows, _, height, width = planes.shape
    visible = np.zeros((num_rows, height, width), np.bool_)
    y, x = np.mgrid[:height, :width]
    unit_types = planes[:, _UNIT_TYPE + 1 : _UNIT_TYPE + PLANE_GROUPS["unit_type"]]
    for row, unit_y, unit_x in np.argwhere(planes[:, _OWNED_BY_US] > 0):
        unit_type = int(unit_types[row, :, unit_y, unit_x].argmax())
        squared_distance = (y - unit_y) ** 2 + (x - unit_x) ** 2
        in_sight: NDArray[np.bool_] = squared_distance <= SIGHT_RADIUS[unit_type] ** 2
        visible[row] |= in_sight
    return visible
