"""Trains the presets to their ends, measures them, and writes `docs/results.md` with their curves.

    python bench/results.py [NAME ...]      # all of them take many hours on two cores
    CLUSTER=auto python bench/results.py    # seeds of a preset at the same time, on Ray's nodes

Every run and every measurement is the command line's own. An interrupted run is resumed, and a run
that is already measured is kept (`results/measured.json`), so the script can be stopped at any time
and started again.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.ticker import EngFormatter

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
MEASURED = RESULTS / "measured.json"
PAGE = ROOT / "docs" / "results.md"
CLUSTER = os.environ.get("CLUSTER")
"""Where to train, as `touchline train --cluster` takes it; None: here, one run after another."""


@dataclass(frozen=True)
class Trial:
    """A preset, how it is trained and measured, and its targets."""

    name: str
    preset: str
    seeds: tuple[int, ...]
    targets: dict[str, float]
    """Behavior -> the mean return that it has to reach."""
    train: tuple[str, ...] = ()
    evaluate: tuple[str, ...] = ()
    checkpoint: int = 0
    """The step of the checkpoint to measure; 0: the end of the run."""

    @property
    def command(self) -> str:
        return " ".join(["touchline train", self.preset, *self.train])


DETERMINISTIC = ("--deterministic",)
# 288,000 is the last whole update before 300,000 steps.
EARLY = ("--set", "behaviors.3DBall.checkpoint_interval=288000")
SHORT = (
    *("--set", "behaviors.BigWallJump.max_steps=2e6"),
    *("--set", "behaviors.SmallWallJump.max_steps=4e5"),
)
TRIALS = [
    Trial(
        "3DBall",
        "3DBall",
        (0, 1, 2, 3, 4),
        {"3DBall": 99.0},
        EARLY,
        DETERMINISTIC,
        288_000,
    ),
    Trial(
        "3DBall-128",
        "3DBall",
        (0, 1, 2),
        {"3DBall": 99.0},
        ("--num-areas", "128"),
        DETERMINISTIC,
    ),
    Trial(
        "3DBallHard",
        "3DBallHard",
        (0, 1, 2),
        {"3DBallHard": 98.0},
        evaluate=DETERMINISTIC,
    ),
    Trial("Basic", "Basic", (0, 1, 2), {"Basic": 0.92}, evaluate=DETERMINISTIC),
    Trial("PushBlock", "PushBlock", (0, 1, 2), {"PushBlock": 4.5}),
    Trial(
        "GridFoodCollector", "GridFoodCollector", (0, 1, 2), {"GridFoodCollector": 8.0}
    ),
    Trial("GridWorld", "GridWorld", (0, 1, 2), {"GridWorld": 0.8}),
    Trial("Hallway", "Hallway", (0,), {"Hallway": 0.6}),
    Trial("WallJump", "WallJump", (0,), {"SmallWallJump": 0.7}, SHORT),
]

INTRODUCTION = """\
# Results

Returns that the presets reach, measured on two cores without a GPU, mostly next to other jobs.

## Presets trained to their end

`make results` trains each preset with its own settings, lets the policy play 100 episodes per
behavior with `touchline eval`, and writes this section. Actions are sampled, as Unity does, unless
the row says deterministic. Seconds are the training's wall-clock time up to the given step.
**Bold** returns miss their target.

| run | behavior | seed | agent steps | seconds | mean return (95 % interval) | target |
| --- | --- | --- | --- | --- | --- | --- |
"""
KEPT = "## Exploration"
"""The sections from this one on are written by hand."""


def touchline(*arguments: str) -> str:
    """Run a command of Touchline and return what it prints on standard output."""
    program = Path(sys.executable).with_name("touchline")
    command = [program, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def folder_of(trial: Trial, seed: int) -> Path:
    """Of a run, wherever it was trained."""
    there = RESULTS / f"{trial.name}-seeds" / f"seed-{seed}"
    return there if there.exists() else RESULTS / f"{trial.name}-{seed}"


def train(trial: Trial, seed: int) -> None:
    """Train one seed here, resuming an interrupted run."""
    run = f"{trial.name}-{seed}"
    is_interrupted = (RESULTS / run / "resume.safetensors").exists()
    start = ["--resume"] if is_interrupted else ["--seed", str(seed)]
    place = ["--run-id", run, "--results-dir", str(RESULTS)]
    touchline("train", trial.preset, *trial.train, *place, *start)


def train_there(trial: Trial, seeds: list[int], cluster: str) -> None:
    """Train several seeds on a cluster, resuming interrupted runs."""
    run = f"{trial.name}-seeds"
    start = ["--resume"] if (RESULTS / run).exists() else []
    place = ["--run-id", run, "--results-dir", str(RESULTS), "--cluster", cluster]
    which = ["--seeds", ",".join(map(str, seeds))]
    touchline("train", trial.preset, *trial.train, *place, *which, *start)


def measure(trial: Trial, seed: int) -> dict[str, Any]:
    """Play 100 episodes per behavior with the policy of a trained seed."""
    policy = folder = folder_of(trial, seed)
    if trial.checkpoint:
        policy = (
            folder / trial.preset / f"{trial.preset}-{trial.checkpoint}.safetensors"
        )
    options = ["--policy", str(policy), "--json", *trial.evaluate]
    figures = json.loads(touchline("eval", trial.preset, *options))
    behaviors = {}
    for name in trial.targets:
        rows = [
            row
            for row in metrics_of(folder / name)
            if not trial.checkpoint or int(row["step"]) <= trial.checkpoint
        ]
        cost = {"steps": int(rows[-1]["step"]), "seconds": float(rows[-1]["time_s"])}
        behaviors[name] = figures["behaviors"][name] | cost
    return behaviors


def metrics_of(behavior: Path) -> list[dict[str, str]]:
    """The rows of a behavior's metrics.csv."""
    with (behavior / "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def draw(trial: Trial, seeds: list[int]) -> str:
    """Draw the curves of all seeds as one picture in docs/images; its name."""
    figure, axes = pyplot.subplots(figsize=(5.2, 2.6), layout="constrained")
    for behavior, target in trial.targets.items():
        for seed in seeds:
            rows = metrics_of(folder_of(trial, seed) / behavior)
            points = [row for row in rows if row["mean_return"]]
            steps = [float(row["step"]) for row in points]
            returns = [float(row["mean_return"]) for row in points]
            axes.plot(steps, returns, linewidth=1, label=f"seed {seed}")
        axes.axhline(target, color="gray", linestyle=":", linewidth=1)
    title = f"{trial.name}: {', '.join(trial.targets)}"
    axes.set(title=title, xlabel="agent steps", ylabel="return in training")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    path = ROOT / "docs" / "images" / f"results-{trial.name}.png"
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
    return path.name


def row_of(trial: Trial, seed: int, behavior: str, figures: dict[str, Any]) -> str:
    """One line of the table."""
    target = trial.targets[behavior]
    low, high = figures["ci95"]
    mean = f"{figures['mean_return']:.3f} ({low:.3f} to {high:.3f})"
    if figures["mean_return"] < target:
        mean = f"**{mean}**"
    name = trial.name + (", deterministic" if trial.evaluate else "")
    steps, seconds = f"{figures['steps']:,}", f"{figures['seconds']:,.0f}"
    return f"| {name} | {behavior} | {seed} | {steps} | {seconds} | {mean} | {target:g} |\n"


def write_page(measured: dict[str, dict[str, Any]]) -> None:
    """Write `docs/results.md` from everything measured so far."""
    text, commands, pictures = INTRODUCTION, "", ""
    kept = PAGE.read_text(encoding="utf-8").partition(KEPT)
    for trial in TRIALS:
        seeds = [seed for seed in trial.seeds if f"{trial.name}-{seed}" in measured]
        for seed in seeds:
            behaviors = measured[f"{trial.name}-{seed}"]
            for behavior in trial.targets:
                text += row_of(trial, seed, behavior, behaviors[behavior])
        if seeds:
            commands += f"- {trial.name}: `{trial.command} --seed SEED`\n"
            pictures += f"![{trial.name}](images/{draw(trial, seeds)})\n"
    curves = "\nReturns during training; the dotted line is the target.\n\n"
    text += f"\n{commands}{curves}{pictures}\n"
    PAGE.write_text(text + "".join(kept[1:]), encoding="utf-8")


def read_measured() -> dict[str, dict[str, Any]]:
    """What was measured so far, by run and behavior."""
    return json.loads(MEASURED.read_text()) if MEASURED.exists() else {}


def main(names: list[str]) -> None:
    RESULTS.mkdir(exist_ok=True)
    trials = [trial for trial in TRIALS if not names or trial.name in names]
    for trial in trials:
        known = read_measured()
        missing = [s for s in trial.seeds if f"{trial.name}-{s}" not in known]
        if CLUSTER and missing:
            train_there(trial, missing, CLUSTER)
        for seed in missing:
            if not CLUSTER:
                train(trial, seed)
            figures = measure(trial, seed)
            # Read again: another script may have measured other runs meanwhile.
            measured = read_measured() | {f"{trial.name}-{seed}": figures}
            MEASURED.write_text(json.dumps(measured, indent=2))
            write_page(measured)
    write_page(read_measured())


if __name__ == "__main__":
    main(sys.argv[1:])
