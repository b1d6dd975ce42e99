"""Made-up boards, masks and networks, without a game."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from touchline.microrts.board_network import BoardActorCritic
from touchline.microrts.cells import Cells
from touchline.microrts.rules import CHOICES, FIRST_CHOICE, PARTS, PLANE_GROUPS, PLANES
from touchline.policies.network import Architecture
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

HEIGHT, WIDTH = 5, 6
CELLS = HEIGHT * WIDTH
BOARD = ObservationSpec((PLANES, HEIGHT, WIDTH), name="board")
UNIT = BehaviorSpec((BOARD,), ActionSpec(0, (CELLS, *PARTS), staged=True), "board")
GRID = BehaviorSpec((BOARD,), ActionSpec.create_discrete(PARTS * CELLS), "board")


def boards(
    count: int = 4, planes: int = PLANES, height: int = HEIGHT, width: int = WIDTH
) -> Tensor:
    """Planes [B, P, H, W], one-hot in every group; two cells of three are empty."""
    rng = np.random.default_rng(1)
    groups = [*PLANE_GROUPS.values(), *[2] * ((planes - PLANES) // 2)]
    shown = [np.eye(n)[rng.integers(n, size=(count, height, width))] for n in groups]
    board = np.concatenate(shown, axis=-1)
    empty = np.concatenate([np.eye(n)[0] for n in groups])
    is_full = rng.random((count, height, width, 1)) < 1 / 3
    board = np.where(is_full, board, empty)
    return torch.from_numpy(np.moveaxis(board, -1, 1).astype(np.float32).copy())


def observed(board: Tensor) -> tuple[Tensor, Tensor]:
    """The input of a network: no vectors, and the codes of the board."""
    return board.new_zeros((len(board), 0)), Cells(board.shape[1]).codes(board)


def some_masks(count: int = 4, units: int = 3) -> tuple[Tensor, Tensor]:
    """Cells [B, cells] with idle units, and the second-stage mask [B, cells, CHOICES], allowed."""
    rng = np.random.default_rng(0)
    cells = np.zeros((count, CELLS), bool)
    table = np.zeros((count, CELLS, CHOICES), bool)
    table[:, :, FIRST_CHOICE] = True
    for row in np.repeat(np.arange(count), units):
        cell = rng.integers(CELLS)
        cells[row, cell] = True
        allowed = rng.random(CHOICES) < 0.4
        allowed[1:3] = True
        for first, size in zip(FIRST_CHOICE, PARTS, strict=True):
            if not allowed[first : first + size].any():
                allowed[first] = True
        table[row, cell] = allowed
    return torch.from_numpy(cells), torch.from_numpy(table)


def first_mask(cells: Tensor, table: Tensor) -> Tensor:
    """The mask [B, M] with which staged actions are drawn."""
    return torch.cat([cells, table.any(dim=1)], dim=1)


def mask_of_choice(cells: Tensor, table: Tensor, discrete: Tensor) -> Tensor:
    """The mask [B, M] that held after the first choice."""
    rows = torch.arange(len(cells))
    return torch.cat([cells, table[rows, discrete[:, 0]]], dim=1)


class Choice(NamedTuple):
    """A network, what it observes, and what it chose."""

    network: BoardActorCritic
    obs: tuple[Tensor, Tensor]
    table: Tensor
    """What each unit may do [B, cells, CHOICES]: in unit form, the second-stage mask."""
    discrete: Tensor
    mask: Tensor
    """That of the choice."""

    @property
    def acting(self) -> tuple[Tensor, Tensor | None]:
        """The masks to draw actions with."""
        if not self.network.spec.action_spec.staged:
            return self.mask, None
        return self.mask, self.table

    @property
    def actions(self) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(self.discrete), 0), self.discrete


def a_choice(
    planes: int,
    height: int,
    width: int,
    *,
    count: int = 5,
    num_signals: int = 1,
    staged: bool = True,
    numbers: int = 0,
) -> Choice:
    """Of boards with one to four idle units: in unit form, or in grid form if not `staged`."""
    rng, num_cells = np.random.default_rng(2), height * width
    board = ObservationSpec((planes, height, width))
    economy = [ObservationSpec((numbers,))] if numbers else []
    unit = ActionSpec(0, (num_cells, *PARTS), staged=True)
    grid = ActionSpec.create_discrete(PARTS * num_cells)
    spec = BehaviorSpec((board, *economy), unit if staged else grid, "board")
    network = BoardActorCritic(spec, Architecture(hidden_units=136), num_signals)
    network.to(torch.get_default_dtype())
    torch.manual_seed(0)
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    cells = np.zeros((count, num_cells), bool)
    for row in range(count):
        cells[row, rng.choice(num_cells, 1 + row % 4, replace=False)] = True
    table = rng.random((count, num_cells, CHOICES)) < 0.4
    # Two choices of each part at least.
    table[:, :, FIRST_CHOICE[:, None] + [0, 2]] = True
    if not staged:  # in the other cells is nothing to choose
        table[~cells] = False
        table[:, :, FIRST_CHOICE] = True
    idle, allowed = torch.from_numpy(cells), torch.from_numpy(table)
    _, codes = observed(boards(count, planes, height, width))
    obs = torch.randn(count, numbers), codes
    masks = (idle, allowed) if staged else (allowed.flatten(1), None)
    distribution = network.distribution(obs, *masks)
    _, discrete = distribution.sample(torch.Generator().manual_seed(3))
    mask = mask_of_choice(idle, allowed, discrete) if staged else allowed.flatten(1)
    return Choice(network, obs, allowed, discrete, mask)
