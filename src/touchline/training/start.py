"""Starts a run from its configuration."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from touchline.flag import Flag
from touchline.log import WAITING, Log
from touchline.training.config.request import Changes, RunRequest, read_run
from touchline.training.inference import act_only
from touchline.training.run.progress import Watch, unwatched
from touchline.training.run.result import TrainingResult
from touchline.training.trainer import train as train_world
from touchline.training.world import recipe_of


def train(
    config: str | os.PathLike[str] | RunRequest | None = None,
    *,
    env: str | None = None,
    run_id: str | None = None,
    resume: bool = False,
    changes: Changes = (),
    record_wire: Path | None = None,
    to_wandb: Annotated[bool, Flag("--wandb")] = False,
    log: Log = print,
    watch: Watch = unwatched,
    settings: Mapping[str, Any] | None = None,
) -> TrainingResult:
    """Train the behaviors of an environment; write checkpoints, metrics, a learning curve and an
    ONNX model for Unity.

    Parameters
    ----------
    config
        A preset's name (3DBall), an ML-Agents YAML, or a player, for which settings are chosen; not
        needed with --env.
    env, run_id, resume
        As the flags of these names.
    changes
        Change one setting; the key is that of the YAML.
    record_wire
        Record the session with a Unity player, to replay it.
    to_wandb
        Also log to Weights & Biases; offline unless WANDB_MODE says otherwise.
    log
        Gets the lines that the command line prints.
    watch
        Follows the training.
    settings
        Flags of the command line and their values, as `{"num_envs": 2}`; they win over `changes`.

    Raises
    ------
    UsageError
        The configuration, the world or a file is wrong, or something is not installed.
    RunError
        The run failed; what was learned is saved.

    Notes
    -----
    A run ends when its steps are done, or at Ctrl-C. `changes` are texts such as `a.b.c=value`, or
    a mapping of dotted keys; a star stands for every behavior: `{"behaviors.*.max_steps": 1e5}`.
    """
    if not isinstance(config, RunRequest):
        given = {"env": env, "run_id": run_id, "resume": resume, **(settings or {})}
        config = read_run(config, changes, given)
    settings_of_run, notes = config.config, list(config.notes)
    recipe = recipe_of(settings_of_run, config.preset, notes.append)
    recipe = recipe.with_recorded_wire(record_wire)
    if recipe.is_editor:
        notes.append(WAITING)
    checkpoints = settings_of_run.checkpoint_settings
    if checkpoints.inference:
        act_only(settings_of_run, recipe, log, notes)
        folder = Path(checkpoints.results_dir, checkpoints.run_id)
        return TrainingResult(folder, False, {})
    return train_world(
        settings_of_run,
        recipe,
        log,
        notes,
        to_wandb=to_wandb,
        watch=watch,
        chosen=config.chosen,
    )
