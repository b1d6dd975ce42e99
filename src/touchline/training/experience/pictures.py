"""Pictures in a byte per number instead of four.

Unity sends pictures as PNG files, whose numbers are whole 255ths. Those are kept without loss;
pictures with any other number stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_LARGEST = np.float32(255)


def is_picture(values: NDArray[Any]) -> bool:
    """Whether these are observations [B, C, H, W]."""
    return values.ndim == 4


def packed(values: NDArray[Any]) -> NDArray[np.uint8] | None:
    """Each 255th as a byte; None where a number is none."""
    if values.dtype == np.uint8:
        return values
    with np.errstate(invalid="ignore"):  # NaN becomes some byte, and differs below
        found = np.rint(values * _LARGEST).astype(np.uint8)
    # Negative and larger numbers wrap around, and differ as well.
    return found if np.array_equal(unpacked(found), values) else None


def unpacked(values: NDArray[Any]) -> NDArray[Any]:
    """The numbers again, with the bits that `touchline.protocol.images` gives them.

    Values of any other type are given back as they are.
    """
    if values.dtype != np.uint8:
        return values
    # Dividing in place: a minibatch of pictures has millions of numbers.
    found = values.astype(np.float32)
    return np.divide(found, _LARGEST, out=found)
