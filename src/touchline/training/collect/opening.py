"""Opens what collects: the worlds of this process, or several collectors, here or on a cluster."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from touchline.envs.env import EnvRecipe
from touchline.envs.player_process import working_player
from touchline.envs.side_by_side import copies_of
from touchline.errors import UsageError
from touchline.extras import explain_missing
from touchline.jobs.shipping import Build, pack_build
from touchline.log import Log
from touchline.training.collect.collector import Collector, Lineup
from touchline.training.collect.local import LocalCollector
from touchline.training.collect.several import (
    Here,
    SeveralCollectors,
    UnorderedCollectors,
)
from touchline.training.collect.worker import WorkerSetup
from touchline.training.config.settings import RunConfig
from touchline.training.curriculum import Curriculum
from touchline.training.run.process import is_onednn_worthwhile
from touchline.training.run.stopwatch import Stopwatch
from touchline.training.world import open_slots, restart_limits

RAY = {
    # Figures about its use would go to its makers.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Its workers run at niceness 15, so on a busy machine collectors would starve.
    "RAY_worker_niceness": "0",
    # It prints a paragraph about every death; the run's log has a line.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
}
"""Ray's settings from the environment, some of which it reads when it is imported."""

MakeCollector = Callable[[Lineup, Stopwatch], Collector]


def import_ray(purpose: str) -> None:
    """Import Ray with our settings; a MissingError that names `purpose` where it is not there."""
    # What the user has set wins.
    for name, value in RAY.items():
        os.environ.setdefault(name, value)
    with explain_missing(purpose):
        import ray  # noqa: F401


@contextmanager
def open_collector(
    recipe: EnvRecipe, config: RunConfig, log: Log
) -> Iterator[MakeCollector]:
    """Worlds are open within the context; the collector is made of a lineup and a stopwatch."""
    cluster = config.cluster_settings
    if cluster.takes_whole_runs:
        raise UsageError(
            f"--cluster {cluster.cluster} needs --collectors N, too: how many collect; or --seeds "
            "0-4 or tune, whose runs go to its nodes"
        )
    if cluster.collectors is None:
        with open_slots(recipe, config.env_settings, log) as slots:
            yield partial(LocalCollector, slots)
        return
    kind = SeveralCollectors if config.collects_in_rounds else UnorderedCollectors
    if cluster.cluster is not None:
        import_ray("--cluster")
        from touchline.training.collect.cluster import on_cluster

        each = cluster.cpus_per_collector
        setups = worker_setups(for_nodes(recipe, config), config)
        build = build_of(recipe) if cluster.ship else None
        with on_cluster(cluster.cluster, setups, each, log, build) as workers:
            yield partial(kind, workers, log)
        return
    here = Here(worker_setups(recipe, config), log)
    try:
        here.open()
        yield partial(kind, here, log)
    finally:
        here.close()


def world_of(recipe: EnvRecipe, config: RunConfig, seed: int) -> EnvRecipe:
    """The recipe of a run's world: with its first lessons, and its state where critics see that.

    Raises a UsageError for a world that cannot show its state.
    """
    parameters = dict(recipe.parameters) | Curriculum(config).values
    recipe = replace(recipe, seed=seed, parameters=parameters)
    blocks = dict(config.behaviors)
    # Behaviors that no block names are all trained by the defaults.
    if not blocks and config.default_settings is not None:
        blocks = {"default_settings": config.default_settings}
    asked = {
        name: getattr(block.hyperparameters, "critic_sees_state", False)
        for name, block in blocks.items()
    }
    if not any(asked.values()):
        return recipe
    key = "hyperparameters.critic_sees_state"
    if not all(asked.values()):
        without = next(name for name in asked if not asked[name])
        raise UsageError(
            f"{config.place(without, key)}: a world shows its state to the critics of all "
            "behaviors or none; set it for all of them"
        )
    if not recipe.kind.is_scene:
        raise UsageError(
            f"{config.place(next(iter(asked)), key)}: only scenes can show their state, and "
            f"{recipe.target} is not one; set it to false"
        )
    return replace(recipe, options={"state": True, **recipe.options})


def worker_setups(recipe: EnvRecipe, config: RunConfig) -> list[WorkerSetup]:
    """Each collector with its worlds; world k of all has the seed + k, and its own port."""
    settings = config.env_settings
    each, count = settings.num_envs, config.cluster_settings.collectors or 1
    recipes = copies_of(recipe, count * each)
    return [
        WorkerSetup(
            index=index,
            recipes=tuple(recipes[index * each : (index + 1) * each]),
            limits=restart_limits(settings),
            seed=recipe.seed,
            first_world=index * each,
            num_worlds=count * each,
            self_play=config.has_self_play,
            onednn=is_onednn_worthwhile(config),
            sends_logs=bool(recipe.options.get("log_folder"))
            and config.cluster_settings.cluster is not None,
        )
        for index in range(count)
    ]


def build_of(recipe: EnvRecipe) -> Build:
    """The player that goes to the nodes.

    Raises a UsageError for worlds without one.
    """
    if not recipe.kind.is_player:
        raise UsageError(
            f"--ship sends the build of a player, and {recipe.target} is none; leave it out"
        )
    return pack_build(working_player(recipe.target))


def for_nodes(recipe: EnvRecipe, config: RunConfig) -> EnvRecipe:
    """The world as other machines open it.

    Raises a UsageError for the Editor.
    """
    options = dict(recipe.options)
    if recipe.is_editor:
        raise UsageError(
            "--cluster opens worlds on its nodes, and the Editor is one, on this machine; "
            "give a player with --env FILE"
        )
    if recipe.kind.is_scene:
        # A collector keeps to the processors that it claims.
        threads = max(1, int(config.cluster_settings.cpus_per_collector))
        # The user's own number of threads, if there is one, wins.
        return replace(recipe, options={"num_threads": threads, **options})
    if recipe.kind.is_player:
        # A window on a node is of use only to cameras: then the settings say no_graphics false.
        if "no_graphics" not in config.engine_settings.model_fields_set:
            options["no_graphics"] = True
        # Ray's workers start in a folder of their own, where a relative path leads nowhere.
        path = str(Path(recipe.target).expanduser().absolute())
        return replace(recipe, target=path, options=options)
    return recipe
