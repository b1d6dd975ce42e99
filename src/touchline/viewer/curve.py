"""A curve of rewards or ratings on a page."""

from __future__ import annotations

import numpy as np
import viser

COLORS = ("#0d9488", "#d97706")
AXIS_PX = 64
"""Wide enough for -0.025; uPlot's own axis cuts its minus off."""


def add_curve(
    gui: viser.GuiApi, x_label: str, *labels: str, visible: bool = True
) -> viser.GuiUplotHandle:
    """Empty curves with these labels, whose `data` are x and the y of each."""
    return gui.add_uplot(
        tuple(np.zeros(1) for _ in (x_label, *labels)),
        (
            {"label": x_label},
            *(
                {"label": label, "stroke": color, "width": 2}
                for label, color in zip(labels, COLORS, strict=False)
            ),
        ),
        scales={"x": {"time": False}},
        axes=({}, {"size": AXIS_PX}),
        height=140,
        padding=(12, 18, 0, 0),
        visible=visible,
    )
