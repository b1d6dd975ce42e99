"""Trains the presets to their ends, measures them, and writes the league of `docs/results.md`.

    python bench/results.py [NAME ...]      # all of them take many hours on two cores
    SEEDS=1,2,3 python bench/results.py     # three seeds of each instead of one
    CLUSTER=auto python bench/results.py    # seeds of a preset at the same time, on Ray's nodes

Every run and every measurement is the command line's own. An interrupted run is resumed, and a run
that is already measured is kept (`docs/league.json`), so the script can be stopped at any time and
started again, and rows land one by one.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
MEASURED = ROOT / "docs" / "league.json"
PAGE = ROOT / "docs" / "results.md"
CLUSTER = os.environ.get("CLUSTER")
"""Where to train, as `touchline train --cluster` takes it; None: here, one run after another."""


class Bar(NamedTuple):
    """What a behavior's mean return is held against."""

    unity: float | None
    """Of the policy that ships with ML-Agents, in our scene, actions sampled; None: not at hand."""
    ask: float
    """What the preset has to reach."""


@dataclass(frozen=True)
class Trial:
    """A preset, and the bars of its behaviors."""

    name: str
    bars: dict[str, Bar]
    episodes: int = 200
    note: str = ""
    """What a reader of its rows should know, after the command."""

    @property
    def command(self) -> str:
        return f"touchline train {self.name}"


TRIALS = [
    Trial("3DBall", {"3DBall": Bar(99.1, 99.5)}),
    Trial("3DBallHard", {"3DBallHard": Bar(96.9, 99.0)}, episodes=1000),
    Trial("Basic", {"Basic": Bar(0.93, 0.93)}),
    Trial("PushBlock", {"PushBlock": Bar(4.98, 4.97)}),
    Trial(
        "GridWorld",
        {"GridWorld": Bar(None, 0.97)},
        episodes=1000,
        note="seeds 2 and 3 were measured over 200 episodes",
    ),
    Trial("Hallway", {"Hallway": Bar(0.939, 0.93)}),
    Trial("Worm", {"Worm": Bar(1015.0, 1015.0)}),
    Trial(
        "WallJump",
        {"SmallWallJump": Bar(0.964, 0.96), "BigWallJump": Bar(0.866, 0.87)},
        episodes=1000,
    ),
    Trial(
        "Pyramids",
        {"Pyramids": Bar(1.79, 1.78)},
        note="seeds 2 and 3 next to up to four other jobs: some 40 minutes alone",
    ),
    Trial("GridFoodCollector", {"GridFoodCollector": Bar(67.7, 68.0)}),
    Trial("Crawler", {"Crawler": Bar(2430.0, 2480.0)}),
    Trial("Sorter", {"Sorter": Bar(9.24, 9.3)}),
    Trial("Match3", {"Match3VectorObs": Bar(32.4, 40.0)}),
    Trial(
        "Visual3DBall",
        {"Visual3DBall": Bar(93.0, 93.0)},
        note="Unity's policy returned 89 to 98 here",
    ),
    Trial(
        "VisualFoodCollector",
        {"VisualFoodCollector": Bar(66.7, 66.7)},
        note="seed 1 on a core that up to four other jobs shared: 700 steps/s at first, so some 50 "
        "minutes alone",
    ),
    Trial("DungeonEscape", {"DungeonEscape": Bar(0.948, 0.95)}, episodes=1000),
    Trial(
        "CooperativePushBlock",
        {"PushBlockCollab": Bar(11.67, 11.68)},
        episodes=1000,
    ),
]
"""The short ones first, so that rows land soon. Walker is measured by its reward per physics step,
and teams by their games: by hand, further down the page."""
SEEDS = tuple(map(int, os.environ.get("SEEDS", "1").split(",")))

INTRODUCTION = """\
# Results

What the presets reach, measured in November 2026 on two cores without a GPU, next to other jobs.

## The league

`make results` trains each preset from end to end with one command and nothing changed on the way,
lets its policy play 200 or 1,000 episodes with `touchline eval`, and writes this section. Actions
are sampled, as Unity does. "Unity's" is the policy that ships with ML-Agents, in the same scene;
none of them takes part in training. Minutes are the run's own, its evaluations included. **Bold**
returns miss what is asked of the preset; the picture has each behavior's worst seed. `SEEDS=1,2,3
make results` trains three. Walker, SoccerTwos and StrikersVsGoalie follow below; `Sorter` has not
run to its end (6.3 with 20 tiles after 4.3 of 15 million steps; Unity's has 9.4).

![Ours, as a share of what is asked](images/league.png)

| preset | behavior | seed | agent steps | minutes | mean return (95 % interval) | Unity's | asked |
| --- | --- | --- | --- | --- | --- | --- | --- |
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
    touchline("train", trial.name, *place, *start)


def train_there(trial: Trial, seeds: Sequence[int], cluster: str) -> None:
    """Train several seeds on a cluster, resuming interrupted runs."""
    run = f"{trial.name}-seeds"
    start = ["--resume"] if (RESULTS / run).exists() else []
    place = ["--run-id", run, "--results-dir", str(RESULTS), "--cluster", cluster]
    which = ["--seeds", ",".join(map(str, seeds))]
    touchline("train", trial.name, *place, *which, *start)


def measure(trial: Trial, seed: int) -> dict[str, Any]:
    """The figures of a trained seed's policy, by behavior."""
    folder = folder_of(trial, seed)
    options = ["--policy", str(folder), "--episodes", str(trial.episodes), "--json"]
    found = json.loads(touchline("eval", trial.name, *options))["behaviors"]
    behaviors = {}
    for name in trial.bars:
        own = found[name]
        # Where a group is paid, its agents' own returns are not what counts.
        is_group = own["mean_group_return"] != 0.0
        with (folder / name / "metrics.csv").open(encoding="utf-8") as file:
            *_, last = csv.DictReader(file)
        behaviors[name] = {
            "steps": int(last["step"]),
            "seconds": round(float(last["time_s"])),
            "mean_return": own["mean_group_return" if is_group else "mean_return"],
            "ci95": own["group_ci95" if is_group else "ci95"],
        }
    return behaviors


def row_of(trial: Trial, seed: int, behavior: str, figures: dict[str, Any]) -> str:
    """One line of the table."""
    bar = trial.bars[behavior]
    low, high = figures["ci95"]
    mean = f"{figures['mean_return']:.3f} ({low:.3f} to {high:.3f})"
    if figures["mean_return"] < bar.ask:
        mean = f"**{mean}**"
    unity = "" if bar.unity is None else f"{bar.unity:,g}"
    steps, minutes = f"{figures['steps']:,}", f"{figures['seconds'] / 60:.1f}"
    row = (trial.name, behavior, seed, steps, minutes, mean, unity, f"{bar.ask:,g}")
    return f"| {' | '.join(map(str, row))} |\n"


def draw(rows: Sequence[tuple[str, Bar, dict[str, Any]]]) -> None:
    """One picture of all rows: ours and Unity's as shares of what is asked."""
    figure, axes = pyplot.subplots(
        figsize=(7, 0.32 * len(rows) + 1), layout="constrained"
    )
    names = [f"{name}, {row['seconds'] / 60:.0f} min" for name, _, row in rows]
    ours = [100 * row["mean_return"] / bar.ask for _, bar, row in rows]
    places = range(len(rows))
    axes.barh(places, ours, color="tab:blue", label="ours")
    known = [n for n, (_, bar, _) in enumerate(rows) if bar.unity is not None]
    unity = [100 * (rows[n][1].unity or 0.0) / rows[n][1].ask for n in known]
    axes.plot(unity, known, "D", color="tab:orange", label="Unity's policy")
    axes.axvline(100, color="gray", linestyle=":")
    axes.set(yticks=places, yticklabels=names, xlabel="% of what is asked")
    axes.invert_yaxis()
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    figure.savefig(ROOT / "docs" / "images" / "league.png", dpi=100)
    pyplot.close(figure)


def write_page(measured: dict[str, dict[str, Any]]) -> None:
    """Write the first section of `docs/results.md` from everything measured so far."""
    text, commands = INTRODUCTION, ""
    drawn = []
    for trial in TRIALS:
        runs = sorted(run for run in measured if run.rpartition("-")[0] == trial.name)
        for behavior, bar in trial.bars.items() if runs else ():
            found = [measured[run][behavior] for run in runs]
            drawn.append((behavior, bar, min(found, key=itemgetter("mean_return"))))
        for run in runs:
            seed = int(run.rpartition("-")[2])
            for behavior in trial.bars:
                figures = measured[run][behavior]
                text += row_of(trial, seed, behavior, figures)
        if runs:
            line = f"- {trial.name}: `{trial.command} --seed SEED`"
            line += f"; {trial.note}" if trial.note else ""
            commands += fill(line, 100, subsequent_indent="  ") + "\n"
    draw(drawn)
    kept = PAGE.read_text(encoding="utf-8").partition(KEPT)
    PAGE.write_text(f"{text}\n{commands}\n{''.join(kept[1:])}", encoding="utf-8")


def read_measured() -> dict[str, dict[str, Any]]:
    """What was measured so far, by run and behavior."""
    return json.loads(MEASURED.read_text()) if MEASURED.exists() else {}


def main(names: list[str]) -> None:
    for trial in TRIALS:
        if names and trial.name not in names:
            continue
        known = read_measured()
        missing = [seed for seed in SEEDS if f"{trial.name}-{seed}" not in known]
        if CLUSTER and missing:
            train_there(trial, missing, CLUSTER)
        for seed in missing:
            if not CLUSTER:
                train(trial, seed)
            figures = measure(trial, seed)
            # Read again: another script may have measured other runs meanwhile.
            measured = read_measured() | {f"{trial.name}-{seed}": figures}
            MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
            write_page(measured)
    write_page(read_measured())


if __name__ == "__main__":
    main(sys.argv[1:])
