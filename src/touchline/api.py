"""One Python call for each thing that the command line does, with the same errors.

| verb | call |
| --- | --- |
| train | `touchline.train`, with several seeds `touchline.train_seeds` |
| tune | `touchline.tune` |
| plan | `touchline.plan` |
| eval | `touchline.evaluate`, with opponents `touchline.evaluate_opponents` |
| tournament | `touchline.tournament` |
| exploit | `touchline.exploit` |
| parity | `touchline.parity` |
| play | `touchline.play` |
| view | `touchline.view` |
| record | `touchline.record` |
| inspect | `touchline.inspect`, as text `touchline.describe` |
| inspect x.demo | `touchline.inspect_demonstration`, `touchline.film_demonstration` |
| export | `touchline.export` |
| push | `touchline.push` |
| pull | `touchline.pull` |
| doctor | `touchline.doctor.examine`; for a run `touchline.doctor.findings` |
| build | `touchline.player.build` |
| scenes | `touchline.scenes.list_scenes` |
| bench | `touchline.bench.run_bench` |

Every ENV is a text as on the command line, or an `EnvRecipe`, which also holds areas, parameters
and options. Heavy libraries load in the calls that use them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict, cast

from touchline.errors import UsageError
from touchline.extras import explain_missing
from touchline.log import Log, Progress, no_progress

if TYPE_CHECKING:
    from touchline.envs.env import EnvRecipe
    from touchline.studies.plan import Plan
    from touchline.studies.seeds import SeedsResult
    from touchline.studies.tune_report import TuneResult
    from touchline.training.config.settings import RunConfig
    from touchline.training.run.progress import Watch
    from touchline.training.run.result import TrainingResult

PolicySource = str | os.PathLike[str]
"""`[BEHAVIOR=]FILE`: a run folder, a checkpoint, an ONNX file, `random`, `zero`, or
`greedy` (Match3)."""
RUN_ID = "checkpoint_settings.run_id"
SEED = "env_settings.seed"
WAITING = "waiting for the Editor on port 5004: press Play"


class GameFigures(TypedDict):
    """Results of whole games of groups, from the side of the evaluated team."""

    played: int
    decided: int
    won: int
    lost: int
    interrupted: int
    mean_length: float


class BehaviorFigures(TypedDict):
    """Figures of one behavior."""

    episodes: int
    mean_return: float
    std_return: float
    ci95: list[float]
    """[low, high]: the 95 % interval of the mean return."""
    mean_length: float
    """In decisions."""
    mean_group_return: float
    games: GameFigures | None


class Evaluation(BehaviorFigures):
    """Figures of an evaluation; those of the first behavior at the top level."""

    scene: str
    policy: str
    seed: int
    agent_steps_per_s: float
    behaviors: dict[str, BehaviorFigures]
    """By base name."""
    opponents: NotRequired[dict[str, Any]]
    """By opponent, in worlds of games against named opponents."""


class EntrantFigures(TypedDict):
    """Figures of one entrant of a tournament."""

    name: str
    rating: float
    """On Elo's scale; the mean of all entrants is 1200."""
    rating_ci95: list[float]
    """[low, high]: the 95 % interval of its distance to the mean."""
    games: int
    won: int
    drawn: int
    lost: int
    score: float
    """Games won and half of those drawn, per game."""


class Upset(TypedDict):
    """An entrant that loses to one rated lower, beyond chance."""

    rated_higher: str
    loses_to: str
    score: float
    score_ci95: list[float]
    games: int


class TournamentFigures(TypedDict):
    """Results of a tournament."""

    scene: str
    seed: int
    games_per_pair: int
    decisions: int
    """Actions of all agents."""
    entrants: list[EntrantFigures]
    """The best first."""
    matrix: list[list[list[int] | None]]
    """Games won, drawn and lost of the row's entrant against the column's, in that order."""
    upsets: list[Upset]
    """Empty where the order is transitive."""


class ExploitFigures(TypedDict):
    """Figures of an opponent against the policy that it was trained against."""

    scene: str
    policy: str
    run: str
    """Folder of the opponent's run."""
    steps: dict[str, int]
    """Agent steps that it learned for, by behavior."""
    games: int
    won: int
    drawn: int
    lost: int
    win_rate: float
    win_rate_ci95: list[float]
    decided: int
    """Games that were not drawn."""
    win_rate_of_decided: float
    win_rate_of_decided_ci95: list[float]


@dataclass(frozen=True)
class RunRequest:
    """A run that is configured, not yet started."""

    config: RunConfig
    preset: str | None = None
    """The preset that it was made from, which names its scene."""
    notes: tuple[str, ...] = ()
    """Lines for people about the configuration."""


def read_run(
    config: str | os.PathLike[str] | None,
    changes: Mapping[str, Any] | Iterable[str] = (),
    overrides: Mapping[str, Any] | None = None,
    *,
    of_several: bool = False,
) -> RunRequest:
    """Read the configuration of a run.

    `config` and `changes` are those of `train`; `overrides` are dotted keys from the command line,
    which win; `of_several` is that of `read_config`. Raises a UsageError that names the place of
    the first mistake.
    """
    from touchline.training.config.reading import about_preset, is_file, read_config

    source = None if config is None else os.fspath(config)
    changes = changes if isinstance(changes, Mapping) else list(changes)
    overrides = dict(overrides or {})
    preset = None if source is None or is_file(source) else source
    if preset is not None and not _is_changed(RUN_ID, changes):
        # A run is named after its preset; ML-Agents' default, "ppo", would put runs of
        # different scenes into one folder.
        overrides.setdefault(RUN_ID, preset)
    notes: list[str] = []
    settings = read_config(
        source, changes, overrides, notes.append, of_several=of_several
    )
    if source is None:
        notes.append("no CONFIG: every behavior is trained with ML-Agents' defaults")
    elif preset is not None:
        notes.append(f"preset {preset}: {about_preset(preset)}")
    return RunRequest(settings, preset, tuple(notes))


@explain_missing("training")
def start_run(
    request: RunRequest,
    *,
    record_wire: Path | None = None,
    to_wandb: bool = False,
    log: Log = print,
    watch: Watch | None = None,
) -> TrainingResult:
    """Train, or only act with `inference`, as `train` does; `watch` follows the training."""
    from touchline.training.inference import act_only
    from touchline.training.run.progress import unwatched
    from touchline.training.run.result import TrainingResult
    from touchline.training.trainer import train as run_training
    from touchline.training.world import recipe_of

    settings, notes = request.config, list(request.notes)
    recipe = _with_recorded_wire(
        recipe_of(settings, request.preset, notes.append), record_wire
    )
    if recipe.is_editor:
        notes.append(WAITING)
    if settings.checkpoint_settings.inference:
        act_only(settings, recipe, log, notes)
        folder = settings.checkpoint_settings
        return TrainingResult(Path(folder.results_dir, folder.run_id), False, {})
    watch = watch or unwatched
    return run_training(settings, recipe, log, notes, to_wandb=to_wandb, watch=watch)


def train(
    config: str | os.PathLike[str] | None = None,
    *,
    env: str | None = None,
    run_id: str | None = None,
    resume: bool = False,
    changes: Mapping[str, Any] | Iterable[str] = (),
    record_wire: Path | None = None,
    to_wandb: bool = False,
    log: Log = print,
) -> TrainingResult:
    """Train the behaviors of a world until their steps are done, or until Ctrl-C.

    Parameters
    ----------
    config
        A preset's name (`3DBall`) or the path of an ML-Agents YAML; None: ML-Agents' defaults.
    env
        The world as ENV on the command line; None: that of the configuration.
    run_id
        Name of the run; None: that of the configuration or the preset.
    resume
        Continue the run of this name.
    changes
        Dotted keys and their values, or `a.b.c=value` texts as `--set` takes them. A star stands
        for every behavior: `{"behaviors.*.max_steps": 100_000}`.
    record_wire
        Record the session with a Unity player into this file (`*.wire.gz`).
    to_wandb
        Log to Weights & Biases, too.
    log
        Gets the lines that the command line prints.

    Raises
    ------
    UsageError
        The configuration, the world or a file is wrong, or something is not installed.
    RunError
        The run failed; what was learned is saved.
    """
    overrides = _given("train", config, env, run_id, resume=resume)
    request = read_run(config, changes, overrides)
    return start_run(request, record_wire=record_wire, to_wandb=to_wandb, log=log)


@explain_missing("training")
def train_seeds(
    config: str | os.PathLike[str] | None,
    seeds: str | Iterable[int],
    *,
    env: str | None = None,
    run_id: str | None = None,
    resume: bool = False,
    changes: Mapping[str, Any] | Iterable[str] = (),
    to_wandb: bool = False,
    log: Log = print,
) -> SeedsResult:
    """Train a run for each of several seeds, one process each, and summarize them.

    As many run at once as there are cores; with `cluster_settings.cluster` and without collectors,
    on the nodes of that cluster, as many as it has processors for. Run N is that of `train` with
    the seed N, bit for bit; its folder is `seed-N` below that of `run_id`.

    Parameters
    ----------
    seeds
        Numbers, or a text such as `0-4` or `0,3,7`.
    resume
        Continue the seeds that are not done.
    config, env, run_id, changes, to_wandb, log
        As in `train`.

    Raises
    ------
    UsageError
        As `train`, before anything is written; also for seeds that make no sense.
    RunError
        The processes of some seeds failed; the others are done, and their figures written.
    """
    from touchline.studies.seeds import parse_seeds

    parsed, changes = parse_seeds(seeds), _listed(changes)
    overrides = _given("train", config, env, run_id, resume=resume)
    if _is_changed(SEED, changes):
        raise UsageError("a seed and several seeds are given: leave one of them out")
    request = read_run(config, changes, overrides, of_several=True)
    return start_seeds(request, parsed, to_wandb=to_wandb, log=log)


@explain_missing("training")
def start_seeds(
    request: RunRequest,
    seeds: Sequence[int],
    *,
    to_wandb: bool = False,
    log: Log = print,
) -> SeedsResult:
    """Train a configured run with several seeds, as `train_seeds` does."""
    from touchline.studies.seeds import train_seeds as train_all

    for note in request.notes:
        log(note)
    return train_all(request.config, seeds, request.preset, log, to_wandb=to_wandb)


def tune(
    config: str | os.PathLike[str] | None,
    space: str | os.PathLike[str],
    trials: int = 30,
    *,
    env: str | None = None,
    run_id: str | None = None,
    resume: bool = False,
    changes: Mapping[str, Any] | Iterable[str] = (),
    log: Log = print,
) -> TuneResult:
    """Search for settings by trials, each a run in a process of its own, and rank them.

    As many run at once as there are cores; those with poor learning curves are stopped early. The
    run of trial N is `trial-N` below the folder of `run_id`, which is `tune-` and the
    configuration's name by default. There are also a table, the importance of each key as a
    picture, and the best settings as a YAML.

    Parameters
    ----------
    space
        A YAML file: dotted keys, each with `choices`, or with `low`, `high` and maybe `log` or
        `step`.
    trials
        How many there are in the end, those of earlier sessions included.
    resume
        Continue a search, with the runs of its open trials.
    config, env, run_id, changes, log
        As in `train`.

    Raises
    ------
    UsageError
        As `train`, before anything is written; also for a wrong space.
    RunError
        Several trials in a row failed.
    """
    overrides = _given("tune", config, env, run_id, resume=resume)
    return start_tuning(
        config, space, trials, changes=changes, overrides=overrides, log=log
    )


@explain_missing("tuning")
def start_tuning(
    config: str | os.PathLike[str] | None,
    space: str | os.PathLike[str],
    trials: int,
    *,
    changes: Mapping[str, Any] | Iterable[str] = (),
    overrides: Mapping[str, Any] | None = None,
    log: Log = print,
) -> TuneResult:
    """Search for settings as `tune` does; `overrides` are those of `read_run`."""
    from touchline.studies.tune import tune as search

    changes, keys = _listed(changes), dict(overrides or {})
    if RUN_ID not in keys and not _is_changed(RUN_ID, changes):
        # Beside the runs of the configuration itself, not in place of them.
        keys[RUN_ID] = f"tune-{Path(config or 'ppo').stem}"
    request = read_run(config, changes, keys, of_several=True)
    for note in request.notes:
        log(note)

    def read(tried: Mapping[str, Any]) -> RunConfig:
        return read_run(config, changes, {**keys, **tried}, of_several=True).config

    return search(read, Path(space), trials, request.preset, log)


def plan(
    config: str | os.PathLike[str] | None,
    *,
    env: str | None = None,
    changes: Mapping[str, Any] | Iterable[str] = (),
) -> Plan:
    """Measure a run for about ten seconds; compute what limits it, how long it takes, what helps.

    Nothing is written. Parameters and errors are those of `train`.
    """
    overrides = _given("plan", config, env)
    return start_plan(read_run(config, changes, overrides))


@explain_missing("planning")
def start_plan(request: RunRequest) -> Plan:
    """Plan a configured run, as `plan` does."""
    from touchline.log import silent
    from touchline.studies.plan import plan as measure_and_compute
    from touchline.training.file_check import check_files
    from touchline.training.world import recipe_of

    check_files(request.config)
    recipe = recipe_of(request.config, request.preset, silent)
    return measure_and_compute(request.config, recipe)


@explain_missing("evaluating")
def evaluate(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource],
    *,
    versus: PolicySource | None = None,
    episodes: int = 100,
    deterministic: bool = False,
    seed: int = 0,
    record_wire: Path | None = None,
    progress: Progress = no_progress,
) -> Evaluation:
    """Evaluate a policy over the same number of episodes for each agent, or games for each group.

    Parameters
    ----------
    policy
        One source for every behavior that it fits, or several `BEHAVIOR=FILE`.
    versus
        The policy of the other team; the figures are those of the first team.
    episodes
        Episodes per behavior; games where there are groups.
    deterministic
        Act with the most likely action instead of sampling.
    record_wire
        Record the session with a Unity player into this file (`*.wire.gz`).
    progress
        Called after every step with the episodes (games) that are done, and their total.

    Raises
    ------
    UsageError
        The world cannot be opened, or a policy cannot be loaded or does not fit.
    RunError
        No episode ends, or a player failed.
    """
    from touchline.envs.env import EnvRecipe, GameReporting, make
    from touchline.envs.slots import Slots
    from touchline.policies.sides import load_sides, two_sides
    from touchline.policies.trained_world import as_trained
    from touchline.training.evaluation import evaluate as measure

    recipe, sources = replace(EnvRecipe.parse(env), seed=seed), _sources(policy)
    recipe = as_trained(recipe, [*sources, *_sources(versus or ())])
    with make(_with_recorded_wire(recipe, record_wire)) as world:
        slots = Slots(world)
        slots.reset(seed)  # Unity announces its behaviors with the first exchange
        own = None
        if versus is not None:
            own, _ = two_sides(slots.behaviors, recipe.target)
        sides = sources, _sources(versus or ()), slots, recipe.target
        actors = load_sides(*sides, deterministic=deterministic, seed=seed)
        figures = measure(slots, actors, episodes, seed, own, progress)
        if isinstance(world, GameReporting):
            figures |= world.game_figures(episodes)
    scene = env if isinstance(env, str) else recipe.target
    return cast("Evaluation", {"scene": scene, "policy": ", ".join(sources), **figures})


@explain_missing("evaluating")
def evaluate_opponents(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource],
    opponents: Sequence[str],
    *,
    episodes: int = 100,
    deterministic: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Play `episodes` games against each named opponent of a world, such as MicroRTS' bots.

    Returns `seed`, `episodes`, `opponents` (name -> figures) and `total`. Raises a UsageError for a
    world without named opponents.
    """
    from touchline.envs.env import EnvRecipe
    from touchline.policies.trained_world import as_trained

    recipe = replace(EnvRecipe.parse(env), seed=seed)
    module, _, function = recipe.kind.opponents.partition(":")
    if not module:
        raise UsageError(f"{recipe.target} has no opponents with names")
    # Only a string names the module, because the core never imports the wing that plays such
    # games.
    play_all = getattr(import_module(module), function)
    sources = _sources(policy)
    table: dict[str, Any] = play_all(
        as_trained(recipe, sources),
        sources,
        list(opponents),
        episodes,
        seed,
        deterministic=deterministic,
        progress=progress,
    )
    return table


@explain_missing("a tournament")
def tournament(
    env: str | EnvRecipe,
    policies: Sequence[PolicySource],
    *,
    games: int = 200,
    deterministic: bool = False,
    seed: int | None = None,
    picture: Path | str | None = None,
    processes: int | str | None = None,
    progress: Progress = no_progress,
) -> TournamentFigures:
    """Rate policies by games of each against each, half of them with sides exchanged.

    Parameters
    ----------
    policies
        The entrants: each a source as in `evaluate`, or `Striker=a.onnx,Goalie=b.onnx`.
    games
        Games of each pair, half of them in each seat.
    seed
        The same seed gives the same figures; None: that of the recipe.
    picture
        Draw ratings and matrix into this PNG file.
    processes
        Matches at the same time; None: one per core. They are spawned, unless it is 1, so a script
        calls this below `if __name__ == "__main__":`. A text is a Ray cluster whose nodes play:
        `local:N`, `auto` or `HOST:PORT`.
    progress
        Called with the games that are done, and their total.

    Raises
    ------
    UsageError
        Fewer than two entrants, a world without two teams, a policy that does not fit, or a picture
        that cannot be written.
    RunError
        No game ends, or a policy gives an action that is not a number.
    """
    from touchline.envs.env import EnvRecipe
    from touchline.policies.trained_world import as_trained
    from touchline.studies import tournament as study
    from touchline.studies.matches import sources_of

    _check_picture(picture)
    recipe, entrants = EnvRecipe.parse(env), _sources(policies)
    recipe = recipe if seed is None else replace(recipe, seed=seed)
    sources = [s for entrant in entrants for s in sources_of(entrant)]
    recipe = as_trained(recipe, sources)
    figures = study.tournament(
        recipe,
        entrants,
        games,
        deterministic=deterministic,
        processes=None if isinstance(processes, str) else processes,
        cluster=processes if isinstance(processes, str) else None,
        progress=progress,
    )
    if picture is not None:
        study.draw_tournament(figures, Path(picture))
    return cast("TournamentFigures", figures)


@explain_missing("exploiting")
def exploit(
    config: str | os.PathLike[str],
    policy: PolicySource,
    *,
    games: int = 200,
    changes: Mapping[str, Any] | Iterable[str] = (),
    overrides: Mapping[str, Any] | None = None,
    log: Log = print,
    progress: Progress = no_progress,
) -> ExploitFigures:
    """Train a new opponent against a fixed policy, and measure how often it wins.

    Parameters
    ----------
    config
        Settings of the opponent: a preset's name or a YAML, as in `train`.
    policy
        A source as in `evaluate`, or `Striker=a.onnx,Goalie=b.onnx`.
    games
        Games to measure the result with, half of them in each seat.
    changes
        As in `train`. Without `max_steps` among them, the opponent learns for a tenth of the
        settings' steps.
    overrides
        Dotted keys and their values, which win over `changes`.
    log
        Gets the lines of the training.
    progress
        Called with the games that are done, and their total.

    Raises
    ------
    UsageError
        The configuration, the world or the policy is wrong, or the run exists.
    RunError
        The run failed, or no game ends.
    KeyboardInterrupt
        Ctrl-C ended the training, with everything saved.
    """
    from touchline.policies.trained_world import as_trained
    from touchline.studies.exploit import exploitability
    from touchline.studies.matches import sources_of
    from touchline.training.world import recipe_of

    (source,) = _sources(policy)
    request = _exploiter(os.fspath(config), source, _listed(changes), overrides or {})
    result = start_run(request, log=log)
    if result.interrupted:
        same = f"the same command with --resume --run-id {result.folder.name}"
        log(f"stopped early, all is saved; to continue: {same}")
        # Figures of an opponent that has not learned for its whole budget would mislead.
        raise KeyboardInterrupt
    recipe = recipe_of(request.config, request.preset)
    # In ML-Agents' settings -1 means a random seed; a measurement should be repeatable.
    recipe = replace(recipe, seed=max(request.config.env_settings.seed, 0))
    recipe = as_trained(recipe, sources_of(source))
    figures = exploitability(recipe, str(result.folder), source, games, progress)
    steps_of = {name: trained.steps for name, trained in result.behaviors.items()}
    about = {"run": str(result.folder), "steps": steps_of}
    return cast("ExploitFigures", {**figures, **about})


@explain_missing("parity")
def parity(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource],
    *,
    reference: str | Path | EnvRecipe | None = None,
    save: Path | str | None = None,
    episodes: int = 100,
    deterministic: bool = False,
    picture: Path | str | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Compare a scene with Unity: the same policy plays in both.

    The keys are those of `touchline parity --json` (`docs/unity.md`, "Comparing a scene with
    Unity").

    Parameters
    ----------
    policy
        As in `evaluate`.
    reference
        A Unity player, which gets the seed after that of `env`, or a file of figures (`*.json`).
        None: figures from Unity that are stored for this scene and policy, else the policy's
        normalizer.
    save
        Keep the player's figures in this file.
    episodes
        Per behavior and world; games where there are groups.
    picture
        Draw all differences into this PNG file.
    progress
        Called often with the episodes that are done, and their total.

    Raises
    ------
    UsageError
        Nothing to compare with, what does not fit together, or a picture that cannot be written.
    RunError
        No episode ends, or the player failed.
    """
    from touchline.envs.env import EnvRecipe
    from touchline.policies.trained_world import as_trained
    from touchline.studies.parity import draw_parity, reference_recipe
    from touchline.studies.parity import parity as compare

    _check_picture(picture)
    sources = _sources(policy)
    recipe = as_trained(EnvRecipe.parse(env), sources)
    settings: dict[str, Any] = {"episodes": episodes, "deterministic": deterministic}
    if isinstance(reference, str | Path) and str(reference).endswith(".json"):
        settings["statistics"] = Path(reference)
    elif reference is not None:
        name = str(reference) if isinstance(reference, Path) else reference
        settings["player"] = reference_recipe(recipe, EnvRecipe.parse(name))
    if save is not None:
        settings["save"] = Path(save)
    figures = compare(recipe, sources, progress=progress, **settings)
    if picture is not None:
        draw_parity(figures, Path(picture))
    return figures


def _check_picture(picture: Path | str | None) -> None:
    """Refuse a picture that cannot be written before games are played for it."""
    if picture is None:
        return
    path = Path(picture)
    if path.suffix != ".png":
        raise UsageError(f"{path}: expected a file name that ends in .png")
    # Missing folders are made when the picture is drawn.
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UsageError(
            f"{path}: cannot be written: {folder} is no folder that you may write to"
        )


class Sides(NamedTuple):
    """One policy for the lowest team, and one for all others."""

    policy: PolicySource | Sequence[PolicySource]
    versus: PolicySource | Sequence[PolicySource] = ()


def _check_film(recipe: EnvRecipe, record: Path | str | None) -> None:
    """Scenes need a file to be filmed into; players have a window instead."""
    if recipe.kind.is_player and record is not None:
        raise UsageError(
            f"{recipe.target} draws in its own window and cannot be recorded from here; "
            "leave --record away"
        )
    if not recipe.kind.is_player and record is None:
        raise UsageError(
            f"{recipe.target} has no window: say where to film it, --record FILE.mp4"
        )


@explain_missing("playing")
def play(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource] | Sides,
    *,
    record: Path | str | None = None,
    seconds: float = 20.0,
    area: int = 0,
    size: tuple[int, int] = (640, 480),
    deterministic: bool = False,
    progress: Progress = no_progress,
) -> None:
    """Film a policy in a scene, or let it play in a Unity player's window at normal speed.

    The seed is that of the recipe.

    Parameters
    ----------
    policy
        As in `evaluate`, or `Sides`: one policy against another.
    record
        The mp4 file to write; a scene needs one, a Unity player shows itself.
    seconds
        Length of the film in simulated time, or of the show in real time.
    area
        The area that is filmed.
    size
        (width, height) of the film or the window in pixels.
    progress
        Called often with the pictures of the film that are done, and their total.

    Raises
    ------
    UsageError
        The world cannot be opened or filmed, or a policy cannot be loaded or does not fit.
    """
    from touchline.envs.env import EnvRecipe, make
    from touchline.film import FilmOptions, film, watch
    from touchline.policies.trained_world import as_trained

    sides = policy if isinstance(policy, Sides) else Sides(policy)
    sources, others = _sources(sides.policy), _sources(sides.versus)
    recipe = as_trained(EnvRecipe.parse(env), [*sources, *others])
    acting: dict[str, Any] = {
        "versus": others,
        "seconds": seconds,
        "deterministic": deterministic,
        "seed": recipe.seed,
    }
    _check_film(recipe, record)
    if record is None:
        with make(_at_natural_pace(recipe, size)) as world:
            watch(world, sources, **acting)
        return
    with make(replace(recipe, num_areas=area + 1)) as world:  # counted from 0
        options = FilmOptions(area=area, size=size, **acting)
        film(world, sources, Path(record), options, progress)


@explain_missing("view")
def view(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource] | Sides = "random",
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    record: Path | str | None = None,
    deterministic: bool = False,
    log: Log = print,
) -> None:
    """Let a policy play in a world, on a page in the browser, until Ctrl-C.

    A scene is shown in 3-D; a Unity player, a recording and any other world by what its agents
    observe and do. `env` may also be a run folder: its newest checkpoint plays, also while it still
    learns. The seed and the number of areas are those of the recipe.

    Parameters
    ----------
    policy
        As in `evaluate`, or `Sides`: one policy against another.
    host
        The address to listen on. Any but the default lets whoever reaches it watch and control the
        simulation, without a password.
    port
        0: any that is free.
    record
        The .demo file for what people play on the page; without, the page offers it for download.
    log
        Gets the page's address, and why there is no picture where there is none.

    Raises
    ------
    UsageError
        A policy cannot be loaded or does not fit, the port is in use, the world cannot be opened,
        or the name of the recording does not end in `.demo`.
    """
    from touchline.envs.env import EnvRecipe
    from touchline.policies.trained_world import as_trained
    from touchline.viewer.opening import ViewOptions, opened
    from touchline.viewer.run_panel import is_run
    from touchline.viewer.server import is_loopback

    sides = policy if isinstance(policy, Sides) else Sides(policy)
    sources, others = _sources(sides.policy), _sources(sides.versus)
    run = Path(env) if isinstance(env, str) and is_run(env) else None
    if run is None:
        recipe = EnvRecipe.parse(env)
    else:
        recipe, sources, port = _followed(run, sources, (host, port), log)
    recipe = as_trained(_at_natural_pace(recipe, (640, 480)), [*sources, *others])
    path = None if record is None else Path(record)
    options = ViewOptions(host, port, others, deterministic, path, run)
    with opened(recipe, sources, options) as page:
        log(f"open http://{host}:{page.port} in a browser; Ctrl-C ends")
        if page.limits:
            log(page.limits)
        if not is_loopback(host):
            risk = "can watch and control this simulation, without a password"
            log(f"whoever reaches {host}:{page.port} {risk}")
        page.simulation.join()


@explain_missing("recording")
def record(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource],
    output: str | os.PathLike[str],
    *,
    episodes: int = 20,
    min_return: float = -math.inf,
    deterministic: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> list[Path]:
    """Record complete episodes of a policy as a demonstration (`.demo`), as Unity writes them.

    Parameters
    ----------
    policy
        One source for every behavior that it fits, or several `BEHAVIOR=FILE`.
    output
        The file to write. A world of several full behavior names gets a file for each, with the
        name behind that of `output`.
    episodes
        Episodes of each full behavior name, shared evenly among its agents.
    min_return
        Episodes that return less are played, and left out of the file.
    progress
        Called after every step with the episodes that are done, and their total.

    Returns
    -------
    list
        The files.

    Raises
    ------
    UsageError
        The world cannot be opened, a policy cannot be loaded or does not fit, or the name does not
        end in `.demo`.
    RunError
        No episode ends, none returns `min_return`, or a player failed.
    """
    from touchline.envs.env import EnvRecipe, make
    from touchline.envs.slots import Slots
    from touchline.policies.sides import load_sides
    from touchline.policies.trained_world import as_trained
    from touchline.training.recording import check_name, record_episodes, write_demos

    path = Path(output)
    check_name(path)
    sources = _sources(policy)
    recipe = as_trained(replace(EnvRecipe.parse(env), seed=seed), sources)
    with make(recipe) as world:
        slots = Slots(world)
        slots.reset(seed)
        actors = load_sides(
            sources, (), slots, recipe.target, deterministic=deterministic, seed=seed
        )
        files = record_episodes(
            slots, actors, episodes, seed, progress, min_return=min_return
        )
    return write_demos(files, path)


@explain_missing("exporting")
def export(
    run: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    behavior: str | None = None,
) -> Path:
    """Write the latest checkpoint of a run as the ONNX file that Unity loads; returns its path.

    `run` is a run folder or a checkpoint; `behavior` is needed where a run has several. Raises a
    UsageError when there is no such checkpoint.
    """
    from touchline.policies.files.checkpoints import load_network
    from touchline.policies.files.onnx_out import export_onnx
    from touchline.policies.files.run_layout import RunLayout

    source, target = Path(run), Path(output)
    checkpoint = RunLayout(source).checkpoint(behavior) if source.is_dir() else source
    export_onnx(load_network(checkpoint), target)
    return target


def inspect(env: str | EnvRecipe) -> dict[str, Any]:
    """What the behaviors of a world observe and do: full behavior name -> plain values for JSON.

    A recording is played to its end, since a world may show further behaviors at any time.
    """
    from touchline.envs.env import make
    from touchline.envs.inspection import plain_specs, show_all_behaviors

    with make(env) as world:
        show_all_behaviors(world)
        return plain_specs(world)


def inspect_demonstration(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a `.demo` file, or a folder of them, holds: spec, episodes, returns, statistics of the
    actions, and one line for each file, as plain values for JSON.

    Raises a UsageError that names the file.
    """
    from touchline.training.demonstrations import read_demonstration

    return read_demonstration(os.fspath(path)).figures()


def film_demonstration(
    path: str | os.PathLike[str], to: str | os.PathLike[str]
) -> None:
    """What the cameras of a demonstration saw, as an mp4 file `to`, one action after another.

    Raises a UsageError that names the file, also where its agents had no camera: a demonstration
    holds what agents observed and not the world, which therefore cannot be drawn.
    """
    from touchline.film import film_pictures
    from touchline.training.demonstrations import read_demonstration

    cameras = read_demonstration(os.fspath(path)).pictures()
    if not cameras:
        raise UsageError(
            f"{path}: its agents observe no pictures, and a demonstration holds nothing else of "
            "the world, so there is nothing to film"
        )
    film_pictures(cameras, Path(to))


def describe(env: str | EnvRecipe) -> str:
    """What the behaviors of a world observe and do, and its first exchange, as lines of text."""
    from touchline.envs.env import make
    from touchline.envs.inspection import description

    with make(env) as world:
        world.reset()
        return "\n".join(description(world))


def _exploiter(
    config: str,
    policy: str,
    changes: Mapping[str, Any] | Sequence[str],
    overrides: Mapping[str, Any],
) -> RunRequest:
    """The run of a fresh opponent of `policy`, with a name and a budget of its own."""
    from touchline.studies.exploit import SHARE_OF_BUDGET, exploiter_settings

    keys = dict(overrides) | exploiter_settings(policy)
    if RUN_ID not in keys and not _is_changed(RUN_ID, changes):
        keys[RUN_ID] = f"exploit-{Path(config).stem}"
    request = read_run(config, changes, keys)
    # A mapping yields its keys here, and texts yield what stands before their equals sign.
    typed = [*keys, *(change.partition("=")[0] for change in changes)]
    if any(key.endswith(".max_steps") for key in typed):
        return request
    # A share of the budget can only be computed once the configuration is read, hence the
    # second reading.
    settings = request.config
    blocks = {f"behaviors.{name}": block for name, block in settings.behaviors.items()}
    if settings.default_settings is not None:
        blocks["default_settings"] = settings.default_settings
    for place, block in blocks.items():
        keys[f"{place}.max_steps"] = max(1, int(block.max_steps * SHARE_OF_BUDGET))
    return read_run(config, changes, keys)


def _followed(
    run: Path,
    sources: Sequence[str],
    address: tuple[str, int],
    log: Log,
) -> tuple[EnvRecipe, list[str], int]:
    """The world that a run learns in, its checkpoints, and the port of its page.

    While the run is still starting, a page on this address (host, port) says so.
    """
    from touchline.envs.env import EnvRecipe
    from touchline.viewer.run_panel import sources_of, world_of
    from touchline.viewer.waiting import until_started

    if list(sources) != ["random"]:
        raise UsageError(
            f"{run}: a run plays its own checkpoints; leave --policy away, or name its scene"
        )
    (where, found), port = until_started(
        lambda: (world_of(run), sources_of(run)), *address, log
    )
    world, target = where
    return EnvRecipe(world, target), found, port


def _given(
    verb: str,
    config: str | os.PathLike[str] | None,
    env: str | None,
    run_id: str | None = None,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Dotted keys of the arguments that were given, and their values.

    Raises a UsageError where there is nothing to train, tune or plan.
    """
    if config is None and env is None:
        raise UsageError(
            f"{verb} what? give a preset's name (3DBall), a YAML file, or a player: env"
        )
    keys = {
        "env_settings.env_path": env,
        RUN_ID: run_id,
        "checkpoint_settings.resume": resume,
    }
    # What was not given must leave the configuration's own value alone.
    return {key: value for key, value in keys.items() if value}


def _listed(
    changes: Mapping[str, Any] | Iterable[str],
) -> Mapping[str, Any] | Sequence[str]:
    return changes if isinstance(changes, Mapping) else list(changes)


def _is_changed(key: str, changes: Mapping[str, Any] | Sequence[str]) -> bool:
    if isinstance(changes, Mapping):
        return key in changes
    return any(change.startswith(f"{key}=") for change in changes)


def _sources(policy: PolicySource | Sequence[PolicySource]) -> list[str]:
    """Policies as texts; a single one as a list of one."""
    given = [policy] if isinstance(policy, str | os.PathLike) else policy
    return [os.fspath(source) for source in given]


def _at_natural_pace(recipe: EnvRecipe, size: tuple[int, int]) -> EnvRecipe:
    """The recipe of a player with a window of this size that runs as fast as the clock.

    Other worlds have no clock of their own, and their recipes stay as they are.
    """
    if not recipe.kind.is_player:
        return recipe
    width, height = size
    engine = {
        "width": width,
        "height": height,
        # A capture frame rate would fix the time between two frames, however long they took.
        "time_scale": 1.0,
        "capture_frame_rate": 0,
    }
    return replace(recipe, options={**recipe.options, "engine": engine})


def _with_recorded_wire(recipe: EnvRecipe, path: Path | None) -> EnvRecipe:
    """The recipe of the same world with its wire recorded."""
    if path is None:
        return recipe
    if not recipe.kind.is_player:
        raise UsageError(
            f"--record-wire: {recipe.target} has no wire; only a Unity player or the Editor has"
        )
    if not path.name.endswith(".wire.gz"):
        raise UsageError(
            f"--record-wire: expected a name that ends with .wire.gz, got {path.name}"
        )
    return replace(recipe, options={**recipe.options, "record_wire": str(path)})
