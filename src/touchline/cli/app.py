"""The verbs of the command line, and what becomes of their errors.

Exit codes: 0 done; 1 the run failed; 2 the call, a configuration or a file was wrong, or something
is not installed; 130 Ctrl-C. Heavy libraries load only in the verbs that use them.
"""

import errno
import os
import sys
import threading
from importlib.util import find_spec
from typing import Annotated, Any

import typer
import typer.core

from touchline.cli.generate import Verb, command_of, summary_of
from touchline.cli.output import log, show
from touchline.errors import MissingError, TouchlineError, UsageError
from touchline.extras import missing_extra
from touchline.interrupts import (
    INTERRUPTED,
    STOPPED_EARLY,
    end_at_once,
    handle_stops,
    raise_on_ctrl_c,
)
from touchline.operating_systems import let_streams_print_everything
from touchline.version import __version__

COMMANDS: dict[str, Verb | str] = {
    "train": Verb("touchline.training.start:train", "touchline.cli.train:train"),
    "tune": Verb("touchline.studies.tune:tune", "touchline.cli.results:tune"),
    "plan": Verb(
        "touchline.studies.plan:plan", lines="touchline.studies.plan:plan_lines"
    ),
    "eval": Verb(
        "touchline.training.evaluation:evaluate",
        "touchline.cli.results:evaluate",
        lines="touchline.training.evaluation_figures:evaluation_lines",
        unit="episodes",
    ),
    "tournament": Verb(
        "touchline.studies.tournament:tournament",
        lines="touchline.studies.tournament:tournament_lines",
        unit="games",
    ),
    "exploit": Verb(
        "touchline.studies.exploit:exploit",
        "touchline.cli.results:exploit",
        lines="touchline.studies.exploit:exploit_lines",
    ),
    "plot": Verb("touchline.studies.plot:plot", "touchline.cli.results:export"),
    "compare": Verb(
        "touchline.studies.compare:compare",
        lines="touchline.studies.compare:comparison_lines",
    ),
    "parity": Verb(
        "touchline.studies.parity:parity",
        "touchline.cli.results:parity",
        lines="touchline.studies.parity:parity_lines",
        unit="episodes",
        made=("reference",),
    ),
    "play": Verb(
        "touchline.film:play",
        "touchline.cli.results:play",
        unit="pictures",
        made=("size",),
    ),
    "view": Verb(
        "touchline.viewer.opening:view",
        "touchline.cli.results:view",
        unit="pictures",
        made=("about_world",),
    ),
    "record": Verb(
        "touchline.training.recording:record",
        "touchline.cli.results:record",
        unit="episodes",
    ),
    "inspect": Verb(
        "touchline.envs.inspection:describe", "touchline.cli.results:inspect"
    ),
    "doctor": Verb("touchline.doctor:examine", "touchline.cli.results:doctor"),
    "build": Verb("touchline.player:build", "touchline.cli.results:build"),
    "convert": Verb(
        "touchline.training.config.old_formats:convert", "touchline.cli.results:export"
    ),
    "export": Verb(
        "touchline.policies.files.onnx_out:export", "touchline.cli.results:export"
    ),
    "distill": Verb(
        "touchline.studies.distill:distill",
        lines="touchline.studies.distill:distill_lines",
        unit="decisions",
    ),
    "push": Verb("touchline.hub:push", "touchline.cli.results:push"),
    "pull": Verb("touchline.hub:pull", "touchline.cli.results:pull"),
    "scenes": Verb("touchline.scenes:list_scenes", "touchline.cli.results:scenes"),
    "bench": Verb("touchline.bench:run_bench", "touchline.cli.results:bench"),
}
"""Command -> its verb, or "module:app" with commands of its own; imported when used."""

if find_spec("touchline.microrts") is not None:
    COMMANDS["microrts"] = "touchline.microrts.commands:app"


RESUMABLE = ("train", "tune")
"""Verbs that save what they have done, and continue with it by --resume."""

FIRST_COMMANDS = f"""\
touchline {__version__}: train the agents of Unity ML-Agents games, with or without Unity.

Three commands to try:

  touchline train 3DBall
      let 128 agents learn to balance a ball, without Unity, in some ten seconds
  touchline view 3DBall --policy results/3DBall
      watch them in the browser; results/3DBall/3DBall.onnx is the model for Unity
  touchline doctor game.x86_64
      check the connection to your own Unity build, and say what is wrong with it

All commands: touchline --help    One of them: touchline train --help"""


class _Verbs(typer.core.TyperGroup):
    """The verbs of `COMMANDS`; what a verb imports is imported when the verb is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # The parser suggests these names for a misspelled verb. `get_command` looks a verb up.
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the parser passes it
        return (
            command_of(COMMANDS[cmd_name], cmd_name) if cmd_name in COMMANDS else None
        )

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as above
        # Building the command of `train` imports the settings, which takes longer than all the
        # rest of this help.
        rows = [(name, summary_of(verb)) for name, verb in COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


app = typer.Typer(
    name="touchline",
    cls=_Verbs,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        show(f"touchline {__version__}")
        raise typer.Exit


@app.callback()
def _touchline(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Train the agents of Unity ML-Agents games from modern Python, with or without Unity."""


def main() -> None:
    # pydantic looks for plugins in every installed package otherwise, which takes 20 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    # Before torch is imported: networks this small get slower with more threads, and waiting
    # threads spin.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    let_streams_print_everything()
    threading.excepthook = _print_thread_error
    raise_on_ctrl_c(resumes=sys.argv[1:2] in [[verb] for verb in RESUMABLE])
    code = run(sys.argv[1:])
    # All is saved; while Python ends, an exception would be a traceback.
    handle_stops(end_at_once)
    sys.exit(code)


def _print_thread_error(failure: threading.ExceptHookArgs) -> None:
    """Print what failed in a thread, except in TensorBoard's writer."""
    # Its errors are raised again where the next figure is written.
    if not type(failure.thread).__module__.startswith("tensorboard."):
        threading.__excepthook__(failure)


def run(arguments: list[str]) -> int:
    # With this variable set, a shell asks what may come next.
    if not arguments and "_TOUCHLINE_COMPLETE" not in os.environ:
        show(FIRST_COMMANDS)  # before the parser, which would load pydantic first
        return 0
    try:
        # Otherwise Typer would exit by itself, with its own codes and texts.
        code = app(_with_env_args(arguments), standalone_mode=False)
    except (UsageError, ModuleNotFoundError) as error:
        wrong: Exception | None = error
        if isinstance(error, ModuleNotFoundError):
            wrong = missing_extra(error, arguments[0])
            if wrong is None:
                raise
        if not isinstance(wrong, MissingError):
            return _fail(error, 2)
        # It reads the names of all scenes.
        from touchline.cli.missing import with_all_extras

        return _fail(with_all_extras(str(wrong), arguments), 2)
    except TouchlineError as error:
        return _fail(error, 1)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = (
            "; what was saved before is whole: free some space, then --resume continues"
        )
        saves = is_full and arguments[0] in RESUMABLE
        return _fail(f"{error}{advice if saves else ''}", 1)
    except Exception as error:
        # Only the parser's own exceptions have this method.
        if not hasattr(error, "format_message"):
            raise
        return _fail(error.format_message(), 2)  # the parser's own: a wrong call
    return _exit_code(code, arguments[0])


def _exit_code(code: object, verb: str) -> int:
    """The exit code of what a verb returned or the parser made."""
    if code == INTERRUPTED and verb in RESUMABLE:
        # Outside of a run, which ends as one that was stopped early.
        log("touchline: stopped before the run began; what was saved before is whole")
    if code == STOPPED_EARLY:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _with_env_args(arguments: list[str]) -> list[str]:
    """`--env-args a -b` as `--env-args=a --env-args=-b`: all that follows goes to the player."""
    if "--env-args" not in arguments:
        return arguments
    at = arguments.index("--env-args")
    return arguments[:at] + [
        f"--env-args={argument}" for argument in arguments[at + 1 :]
    ]


def _fail(error: BaseException | str, code: int) -> int:
    """Print what went wrong as one line; lines that are quoted, as a player's log, stay lines."""
    text, _, quoted = str(error).partition(":\n    ")
    line = "touchline: " + " ".join(text.split())
    log(f"{line}:\n    {quoted}" if quoted else line)
    return code
