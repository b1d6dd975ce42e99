"""The keyboard as a pair of hands: which keys do what in each scene, and how a page reports them.

Source of the mapping: the `Heuristic` methods of ML-Agents' example scenes (Release 22).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import NamedTuple


class Press(NamedTuple):
    """What a held key does."""

    is_continuous: bool
    number: int
    """Number of the continuous action, or of the branch."""
    value: float
    """What it is set to; the choice of a branch."""


Keys = Mapping[str, Press]
"""Presses by the key's place on a keyboard, as browsers name it (`KeyboardEvent.code`)."""


def _branch(index: int, choices: Mapping[str, int]) -> dict[str, Press]:
    return {code: Press(False, index, choice) for code, choice in choices.items()}


def _axis(index: int, plus: str, minus: str) -> dict[str, Press]:
    return {plus: Press(True, index, 1.0), minus: Press(True, index, -1.0)}


_CUBE = _branch(0, {"KeyW": 1, "KeyS": 2, "KeyD": 3, "KeyA": 4})
"""PushAgentBasic.cs, PushAgentEscape.cs, HallwayAgent.cs, PyramidAgent.cs"""
_THREE_WAYS = (
    _branch(0, {"KeyW": 1, "KeyS": 2})
    | _branch(1, {"KeyE": 1, "KeyQ": 2})
    | _branch(2, {"KeyA": 1, "KeyD": 2})
)
"""AgentSoccer.cs, SorterAgent.cs"""
_BALL = _axis(0, "KeyA", "KeyD") | _axis(1, "KeyW", "KeyS")
"""Ball3DAgent.cs: the negative of the horizontal axis, and the vertical axis"""

KEYS: Mapping[str, Keys] = {
    "3DBall": _BALL,
    "3DBallHard": _BALL,
    "Visual3DBall": _BALL,
    # BasicActuatorComponent.cs
    "Basic": _branch(0, {"KeyA": 1, "KeyD": 2}),
    "CooperativePushBlock": _CUBE,
    "DungeonEscape": _CUBE,
    # FoodCollectorAgent.cs
    "GridFoodCollector": _axis(0, "KeyW", "KeyS")
    | _axis(2, "KeyD", "KeyA")
    | _branch(0, {"Space": 1}),
    # GridAgent.cs
    "GridWorld": _branch(0, {"KeyW": 1, "KeyS": 2, "KeyA": 3, "KeyD": 4}),
    "Hallway": _CUBE,
    "PushBlock": _CUBE,
    "Pyramids": _CUBE,
    "SoccerTwos": _THREE_WAYS,
    "Sorter": _THREE_WAYS,
    "StrikersVsGoalie": _THREE_WAYS,
    # WallJumpAgent.cs
    "WallJump": _branch(0, {"KeyW": 1, "KeyS": 2})
    | _branch(1, {"KeyA": 1, "KeyD": 2})
    | _branch(3, {"Space": 1}),
}
"""Keys of each scene. Crawler, Walker, Worm and Match3 have no heuristic for hands."""
_ARROWS = {
    "ArrowUp": "KeyW",
    "ArrowDown": "KeyS",
    "ArrowLeft": "KeyA",
    "ArrowRight": "KeyD",
}
"""Unity's axes listen to both."""


def keys_of(scene: str) -> Keys:
    """The keys of a scene, arrows included; none where its agents have too many joints."""
    keys = KEYS.get(scene, {})
    arrows = {code: keys[letter] for code, letter in _ARROWS.items() if letter in keys}
    return {**keys, **arrows}


def listener_html(keys: Keys, field_label: str) -> str:
    """What makes a page write the held keys into the text field with this label.

    viser has no keyboard events. A script in a page's HTML runs from an image that fails to load,
    and React takes a value that is set through the element's own setter and announced.
    """
    script = _SCRIPT.replace("CODES", json.dumps(sorted(keys)))
    script = script.replace("LABEL", json.dumps(field_label))
    return script_html(script)


def no_listener_html() -> str:
    """What makes a page forget its keyboard."""
    return script_html("window.touchlineKeys?.remove()")


def script_html(script: str) -> str:
    """HTML that runs a script, which pages of viser would not do with a script element."""
    return f'<img alt="" style="display:none" src="data:," onerror="{escape(script)}">'


_SCRIPT = """
(() => {
  window.touchlineKeys?.remove();
  const codes = new Set(CODES), held = new Set();
  const field = () => {
    const labels = [...document.querySelectorAll('label')];
    let at = labels.find((label) => label.textContent === LABEL);
    while (at && !at.querySelector('input')) at = at.parentElement;
    return at?.querySelector('input');
  };
  const write = () => {
    const input = field();
    if (!input) return;
    const proto = HTMLInputElement.prototype;
    Object.getOwnPropertyDescriptor(proto, 'value').set.call(input, [...held].join(' '));
    input.dispatchEvent(new Event('input', {bubbles: true}));
  };
  const isTyping = (at) =>
    at.tagName === 'TEXTAREA' ||
    (at.tagName === 'INPUT' && !at.readOnly && !['checkbox', 'range'].includes(at.type));
  document.activeElement?.blur();
  const down = (event) => {
    const isCombined = event.ctrlKey || event.metaKey || event.altKey;
    if (!codes.has(event.code) || isCombined || isTyping(event.target)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (held.has(event.code)) return;
    held.add(event.code);
    write();
  };
  const up = (event) => { if (held.delete(event.code)) write(); };
  const blur = () => { if (held.size) { held.clear(); write(); } };
  window.addEventListener('keydown', down, true);
  window.addEventListener('keyup', up, true);
  window.addEventListener('blur', blur);
  window.touchlineKeys = {remove() {
    blur();
    window.removeEventListener('keydown', down, true);
    window.removeEventListener('keyup', up, true);
    window.removeEventListener('blur', blur);
  }};
})()
"""
