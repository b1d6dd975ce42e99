"""What a parameter's name means in every verb, where its annotation does not say it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from touchline.cli.signature import Parameter
from touchline.errors import UsageError
from touchline.flag import Flag


@dataclass(frozen=True)
class Shared:
    """How a parameter appears in every verb that has it."""

    flag: Flag = field(default_factory=Flag)
    kind: Any = None
    """What Typer parses; None: as its annotation says."""
    completion: Callable[[], list[str]] | None = None
    """What shell completion offers."""
    help: str = ""
    """What it is in verbs whose docstring does not say it."""


def _scene_names() -> list[str]:
    from touchline.scenes import SCENES

    return [*SCENES, "editor"]


def _preset_names() -> list[str]:
    from touchline.training.config.reading import preset_names

    return preset_names()


SHARED = {
    "env": Shared(Flag("ENV"), str, _scene_names),
    "target": Shared(Flag("ENV|RUN"), str, _scene_names),
    "config": Shared(Flag("CONFIG"), str, _preset_names),
    "policy": Shared(Flag("--policy", "[BEHAVIOR=]FILE")),
    "versus": Shared(Flag(metavar="FILE")),
    "deterministic": Shared(Flag("--deterministic/--stochastic")),
    "changes": Shared(Flag("--set", "A.B.C=VALUE"), list[str]),
    "record_wire": Shared(Flag(metavar="FILE.wire.gz")),
    "picture": Shared(Flag(metavar="FILE.png")),
    "num_areas": Shared(Flag(min=1)),
    "as_json": Shared(Flag("--json"), help="Figures as JSON instead of text."),
}
WORLD = {
    "seed": Parameter("seed", "int", 0, "Seed of all random numbers.", Flag()),
    "num_areas": Parameter("num_areas", "int", None, "", Flag()),
    "parameters": Parameter(
        "parameters",
        "Sequence",
        None,
        "Set an environment parameter.",
        Flag("--parameter", "NAME=VALUE"),
    ),
}
"""The flags that describe a world, besides ENV."""
KINDS = {
    "bool": bool,
    "Sequence": list[str],
    "Iterable": list[str],
    "int": int,
    "float": float,
}
"""Word in the source of a type -> what Typer parses; the first that is found counts."""


def parameter_values(texts: list[str] | None) -> Mapping[str, float]:
    """The environment parameters that `--parameter NAME=VALUE` sets."""
    values = {}
    for text in texts or []:
        name, _, value = text.partition("=")
        try:
            values[name] = float(value)
        except ValueError:
            raise UsageError(f"--parameter {text}: expected NAME=NUMBER") from None
    return values


def identifier(flag: str) -> str:
    """The name of a flag as a keyword."""
    return flag.removeprefix("--").replace("-", "_")
