"""Where text goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def log(line: str) -> None:
    """A line about what is going on."""
    # One write: `print` makes two, and another thread's line may come between them.
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def show(result: str) -> None:
    """A result for people."""
    print(result, flush=True)  # noqa: T201


def show_json(figures: Any) -> None:
    """A result for programs."""
    show(json.dumps(figures, indent=2))


def show_figures(
    figures: Mapping[str, Any],
    lines: Callable[[Mapping[str, Any]], Iterable[str]],
    *,
    as_json: bool,
) -> None:
    """Figures for programs, or the lines that people read of them."""
    if as_json:
        show_json(figures)
    else:
        show("\n".join(lines(figures)))
