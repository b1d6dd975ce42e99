"""An agent's observations, probabilities and actions as HTML, which pages show beside the scene.

Bars and colors say how large a number is. Every text is escaped, because sensors are named by
scenes.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from touchline.policies.policy import Outlook
from touchline.scenes.scene import ActionNames
from touchline.sensors.rays import ray_angles_deg
from touchline.viewer.influence import Influence

MOST_NUMBERS = 400
"""Numbers shown of one sensor; a list that is longer is cut and says so."""
MOST_CHOICES = 12
"""The most of a branch that are shown: the most likely ones."""
MOST_INFLUENCES = 8
"""The strongest parts of observations that are shown."""
_COLUMNS = 8
_STYLE = (
    "font:11px/1.35 ui-monospace,monospace;display:grid;gap:1px;"
    "grid-template-columns:repeat({columns},1fr);padding:0 .75em .5em"
)
PALETTE = np.array(
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
"""Colors of a sensor's tags; after the last comes the first."""


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
        colors = PALETTE[values.argmax(axis=0) % len(PALETTE)]
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


def bars_html(values: NDArray[Any]) -> str:
    """A vector as bars up and down from a line; each says its index and number to a pointer."""
    flat = np.ravel(values)[:MOST_NUMBERS]
    # At least 1, or numbers near 0 would fill the height as large ones do.
    strongest = max(float(np.abs(flat).max(initial=0.0)), 1.0)
    width, half = 1000.0, 60.0
    wide = min(width / max(len(flat), 1), 60.0)
    bars = []
    for index, value in enumerate(flat):
        height = half * abs(float(value)) / strongest
        top = half - height if value >= 0 else half
        hue = "#0d9488" if value >= 0 else "#d97706"
        bars.append(
            f'<rect x="{index * wide:.1f}" y="{top:.1f}" width="{0.85 * wide:.1f}" '
            f'height="{max(height, 1.0):.1f}" fill="{hue}">'
            f"<title>index {index}: {value:.6g}</title></rect>"
        )
    rest = np.size(values) - len(flat)
    more = text_html(f"... {rest} more") if rest > 0 else ""
    return (
        f'<div style="padding:0 .75em .5em"><svg viewBox="0 0 {width:.0f} {2 * half:.0f}" '
        'preserveAspectRatio="none" style="width:100%;height:56px;display:block;'
        f'background:rgba(128,128,128,.08)">{"".join(bars)}</svg></div>'
        f"{text_html(f'highest line: {strongest:.3g}')}{more}"
    )


def fan_html(rays: NDArray[Any], most_deg: float) -> str:
    """Rays [rays, tags + 2] as a fan seen from above, ahead is up; colors are tags.

    A player does not say which angles its rays have: they are spread over ±`most_deg`.
    """
    angles = np.radians(ray_angles_deg(len(rays) // 2, most_deg))
    side, ahead = 100 * np.sin(np.radians(most_deg)), 100 * np.cos(np.radians(most_deg))
    ground = "".join(
        f'<path d="M105 105 l{-side * part:.1f} {-ahead * part:.1f} a{100 * part:.0f} '
        f'{100 * part:.0f} 0 {int(most_deg > 90)} 1 {2 * side * part:.1f} 0 z" '
        'fill="rgba(128,128,128,.07)" stroke="rgba(128,128,128,.25)" stroke-width=".5"/>'
        for part in (1.0, 0.5)
    )
    tags, lines = [f"tag {tag}" for tag in range(rays.shape[1] - 2)], []
    for angle, ray in zip(angles, rays, strict=True):
        reach = 100.0 * float(np.clip(ray[-1], 0.0, 1.0))
        x, y = 105 + reach * np.cos(angle), 105 - reach * np.sin(angle)
        color, text = _meeting(ray)
        lines.append(
            f'<line x1="105" y1="105" x2="{x:.1f}" y2="{y:.1f}" stroke="{color}" '
            f'stroke-width="1.5"/><circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}">'
            f"<title>{text} at {ray[-1]:.3f}</title></circle>"
        )
    return (
        '<div style="padding:0 .75em"><svg viewBox="0 0 210 112" '
        f'style="width:100%;display:block">{ground}{"".join(lines)}'
        f'<circle cx="105" cy="105" r="4" fill="#555"/></svg></div>{tags_html(tags)}'
    )


def tags_html(names: Sequence[str]) -> str:
    tags = "".join(
        f'<span style="color:{_color(tag)}">&#9632; {escape(name)}</span> '
        for tag, name in enumerate(names)
    )
    return f'<div style="font-size:12px;padding:0 .75em">{tags}</div>'


def _meeting(ray: NDArray[Any]) -> tuple[str, str]:
    tags = np.flatnonzero(ray[:-2])
    if len(tags):
        return _color(int(tags[0])), f"tag {tags[0]}"
    return ("#b4b9c0", "nothing") if ray[-2] else ("#555", "no tag")


def _color(tag: int) -> str:
    red, green, blue = PALETTE[tag % len(PALETTE)]
    return f"#{red:02x}{green:02x}{blue:02x}"


def outlook_html(outlook: Outlook | None, names: ActionNames) -> str:
    """What the policy computes: a bar for each choice, continuous actions, and the value."""
    if outlook is None:
        return text_html("This policy shows no probabilities.")
    lines = []
    for number, branch in enumerate(outlook.probabilities):
        shown = np.argsort(-branch[0], kind="stable")[:MOST_CHOICES]
        lines.append(text_html(f"Branch {number}"))
        lines += [
            bar_html(
                choice_name(names, number, choice),
                float(branch[0][choice]),
                f"{100 * branch[0][choice]:.0f} %",
            )
            # In the branch's own order: by probability, bars would change places all the time.
            for choice in sorted(shown)
        ]
        if len(shown) < branch.shape[1]:
            lines.append(text_html(f"... {branch.shape[1] - len(shown)} less likely"))
    if outlook.continuous.size:
        lines.append(text_html("Continuous, most likely"))
        lines += [
            bar_html(continuous_name(names, i, float(a)), abs(float(a)), f"{a:+.2f}")
            for i, a in enumerate(outlook.continuous[0])
        ]
    if outlook.value is not None:
        values = ", ".join(f"{value:.3f}" for value in outlook.value[0])
        lines.append(text_html(f"Value: {values}"))
    return "".join(lines)


def influences_html(found: Sequence[Influence], sensors: Sequence[str]) -> str:
    """How far the action moves without each sensor, and without the strongest parts."""

    def bar(one: Influence, label: str) -> str:
        return bar_html(label, one.effect, f"{100 * one.effect:.0f} %")

    wholes = [one for one in found if not one.part]
    parts = sorted((one for one in found if one.part), key=lambda one: -one.effect)
    lines = [bar(one, sensors[one.sensor]) for one in wholes]
    if parts:
        lines.append(text_html("Strongest parts"))
    for one in parts[:MOST_INFLUENCES]:
        of = f"{one.sensor}: " if len(wholes) > 1 else ""
        lines.append(bar(one, of + one.part))
    return "".join(lines)


def facts_html(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f"<span>{escape(name)}</span><span>{escape(value)}</span>"
        for name, value in facts
    )
    style = _STYLE.format(columns=2)
    return f'<div style="{style}">{rows}</div>'


def choice_name(names: ActionNames, branch: int, choice: int) -> str:
    """What a choice is called; its number where it has no name."""
    return names.branches[branch][choice] if names.branches else f"{choice}"


def continuous_name(names: ActionNames, index: int, value: float) -> str:
    """What a continuous action of this sign is called; its number where it has no name."""
    if not names.continuous:
        return f"{index}"
    plus, _, minus = names.continuous[index].partition(" / ")
    return minus if minus and value < 0 else plus


def bar_html(label: str, share: float, text: str) -> str:
    """A labeled bar of this share of the full width, and a text behind it."""
    width = 100.0 * min(max(share, 0.0), 1.0)
    return (
        '<div style="font:11px/1.5 ui-monospace,monospace;display:flex;gap:.5em;'
        f'padding:0 .75em"><span title="{escape(label)}" style="width:11em;overflow:hidden;'
        f'text-overflow:ellipsis;white-space:nowrap">{escape(label)}</span>'
        '<span style="flex:1;background:rgba(128,128,128,.15)">'
        f'<span style="display:block;height:100%;width:{width:.0f}%;'
        'background:rgba(13,148,136,.6)"></span></span>'
        f'<span style="width:4em;text-align:right">{escape(text)}</span></div>'
    )


def cards_html(cards: Sequence[tuple[str, str]]) -> str:
    """Titles with their content, in as many columns as there is room for."""
    shown = "".join(
        '<div style="border:1px solid rgba(128,128,128,.3);border-radius:6px;'
        f'padding-bottom:.5em"><b>{text_html(title)}</b>{content}</div>'
        for title, content in cards
    )
    columns = "repeat(auto-fit,minmax(min(260px,100%),1fr))"
    return (
        '<div style="display:grid;gap:.75em;padding:.75em;'
        f'grid-template-columns:{columns}">{shown}</div>'
    )


def text_html(text: str) -> str:
    return f'<div style="font-size:12px;padding:.3em .75em 0">{escape(text)}</div>'


class BoardRow(NamedTuple):
    color: str
    """Color of a team, as CSS names it; empty where it has none."""
    who: str
    plays: str
    """The policy."""
    won: str
    ended: str
    mean_return: str


_CELL = '<td style="padding-right:.8em;{}">{}</td>'
_WRAPS = ("white-space:nowrap", "overflow-wrap:anywhere", *["white-space:nowrap"] * 3)


def board_html(rows: Sequence[BoardRow], last: str) -> str:
    """A scoreboard: who plays by which policy, and how well; the last end below."""
    titles = ("", "plays", "won", "ended", "return")
    # Games have a column of their own only where there are any.
    shown = [
        i
        for i, title in enumerate(titles)
        if title != "won" or any(r.won for r in rows)
    ]
    head = "".join(
        f'<th style="text-align:left;font-weight:400;padding-right:.8em">{titles[i]}</th>'
        for i in shown
    )
    lines = []
    for row in rows:
        dot = f'<span style="color:{escape(row.color)}">&#9679;</span> '
        who = f"{dot if row.color else ''}<b>{escape(row.who)}</b>"
        cells = [who, *map(escape, row[2:])]
        lines += ["<tr>", *(_CELL.format(_WRAPS[i], cells[i]) for i in shown), "</tr>"]
    return (
        f'<div style="font-size:12px;padding:0 .75em .5em"><table style="border-spacing:0">'
        f"<tr>{head}</tr>{''.join(lines)}</table>{escape(last)}</div>"
    )
