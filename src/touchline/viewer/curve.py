"""A curve of rewards or ratings on a page."""

from __future__ import annotations

import numpy as np
import viser
from numpy.typing import NDArray

COLORS = ("#0d9488", "#d97706")
AXIS_PX = 64
"""Wide enough for -0.025; uPlot's own axis cuts its minus off."""
_SCALES = {"x": {"time": False}}
_AROUND_ZERO = {**_SCALES, "y": {"range": (-1.0, 1.0)}}
"""uPlot's own axis of a curve of zeros would reach from 0 to 100."""


def add_curve(
    gui: viser.GuiApi, x_label: str, *labels: str, visible: bool = True
) -> viser.GuiUplotHandle:
    """Empty curves with these labels, for `draw_curve`."""
    return gui.add_uplot(
        tuple(np.zeros(1) for _ in (x_label, *labels)),
        (
            {"label": x_label},
            *(
                {"label": label, "stroke": color, "width": 2}
                for label, color in zip(labels, COLORS, strict=False)
            ),
        ),
        scales=_AROUND_ZERO,
        axes=({}, {"size": AXIS_PX}),
        height=140,
        padding=(12, 18, 0, 0),
        visible=visible,
    )


def draw_curve(
    curve: viser.GuiUplotHandle, x: NDArray[np.float64], *y: NDArray[np.float64]
) -> None:
    """Show these values [K] of every label at these x [K]."""
    if curve.scales != (scales := _SCALES if np.any(y) else _AROUND_ZERO):
        curve.scales = scales  # each assignment is sent
    curve.data = (x, *y)
