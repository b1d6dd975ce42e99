"""Behaviors that a configuration names and a world does not have."""

import difflib
import re
from collections.abc import Iterable

from touchline.errors import UsageError
from touchline.training.config.settings import RunConfig

# Least similarity (difflib's) of a name that is suggested, and of one that must be meant:
# SmallWallJump and BigWallJump have 0.67, 3DBal and 3DBall 0.91.
_SIMILAR, _SAME_BUT_FOR_A_SLIP = 0.5, 0.8


def check_names(
    config: RunConfig, world: str, shown: Iterable[str], *, all_are_shown: bool
) -> None:
    """Refuse configured behaviors that a world does not have.

    `shown` are base names. Where a world may show further ones later, as Unity games do, only what
    must be a misspelling is refused.
    """
    known = list(dict.fromkeys(shown))
    cutoff = _SIMILAR if all_are_shown else _SAME_BUT_FOR_A_SLIP
    for name in config.behaviors:
        if name in known:
            continue
        near = _nearest(name, known, cutoff)
        if not all_are_shown and (near is None or _are_siblings(name, near)):
            continue
        hint = f"did you mean {near!r}? " if near else ""
        raise UsageError(
            f"{config.place(name)}: {world} has no such behavior; {hint}"
            f"it has: {', '.join(known)}"
        )


def _nearest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    by_lower_case = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[near[0]] if near else None


def _are_siblings(a: str, b: str) -> bool:
    # Agent1 and Agent2, or PlayerA and PlayerB, are two behaviors of a game and no slip.
    differ_at_the_end = len(a) == len(b) and a[:-1] == b[:-1]
    return differ_at_the_end or re.sub(r"\d", "", a) == re.sub(r"\d", "", b)
