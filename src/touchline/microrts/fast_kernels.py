"""The loops of `fast_pass`: over the cells of boards that hold something, over the units that may
be chosen, and over their orders.

Shapes: B boards, K units that may be chosen, U of them with an order. The units of board b are
those from `starts[b]` to `starts[b + 1]`.
`planes_of_code` lists the planes of each cell's code, -1 after the last; code 0 is an empty cell.
Weights are arranged for these loops by `arrange_weight`. The gradient of a loss by an array `x` is
called `grad_x`. Annotations say single precision; tests also compile the loops for double.

Indices are unsigned where a loop should become vector instructions: a signed index could be
negative, which counts from the end of an array, and the check for that prevents them.
"""

import numpy as np
from numpy.typing import NDArray

from touchline.microrts.rules import FIRST_CHOICE, PARTS, READ_PARTS
from touchline.physics.kernels import makes_arrays

_FIRST = FIRST_CHOICE.astype(np.int64)
_SIZE = np.array(PARTS)
_READS = READ_PARTS.copy()
_NUM_PARTS = len(PARTS)
_NUM_TYPES = PARTS[0]
_FORBIDDEN = np.float32(-1e8)  # as in `touchline.policies.distributions`
_LEAST_EXPONENT = np.float32(-104.0)  # the exponential of less is 0 in single precision
_ZERO = np.float32(0.0)
# As in `order_distributions`: the bounds keep both logarithms of Gumbel noise finite.
_LEAST_UNIFORM = np.float32(1e-20)
_MOST_UNIFORM = np.float32(1.0 - 1e-7)

_BLOCK = 16
"""Features that are transposed together: as many as fit into a line of the processor's cache."""


@makes_arrays
def arrange_weight(
    weight: NDArray[np.float32],
    empty_plane: NDArray[np.int64],
    arranged: NDArray[np.float32],
) -> None:
    """From a weight [F, places, planes] to what each plane adds to an empty board.

    `arranged` [places, planes, F] receives it. Of each group, the plane of an empty cell
    (`empty_plane` [planes]) adds nothing; plane 0 gets what an empty cell gives.
    """
    for first in range(0, weight.shape[0], _BLOCK):
        last = min(first + _BLOCK, weight.shape[0])
        for place in range(weight.shape[1]):
            for f in range(first, last):
                # Plane 0 is itself one of an empty cell, so its place is free for the sum.
                arranged[place, 0, f] = 0.0
            for plane in range(weight.shape[2]):
                if empty_plane[plane] == plane:
                    for f in range(first, last):
                        arranged[place, 0, f] += weight[f, place, plane]
                else:
                    before = empty_plane[plane]
                    for f in range(first, last):
                        added = weight[f, place, plane] - weight[f, place, before]
                        arranged[place, plane, f] = added


@makes_arrays
def arrange_weight_backward(
    grad_arranged: NDArray[np.float32],
    empty_plane: NDArray[np.int64],
    grad_weight: NDArray[np.float32],
) -> None:
    """The transpose of `arrange_weight`; overwrites `grad_weight`."""
    for first in range(0, grad_weight.shape[0], _BLOCK):
        last = min(first + _BLOCK, grad_weight.shape[0])
        for place in range(grad_weight.shape[1]):
            # A group's empty plane comes first, so that it is set before it is subtracted from.
            for plane in range(grad_weight.shape[2]):
                if empty_plane[plane] == plane:
                    for f in range(first, last):
                        grad_weight[f, place, plane] = grad_arranged[place, 0, f]
                else:
                    for f in range(first, last):
                        grad = grad_arranged[place, plane, f]
                        grad_weight[f, place, plane] = grad
                        grad_weight[f, place, empty_plane[plane]] -= grad


@makes_arrays
def see_forward(
    boards: NDArray[np.int16],
    planes_of_code: NDArray[np.int8],
    weights: NDArray[np.float32],
    empty: NDArray[np.float32],
    seen: NDArray[np.float32],
) -> None:
    """ReLU of a convolution 3 by 3 with stride 2, into the middle of `seen` [B, h + 2, (w + 2) F].

    `empty` [h, w F] is its result for an empty board. A row is one axis, because loops over F alone
    are short. The border of zeros is the padding of the next convolution.
    """
    (height, row) = empty.shape
    size = weights.shape[2]
    for b in range(len(boards)):
        for v in range(height):
            for i in range(row):
                seen[b, v + 1, np.uintp(size + i)] = empty[v, i]
        _see_cells(boards[b], planes_of_code, weights, seen[b], row // size, False)
        for v in range(height):
            for i in range(row):
                at = np.uintp(size + i)
                seen[b, v + 1, at] = max(seen[b, v + 1, at], _ZERO)


@makes_arrays
def _see_cells(
    board: NDArray[np.int16],
    planes_of_code: NDArray[np.int8],
    weights: NDArray[np.float32],
    seen: NDArray[np.float32],
    width: int,
    is_backward: bool,
) -> None:
    """Add to `seen` what the cells of one board add to the result for an empty one.

    Backward, the transpose: the gradient of `seen` is added to that of `weights`.
    """
    size = weights.shape[2]
    height = len(seen) - 2  # without the border
    for y in range(board.shape[0]):
        for x in range(board.shape[1]):
            code = board[y, x]
            if code == 0:
                continue
            # The one or two windows per axis that contain this cell: the stride is 2, and window v
            # covers rows 2v - 1 to 2v + 1.
            top = y // 2
            bottom = min((y + 1) // 2 + 1, height)
            left = x // 2
            right = min((x + 1) // 2 + 1, width)
            for i in range(planes_of_code.shape[1]):
                plane = planes_of_code[code, i]
                if plane < 0:
                    break
                for v in range(top, bottom):
                    for u in range(left, right):
                        place = (y - 2 * v + 1) * 3 + x - 2 * u + 1
                        at = (u + 1) * size
                        for f in range(size):
                            if is_backward:
                                grad = seen[v + 1, np.uintp(at + f)]
                                weights[place, plane, f] += grad
                            else:
                                added = weights[place, plane, f]
                                seen[v + 1, np.uintp(at + f)] += added


@makes_arrays
def see_backward(
    boards: NDArray[np.int16],
    planes_of_code: NDArray[np.int8],
    seen: NDArray[np.float32],
    grad_patches: NDArray[np.float32],
    grad_seen: NDArray[np.float32],
    grad_weights: NDArray[np.float32],
    grad_empty: NDArray[np.float32],
) -> None:
    """The transpose of `see_forward`, and of cutting `seen` into patches [B, v, u, 3, 3 F].

    Adds to the last two. `grad_seen` [h + 2, (w + 2) F] is space to work in.
    """
    (height, row) = grad_empty.shape
    size = grad_weights.shape[2]
    for b in range(len(boards)):
        grad_seen[:] = 0.0
        for v in range(grad_patches.shape[1]):
            for u in range(grad_patches.shape[2]):
                for i in range(3):
                    for j in range(3 * size):
                        at = np.uintp(2 * u * size + j)
                        grad_seen[2 * v + i, at] += grad_patches[b, v, u, i, j]
        for v in range(height):
            for i in range(row):
                at = np.uintp(size + i)
                grad = grad_seen[v + 1, at] if seen[b, v + 1, at] > 0.0 else _ZERO
                grad_seen[v + 1, at] = grad
                grad_empty[v, i] += grad
        _see_cells(
            boards[b], planes_of_code, grad_weights, grad_seen, row // size, True
        )


@makes_arrays
def find_units(cells: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`starts` [B + 1] and the cell [K] of each unit that may be chosen, from [B, cells]."""
    starts = np.zeros(len(cells) + 1, np.int64)
    for b in range(len(cells)):
        count = 0
        for c in range(cells.shape[1]):
            count += cells[b, c]
        starts[b + 1] = starts[b] + count
    cell_of_unit = np.empty(starts[-1], np.int64)
    k = 0
    for b in range(len(cells)):
        for c in range(cells.shape[1]):
            if cells[b, c]:
                cell_of_unit[k] = c
                k += 1
    return starts, cell_of_unit


@makes_arrays
def around_forward(
    boards: NDArray[np.int16],
    planes_of_code: NDArray[np.int8],
    starts: NDArray[np.int64],
    cell: NDArray[np.int64],
    weights: NDArray[np.float32],
    empty: NDArray[np.float32],
    everywhere: NDArray[np.float32],
    units: NDArray[np.float32],
) -> None:
    """Features of units from the windows around them, with ReLU, into `units` [K or more, F].

    `empty` [cells, F] is the result on an empty board, `everywhere` [B, F] is added for all units
    of a board.
    """
    height = boards.shape[1]
    width = boards.shape[2]
    side = int(np.sqrt(len(weights)))
    reach = side // 2  # a window has (2 reach + 1)² places
    for b in range(len(boards)):
        for k in range(starts[b], starts[b + 1]):
            y = cell[k] // width
            x = cell[k] % width
            for f in range(units.shape[1]):
                units[k, f] = empty[cell[k], f] + everywhere[b, f]
            # The window is cut to the board: what lies outside adds nothing.
            for v in range(max(y - reach, 0), min(y + reach + 1, height)):
                for u in range(max(x - reach, 0), min(x + reach + 1, width)):
                    code = boards[b, v, u]
                    if code == 0:
                        continue
                    place = (v - y + reach) * side + u - x + reach
                    for i in range(planes_of_code.shape[1]):
                        plane = planes_of_code[code, i]
                        if plane < 0:
                            break
                        for f in range(units.shape[1]):
                            units[k, f] += weights[place, plane, f]
            for f in range(units.shape[1]):
                units[k, f] = max(units[k, f], _ZERO)


@makes_arrays
def around_backward(
    boards: NDArray[np.int16],
    planes_of_code: NDArray[np.int8],
    starts: NDArray[np.int64],
    cell: NDArray[np.int64],
    units: NDArray[np.float32],
    grad_units: NDArray[np.float32],
    grad_weights: NDArray[np.float32],
    grad_empty: NDArray[np.float32],
    grad_everywhere: NDArray[np.float32],
) -> None:
    """The transpose of `around_forward`: adds to the last three, and overwrites `grad_units`."""
    height = boards.shape[1]
    width = boards.shape[2]
    side = int(np.sqrt(len(grad_weights)))
    reach = side // 2
    for b in range(len(boards)):
        for k in range(starts[b], starts[b + 1]):
            y = cell[k] // width
            x = cell[k] % width
            for f in range(units.shape[1]):
                grad = grad_units[k, f] if units[k, f] > 0.0 else _ZERO
                grad_units[k, f] = grad
                grad_empty[cell[k], f] += grad
                grad_everywhere[b, f] += grad
            for v in range(max(y - reach, 0), min(y + reach + 1, height)):
                for u in range(max(x - reach, 0), min(x + reach + 1, width)):
                    code = boards[b, v, u]
                    if code == 0:
                        continue
                    place = (v - y + reach) * side + u - x + reach
                    for i in range(planes_of_code.shape[1]):
                        plane = planes_of_code[code, i]
                        if plane < 0:
                            break
                        for f in range(units.shape[1]):
                            grad_weights[place, plane, f] += grad_units[k, f]


@makes_arrays
def draw_units(
    scores: NDArray[np.float32],
    starts: NDArray[np.int64],
    cell: NDArray[np.int64],
    uniform: NDArray[np.float32],
    chosen_cell: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> None:
    """A unit of each board, by Gumbel's trick from uniform numbers [B, cells].

    Its cell goes into `chosen_cell` [B], its number into `chosen` [B].
    """
    for b in range(len(chosen)):
        best = -np.inf
        for k in range(starts[b], starts[b + 1]):
            score = scores[k] + _gumbel(uniform[b, cell[k]])
            if score > best:
                best = score
                chosen[b] = k
                chosen_cell[b] = cell[k]


@makes_arrays
def draw_orders(
    logits: NDArray[np.float32],
    allowed: NDArray[np.bool_],
    uniform: NDArray[np.float32],
    orders: NDArray[np.int64],
) -> None:
    """Likewise a choice of each part of an order, into `orders` [U, parts].

    Only choices that are `allowed` [U, choices] are drawn.
    """
    for u in range(len(orders)):
        for part in range(_NUM_PARTS):
            best = -np.inf
            for i in range(_SIZE[part]):
                choice = _FIRST[part] + i
                if allowed[u, choice]:
                    score = logits[u, choice] + _gumbel(uniform[u, choice])
                    if score > best:
                        best = score
                        orders[u, part] = i


@makes_arrays
def _gumbel(uniform: np.float32) -> np.float32:
    bounded = min(max(uniform, _LEAST_UNIFORM), _MOST_UNIFORM)
    noise: np.float32 = -np.log(-np.log(bounded))
    return noise


@makes_arrays
def find_chosen(
    starts: NDArray[np.int64],
    cell: NDArray[np.int64],
    discrete: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> None:
    """The unit at each row's first choice into `chosen` [B], which stays where there is none."""
    for b in range(len(discrete)):
        for k in range(starts[b], starts[b + 1]):
            if cell[k] == discrete[b, 0]:
                chosen[b] = k


@makes_arrays
def evaluate_units(
    scores: NDArray[np.float32],
    starts: NDArray[np.int64],
    chosen: NDArray[np.int64],
    log_prob: NDArray[np.float32],
    entropy: NDArray[np.float32],
) -> None:
    """Write log-probability and entropy [B] of the choice of a unit on each board.

    `scores` [K] become log-probabilities.
    """
    for b in range(len(chosen)):
        entropy[b] = _normalize(scores, starts[b], starts[b + 1])
        has_unit = chosen[b] < starts[b + 1]
        log_prob[b] = scores[chosen[b]] if has_unit else _FORBIDDEN


@makes_arrays
def evaluate_units_backward(
    grad_entropy: np.float32,
    log_probs: NDArray[np.float32],
    starts: NDArray[np.int64],
    chosen: NDArray[np.int64],
    entropy: NDArray[np.float32],
    grad_log_prob: NDArray[np.float32],
    grad_scores: NDArray[np.float32],
) -> None:
    """The gradient by scores [K].

    `grad_entropy` is the one by each board's entropy. ∂log p(a) = onehot(a) − p and
    ∂H = −p (log p + H).
    """
    for b in range(len(chosen)):
        for k in range(starts[b], starts[b + 1]):
            log_p = log_probs[k]
            by_entropy = grad_entropy * (log_p + entropy[b])
            grad_scores[k] = -np.exp(log_p) * (grad_log_prob[b] + by_entropy)
            if k == chosen[b]:
                grad_scores[k] += grad_log_prob[b]


@makes_arrays
def evaluate_orders(
    logits: NDArray[np.float32],
    allowed: NDArray[np.bool_],
    orders: NDArray[np.int64],
    entropies: NDArray[np.float32],
    read_probs: NDArray[np.float32],
    log_prob: NDArray[np.float32],
    entropy: NDArray[np.float32],
) -> None:
    """Add log-probability and entropy of the orders [U, parts] of some units to the last two [U].

    `logits` [U, choices] become log-probabilities. `entropies` [U, parts] are those of each part.
    The entropy of an order is H(type) + Σ P(the type reads the part) H(part), because parts are
    drawn independently of the type; `read_probs` [U, parts] are these probabilities.
    """
    # A view: what becomes of it is what becomes of `logits`.
    of_all = logits.reshape(-1)
    for u in range(len(orders)):
        for choice in range(logits.shape[1]):
            if not allowed[u, choice]:
                logits[u, choice] = _FORBIDDEN
        for part in range(_NUM_PARTS):
            first = u * logits.shape[1] + _FIRST[part]
            entropies[u, part] = _normalize(of_all, first, first + _SIZE[part])
            if _READS[orders[u, 0], part]:
                log_prob[u] += of_all[first + orders[u, part]]
        read_probs[u] = 0.0
        for order_type in range(_NUM_TYPES):
            p = np.exp(logits[u, order_type])
            for part in range(_NUM_PARTS):
                read_probs[u, part] += p * _READS[order_type, part]
        for part in range(_NUM_PARTS):
            entropy[u] += read_probs[u, part] * entropies[u, part]


@makes_arrays
def evaluate_orders_backward(
    grad_entropy: np.float32,
    log_probs: NDArray[np.float32],
    allowed: NDArray[np.bool_],
    orders: NDArray[np.int64],
    entropies: NDArray[np.float32],
    read_probs: NDArray[np.float32],
    grad_log_prob: NDArray[np.float32],
    grad_logits: NDArray[np.float32],
) -> None:
    """The gradient by logits [U, choices], which are zeros before.

    The log-probabilities are what `evaluate_orders` made of logits. The rest is as in
    `evaluate_units_backward`; the probability that a part is read depends on the type's logits
    only.
    """
    for u in range(len(orders)):
        mean_entropy = _ZERO  # of the parts that an order reads
        for part in range(_NUM_PARTS):
            grad_part = grad_log_prob[u] * _READS[orders[u, 0], part]
            grad_part_entropy = grad_entropy * read_probs[u, part]
            for i in range(_SIZE[part]):
                choice = _FIRST[part] + i
                if allowed[u, choice]:
                    log_p = log_probs[u, choice]
                    by_entropy = grad_part_entropy * (log_p + entropies[u, part])
                    grad_logits[u, choice] = -np.exp(log_p) * (grad_part + by_entropy)
                    if i == orders[u, part]:
                        grad_logits[u, choice] += grad_part
            mean_entropy += read_probs[u, part] * entropies[u, part]
        for order_type in range(_NUM_TYPES):
            if allowed[u, order_type]:
                # Entropy of the parts that this type reads, less the mean.
                excess = -mean_entropy
                for part in range(_NUM_PARTS):
                    excess += _READS[order_type, part] * entropies[u, part]
                p = np.exp(log_probs[u, order_type])
                grad_logits[u, order_type] += grad_entropy * p * excess


@makes_arrays
def _normalize(scores: NDArray[np.float32], first: int, last: int) -> np.float32:
    """Turn scores into log-probabilities; returns their entropy."""
    most = -np.float32(np.inf)
    total = _ZERO
    mean = _ZERO
    for i in range(first, last):
        most = max(most, scores[i])
    # Less the greatest, so that no exponential overflows.
    for i in range(first, last):
        exponent = scores[i] - most
        # Forbidden choices, which are most, cost no exponential.
        if exponent > _LEAST_EXPONENT:
            p = np.exp(exponent)
            total += p
            mean += p * exponent
    for i in range(first, last):
        scores[i] -= most + np.log(total)
    entropy: np.float32 = np.log(total) - mean / total
    return entropy
