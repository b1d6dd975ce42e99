"""Where text goes: results to standard output, everything else to standard error."""

import json
import sys
from dataclasses import asdict
from typing import Any

CONTROL = dict.fromkeys(
    [
        *(code for code in range(32) if chr(code) not in "\n\t"),
        *range(0x7F, 0xA0),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    ],
    "\N{REPLACEMENT CHARACTER}",
)
"""Characters that move a terminal's cursor, color its text, or turn the direction of writing: texts
of players, files and pages may hold them."""


def visible(text: str) -> str:
    """A text with its control characters replaced."""
    return text.translate(CONTROL)


def log(line: str) -> None:
    """A line about what is going on."""
    # One write: `print` makes two, and another thread's line may come between them.
    sys.stderr.write(visible(line) + "\n")
    sys.stderr.flush()


def show(result: str) -> None:
    """A result for people."""
    print(visible(result), flush=True)  # noqa: T201


def show_json(figures: Any) -> None:
    """A result for programs; dataclasses become their fields."""
    show(json.dumps(figures, indent=2, default=asdict))
