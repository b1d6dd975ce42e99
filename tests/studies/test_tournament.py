"""Tournaments: who meets whom, what is counted, and what is said about it."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import touchline
from touchline.cli.app import run
from touchline.envs.env import WORLDS, EnvRecipe, World
from touchline.errors import RunError, UsageError
from touchline.studies.tournament import (
    figures_of,
    names_of,
    schedule,
    tournament_lines,
)

RECIPE = EnvRecipe("scene", "SoccerTwos", seed=3)


@pytest.fixture
def duel(monkeypatch):
    """A world of quick games."""
    world = World("tests.training.self_play.duel:open_duel")
    monkeypatch.setitem(WORLDS, "duel", world)
    return EnvRecipe("duel", "Duel", seed=3)


def test_every_pair_plays_as_often_in_both_seats():
    entrants = ["a.onnx", "b.onnx", "random"]
    matches, seats = schedule(RECIPE, entrants, 130, deterministic=False)
    games = np.zeros((3, 3), int)
    for match, (low, high) in zip(matches, seats, strict=True):
        assert match.seats == (entrants[low], entrants[high])
        games[low, high] += match.games
    assert (games == np.array([[0, 65, 65], [65, 0, 65], [65, 65, 0]])).all()
    assert len({match.recipe.seed for match in matches}) == len(matches)


def test_a_tournament_counts_every_game_for_both_sides(duel):
    figures = touchline.tournament(duel, ["random", "zero"], games=40, processes=1)
    (best, rest) = figures["entrants"]
    assert best["name"] == "random"  # `zero` always makes the smallest choice
    assert (best["games"], rest["games"]) == (40, 40)
    assert (best["won"], best["drawn"], best["lost"]) == (
        rest["lost"],
        rest["drawn"],
        rest["won"],
    )
    assert figures["matrix"] == [
        [None, [best["won"], best["drawn"], best["lost"]]],
        [[rest["won"], rest["drawn"], rest["lost"]], None],
    ]
    assert best["rating"] - rest["rating"] > 200
    assert best["rating"] + rest["rating"] == pytest.approx(2400)
    assert best["rating_ci95"][0] > rest["rating_ci95"][1]
    assert figures["decisions"] > 40 * 4 * 2


def test_the_same_seed_gives_the_same_figures_and_another_one_others(duel):
    def play(seed):
        return touchline.tournament(
            duel, ["random", "zero"], games=30, seed=seed, processes=1
        )

    assert play(1) == play(1)
    assert play(1)["matrix"] != play(2)["matrix"]


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing():
    def play(processes):
        return touchline.tournament(
            EnvRecipe("scene", "SoccerTwos", num_areas=4),
            ["random", "zero"],
            games=8,
            processes=processes,
        )

    assert play(2) == play(1)


SLOW = """
import os, pathlib, sys, time
import touchline
from tests.training.self_play.duel import Duel
from touchline.envs.env import WORLDS, EnvRecipe, World


class Slow(Duel):
    def step(self):
        pathlib.Path(f"playing-{os.getpid()}").touch()
        time.sleep(2)
        super().step()

    def close(self):
        pathlib.Path(f"closed-{os.getpid()}").touch()


def open_slow(recipe):
    return Slow(num_areas=1)


WORLDS["slow"] = World("slow:open_slow")
if __name__ == "__main__":
    try:
        slow = EnvRecipe("slow", "Slow")
        touchline.tournament(slow, ["random", "zero"], games=400, processes=2)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signals")
@pytest.mark.parametrize(
    "number", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow), "SIGKILL"]
)
def test_a_tournament_that_is_stopped_closes_its_worlds_at_once(tmp_path, number):
    (tmp_path / "slow.py").write_text(SLOW)
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    with subprocess.Popen(
        [sys.executable, "slow.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            while len(playing := list(tmp_path.glob("playing-*"))) < 2:
                assert process.poll() is None
                time.sleep(0.05)
            # The terminal's Ctrl-C reaches all processes.
            stop = os.killpg if number == "SIGINT" else os.kill
            stop(process.pid, signal.Signals[number])
            # It ends when the last process does that has its standard error.
            _, written = process.communicate(timeout=20)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert b"Traceback" not in written
    assert process.returncode == (-signal.SIGKILL if number == "SIGKILL" else 130)
    # And one of the first process, in which entrants were checked.
    closed = {path.name for path in tmp_path.glob("closed-*")}
    assert closed > {path.name.replace("playing", "closed") for path in playing}


def test_an_entrant_may_have_a_policy_for_each_behavior(duel):
    unlike = EnvRecipe("duel", "Unlike", seed=1)
    entrants = ["Striker=random,Goalie=zero", "Striker=zero,Goalie=random"]
    figures = touchline.tournament(unlike, entrants, games=20, processes=1)
    drawn = {entrant["drawn"] for entrant in figures["entrants"]}
    # In one seating all choices are zero, and the other one is random against random.
    assert min(drawn) >= 10


@pytest.mark.parametrize(
    ("target", "entrants", "message"),
    [
        ("Duel", ["random"], "needs two entrants or more, got 1"),
        ("Duel", ["random", "zero", "random"], "--policy random is given twice"),
        ("Solo", ["random", "zero"], "Solo has one team"),
        ("Duel", ["random", "Gaolie=zero"], "no behavior 'Gaolie'; behaviors: Duel"),
        ("Duel", ["random", "nothing.onnx"], "nothing.onnx: no such policy file"),
        ("Unlike", ["random", "Striker=zero"], "no policy given for Goalie"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(duel, target, entrants, message):
    recipe = EnvRecipe("duel", target)
    with pytest.raises(UsageError) as refusal:
        touchline.tournament(recipe, entrants, games=4, processes=1, progress=_no_game)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def _no_game(played, total):
    raise AssertionError("nothing is played before all is known to fit")


def test_a_pair_plays_two_games_or_more(duel):
    for games in (0, 1):
        with pytest.raises(UsageError, match="games: expected at least 2, one on each"):
            touchline.tournament(duel, ["random", "zero"], games=games)
        with pytest.raises(UsageError, match="games: expected at least 2, one on each"):
            touchline.exploit("SoccerTwos", "random", games=games)


def test_games_that_never_end_are_one_line(duel, monkeypatch):
    limit = "touchline.training.evaluation.MOST_DECISIONS"
    monkeypatch.setattr(limit, 50)
    endless = EnvRecipe("duel", "Endless")
    with pytest.raises(RunError) as failure:
        touchline.tournament(endless, ["random", "zero"], games=4, processes=1)
    message = "no game ended within 50 decisions: a tournament needs games that end"
    assert message in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_cycle_is_reported_and_an_order_is_not():
    cycle = np.zeros((3, 3, 3), int)
    for winner, loser in ((0, 1), (1, 2), (2, 0)):
        cycle[winner, loser] = [80, 0, 20]
        cycle[loser, winner] = [20, 0, 80]
    lines = list(tournament_lines(figures_of(["a", "b", "c"], cycle)))
    assert sum("not transitive" in line for line in lines) >= 1
    order = np.zeros((3, 3, 3), int)
    for winner, loser in ((0, 1), (1, 2), (0, 2)):
        order[winner, loser] = [80, 0, 20]
        order[loser, winner] = [20, 0, 80]
    figures = figures_of(["a", "b", "c"], order)
    assert figures["upsets"] == []
    assert [entrant["name"] for entrant in figures["entrants"]] == ["a", "b", "c"]


def test_files_are_called_by_their_own_name_unless_two_have_the_same():
    assert names_of(["x/a.onnx", "y/b.onnx"]) == ["a.onnx", "b.onnx"]
    assert names_of(["x/a.onnx", "y/a.onnx"]) == ["x/a.onnx", "y/a.onnx"]
    assert names_of(["Striker=x/a.onnx,Goalie=b"]) == ["Striker=a.onnx,Goalie=b"]


def test_the_command_prints_figures_as_json_and_draws_a_picture(
    duel, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(EnvRecipe, "parse", lambda *_, **__: duel)
    picture = tmp_path / "t.png"
    call = ["tournament", "Duel", "--policy", "random", "--policy", "zero"]
    call += ["--games", "10", "--processes", "1", "--picture", str(picture)]
    assert run([*call, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["games_per_pair"] == 10
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert run(call) == 0
    assert "1. random" in capsys.readouterr().out
