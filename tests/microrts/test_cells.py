"""Boards with one number per cell."""

import numpy as np
import pytest
import torch
from tests.microrts.boards import boards

from touchline.microrts.action_forms import _TURNED_CHOICES
from touchline.microrts.cells import Cells
from touchline.microrts.kernels import turn_orders
from touchline.microrts.rules import CHOICES, PLANES


@pytest.mark.parametrize("planes", [PLANES, PLANES + 2, PLANES + 4])
def test_the_codes_of_cells_hold_all_that_their_planes_do(planes):
    """Also with planes for visible cells and for walls."""
    cells, board = Cells(planes), boards(3, planes)
    restored = cells.planes(cells.codes(board))
    assert torch.equal(restored, board)
    assert restored.is_contiguous(memory_format=torch.channels_last)


def test_an_empty_cell_has_code_0():
    cells = Cells(PLANES)
    empty = torch.zeros(1, PLANES, 1, 1)
    empty[:, cells.empty_plane.unique()] = 1
    assert cells.codes(empty) == 0


def test_every_code_lists_the_planes_that_are_set():
    cells, board = Cells(PLANES), boards(1)
    code = cells.codes(board)[0, 2, 3]
    listed = cells.planes_of_code[code.int()]
    expected = set(torch.nonzero(board[0, :, 2, 3])[:, 0].tolist()) - set(
        cells.empty_plane.tolist()
    )
    assert {plane for plane in listed.tolist() if plane >= 0} == expected


@pytest.mark.parametrize("cells", [1, 9, 12])
def test_half_a_turn_of_what_cells_may_do(cells):
    """The opposite cell's choices, with directions turned round; twice is nothing."""
    before = np.random.default_rng(0).random((3, 5 + cells * CHOICES)) < 0.5
    turned, rows = before.copy(), np.array([0, 2])
    turn_orders(turned, 5, rows, _TURNED_CHOICES)
    of_cells = before[:, 5:].reshape(3, cells, CHOICES)
    expected = of_cells[:, ::-1, _TURNED_CHOICES].reshape(3, -1)
    assert np.array_equal(turned[rows, 5:], expected[rows])
    assert np.array_equal(turned[:, :5], before[:, :5])
    assert np.array_equal(turned[1], before[1])
    turn_orders(turned, 5, rows, _TURNED_CHOICES)
    assert np.array_equal(turned, before)
