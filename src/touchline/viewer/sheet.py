"""An agent's observations, probabilities and actions as HTML, which pages show beside the scene.

Bars and colors say how large a number is. Every text is escaped, because sensors are named by
scenes.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from touchline.policies.policy import Outlook

MOST_NUMBERS = 400
"""Of one sensor; a list that is longer is cut and says so."""
_COLUMNS = 8
_STYLE = (
    "font:11px/1.35 ui-monospace,monospace;display:grid;gap:1px;"
    "grid-template-columns:repeat({columns},1fr);padding:0 .75em .5em"
)
_PALETTE = np.array(
    [
        (40, 116, 217),
        (217, 66, 56),
        (77, 184, 97),
        (245, 204, 51),
        (140, 71, 199),
        (242, 143, 38),
        (90, 200, 210),
        (200, 120, 160),
    ],
    np.uint8,
)


def numbers_html(values: NDArray[Any]) -> str:
    """A vector as a grid of numbers with their indices; the stronger, the darker."""
    flat = np.ravel(values)
    cells = []
    strongest = max(float(np.abs(flat).max(initial=0.0)), 1e-9)
    for index, value in enumerate(flat[:MOST_NUMBERS]):
        share = abs(float(value)) / strongest
        hue = "13,148,136" if value >= 0 else "217,119,6"
        cells.append(
            f'<span title="index {index}: {value:.6g}" '
            f'style="background:rgba({hue},{0.6 * share:.2f})">{value:.2f}</span>'
        )
    rest = len(flat) - MOST_NUMBERS
    more = f"<span>... {rest} more</span>" if rest > 0 else ""
    style = _STYLE.format(columns=_COLUMNS)
    return f'<div style="{style}">{"".join(cells)}{more}</div>'


def image_html(values: NDArray[Any]) -> str:
    """An image or grid [C, H, W] as a picture.

    One channel is gray and three are colors, both in 0 to 1; of more, each cell shows the first
    channel that is on.
    """
    channels, height, width = values.shape
    if channels in (1, 3):
        shades = np.clip(255.0 * values, 0.0, 255.0).astype(np.uint8)
        pixels = np.repeat(shades, 3 // channels, axis=0).transpose(1, 2, 0)
    else:
        colors = _PALETTE[values.argmax(axis=0) % len(_PALETTE)]
        is_on = np.any(values != 0, axis=0, keepdims=True).transpose(1, 2, 0)
        pixels = np.where(is_on, colors, np.uint8(235))
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    shown = 240
    return (
        f'<div style="padding:0 .75em .5em"><img alt="{width} x {height}" '
        f'style="width:{shown}px;height:{shown * height // width}px;'
        f'image-rendering:pixelated" src="data:image/png;base64,{data}"></div>'
    )


def observation_html(values: NDArray[Any]) -> str:
    """One sensor's observation, as numbers or as a picture."""
    return image_html(values) if values.ndim == 3 else numbers_html(values)


def outlook_html(outlook: Outlook | None) -> str:
    """What the policy computes: a bar for each choice, continuous actions, and the value."""
    if outlook is None:
        return _paragraph("This policy shows no probabilities.")
    lines = []
    for number, branch in enumerate(outlook.probabilities):
        lines.append(_paragraph(f"Branch {number}"))
        lines += [
            _bar(f"{choice}", float(p), f"{100 * p:.0f} %")
            for choice, p in enumerate(branch[0])
        ]
    if outlook.continuous.size:
        lines.append(_paragraph("Continuous, most likely"))
        lines += [
            _bar(f"{index}", abs(float(a)), f"{a:+.2f}")
            for index, a in enumerate(outlook.continuous[0])
        ]
    if outlook.value is not None:
        values = ", ".join(f"{value:.3f}" for value in outlook.value[0])
        lines.append(_paragraph(f"Value: {values}"))
    return "".join(lines)


def facts_html(facts: Sequence[tuple[str, str]]) -> str:
    """Names and values, a line each."""
    rows = "".join(
        f"<span>{escape(name)}</span><span>{escape(value)}</span>"
        for name, value in facts
    )
    style = _STYLE.format(columns=2)
    return f'<div style="{style}">{rows}</div>'


def _bar(label: str, share: float, text: str) -> str:
    width = 100.0 * min(max(share, 0.0), 1.0)
    return (
        '<div style="font:11px/1.5 ui-monospace,monospace;display:flex;gap:.5em;'
        f'padding:0 .75em"><span style="width:1.5em">{escape(label)}</span>'
        '<span style="flex:1;background:rgba(128,128,128,.15)">'
        f'<span style="display:block;height:100%;width:{width:.0f}%;'
        'background:rgba(13,148,136,.6)"></span></span>'
        f'<span style="width:4em;text-align:right">{escape(text)}</span></div>'
    )


def _paragraph(text: str) -> str:
    return f'<div style="font-size:12px;padding:.3em .75em 0">{escape(text)}</div>'
