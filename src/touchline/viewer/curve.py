"""A curve of rewards or ratings on a page."""

from __future__ import annotations

import numpy as np
import viser

AXIS_PX = 64
"""Wide enough for -0.025; uPlot's own axis cuts its minus off."""


def add_curve(
    gui: viser.GuiApi, label: str, *, visible: bool = True
) -> viser.GuiUplotHandle:
    """An empty curve, whose `data` are x and y."""
    return gui.add_uplot(
        (np.zeros(1), np.zeros(1)),
        ({}, {"label": label, "stroke": "#0d9488", "width": 2}),
        scales={"x": {"time": False}},
        axes=({}, {"size": AXIS_PX}),
        height=140,
        padding=(12, 18, 0, 0),
        visible=visible,
    )
