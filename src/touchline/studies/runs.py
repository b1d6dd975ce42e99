"""Runs of a study: the settings of each, and the places where they train at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from touchline.errors import UsageError
from touchline.jobs.job import Job, Place, Site
from touchline.jobs.processes import Processes
from touchline.log import Log
from touchline.policies.files.run_layout import RunLayout

if TYPE_CHECKING:
    from touchline.envs.env import EnvRecipe
    from touchline.training.config.settings import RunConfig


def settings_of(
    config: RunConfig, own: RunLayout, seed: int, position: int
) -> RunConfig:
    """The settings of `touchline train --results-dir .. --run-id .. --seed N` for the folder `own`.

    `position` is that among the runs at the same time, for the ports of their players.
    """
    files, worlds = config.checkpoint_settings, config.env_settings
    # A run that was never begun has nothing to resume.
    resumes = files.resume and own.resume_point.exists()
    start = None if resumes else files.initialize_from
    if start is not None:
        # A run next to the study, not next to this one.
        start = str(Path(files.results_dir, start).absolute())
    own_files = {
        "results_dir": str(own.path.parent),
        "run_id": own.path.name,
        "initialize_from": start,
        "resume": resumes,
    }
    port = worlds.base_port
    if port is not None:
        # World i adds i to the base port, so a run takes as many ports as it has worlds.
        port += position * worlds.num_envs
    return config.model_copy(
        update={
            "checkpoint_settings": files.model_copy(update=own_files),
            "env_settings": worlds.model_copy(update={"seed": seed, "base_port": port}),
        }
    )


def world_of(
    config: RunConfig, own_scene: str | None, command: str, log: Log
) -> EnvRecipe:
    """The world of one run; `command` names what starts several, for messages."""
    from touchline.training.world import recipe_of

    recipe = recipe_of(config, own_scene, log)
    if recipe.is_editor:
        raise UsageError(
            f"{command} needs a world for each run, but the Editor is one; "
            "give a player with --env FILE"
        )
    if recipe.kind.is_scene:
        # Each process has one core; results are the same with any number of threads.
        return replace(recipe, options={"num_threads": 1, **recipe.options})
    return recipe


def job_of(
    name: str, own: RunLayout, config: RunConfig, recipe: EnvRecipe, *, to_wandb: bool
) -> Job:
    """A run whose files appear in the folder `own`."""
    if config.cluster_settings.takes_whole_runs:
        from touchline.training.collect.opening import for_nodes

        recipe = for_nodes(recipe, config)
    starts_over = not config.checkpoint_settings.resume
    return Job(name, train_at, (config, recipe, to_wandb), own.path, starts_over)


def train_at(config: RunConfig, recipe: EnvRecipe, to_wandb: bool, site: Site) -> None:
    """Train a run in a process of its own. Raises a KeyboardInterrupt once it is saved."""
    from touchline.training.run.metrics import load_drawing
    from touchline.training.trainer import train

    # Loaded before training: after Ctrl-C, people would wait for it.
    load_drawing()
    if not site.is_home:
        config, recipe = _moved(config, recipe, site)
    if train(config, recipe, site.log, to_wandb=to_wandb).interrupted:
        raise KeyboardInterrupt


def _moved(
    config: RunConfig, recipe: EnvRecipe, site: Site
) -> tuple[RunConfig, EnvRecipe]:
    """The run as another machine trains it."""
    layout = RunLayout(site.folder)
    files = config.checkpoint_settings.model_copy(
        update={
            "results_dir": str(site.folder.parent),
            "resume": layout.resume_point.exists(),
            "force": False,
        }
    )
    alone = config.cluster_settings.model_copy(update={"cluster": None, "ship": False})
    changed = {"checkpoint_settings": files, "cluster_settings": alone}
    if site.program is not None:
        recipe = replace(recipe, target=str(site.program))
    if "log_folder" in recipe.options:
        options = {**recipe.options, "log_folder": str(layout.logs)}
        recipe = replace(recipe, options=options)
    return config.model_copy(update=changed), recipe


@contextmanager
def place_for_runs(config: RunConfig, recipe: EnvRecipe) -> Iterator[Place]:
    """The nodes of the cluster in the settings; without one, or with collectors, this machine.

    `recipe` is the world of one of the runs. Raises a UsageError for a cluster that cannot be
    reached, has no room, or lacks the player.
    """
    settings = config.cluster_settings
    if not settings.takes_whole_runs:
        yield Processes()
        return
    # Reports of a study are read without the libraries of training.
    from touchline.training.collect.opening import build_of, import_ray
    from touchline.training.world import player_check

    import_ray("--cluster")
    from touchline.jobs.ray import Nodes, check_cluster, connected, shared_build

    assert settings.cluster is not None
    cpus = settings.cpus_per_collector
    build = build_of(recipe) if settings.ship else None
    with connected(settings.cluster):
        check_cluster(1, cpus, player_check(recipe, build))
        yield Nodes(cpus, build and shared_build(build))
