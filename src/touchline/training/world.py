"""How a run opens its world: from settings to a recipe, and from a recipe to slots.

Mistakes that can be found before anything is written or started are refused here.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from touchline.envs.env import EnvRecipe, make
from touchline.envs.player_process import working_player
from touchline.envs.side_by_side import SideBySide, copies_of
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.jobs.job import RestartLimits
from touchline.jobs.shipping import Build
from touchline.log import Log, silent
from touchline.scenes import scene_class
from touchline.specs import base_name
from touchline.training.config.environment_parameters import lessons_of, value_of
from touchline.training.config.settings import BehaviorConfig, EnvSettings, RunConfig
from touchline.training.curriculum import Curriculum
from touchline.training.demonstrations import read_demonstration
from touchline.training.warm_start import first_checkpoint


def recipe_of(
    config: RunConfig, own_scene: str | None = None, log: Log = silent
) -> EnvRecipe:
    """The world of a run: `env_path`, else a preset's own scene, else the Unity Editor."""
    settings = config.env_settings
    target = settings.env_path or own_scene or "editor"
    values = Curriculum(config).values
    if config.evaluation.env is not None:
        _check_evaluation(config, config.evaluation.env)
    recipe = EnvRecipe.parse(target, num_areas=settings.num_areas, parameters=values)
    if recipe.kind.is_replay:
        raise UsageError(
            f"{target}: a recording plays what was recorded, whatever a learner does; name a world"
        )
    if recipe.kind.is_player:
        return EnvRecipe.parse(recipe, options=_player_options(config, target))
    if recipe.kind.is_scene:
        _check_parameters(config, target)
        _check_behaviors(config, target)
    if config.engine_settings.model_fields_set or settings.env_args:
        log(f"{target} runs without Unity: engine_settings and env_args change nothing")
    return recipe


def _check_evaluation(config: RunConfig, env: str) -> None:
    # It opens at the first checkpoint, which may be hours away.
    try:
        recipe = EnvRecipe.parse(env)
        if recipe.kind.is_scene:
            _check_parameters(config, recipe.target)
            _refuse_unconfigured(config, recipe.target, _behaviors_of(recipe.target))
        elif recipe.kind.is_player and not recipe.is_editor:
            from touchline.envs.player_process import find_player

            find_player(recipe.target)
    except UsageError as error:
        raise UsageError(f"evaluation.env: {error}") from error


def open_slots(
    recipe: EnvRecipe, settings: EnvSettings, log: Log
) -> AbstractContextManager[Slots | SideBySide]:
    """The slots of one world, or of several; players that fail are restarted."""
    recipes = copies_of(recipe, settings.num_envs)
    return open_worlds(recipes, restart_limits(settings), log)


@contextmanager
def open_worlds(
    recipes: Sequence[EnvRecipe],
    limits: RestartLimits,
    log: Log,
    seed_step: int | None = None,
) -> Iterator[Slots | SideBySide]:
    """The slots of these worlds together; `seed_step` as in `SideBySide`."""
    if len(recipes) == 1 and not recipes[0].kind.is_player:
        # One world in this process needs neither a thread nor a restart.
        with make(recipes[0]) as env:
            yield Slots(env)
        return
    with SideBySide(recipes, limits, log=log, seed_step=seed_step) as slots:
        yield slots


def restart_limits(settings: EnvSettings) -> RestartLimits:
    """How often each failed player may be replaced."""
    return RestartLimits(
        settings.max_lifetime_restarts,
        settings.restarts_rate_limit_n,
        settings.restarts_rate_limit_period_s,
    )


def _player_options(config: RunConfig, target: str) -> Mapping[str, Any]:
    settings, engine = config.env_settings, config.engine_settings
    options: dict[str, Any] = {
        "engine": engine.model_dump(exclude={"no_graphics", "no_graphics_monitor"}),
        "timeout_wait": settings.timeout_wait,
    }
    if target == "editor":
        if settings.num_envs > 1:
            raise UsageError(
                f"num_envs is {settings.num_envs}, but the Editor is one; "
                "several need a player: --env FILE"
            )
        return options
    from touchline.envs.player_process import find_player

    find_player(target)
    folder = (
        Path(config.checkpoint_settings.results_dir) / config.checkpoint_settings.run_id
    )
    return options | {
        "base_port": settings.base_port or 0,  # 0: one that is free
        "no_graphics": engine.no_graphics,
        "no_graphics_monitor": engine.no_graphics_monitor,
        "additional_args": list(settings.env_args),
        "log_folder": str(folder / "run_logs"),
    }


def _check_behaviors(config: RunConfig, scene: str) -> None:
    names = _behaviors_of(scene)
    check_names(config, scene, names, all_are_shown=False)
    _refuse_unconfigured(config, scene, names)
    check_names(config, scene, names, all_are_shown=True)


def _behaviors_of(scene: str) -> dict[str, None]:
    """Base names, in the scene's order."""
    # A scene knows its behaviors only once it is built; one area is the quickest to build.
    built = scene_class(scene)(1, 1)
    built.close()
    return {base_name(full_name): None for full_name in built.academy.behaviors}


def _refuse_unconfigured(config: RunConfig, scene: str, names: Iterable[str]) -> None:
    for name in names:
        if config.behavior(name) is None:
            configured = ", ".join(config.behaviors) or "none"
            raise UsageError(
                f"behaviors: {scene} has a behavior {name!r}, which is not configured; "
                f"configured: {configured}"
            )


def _check_parameters(config: RunConfig, scene: str) -> None:
    known = scene_class(scene).parameters
    for name, settings in config.environment_parameters.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            listed = ", ".join(sorted(known)) or "none"
            raise UsageError(
                f"environment_parameters.{name}: {scene} has no such parameter; "
                f"{hint}it knows: {listed}"
            )
        for lesson in lessons_of(settings):
            known[name].check(scene, name, value_of(lesson))


def player_check(
    recipe: EnvRecipe, build: Build | None = None
) -> Callable[[], object] | None:
    """What `check_cluster` calls on nodes: these worlds' player must work there, or be sent."""
    if build is not None or not recipe.kind.is_player:
        return None
    return partial(working_player, recipe.target)


def check_files(config: RunConfig) -> None:
    """Raise a UsageError for a first checkpoint that is missing, or, with its place, for a
    `demo_path` that cannot be read.

    Whether a demonstration fits its behavior shows once the world does.
    """
    if not config.checkpoint_settings.resume:
        for name in config.behaviors:
            first_checkpoint(config, name)
    for name, behavior in config.behaviors.items():
        for key, path in _demo_paths(behavior):
            try:
                read_demonstration(path)
            except UsageError as error:
                raise UsageError(f"{config.place(name, key)}: {error}") from None


def _demo_paths(behavior: BehaviorConfig) -> Iterator[tuple[str, str]]:
    """Dotted key within the block, and the path there."""
    if behavior.behavioral_cloning is not None:
        yield "behavioral_cloning.demo_path", behavior.behavioral_cloning.demo_path
    for name, signal in behavior.reward_signals.items():
        path = getattr(signal, "demo_path", None)
        if path is not None:
            yield f"reward_signals.{name}.demo_path", path


# Least similarity (difflib's) of a name that is suggested, and of one that must be meant:
# SmallWallJump and BigWallJump have 0.67, 3DBal and 3DBall 0.91.
_SIMILAR, _SAME_BUT_FOR_A_SLIP = 0.5, 0.8


def check_names(
    config: RunConfig, world: str, shown: Iterable[str], *, all_are_shown: bool
) -> None:
    """Refuse behaviors that a world does not have, configured or named by a curriculum.

    `shown` are base names. Where a world may show further ones later, as Unity games do, only what
    must be a misspelling is refused.
    """
    known = list(dict.fromkeys(shown))
    cutoff = _SIMILAR if all_are_shown else _SAME_BUT_FOR_A_SLIP
    for name, place in _places_of_behaviors(config).items():
        if name in known:
            continue
        near = _nearest(name, known, cutoff)
        if not all_are_shown and (near is None or _are_siblings(name, near)):
            continue
        hint = f"did you mean {near!r}? " if near else ""
        raise UsageError(
            f"{place}: {world} has no such behavior; {hint}it has: {', '.join(known)}"
        )


def _places_of_behaviors(config: RunConfig) -> dict[str, str]:
    """Where each behavior is named that the world must have, for messages."""
    places = {name: config.place(name) for name in config.behaviors}
    for parameter, settings in config.environment_parameters.items():
        # The last lesson has no end, so its criteria are ignored.
        for number, lesson in enumerate(lessons_of(settings)[:-1]):
            # With default settings, a name here need not be one of a block.
            if criteria := lesson.completion_criteria:
                lesson_place = f"environment_parameters.{parameter}.curriculum.{number}"
                place = f"{lesson_place}.completion_criteria.behavior"
                places.setdefault(criteria.behavior, place)
    return places


def _nearest(name: str, known: Iterable[str], cutoff: float) -> str | None:
    by_lower_case = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=cutoff)
    return by_lower_case[near[0]] if near else None


def _are_siblings(a: str, b: str) -> bool:
    # Agent1 and Agent2, or PlayerA and PlayerB, are two behaviors of a game and no slip.
    differ_at_the_end = len(a) == len(b) and a[:-1] == b[:-1]
    return differ_at_the_end or re.sub(r"\d", "", a) == re.sub(r"\d", "", b)
