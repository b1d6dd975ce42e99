"""The first lines of a run: the world, what behaviors observe and do, how they are trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from touchline.envs.env import EnvRecipe
from touchline.specs import BehaviorSpec, base_name, describe_actions
from touchline.training.behavior_training import BehaviorTraining
from touchline.training.collect.collector import Collector
from touchline.training.run.device import describe_device
from touchline.training.run.enrollment import Enrollment
from touchline.training.run.folder import RunFolder


def introduce(
    recipe: EnvRecipe,
    folder: RunFolder,
    collector: Collector,
    enrollment: Enrollment,
    log: Callable[[str], None],
) -> None:
    """Log what is trained on what."""
    seed = folder.about["seed"]
    log(f"run {folder.path}  world {recipe.world} {recipe.target}  seed {seed}")
    slots = collector.slots
    for name, spec in slots.behaviors.items():
        training = enrollment.trainings[base_name(name)]
        num_agents = slots.capacity(name) or "any number of"
        observe = "agent observes" if num_agents == 1 else "agents observe"
        parts = [
            f"{num_agents} {observe} {_sensors(spec)}",
            *_lines(spec, training),
        ]
        log(f"{name}: {'; '.join(parts)}, {describe_device(enrollment.device)}")
        config, rows = training.config, collector.rows.get(name)
        if not config.hyperparameters.credits_groups or rows is None:
            continue
        if len(rows) and not (rows.group_id > 0).any():
            log(
                f"{name}: {config.trainer_type} shares rewards within groups, and no agent here is "
                "in one: each learns alone"
            )


def _sensors(spec: BehaviorSpec) -> str:
    return ", ".join(
        f"{o.name or 'unnamed'} {list(o.shape)}{' (the critic only)' * o.critic_only}"
        for o in spec.observation_specs
    )


def _lines(spec: BehaviorSpec, training: BehaviorTraining) -> Iterator[str]:
    action, config = spec.action_spec, training.config
    about_learning = config.hyperparameters.introduction()
    yield f"they take {describe_actions(action)}"
    if config.max_steps:
        yield f"{config.trainer_type.upper()}, {config.max_steps:,} steps"
    else:
        yield f"{config.trainer_type.upper()}, which only imitates demonstrations"
    for signal, settings in config.reward_signals.items():
        yield f"reward {signal} x {settings.strength:g}, discount {settings.gamma:g}"
    if about_learning:
        yield about_learning
