"""Distributions over orders to units, in plain PyTorch.

Log-probability and entropy run over the parts of an order that its type reads, and over cells that
hold an idle unit. The engine ignores everything else, so it would only be noise.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from touchline.errors import UsageError
from touchline.microrts.rules import CHOICES, FIRST_CHOICE, PARTS, READ_PARTS
from touchline.policies.distributions import FORBIDDEN, masked_log_probs

CHOICE_TYPE = torch.int8
"""The type of orders to all cells: 1,792 numbers on 16x16, which rollouts keep and copy."""
_READ_PARTS = torch.from_numpy(READ_PARTS).float()
_PARTS = list(PARTS)

Units = tuple[Tensor, ...]
"""The row [K] and the cell [K] of each of K units."""


class StagedUnitAction:
    """Staged actions: a cell, then the order of the unit there."""

    def __init__(
        self,
        order_head: nn.Module,
        features: Float[Tensor, "K F"],
        units: Units,
        cell_scores: Float[Tensor, "B cells"],
        order_mask: Bool[Tensor, "B chosen_choices"],
        second_mask: Bool[Tensor, "B cells choices"] | None,
    ) -> None:
        """`cell_scores` are unnormalized and FORBIDDEN where no unit may be chosen.

        `order_mask` holds for the orders of a chosen unit. To act, no unit is chosen yet: it has
        no columns then, and `second_mask` is needed, which says what every unit may do.
        """
        self._order_head = order_head
        self._features = features
        self._order_mask = order_mask
        self._second_mask = second_mask
        self._cell_log_probs = functional.log_softmax(cell_scores, dim=1)
        self._last_orders: tuple[Tensor, list[Tensor]] | None = None
        """The choices of the last call, and the log-probabilities of the chosen units' orders:
        `log_prob` and `entropy` are called with the same choices."""
        numbers = torch.arange(len(features), device=cell_scores.device)
        # Cells without a unit name unit 0; their scores forbid that they are chosen.
        no_units = torch.zeros_like(cell_scores, dtype=torch.int64)
        self._unit_at = no_units.index_put(units, numbers)  # [B, cells]

    def sample(
        self, generator: torch.Generator
    ) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        return self._draw(generator)

    def mode(self) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        return self._draw(None)

    def log_prob(
        self,
        continuous: Tensor,  # noqa: ARG002
        discrete: Int[Tensor, "B D"],
    ) -> Float[Tensor, " B"]:
        cell = discrete[:, :1]
        cell_log_prob = self._cell_log_probs.gather(1, cell)[:, 0]
        orders = self._orders(discrete)
        return cell_log_prob + _log_prob_of_read_parts(orders, discrete[:, 1:])

    def entropy(self, discrete: Int[Tensor, "B D"] | None = None) -> Float[Tensor, ""]:
        """Of the choice of a cell, plus of the order of the chosen unit.

        The mean over choices drawn from this distribution is the entropy of both.
        """
        total = _entropy(self._cell_log_probs)
        if discrete is not None:
            total = total + _entropy_of_read_parts(self._orders(discrete))
        return total.mean()

    def _orders(self, discrete: Int[Tensor, "B D"]) -> list[Tensor]:
        """Log-probabilities [B, choices] of each part of the chosen units' orders."""
        if self._last_orders is None or self._last_orders[0] is not discrete:
            logits = self._order_logits(discrete[:, 0])
            self._last_orders = discrete, _log_probs_of_parts(logits, self._order_mask)
        return self._last_orders[1]

    def _order_logits(self, cell: Int[Tensor, " B"]) -> Float[Tensor, "B choices"]:
        unit = self._unit_at[_row_numbers(cell), cell]
        logits: Tensor = self._order_head(self._features[unit])
        return logits

    def _draw(
        self, generator: torch.Generator | None
    ) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        if self._second_mask is None:
            raise UsageError("to act, staged actions need the second-stage mask")
        cell = _perturbed(self._cell_log_probs, generator).argmax(dim=1)
        allowed = self._second_mask[_row_numbers(cell), cell]
        orders = _draw_orders(self._order_logits(cell), allowed, generator)
        discrete = torch.cat([cell[:, None], orders], dim=1)
        no_continuous = torch.zeros(len(cell), 0)
        return no_continuous, discrete.cpu()


class PerUnitActions:
    """An order for each idle unit; zeros for all other cells."""

    def __init__(
        self,
        logits: Float[Tensor, "K choices"],
        allowed: Bool[Tensor, "K choices"],
        units: Units,
        shape: torch.Size,
    ) -> None:
        """`shape` is (boards, cells)."""
        self._logits = logits
        self._allowed = allowed
        self._units = units
        self._shape = shape

    def sample(
        self, generator: torch.Generator
    ) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        return self._draw(generator)

    def mode(self) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        return self._draw(None)

    def log_prob(
        self,
        continuous: Tensor,  # noqa: ARG002
        discrete: Int[Tensor, "B D"],
    ) -> Float[Tensor, " B"]:
        of_cells = discrete.view(*self._shape, len(_PARTS))  # [B, cells, parts]
        of_units = of_cells[self._units].long()
        log_prob = _log_prob_of_read_parts(self._orders, of_units)
        return self._sum_per_board(log_prob)

    def entropy(
        self,
        discrete: Int[Tensor, "B D"] | None = None,  # noqa: ARG002
    ) -> Float[Tensor, ""]:
        """Summed over a board's idle units, mean over boards."""
        of_units = _entropy_of_read_parts(self._orders)
        return self._sum_per_board(of_units).mean()

    @cached_property
    def _orders(self) -> list[Tensor]:
        return _log_probs_of_parts(self._logits, self._allowed)

    def _draw(
        self, generator: torch.Generator | None
    ) -> tuple[Float[Tensor, "B 0"], Int[Tensor, "B D"]]:
        shape = (*self._shape, len(_PARTS))
        actions = torch.zeros(shape, dtype=CHOICE_TYPE, device=self._logits.device)
        orders = _draw_orders(self._logits, self._allowed, generator)
        actions[self._units] = orders.to(CHOICE_TYPE)
        no_continuous = torch.zeros(self._shape[0], 0)
        return no_continuous, actions.flatten(1).cpu()

    def _sum_per_board(self, of_units: Float[Tensor, " K"]) -> Float[Tensor, " B"]:
        board = self._units[0]
        return of_units.new_zeros(self._shape[0]).index_add(0, board, of_units)


def orders_of_cells(allowed: Bool[Tensor, "B M"]) -> Bool[Tensor, "B cells choices"]:
    """What the unit in each cell may do, from the mask of the grid form."""
    num_cells = allowed.shape[1] // CHOICES
    return allowed.view(len(allowed), num_cells, CHOICES)


def have_a_choice(
    orders: Bool[Tensor, "B cells choices"],
) -> Bool[Tensor, "B cells"]:
    """Which cells hold a unit that may do more than nothing.

    Others are left out: a unit that may only do nothing has no choice.
    """
    more_than_nothing = orders[:, :, FIRST_CHOICE[0] + 1 : PARTS[0]]
    return more_than_nothing.any(dim=2)


def _log_probs_of_parts(
    logits: Float[Tensor, "K choices"], mask: Bool[Tensor, "K choices"]
) -> list[Tensor]:
    """Log-probabilities of each part of these units' orders: [K, choices of the part] each."""
    logits_of_parts = torch.split(logits, _PARTS, dim=1)
    mask_of_parts = torch.split(mask, _PARTS, dim=1)
    pairs = zip(logits_of_parts, mask_of_parts, strict=True)
    return [masked_log_probs(part, allowed) for part, allowed in pairs]


def _draw_orders(
    logits: Float[Tensor, "K choices"],
    mask: Bool[Tensor, "K choices"],
    generator: torch.Generator | None,
) -> Int[Tensor, "K D"]:
    """An order for each of these units; the most likely one without a generator."""
    allowed_logits = logits.masked_fill(~mask, FORBIDDEN)
    scores = _perturbed(allowed_logits, generator)
    scores_of_parts = torch.split(scores, _PARTS, dim=1)
    choices = [part.argmax(dim=1) for part in scores_of_parts]
    return torch.stack(choices, dim=1)


def _log_prob_of_read_parts(
    orders: Sequence[Tensor], parts: Int[Tensor, "K D"]
) -> Float[Tensor, " K"]:
    """Of these choices, without the parts that the order's type does not read."""
    log_prob_of_parts = []
    for i, log_probs in enumerate(orders):
        chosen = parts[:, i : i + 1]  # [K, 1], as `gather` wants it
        log_prob_of_parts.append(log_probs.gather(1, chosen)[:, 0])
    order_type = parts[:, 0]
    is_read = _READ_PARTS.to(parts.device)[order_type]  # [K, parts]
    of_parts = torch.stack(log_prob_of_parts, dim=1)
    return (of_parts * is_read).sum(dim=1)


def _entropy_of_read_parts(orders: Sequence[Tensor]) -> Float[Tensor, " K"]:
    """H(type) + Σ P(the type reads the part) H(part): parts are drawn independently of the type."""
    type_probs = orders[0].exp()
    read_probs = type_probs @ _READ_PARTS.to(type_probs)  # [K, parts]
    of_parts = torch.stack([_entropy(log_probs) for log_probs in orders], dim=1)
    return (of_parts * read_probs).sum(dim=1)


def _entropy(log_probs: Float[Tensor, "K N"]) -> Float[Tensor, " K"]:
    return -(log_probs.exp() * log_probs).sum(dim=1)


def _perturbed(
    logits: Float[Tensor, "K N"], generator: torch.Generator | None
) -> Float[Tensor, "K N"]:
    """Logits with Gumbel noise, whose largest is a draw; without a generator, the logits alone."""
    if generator is None:
        return logits
    # Drawn on the CPU, where the generator is, so that a seed draws the same on every device. The
    # bounds keep both logarithms finite: 1 - 1e-7 is just below 1 in single precision.
    uniform = torch.rand(logits.shape, generator=generator)
    uniform.clamp_(1e-20, 1.0 - 1e-7)
    gumbel = -torch.log(-torch.log(uniform))
    return logits + gumbel.to(logits.device)


def _row_numbers(rows: Tensor) -> Int[Tensor, " B"]:
    """0, 1, 2, ..., one for each row."""
    return torch.arange(len(rows), device=rows.device)
