"""How a run begins and how it ended: lines for people, the result for programs, `report.md`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from touchline.envs.env import EnvRecipe
from touchline.specs import BehaviorSpec, base_name, describe_actions
from touchline.training.behavior_training import RECENT_EPISODES, BehaviorTraining
from touchline.training.collect.collector import Collector
from touchline.training.config.reading import config_text
from touchline.training.evaluation_figures import what_was_played
from touchline.training.run.enrollment import Enrollment
from touchline.training.run.folder import RunFolder, same_lessons
from touchline.training.run.process import describe_device
from touchline.training.run.result import BehaviorResult, TrainingResult
from touchline.training.self_play.pool import Pool
from touchline.whole import write_whole


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
        # Worlds that cannot be restored may have no rows yet, which would show groups.
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


def result_of(
    folder: RunFolder, trainings: Sequence[BehaviorTraining], *, interrupted: bool
) -> TrainingResult:
    """The result of a run whose files are written."""
    behaviors = {}
    for training in trainings:
        curve = folder.layout.curve(training.name)
        behaviors[training.name] = BehaviorResult(
            steps=training.learner.steps,
            mean_return=training.recent_mean,
            model=folder.model(training.name),
            curve=curve if curve.exists() else None,
            **_evaluated(folder.evaluations(training.name)),
        )
    return TrainingResult(folder.path, interrupted, behaviors)


def _evaluated(evaluations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The last and the best evaluation, as fields of `BehaviorResult`."""
    # Where nothing was played, the score is the return in training, or a rating.
    known = [e for e in evaluations if "ci95" in e or "error" in e]
    if not known:
        return {}
    best = max(same_lessons(known, known[-1]), key=lambda e: e["score"])
    return {
        "evaluation": known[-1]["score"],
        "best_evaluation": best["score"],
        "best_step": best["steps"],
    }


def write_report(
    folder: RunFolder,
    trainings: Sequence[BehaviorTraining],
    seconds: Mapping[str, float],
) -> None:
    """Write `report.md` and `timers.json`; `seconds` by part of the work."""
    folder.write_timers(seconds)
    lines = [f"# {folder.path.name}", ""]
    lines += [f"- {key}: {value}" for key, value in folder.about.items()]
    lines += ["", *_behavior_table(folder, trainings), ""]
    for training in trainings:
        if training.pool is not None:
            lines += [*_pool_table(training.name, training.pool), ""]
        evaluations = folder.evaluations(training.name)
        if evaluations and evaluations[-1].get("opponents"):
            lines += [*_opponents_table(training.name, evaluations[-1]), ""]
    curves = [folder.layout.curve(training.name) for training in trainings]
    lines += [f"![{curve.stem}]({curve.name})" for curve in curves if curve.exists()]
    lines += ["", *_time_table(seconds), ""]
    lines += ["```yaml", config_text(folder.settings()).rstrip(), "```", ""]
    write_whole(folder.layout.report, "\n".join(lines).encode())


def _behavior_table(
    folder: RunFolder, trainings: Sequence[BehaviorTraining]
) -> list[str]:
    columns = [
        "behavior",
        "agent steps",
        f"last {RECENT_EPISODES} episodes in training",
        "final evaluation",
        "best evaluation",
    ]
    lines = [f"| {' | '.join(columns)} |", "| --- | --- | --- | --- | --- |"]
    for training in trainings:
        evaluations = folder.evaluations(training.name)
        final = evaluations[-1] if evaluations else None
        best = None
        if final is not None:
            best = max(same_lessons(evaluations, final), key=lambda e: e["score"])
        mean = training.recent_mean
        in_training = "none ended" if mean is None else f"{mean:.3f}"
        if training.recent_groups:
            group_mean = sum(training.recent_groups) / len(training.recent_groups)
            in_training += (
                f"; last {len(training.recent_groups)} groups {group_mean:.3f}"
            )
        cells = [
            training.name,
            f"{training.learner.steps:,}",
            in_training,
            _evaluation(final),
            _evaluation(best),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _pool_table(name: str, pool: Pool) -> list[str]:
    rating, error = pool.rating()
    lines = [
        f"{name} by self-play: ELO {rating:.0f} ± {error:.0f} (standard error). Its opponents:",
        "",
        "| opponent | ELO | games | win rate of the latest policy against it, recently |",
        "| --- | --- | --- | --- |",
    ]
    for opponent in pool.standings():
        elo = f"{opponent.rating:.0f} ± {opponent.error:.0f}"
        rate = f"{100 * opponent.win_rate:.0f} %"
        lines.append(f"| {opponent.name} | {elo} | {opponent.games:,} | {rate} |")
    return lines


def _opponents_table(name: str, evaluation: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{name} at step {evaluation['steps']:,}, sampled actions:",
        "",
        "| opponent | games | won | tied | lost | win rate, 95 % within |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for opponent, own in evaluation["opponents"].items():
        low, high = own["win_rate_ci95"]
        lines.append(
            f"| {opponent} | {own['games']} | {own['won']} | {own['tied']} | {own['lost']} "
            f"| {own['win_rate']:.2f}, {low:.2f} to {high:.2f} |"
        )
    return lines


def _evaluation(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return "–"
    at = f"at step {evaluation['steps']:,}"
    if "error" in evaluation:
        return f"ELO {evaluation['score']:.0f} ± {evaluation['error']:.0f} {at}"
    if "ci95" not in evaluation:
        return f"{evaluation['score']:.3f} in training, {at}"
    return f"{evaluation['score']:.3f}, {what_was_played(evaluation)}, {at}"


def _time_table(seconds: Mapping[str, float]) -> list[str]:
    whole = sum(seconds.values())
    lines = ["| part | seconds | per cent |", "| --- | --- | --- |"]
    for part, spent in seconds.items():
        lines.append(f"| {part} | {spent:.1f} | {100 * spent / max(whole, 1e-9):.0f} |")
    return [*lines, f"| all | {whole:.1f} | 100 |"]
