"""Layouts as Gymnasium spaces, for the adapters to Gymnasium and PettingZoo.

Observations are unbounded, because nothing says how large a sensor's numbers may be; only images as
bytes have bounds. A mask is always one flat array of 0 and 1 over the
choices of all branches; every action space here accepts it in `sample(mask)`.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from touchline.adapters.layout import Layout, View
from touchline.errors import UsageError, shortened
from touchline.specs import ActionTuple


class BranchesSpace(spaces.MultiDiscrete):
    """A MultiDiscrete whose `sample` accepts a flat mask, as infos and observations hold it."""

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[Any]:
        # Gymnasium wants one array per branch; ours is flat, as ML-Agents sends it.
        if isinstance(mask, np.ndarray):
            ends = np.cumsum(self.nvec)[:-1]
            flat = mask.astype(np.int8)
            mask = tuple(np.split(flat, ends))
        return np.asarray(super().sample(mask, probability))


class HybridSpace(spaces.Dict):
    """Continuous and discrete actions together; `sample` accepts a flat mask for the latter."""

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, Any]:
        if isinstance(mask, np.ndarray):
            return {
                "continuous": self["continuous"].sample(),
                "discrete": self["discrete"].sample(mask),
            }
        return dict(super().sample(mask, probability))


def observation_space(layout: Layout) -> spaces.Space[Any]:
    """A Box for one view, a Dict of Boxes for several."""
    boxes = layout.named([_box(layout, view) for view in layout.views])
    return spaces.Dict(boxes) if isinstance(boxes, dict) else boxes


def action_space(layout: Layout) -> spaces.Space[Any]:
    """Box in [-1, 1] for continuous actions, Discrete for one branch, MultiDiscrete for several, a
    Dict for both kinds.
    """
    # The range of ML-Agents' own wrappers; a player takes any number.
    continuous = spaces.Box(-1.0, 1.0, (layout.continuous_size,), np.float32)
    if not layout.branches:
        return continuous
    discrete: spaces.Space[Any]
    if len(layout.branches) == 1:
        discrete = spaces.Discrete(layout.branches[0])
    else:
        discrete = BranchesSpace(np.array(layout.branches, np.int64))
    if not layout.continuous_size:
        return discrete
    return HybridSpace({"continuous": continuous, "discrete": discrete})


def mask_space(layout: Layout) -> spaces.Box:
    """The space of the flat masks."""
    return spaces.Box(0, 1, (sum(layout.branches),), np.int8)


def read_actions(layout: Layout, action: Any, count: int) -> ActionTuple:
    """The world's actions from `count` agents' actions in batched form.

    Raises a UsageError that names what differs from the space.
    """
    continuous_shape = (count, layout.continuous_size)
    discrete_shape = (count, len(layout.branches))
    parts = {"continuous": action, "discrete": action}
    if layout.continuous_size and layout.branches:
        if not isinstance(action, dict) or set(action) != set(parts):
            got = type(action).__name__
            if isinstance(action, dict):
                got = f"keys {sorted(action)}"
            raise UsageError(
                f"action: expected a dict with 'continuous' of shape {continuous_shape} and "
                f"'discrete' of shape {discrete_shape}, got {got}"
            )
        parts = action
    continuous = discrete = None
    if layout.continuous_size:
        continuous = _checked(
            "continuous action", parts["continuous"], continuous_shape, "fiu"
        )
    if layout.branches:
        discrete = _array("discrete action", parts["discrete"])
        if len(layout.branches) == 1 and discrete.ndim == 1:
            discrete = discrete[:, None]  # a Discrete space has one number per agent
        discrete = _checked("discrete action", discrete, discrete_shape, "iu")
    return layout.actions(continuous, discrete, count)


def _checked(
    what: str, action: Any, shape: tuple[int, int], kinds: str
) -> NDArray[Any]:
    """The array, if it has this shape and one of these kinds of dtype (numpy's letters)."""
    array = _array(what, action)
    if array.shape != shape or array.dtype.kind not in kinds:
        expected = "integers" if kinds == "iu" else "floats"
        raise UsageError(
            f"{what}: expected {expected} of shape {shape}, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return array


def _array(what: str, action: Any) -> NDArray[Any]:
    try:
        return np.asarray(action)
    except ValueError as error:  # rows of several lengths
        raise UsageError(
            f"{what}: expected an array: {shortened(str(error))}"
        ) from None


def _box(layout: Layout, view: View) -> spaces.Box:
    if view.is_image and layout.uint8_images:
        return spaces.Box(0, 255, view.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, view.shape, np.float32)
