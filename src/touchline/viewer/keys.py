"""The keyboard as a pair of hands: which keys do what in each scene, and how a page reports them.

Source of the mapping: the `Heuristic` methods of ML-Agents' example scenes (Release 22).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.scenes.scene import ActionNames
from touchline.specs import ActionSpec, ActionTuple
from touchline.viewer.sheet import choice_name, continuous_name


class Press(NamedTuple):
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
_ROWS = (("KeyQ", "KeyW", "KeyE"), ("KeyA", "KeyS", "KeyD"), ("Space",))
"""As they lie on a keyboard."""


def keys_of(scene: str) -> Keys:
    """The keys of a scene, arrows included; none where its agents have too many joints."""
    keys = KEYS.get(scene, {})
    arrows = {code: keys[letter] for code, letter in _ARROWS.items() if letter in keys}
    return {**keys, **arrows}


def meaning_of(press: Press, names: ActionNames) -> str:
    if press.is_continuous:
        return continuous_name(names, press.number, press.value)
    return choice_name(names, press.number, int(press.value))


def action_of(keys: Keys, held: Iterable[str], spec: ActionSpec) -> ActionTuple:
    """The action [1, ...] of these held keys; keys that oppose each other on an axis cancel."""
    action = spec.empty_action(1)
    for code in held:
        press = keys.get(code)
        if press is None:
            continue
        if press.is_continuous:
            action.continuous[0, press.number] += np.float32(press.value)
        else:
            action.discrete[0, press.number] = int(press.value)
    # A letter and its arrow, held together, would make 2.
    np.clip(action.continuous, -1.0, 1.0, out=action.continuous)
    return action


def allowed_action(
    action: ActionTuple, allowed: NDArray[np.bool_] | None, spec: ActionSpec
) -> ActionTuple:
    """The action [1, ...] with the first allowed choice where its own is forbidden now.

    `allowed` [choices of all branches] is the agent's mask, True = allowed.
    """
    if allowed is None:
        return action
    discrete = action.discrete.copy()
    first = 0
    for branch, size in enumerate(spec.discrete_branches):
        choices = allowed[first : first + size]
        if not choices[discrete[0, branch]]:
            discrete[0, branch] = int(np.argmax(choices))
        first += size
    return ActionTuple(action.continuous, discrete)


def with_own(actions: ActionTuple, slot: int, own: ActionTuple) -> ActionTuple:
    """The actions [N, ...] of a behavior's slots, with that of one slot replaced."""
    continuous, discrete = actions.continuous.copy(), actions.discrete.copy()
    continuous[slot] = own.continuous[0]
    discrete[slot] = own.discrete[0]
    return ActionTuple(continuous, discrete)


def keyboard_html(keys: Keys, names: ActionNames, held: Iterable[str]) -> str:
    """The keys drawn as on a keyboard, each with what it means; held ones are filled."""
    pressed = {_ARROWS.get(code, code) for code in held}
    rows = []
    for row in _ROWS:
        caps = "".join(
            _cap(code, meaning_of(keys[code], names), is_held=code in pressed)
            if code in keys
            else '<div style="flex:1;max-width:9em"></div>'  # W stays above S
            for code in row
        )
        if any(code in keys for code in row):
            rows.append(f'<div style="display:flex;gap:4px">{caps}</div>')
    return (
        '<div style="padding:.2em .75em .4em;display:flex;flex-direction:column;gap:4px">'
        f'{"".join(rows)}<div style="font-size:11px">Arrows work as W, A, S and D.</div>'
        "</div>"
    )


def _cap(code: str, meaning: str, *, is_held: bool) -> str:
    look = "background:#0d9488;color:#fff" if is_held else "background:transparent"
    return (
        f'<div data-key="{code}" style="flex:1;max-width:9em;border:1px solid #888;'
        f'border-radius:5px;padding:2px 5px;font-size:11px;line-height:1.25;{look}">'
        f"<b>{code.removeprefix('Key')}</b><br>{escape(meaning)}</div>"
    )


def listener_html(keys: Keys, field_label: str) -> str:
    """What makes a page write the held keys into the text field with this label.

    viser has no keyboard events. The page's own keys do nothing meanwhile, whatever has the focus.
    The field is hidden: it only carries the keys to the server. A script in a page's HTML runs from
    an image that fails to load, and React takes a value that is set through the element's own
    setter and announced.
    """
    script = _SCRIPT.replace("CODES", json.dumps(sorted(keys)))
    script = script.replace("LABEL", json.dumps(field_label))
    return script_html(script)


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
    if (at) at.style.display = 'none';
    return at?.querySelector('input');
  };
  const write = () => {
    const input = field();
    if (!input) return;
    const proto = HTMLInputElement.prototype;
    Object.getOwnPropertyDescriptor(proto, 'value').set.call(input, [...held].join(' '));
    input.dispatchEvent(new Event('input', {bubbles: true}));
  };
  document.activeElement?.blur();
  field();  // hides it at once
  const down = (event) => {
    const isCombined = event.ctrlKey || event.metaKey || event.altKey;
    if (!codes.has(event.code) || isCombined) return;
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
