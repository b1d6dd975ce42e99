"""Turns the function of a verb into a command.

Its parameters become flags: names and types say which, the docstring has the help. Three kinds of
parameters stand for more or for less:

- `env` without settings: ENV, and the flags that describe a world (`WORLD`);
- `settings`: every flag of the settings;
- `log`, `progress`, `watch`: no flag; the command line passes its own.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main

import touchline
from touchline.cli.output import log, show, show_json
from touchline.cli.progress import shown
from touchline.cli.signature import REQUIRED, Parameter, Signature, signature_of
from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.plugins import imported

if TYPE_CHECKING:
    from touchline.envs.env import EnvRecipe
    from touchline.training.config.flags import SettingFlag

PASSED = {"log", "progress", "watch"}
"""Parameters without a flag."""


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


@dataclass(frozen=True)
class Verb:
    """What a command does, and how its result is shown."""

    function: str
    """"module:function" of the Python call."""
    shell: str = ""
    """"module:function" that makes the call and shows the result, where that takes more than a
    line. Its parameters after the first, a `Call`, are further flags."""
    lines: str = ""
    """"module:function" that makes lines for people of the result; `--json` shows it whole."""
    unit: str = ""
    """What its progress counts."""
    made: tuple[str, ...] = ()
    """Parameters of the function without a flag, which `shell` makes of its own flags."""


@dataclass
class Call:
    """A call of a verb with what was typed."""

    name: str
    verb: Verb
    values: dict[str, Any]
    target: str
    """The first argument as typed."""
    world: Mapping[str, Any] | None = None
    """What was typed about the world; None for a verb without one."""

    @cached_property
    def recipe(self) -> EnvRecipe | None:
        """The world; raises a UsageError where the target is none."""
        if self.world is None:
            return None
        from touchline.envs.env import EnvRecipe

        return EnvRecipe.parse(self.target, **self.about_world)

    @property
    def about_world(self) -> dict[str, Any]:
        """What was typed about the world, as a recipe has it."""
        assert self.world is not None
        about = {name: v for name, v in self.world.items() if v is not None}
        return about | {"parameters": parameter_values(self.world["parameters"])}

    def __call__(self, **more: Any) -> Any:
        """Call the function, also with these arguments."""
        function = imported(self.verb.function)
        given = self.values | more
        if self.world is not None and "env" not in given:
            given["env"] = self.recipe
        if "log" in signature_of(self.verb.function).parameters:
            given.setdefault("log", log)
        return function(**given)

    def with_progress(self, **more: Any) -> Any:
        """Call the function while its progress is shown."""
        task = f"{self.name} {self.target}".rstrip()
        with shown(task, self.verb.unit, self.recipe) as progress:
            if "progress" in signature_of(self.verb.function).parameters:
                more.setdefault("progress", progress)
            result = self(**more)
        for name in ("picture", "record"):
            if self.values.get(name) is not None:
                log(f"wrote {self.values[name]}")
        return result


def show_result(call: Call, *, as_json: bool = False) -> None:
    """Call a verb with its progress shown, and show what it returns."""
    show_figures(call, call.with_progress(), as_json=as_json)


def show_figures(call: Call, result: Any, *, as_json: bool) -> None:
    """What a verb returned: whole, for programs, or the lines that people read of it."""
    if as_json or (result is not None and not call.verb.lines):
        show_json(result)
    elif result is not None:
        show("\n".join(imported(call.verb.lines)(result)))


def command_of(verb: Verb | str, name: str) -> Any:
    """The command of a verb, or of "module:app" with verbs of its own."""
    if isinstance(verb, str):
        group = typer.main.get_group(imported(verb))
        group.name = name
        return group
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(name)(_function_for_typer(verb, name))
    return typer.main.get_command(app)


def summary_of(verb: Verb | str) -> str:
    """The first paragraph of what help says about a verb, without building its command."""
    if isinstance(verb, str):
        callback = imported(verb).registered_callback
        text = inspect.cleandoc(callback.callback.__doc__ or "")
    else:
        text = signature_of(verb.function).about
    return " ".join(text.partition("\n\n")[0].split())


def _function_for_typer(verb: Verb, name: str) -> Callable[..., None]:
    """A function with one keyword for each flag, as Typer wants it."""
    signature = signature_of(verb.function)
    own = list(_keywords_of(signature, PASSED | {*verb.made}))
    extra = []
    if verb.shell:
        _, *parameters = signature_of(verb.shell).parameters.values()
        extra = [_keyword_of(parameter) for parameter in parameters]
    elif verb.lines:
        extra = [_keyword_of(Parameter("as_json", "bool", False, "", Flag()))]
    run = verb.shell

    def call(**given: Any) -> None:
        values = _values(signature, given)
        first = given[own[0].name] if own and _is_argument(own[0]) else None
        target = " ".join(first) if isinstance(first, list) else str(first or "")
        has_world = "env" in signature.parameters and not signature.takes_settings
        world = {key: given[key] for key in WORLD} if has_world else None
        shell = imported(run) if run else show_result
        shell(
            Call(name, verb, values, target, world),
            **{keyword.name: given[keyword.name] for keyword in extra},
        )

    keywords = {keyword.name: keyword for keyword in [*own, *extra]}
    call.__doc__ = signature.about
    # Typer reads kinds and defaults from the one, annotations from the other.
    call.__signature__ = inspect.Signature(list(keywords.values()))  # type: ignore[attr-defined]
    call.__annotations__ = {n: keyword.annotation for n, keyword in keywords.items()}
    return call


def _is_argument(keyword: inspect.Parameter) -> bool:
    return isinstance(keyword.annotation.__metadata__[0], typer.models.ArgumentInfo)


def _keywords_of(
    signature: Signature, left_out: set[str]
) -> Iterator[inspect.Parameter]:
    if signature.takes_settings:
        left_out |= _setting_names() | {"settings"}
    for parameter in signature.parameters.values():
        if parameter.name in left_out:
            continue
        yield _keyword_of(parameter)
        if parameter.name == "env":
            # The flags that describe a world, but for those that the function has itself.
            others = WORLD.keys() - signature.parameters.keys()
            yield from (_keyword_of(WORLD[name]) for name in WORLD if name in others)
    if signature.takes_settings:
        yield from _keywords_of_settings()


def _keyword_of(parameter: Parameter) -> inspect.Parameter:
    """The keyword for a parameter; what it lacks is what it is everywhere (`SHARED`)."""
    name = parameter.name
    shared = SHARED.get(name, Shared())
    flag = parameter.flag if parameter.flag != Flag() else shared.flag
    default = parameter.default
    if default is REQUIRED and parameter.kind.endswith("| None"):
        default = None  # such as the configuration of `tune`, before a file that must be given
    return _keyword(
        name,
        shared.kind or _kind_of(parameter.kind),
        default,
        _help_of(parameter),
        flag,
        shared.completion,
    )


def _kind_of(source: str) -> Any:
    """What Typer parses for a parameter of this type."""
    names = set(re.findall(r"\w+", source))
    for name, kind in KINDS.items():
        if name in names:
            return kind
    return Path if names & {"Path", "PathLike"} else str


def _help_of(parameter: Parameter) -> str:
    """The help of a flag: its own, that of another verb, or that of the key of this name."""
    if parameter.help and not (other := re.match(r"As in `(\w+)`", parameter.help)):
        return parameter.help
    shared = SHARED.get(parameter.name, Shared())
    if shared.help:
        return shared.help
    names = [other[1]] if parameter.help and other else ["evaluate", "train"]
    for name in names:
        place = f"{touchline._HOME[name]}:{name}"
        same = signature_of(place).parameters.get(parameter.name)
        if same is not None and same.help:
            return same.help
    # Reading the settings takes longer than all the rest.
    from touchline.training.config.flags import setting_flag

    return setting_flag("--" + parameter.name.replace("_", "-")).help


def _keyword(
    name: str,
    kind: Any,
    default: Any,
    text: str,
    flag: Flag = Flag(),  # noqa: B008 - it is frozen
    completion: Callable[[], list[str]] | None = None,
) -> inspect.Parameter:
    note: Any
    if flag.name and not flag.name.startswith("-"):
        note = typer.Argument(metavar=flag.name, help=text, autocompletion=completion)
    else:
        typed = flag.name or "--" + name.replace("_", "-")
        names = (typed,) if flag.short is None else (flag.short, typed)
        # -inf stands for no limit at all, which help need not show.
        is_shown = default != -math.inf
        note = typer.Option(
            *names,
            metavar=flag.metavar,
            help=text,
            min=flag.min,
            max=flag.max,
            show_default=is_shown,
        )
    if kind == list[str] and default is not REQUIRED:
        default = None  # the parser wants a list or nothing
    if default is None:
        kind = kind | None
    # Only a keyword may have no default after others that have one.
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, note],
    )


def _keywords_of_settings() -> Iterator[inspect.Parameter]:
    """A keyword for each flag of the settings, and hidden ones for those of older versions."""
    from touchline.training.config.flags import REMOVED_FLAGS, setting_flags

    for flag in setting_flags():
        yield _keyword_of_flag(flag)
    for name in REMOVED_FLAGS:
        option = typer.Option(name, hidden=True)
        yield inspect.Parameter(
            identifier(name),
            inspect.Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, option],
        )


def _keyword_of_flag(flag: SettingFlag) -> inspect.Parameter:
    # Values stay text: the settings read numbers as in a YAML, so that `--max-steps 5e5` works, and
    # word the errors.
    name = identifier(flag.name)
    if flag.kind is bool:
        return _keyword(name, bool, False, flag.help, Flag(flag.name))
    by_kind = {int: "INTEGER", float: "NUMBER"}.get(flag.kind, "TEXT")
    kind = list[str] if flag.kind is list else str
    option = Flag(flag.name, flag.metavar or by_kind)
    return _keyword(name, kind, None, flag.help, option)


def _setting_names() -> set[str]:
    from touchline.training.config.flags import setting_flags

    return {identifier(flag.name) for flag in setting_flags()}


def _values(signature: Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the function: what was typed, and what has a default."""
    values = {name: given[name] for name in signature.parameters if name in given}
    if signature.takes_settings:
        values["settings"] = _typed_settings(given)
    else:
        values.pop("env", None)
    required = {p.name for p in signature.parameters.values() if p.default is REQUIRED}
    # What was not typed is left to the function.
    return {
        name: value
        for name, value in values.items()
        if name in required or value not in (None, [])
    }


def _typed_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were typed; a line for each flag of older ML-Agents versions."""
    from touchline.training.config.flags import LOAD, REMOVED_FLAGS

    for name, instead in REMOVED_FLAGS.items():
        if given[identifier(name)]:
            log(f"{name} is no longer needed: {instead}")
    # What was not typed must not override the configuration.
    names = _setting_names()
    typed = {
        name: given[name] for name in names if given[name] not in (None, False, [])
    }
    if given[identifier(LOAD)]:
        typed["resume"] = True
    return typed


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
