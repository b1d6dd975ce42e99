"""A round: the agents act, then the upright bodies take a step, then the bricks."""

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, makes_arrays
from touchline.physics.shapes import Floats
from touchline.scenes.pyramids.agent import Upright, act, step_upright
from touchline.scenes.pyramids.bricks import BrickArrays, step_bricks
from touchline.scenes.pyramids.collisions import new_room


@makes_arrays
def play_rounds(
    first: int,
    last: int,
    most: int,
    discrete: NDArray[np.int32],
    reward: NDArray[np.float32],
    upright: Upright,
    bricks: BrickArrays,
    solid: Floats,
) -> int:
    """Play rounds from the first one's physics on, until something happens; how many.

    What happens: an agent presses its switch, or touches gold.
    """
    room = new_room()
    for played in range(1, most + 1):
        if played > 1:
            act(first, last, discrete, reward, upright)
        step_upright(first, last, upright, solid)
        step_bricks(first, last, upright, bricks, room)
        if _has_happened(first, last, upright, bricks):
            return played
    return most


@compiled
def _has_happened(first: int, last: int, upright: Upright, bricks: BrickArrays) -> bool:
    for a in range(first, last):
        is_pressed = upright.pressed[a] and not bricks.on[a]
        if is_pressed or bricks.at_gold[a]:
            return True
    return False
