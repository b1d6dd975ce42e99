"""How a key of the settings, or a parameter of a verb, appears on the command line."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """Annotation with what neither the name nor the type says; the help is written elsewhere."""

    name: str = ""
    """As typed, such as `--num-envs`; without hyphens, an argument. Empty: made of the key."""
    metavar: str | None = None
    """How help shows the value; None: by its type."""
    short: str | None = None
    """A second name, such as `-o`."""
    min: float | None = None
    """The smallest value that the parser takes."""
    max: float | None = None
    """The largest value that the parser takes."""
