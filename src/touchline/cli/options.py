"""Arguments and flags that several verbs share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from touchline.cli.generate import Setting
from touchline.errors import UsageError

if TYPE_CHECKING:
    from touchline.envs.env import EnvRecipe


def scene_names() -> list[str]:
    """What shell completion offers for ENV."""
    from touchline.scenes import SCENES

    return [*SCENES, "editor"]


Env = Annotated[
    str,
    typer.Argument(
        metavar="ENV",
        help=(
            "A scene's name (3DBall), a Unity player's path, `editor`, a recording (*.wire.gz) or "
            "microrts:MAP."
        ),
        autocompletion=scene_names,
    ),
]
Policies = Annotated[
    list[str],
    typer.Option(
        "--policy",
        metavar="[BEHAVIOR=]FILE",
        help=(
            "A run folder, a checkpoint, an ONNX file, `random`, `zero`, or `greedy` (Match3). "
            "Repeat it for several behaviors."
        ),
    ),
]
Areas = Annotated[int | None, Setting("--num-areas", min=1)]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic/--stochastic",
        help="Take the most likely action, or sample.",
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter", metavar="NAME=VALUE", help="Set an environment parameter."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Figures as JSON instead of text.")
]
RecordWire = Annotated[
    Path | None,
    typer.Option(
        "--record-wire",
        metavar="FILE.wire.gz",
        help="Record the session with a Unity player, to replay it.",
    ),
]


@dataclass(frozen=True)
class UnityReference:
    """The flags that say with what of Unity a scene is compared."""

    player: Annotated[
        str | None,
        typer.Option(
            "--env", metavar="PLAYER", help="The Unity player to compare with."
        ),
    ] = None
    statistics: Annotated[
        Path | None,
        typer.Option(
            "--statistics",
            metavar="FILE.json",
            help="Figures to compare with, written by --save.",
        ),
    ] = None
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE.json",
            help="Save the player's figures for --statistics.",
        ),
    ] = None

    def source(self) -> str | Path | None:
        """What was given; raises a UsageError for both."""
        if self.player is not None and self.statistics is not None:
            raise UsageError("give --env or --statistics to compare with, not both")
        if self.statistics is not None and self.statistics.suffix != ".json":
            raise UsageError(
                f"--statistics {self.statistics}: expected a file NAME.json"
            )
        return self.player or self.statistics


@dataclass(frozen=True)
class World:
    """The flags that describe a world."""

    env: Env
    seed: Seed = 0
    num_areas: Areas = None
    parameters: Parameters = None

    def recipe(self) -> EnvRecipe:
        """The world that these flags describe."""
        from touchline.envs.env import EnvRecipe

        values = parameter_values(self.parameters)
        return EnvRecipe.parse(
            self.env, num_areas=self.num_areas, seed=self.seed, parameters=values
        )


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
