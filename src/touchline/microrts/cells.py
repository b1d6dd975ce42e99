"""Boards with one number per cell instead of its planes."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from touchline.microrts.rules import PLANE_GROUPS, PLANES


class Cells(nn.Module):
    """Turns the planes of a cell into one number, its code, and back.

    A code has one digit for each group of planes. Digit 0 is the group's first plane, which means
    "none"; so an empty cell has code 0.
    """

    empty_plane: Int[Tensor, " P"]
    """For each plane, the first plane of its group: the one that is set in an empty cell."""
    planes_of_code: Int[Tensor, "codes groups"]
    """The planes that are set for each code, but for "none" planes; -1 after the last."""
    _value_of_plane: Float[Tensor, " P"]
    """What each plane adds to the code."""
    _one_hot: Float[Tensor, "codes P"]
    """The planes of each code."""

    def __init__(self, num_planes: int) -> None:
        super().__init__()
        # Visible cells and walls add two planes each: no, yes.
        extra_groups = [2] * ((num_planes - PLANES) // 2)
        groups = [*PLANE_GROUPS.values(), *extra_groups]
        first_plane = np.cumsum([0, *groups])[:-1]  # [groups]
        value_of_digit = np.cumprod([1, *groups])[:-1]  # [groups]
        planes = np.arange(num_planes)
        empty_plane = np.repeat(first_plane, groups)  # [P]
        digit_of_plane = planes - empty_plane
        value_of_plane = digit_of_plane * np.repeat(value_of_digit, groups)
        codes = np.arange(np.prod(groups))
        # The first group is the lowest digit.
        by_group = np.unravel_index(codes, groups, order="F")
        digits = np.stack(by_group, axis=1)  # [codes, groups]
        set_planes = first_plane + digits
        one_hot = (set_planes[:, :, None] == planes).any(axis=1)  # [codes, P]
        # A number above all planes takes the place of the "none" planes, so that they sort last.
        is_set = digits > 0
        listed = np.sort(np.where(is_set, set_planes, num_planes), axis=1)
        planes_of_code = np.where(listed < num_planes, listed, -1)
        tables = {
            "empty_plane": empty_plane,
            "planes_of_code": planes_of_code.astype(np.int8),
            "_value_of_plane": value_of_plane.astype(np.float32),
            "_one_hot": one_hot.astype(np.float32),
        }
        for name, table in tables.items():
            self.register_buffer(name, torch.from_numpy(table), persistent=False)

    def codes(self, planes: Float[Tensor, "*B P H W"]) -> Int[Tensor, "*B H W"]:
        """The codes of boards, int16."""
        *boards, _, height, width = planes.shape
        # One product with a vector; the sums are whole numbers, exact in single precision.
        codes = self._value_of_plane @ planes.flatten(-2)  # [..., H * W]
        # 3,600 codes, four times as many with visible cells and walls: they fit into 16 bits.
        return codes.view(*boards, height, width).to(torch.int16)

    def planes(self, codes: Int[Tensor, "B H W"]) -> Float[Tensor, "B P H W"]:
        """The planes of boards, last in memory: convolutions and look-ups take half the time."""
        # `embedding` takes no int16.
        planes = functional.embedding(codes.int(), self._one_hot)  # [B, H, W, P]
        return planes.movedim(-1, 1)
