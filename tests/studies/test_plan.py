"""Planning: the model worked by hand, and a measurement beside a real run."""

import json
import os
import subprocess
import sys
import time

import pytest

import touchline
from touchline.cli import run
from touchline.studies.measuring import Costs
from touchline.studies.plan import (
    Model,
    fixed_share,
    worthwhile_areas,
    worthwhile_players,
)
from touchline.training.config.reading import read_config

# 10 actions take 8 ms to collect and 2 ms to learn from.
COSTS = Costs(
    simulation=0.005,
    wire=0.001,
    acting=0.001,
    other=0.001,
    learning=0.002,
    agents=10.0,
    shares={"A": 1.0},
    bytes_per_action=1000.0,
    weight_bytes=1e6,
)


def _model(**changes):
    settings = {"fixed": 0.5, "cores": 4, "max_steps": {"A": 3_600_000}} | changes
    return Model(COSTS, **settings, update_steps=10_000)


def test_speed_and_time_are_those_of_all_parts_one_after_another():
    own = _model().option("as configured")
    assert own.steps_per_s == pytest.approx(10 / 0.010)
    assert own.hours == pytest.approx(1.0)
    assert own.limit == "simulation"


def test_a_thread_hides_the_shorter_of_collecting_and_learning():
    assert _model().option("", threaded=True).steps_per_s == pytest.approx(10 / 0.008)


def test_areas_multiply_what_is_not_fixed():
    four = _model().option("", areas=4)
    # 8 ms · (0.5 + 0.5 · 4) + 4 · 2 ms
    assert four.steps_per_s == pytest.approx(40 / 0.028)
    few, many = COSTS.collecting, 0.5 * COSTS.collecting + 4 * 0.5 * COSTS.collecting
    assert fixed_share(COSTS, _collecting(many), 4) == pytest.approx(0.5)
    assert fixed_share(COSTS, _collecting(few), 4) == 1.0
    assert fixed_share(COSTS, _collecting(4 * few), 4) == 0.0


def _collecting(seconds):
    nothing = {"wire": 0.0, "acting": 0.0, "other": 0.0}
    return Costs(**{**vars(COSTS), **nothing, "simulation": seconds})


def test_players_share_the_cores_and_this_process_serves_them_in_turn():
    three = _model().option("", players=3)
    assert three.steps_per_s == pytest.approx(30 / (0.005 + 3 * 0.003 + 3 * 0.002))
    six = _model().option("", players=6)  # two for each of the three other cores
    assert six.steps_per_s == pytest.approx(60 / (2 * 0.005 + 6 * 0.003 + 6 * 0.002))


def test_collectors_on_the_cores_of_a_machine_share_one_learner():
    assert _model().collectors("", 4).steps_per_s == pytest.approx(
        40 / (0.008 + 4 * 0.002)
    )


def test_machines_send_trajectories_once_and_weights_once_per_update():
    two = _model().machines(2)
    steps = 70  # of seven collectors; the eighth core learns
    sent = steps / 2 * 1000 + 1e6 * steps / 10_000
    assert two.steps_per_s == pytest.approx(steps / (0.008 + 7 * 0.002 + sent / 125e6))
    assert two.limit == "learning"
    # The limit of all machines is one learner: 1 / 0.2 ms, less what is sent.
    assert _model().machines(1000).steps_per_s < 5000


def test_areas_and_players_are_worth_having_while_they_gain_a_tenth():
    behaviors = read_config("3DBall").behaviors
    factor = worthwhile_areas(_model(), behaviors)
    speeds = [_model().option("", areas=factor * n).steps_per_s for n in (0.5, 1, 2)]
    assert speeds[1] >= 1.1 * speeds[0]
    assert speeds[2] < 1.1 * speeds[1]
    assert worthwhile_areas(_model(fixed=0.0), behaviors) == 1
    assert worthwhile_players(_model(cores=2)) < worthwhile_players(_model(cores=16))


@pytest.mark.slow
def test_a_plan_measures_a_scene_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["plan", "3DBall", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_areas"] == 12
    assert found["costs"]["agents"] == pytest.approx(12.0, rel=0.01)
    assert found["costs"]["wire"] == 0.0
    assert min(found["costs"][part] for part in ("simulation", "learning")) > 0
    assert [option["name"] for option in found["machines"]][0].startswith("1 x")
    assert not list(tmp_path.iterdir())


ENDED_AT_ONCE = """
import os
from touchline.studies import measuring, plan

measuring.open_slots = lambda *_: os._exit(7)
plan.plan("3DBall")
"""


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows cleans up by itself, later"
)
def test_a_plan_that_is_ended_at_once_leaves_no_folder(tmp_path):
    """As a second Ctrl-C ends it."""
    done = subprocess.run(
        [sys.executable, "-c", ENDED_AT_ONCE],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 7
    patient_until = time.monotonic() + 10.0
    while list(tmp_path.glob("touchline-plan-*")) and time.monotonic() < patient_until:
        time.sleep(0.05)
    assert not list(tmp_path.glob("touchline-plan-*"))


@pytest.mark.slow
def test_every_learner_can_be_planned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for preset in ("SoccerTwos", "3DBall_sac", "WallJump"):
        found = touchline.plan(preset)
        assert found.costs.learning > 0
        assert sum(found.costs.shares.values()) == pytest.approx(1.0)


def test_a_mistake_is_found_before_anything_is_measured(capsys):
    assert run(["plan", "3DBal"]) == 2
    assert "did you mean '3DBall'" in capsys.readouterr().err
    assert run(["plan", "3DBall", "--collectors", "2"]) == 2
    assert "leave out --collectors and --cluster" in capsys.readouterr().err
    assert run(["plan"]) == 2
    assert "plan what?" in capsys.readouterr().err
