"""Parity: what differs between two worlds, and what chance alone explains."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import touchline
from touchline.cli.app import run
from touchline.envs.env import WORLDS, EnvRecipe, World
from touchline.envs.scene_env import open_scene
from touchline.errors import UsageError
from touchline.player import build
from touchline.policies.files.onnx_in import OnnxPolicy
from touchline.policies.files.onnx_out import export_onnx
from touchline.policies.network import Architecture, make_network
from touchline.policies.network_policy import NetworkPolicy
from touchline.specs import (
    ActionSpec,
    BehaviorSpec,
    ObservationSpec,
)
from touchline.steps import DecisionSteps, TerminalSteps
from touchline.studies import references
from touchline.studies.comparison import Figures, compare, figures_of
from touchline.studies.parity import parity_lines
from touchline.studies.references import Normalizer, normalizers_of
from touchline.studies.units import FIRST_OBS, Units

BALL = "3DBall?team=0"


class Distorted:
    """3DBall with one observation scaled, and a reward shifted, by options of the recipe."""

    def __init__(self, recipe):
        self._world = open_scene(
            EnvRecipe("scene", "3DBall", recipe.num_areas, recipe.seed)
        )
        self._scale = recipe.options.get("scale", 1.0)
        self._bonus = recipe.options.get("bonus", 0.0)
        # Attributes, not `__getattr__`, which a runtime check of `Env` does not call on Python 3.12.
        self.behaviors = self._world.behaviors
        self.capacity = self._world.capacity
        self.reset = self._world.reset
        self.set_parameters = self._world.set_parameters
        self.set_actions = self._world.set_actions
        self.step = self._world.step
        self.close = self._world.close

    def __getattr__(self, name):
        return getattr(self._world, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._world.close()

    def steps(self, behavior):
        decisions, ends = self._world.steps(behavior)
        return self._changed(decisions), self._changed(ends)

    def _changed(self, steps: DecisionSteps | TerminalSteps):
        obs = [part.copy() for part in steps.obs]
        obs[0][:, 5] *= self._scale
        values = {**vars(steps), "obs": obs, "reward": steps.reward + self._bonus}
        return type(steps)(**values)


def open_distorted(recipe):
    return Distorted(recipe)


@pytest.fixture
def distorted(monkeypatch):
    world = World(f"{__name__}:open_distorted")
    monkeypatch.setitem(WORLDS, "distorted", world)

    def recipe(**options):
        return EnvRecipe("distorted", "Distorted", 12, options=options)

    return recipe


def figures(player, episodes=60, seed=0):
    return touchline.parity(
        EnvRecipe("scene", "3DBall", 12, seed),
        "random",
        reference=player,
        episodes=episodes,
    )


def differing(report):
    own = report["behaviors"][BALL]
    found = {name for name, row in own["figures"].items() if row["differs"]}
    for observation in own["observations"]:
        for part in ("mean", "spread"):
            if observation[part]["differs"]:
                found.add(f"{part} {observation['name']}")
    return found


def test_equal_worlds_are_not_flagged(distorted):
    report = figures(distorted())
    assert not report["differs"]
    assert differing(report) == set()
    own = report["behaviors"][BALL]
    assert own["episodes"] == 60
    assert own["units"] == [60, 60]
    assert 0 < own["figures"]["return"]["chance"] < 1
    assert "length" in own["figures"]


def test_a_scaled_observation_is_found_and_named(distorted):
    report = figures(distorted(scale=1.5))
    assert differing(report) == {"spread VectorSensor_size8[5]"}
    row = report["behaviors"][BALL]["observations"][5]["spread"]
    assert row["reference"] / row["here"] == pytest.approx(1.5, rel=0.2)


def test_a_shifted_reward_is_found(distorted):
    assert differing(figures(distorted(bonus=0.02))) == {"return"}


def unit_sums(rng, num_units, shift=0.0, num_obs=40):
    """Units of 5 to 50 decisions, whose observations hardly change within a unit."""
    length = rng.integers(5, 50, num_units)
    sums = np.zeros((num_units, FIRST_OBS + 2 * num_obs))
    sums[:, :FIRST_OBS] = np.stack(
        [
            length**0,
            length * 0,
            length,
            length,
            rng.normal(size=num_units),
            length**0,
            length * 0,
        ],
        axis=1,
    )
    for unit, n in enumerate(length):
        obs = rng.normal(size=num_obs) + 0.1 * rng.normal(size=(n, num_obs))
        obs[:, 0] += shift
        sums[unit, FIRST_OBS : FIRST_OBS + num_obs] = obs.sum(axis=0)
        sums[unit, FIRST_OBS + num_obs :] = (obs**2).sum(axis=0)
    return Units(sums)


def test_chance_explains_all_of_equal_worlds_in_19_comparisons_of_20():
    rng = np.random.default_rng(0)
    false_alarms = sum(
        compare(unit_sums(rng, 20), unit_sums(rng, 20), trial).differs.any()
        for trial in range(60)
    )
    # Steps as units would flag every one of them. 60 comparisons at 5 %: 3 expected.
    assert false_alarms <= 8


def test_more_units_find_smaller_differences():
    rng = np.random.default_rng(0)
    few, many = (
        compare(unit_sums(rng, n, shift=0.5), unit_sums(rng, n), 0) for n in (20, 400)
    )
    assert not few.differs[4]
    assert many.differs[4]
    assert many.chance[4] < few.chance[4]


def test_figures_without_units_are_compared_by_the_units_here():
    rng = np.random.default_rng(1)
    here = unit_sums(rng, 100)
    values = figures_of(unit_sums(rng, 100))
    assert not compare(here, Figures(values, 100), 0).differs.any()
    values[6] += 2.0  # the mean of observation 2
    assert compare(here, Figures(values, 100), 0).differs.nonzero()[0].tolist() == [6]
    values[6] = np.nan
    assert not compare(here, Figures(values, 100), 0).differs.any()


def test_constant_observations_are_equal_or_differ():
    rng = np.random.default_rng(2)
    here, there = unit_sums(rng, 30), unit_sums(rng, 30)
    for units, value in ((here, 0.5), (there, 0.5 + 1e-9)):
        decisions = units.sums[:, 2]
        units.sums[:, FIRST_OBS] = value * decisions
        units.sums[:, FIRST_OBS + 40] = value**2 * decisions
    assert not compare(here, there, 0).differs[4]
    there.sums[:, FIRST_OBS] = 0.6 * there.sums[:, 2]
    there.sums[:, FIRST_OBS + 40] = 0.36 * there.sums[:, 2]
    assert compare(here, there, 0).differs[4]


@pytest.mark.slow
def test_a_player_of_a_scene_equals_the_scene(tmp_path):
    player = build("3DBall", tmp_path)
    picture, kept = tmp_path / "parity.png", tmp_path / "kept.json"
    settings = {"episodes": 48, "picture": picture, "save": kept}
    report = touchline.parity("3DBall", "random", reference=str(player), **settings)
    assert not report["differs"]
    assert report["reference"] == {"kind": "player", "name": str(player)}
    assert picture.read_bytes().startswith(b"\x89PNG")
    again = touchline.parity("3DBall", "random", reference=kept, episodes=48)
    assert not again["differs"]
    row = again["behaviors"][BALL]["figures"]["return"]
    assert (
        row["reference"] == report["behaviors"][BALL]["figures"]["return"]["reference"]
    )


def test_a_random_policy_is_compared_with_what_is_stored_of_unity():
    report = touchline.parity("3DBall", "random", episodes=120)
    assert report["reference"] == {"kind": "statistics", "name": "3DBall.random"}
    row = report["behaviors"][BALL]["figures"]["return"]
    assert row["reference"] == pytest.approx(0.9931)
    assert not row["differs"]
    text = "\n".join(parity_lines(report))
    assert "compared with 3DBall.random (statistics), policy random" in text
    assert "independent units; reference: 607" in text


def test_unitys_policy_is_known_by_its_file(shared):
    policy = shared / "unity-policies" / "Basic.onnx"
    report = touchline.parity("Basic", policy, episodes=50)
    assert report["reference"]["name"] == "Basic.unity-policy"
    assert not report["differs"]


def test_the_normalizer_is_the_reference_of_last_resort(shared, tmp_path):
    model = onnx.load(shared / "unity-policies" / "3DBall.onnx")
    model.doc_string = "other bytes, so nothing is stored for this file"
    onnx.save(model, tmp_path / "other.onnx")
    report = touchline.parity("3DBall", tmp_path / "other.onnx", episodes=12)
    assert report["reference"] == {
        "kind": "normalizer",
        "name": "the policy's normalizer",
    }
    own = report["behaviors"][BALL]
    assert own["figures"] == {}  # it knows nothing of returns
    means = [o["mean"]["reference"] for o in own["observations"]]
    (kept,) = (c for c in model.graph.initializer if c.name.endswith("running_mean"))
    assert means == pytest.approx(onnx.numpy_helper.to_array(kept).tolist())
    assert "has seen the whole training" in "\n".join(parity_lines(report))


def test_what_never_varied_does_not_differ_from_a_normalizers_first_guess(tmp_path):
    # ML-Agents' variance starts at 1, so after n observations a constant's spread is 1/√n.
    spec = BehaviorSpec((ObservationSpec.vector(3, "a"),), ActionSpec(1))
    guess = 1 / np.sqrt(30e6)
    kept = [Normalizer([0], np.zeros(3), np.array([guess, 0.5, 1.0001 * guess]))]
    assert references._of_normalizers(kept, spec).values[-3:].tolist() == [0, 0.5, 0]
    varied = [Normalizer([0], np.zeros(3), np.array([0.002, 0.5, 1.0]))]
    assert references._of_normalizers(varied, spec).values[-3:].tolist() == [
        0.002,
        0.5,
        1.0,
    ]


def test_our_own_models_have_normalizers_too(tmp_path):
    spec = BehaviorSpec(
        (
            ObservationSpec.vector(2, "a"),
            ObservationSpec((3, 20, 20), name="image"),
            ObservationSpec.vector(1, "b"),
        ),
        ActionSpec(2),
    )
    network = make_network(spec, Architecture(normalize=True, hidden_units=8))
    network.normalizer.update(torch.tensor([[0.0, 1.0, 2.0], [4.0, 1.5, 8.0]]))
    export_onnx(network, tmp_path / "own.onnx")
    for policy in (OnnxPolicy(tmp_path / "own.onnx"), NetworkPolicy(network)):
        (found,) = normalizers_of(policy, spec)
        assert found.sensors == [0, 2]
        assert found.mean == pytest.approx(network.normalizer.mean.numpy())
        assert found.spread == pytest.approx(1 / network.normalizer.scale.numpy())


def test_groups_count_games(monkeypatch):
    world = World("tests.training.self_play.duel:open_duel")
    monkeypatch.setitem(WORLDS, "duel", world)
    duel = EnvRecipe("duel", "Duel", seed=3)
    report = touchline.parity(duel, "random", reference=duel, episodes=40)
    assert not report["differs"]
    for own in report["behaviors"].values():
        assert own["units"] == [40, 40]
        assert own["episodes"] > 40
        assert own["figures"]["group return"]["here"] == pytest.approx(0.0, abs=0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["Hallway", "--policy", "random"],
            "nothing to compare Hallway with: this policy has no normalizer, and no figures from "
            "Unity are stored for it (stored: 3DBall.random,",
        ),
        (
            [
                "3DBall",
                "--policy",
                "random",
                "--env",
                "no/such",
                "--statistics",
                "x.json",
            ],
            "give --env or --statistics to compare with, not both",
        ),
        (
            ["3DBall", "--policy", "random", "--save", "x.json"],
            "only a player's figures can be saved: give --env PLAYER, too",
        ),
        (
            ["3DBall", "--policy", "random", "--env", "./x", "--save", "x.txt"],
            "--save x.txt: expected a file NAME.json",
        ),
        (
            ["3DBall", "--policy", "random", "--statistics", "missing"],
            "--statistics missing: expected a file NAME.json",
        ),
        (
            ["3DBall", "--policy", "random", "--statistics", "missing.json"],
            "missing.json: cannot be read: ",
        ),
        (["3DBall", "--policy", "random", "--env", "no/such"], str(Path("no/such"))),
    ],
)
def test_wrong_calls_are_answered_in_one_line(arguments, message, capsys):
    assert run(["parity", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("touchline: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "not a file of statistics (expected JSON with 'behaviors')"),
        ("{", "not a file of statistics"),
        pytest.param("[" * 100_000, "not a file of statistics", id="brackets"),
        (
            '{"behaviors": {"Basic?team=0": {}}}',
            "about other behaviors: it has Basic?team=0",
        ),
        (
            '{"behaviors": {"3DBall?team=0": {"episodes": 3, "observation_mean": [1]}}}',
            "3DBall?team=0: observation_mean: expected a list of 8 numbers, one for each "
            "observation index, got [1]",
        ),
        ('{"behaviors": {"3DBall?team=0": {}}}', "episodes: expected 1 or more, got 0"),
    ],
)
def test_wrong_statistics_are_refused(tmp_path, text, message):
    path = tmp_path / "statistics.json"
    path.write_text(text)
    with pytest.raises(UsageError) as refusal:
        touchline.parity("3DBall", "random", reference=path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert message in str(refusal.value)


def test_json_is_json(capsys):
    assert (
        run(
            [
                "parity",
                "Basic",
                "--policy",
                "random",
                "--statistics",
                _basic(),
                "--json",
            ]
        )
        == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert report["scene"] == "Basic"
    assert report["differs"]  # random moves are not those of Unity's policy


def _basic():
    from touchline.studies.references import UNITY

    return str(UNITY / "Basic.unity-policy.json")
