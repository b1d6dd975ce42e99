"""Worlds that cannot be put back, and whose behaviors and teams come late, idle, or are of
different sizes.
"""

import signal
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest

import touchline
from touchline.envs.env import WORLDS, EnvRecipe, World
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.operating_systems import send_to_self
from touchline.policies.files.checkpoints import read_checkpoint
from touchline.policies.loading import load_sides
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.steps import DecisionSteps, TerminalSteps
from touchline.studies.matches import Match, play
from touchline.studies.parity import parity
from touchline.training import trainer
from touchline.training.collect import opening
from touchline.training.config.settings import RunConfig
from touchline.training.evaluation import measure
from touchline.training.experience.replay import Replay
from touchline.training.recording import record_episodes

# They repeat calls whose shapes shorter tests check.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")

SPEC = BehaviorSpec(
    (ObservationSpec.vector(2, "noise"),), ActionSpec.create_continuous(1)
)


class Plan:
    """A world in which `plan(behavior, exchange)` gives the ids of those who decide; no
    agent ends unless `ends` says so.

    Like a Unity player it has no state to put back. `ends(behavior, exchange)` are ids whose
    episodes end.
    """

    def __init__(self, names, plan, *, late=None, ends=None, interrupt_at=None):
        self._names, self._plan, self._late = names, plan, late or {}
        self._ends = ends or (lambda *_: [])
        self._interrupt_at = interrupt_at
        self._rng = np.random.default_rng(0)
        self._time = 0

    @property
    def behaviors(self):
        return {
            name: SPEC for name in self._names if self._time >= self._late.get(name, 0)
        }

    def capacity(self, behavior):
        return None

    def reset(self, seed=None, parameters=None):
        self._time = 0

    def set_parameters(self, parameters):
        pass

    def set_actions(self, behavior, actions):
        assert np.isfinite(actions.continuous).all()

    def step(self):
        self._time += 1
        if self._time == self._interrupt_at:
            send_to_self(signal.SIGINT)

    def steps(self, behavior):
        ids = np.array(self._plan(behavior, self._time), np.int32)
        obs, zero = (
            [self._rng.random((len(ids), 2), np.float32)],
            np.zeros(len(ids), np.float32),
        )
        decisions = DecisionSteps(
            obs, zero + 1, ids, None, np.zeros(len(ids), np.int32), zero
        )
        ids = np.array(self._ends(behavior, self._time), np.int32)
        obs, zero = (
            [self._rng.random((len(ids), 2), np.float32)],
            np.zeros(len(ids), np.float32),
        )
        ends = TerminalSteps(
            obs,
            zero + 1,
            np.zeros(len(ids), bool),
            ids,
            np.zeros(len(ids), np.int32),
            zero,
        )
        return decisions, ends


def _teams(late, shown_at_first=True):
    """Two agents of A on each of the teams named in `late`, which begin at these exchanges.
    Episodes last ten exchanges and pay all teams the same.
    """
    ids = {f"A?team={team}": [2 * team + 1, 2 * team + 2] for team in late}
    begin = {f"A?team={team}": at for team, at in late.items()}

    def plan(name, time):
        return ids[name] if time >= begin[name] else []

    def ends(name, time):
        return plan(name, time) if time and time % 10 == 0 else []

    return Plan(list(ids), plan, late={} if shown_at_first else begin, ends=ends)


def _train(monkeypatch, tmp_path, world, behaviors, **settings):
    @contextmanager
    def open_slots(*_):
        yield Slots(world)

    monkeypatch.setattr(opening, "open_slots", open_slots)
    config = {
        "behaviors": behaviors,
        "checkpoint_settings": {
            "run_id": "run",
            "results_dir": str(tmp_path),
            **settings,
        },
        "env_settings": {"seed": 1},
    }
    return trainer.train(RunConfig.model_validate(config), EnvRecipe("unity", "plan"))


def _behavior(max_steps=2000, buffer_size=64, normalize=False):
    return {
        "trainer_type": "ppo",
        "max_steps": max_steps,
        "summary_freq": 500,
        "hyperparameters": {"batch_size": 32, "buffer_size": buffer_size},
        "network_settings": {"hidden_units": 8, "normalize": normalize},
    }


def test_a_resumed_run_keeps_what_a_behavior_learned_until_it_comes_again(
    monkeypatch, tmp_path
):
    def plan(name, time):
        ids = [1, 2, 3, 4] if name == "A" else [5, 6, 7, 8]
        return ids if name == "A" or time >= 50 else []

    behaviors = {"A": _behavior(20_000), "B": _behavior(20_000)}
    steps = []
    for stop, settings in ((300, {}), (20, {"resume": True}), (100, {"resume": True})):
        world = Plan(["A", "B"], plan, late={"B": 50}, interrupt_at=stop)
        steps.append(
            _train(monkeypatch, tmp_path, world, behaviors, **settings).behaviors
        )
    assert steps[0]["B"].steps > 800
    assert "B" not in steps[1]  # not seen, and not forgotten
    assert steps[2]["B"].steps > steps[0]["B"].steps
    _, about = read_checkpoint(tmp_path / "run" / "B" / "checkpoint.safetensors")
    assert about["steps"] == steps[2]["B"].steps


@pytest.mark.parametrize(
    "second",
    [
        lambda _: [7],
        lambda _: [],
        lambda t: [7] if t == 0 or t > 300 else [],
        lambda t: [7] if t > 300 else [],
    ],
    ids=["smaller", "never there", "idle for long", "late"],
)
def test_teams_need_not_be_alike(monkeypatch, tmp_path, second):
    world = Plan(
        ["A?team=0", "A?team=1"],
        lambda name, t: [1, 2] if name.endswith("0") else second(t),
    )
    result = _train(monkeypatch, tmp_path, world, {"A": _behavior(normalize=True)})
    assert result.behaviors["A"].steps >= 2000
    tensors, _ = read_checkpoint(result.folder / "A" / "checkpoint.safetensors")
    assert all(np.isfinite(tensor.numpy()).all() for tensor in tensors.values())


def test_a_team_that_comes_later_joins_self_play(monkeypatch, tmp_path):
    world = _teams({1: 0, 2: 0, 0: 5}, shown_at_first=False)
    block = _behavior() | {"self_play": {"save_steps": 200, "swap_steps": 100}}
    result = _train(monkeypatch, tmp_path, world, {"A": block})
    assert result.behaviors["A"].steps >= 2000


def test_a_game_of_one_team_alone_is_no_game_of_a_match(monkeypatch):
    monkeypatch.setitem(WORLDS, "teams", World(f"{__name__}:open_teams"))
    match = Match(EnvRecipe("teams", "A"), ("random", "zero"), 6)
    score = play(match)
    assert (score.won, score.drawn, score.lost) == (0, 6, 0)


def test_a_team_whose_agents_come_later_is_evaluated_too(monkeypatch):
    monkeypatch.setitem(WORLDS, "teams", World(f"{__name__}:open_teams"))
    recipe = EnvRecipe("teams", "A")
    assert _episodes(touchline.evaluate(recipe, "random", episodes=6)) == {"A": 12}
    slots = Slots(_teams({0: 15, 1: 0}))
    own = ["A?team=0"]
    figures = measure(slots, _actors(slots, ["zero"]), 6, seed=0, evaluated=own)
    assert _episodes(figures) == {"A": 6}


@pytest.mark.parametrize(
    ("late", "text"),
    [
        ({0: 0, 1: 5}, "only one team; both must be there in its first exchange"),
        ({1: 0, 2: 0, 0: 5}, "team 0 of the world came after team 1 had begun to play"),
    ],
)
def test_sides_that_would_change_in_mid_play_are_refused(late, text):
    slots = Slots(_teams(late, shown_at_first=False))
    with pytest.raises(UsageError, match=text):
        measure(slots, _actors(slots, ["zero"]), episodes=6, seed=0)


def _episodes(figures):
    return {name: of["episodes"] for name, of in figures["behaviors"].items()}


def open_teams(recipe):
    """As an entry of `WORLDS` names it: the higher team comes after its opponents' first end."""
    return nullcontext(_teams({0: 0, 1: 15}))


def test_each_team_has_returns_of_its_own(monkeypatch, tmp_path):
    """Episodes of 10 and of 30 decisions, a reward of 1 each: the mean lies between, whoever ends
    first.
    """

    def ends(name, time):
        length = 10 if name.endswith("0") else 30
        return (
            [1, 2]
            if name.endswith("0") and time % length == 0
            else [3, 4]
            if time % length == 0
            else []
        )

    world = Plan(
        ["A?team=0", "A?team=1"],
        lambda name, _: [1, 2] if name.endswith("0") else [3, 4],
        ends=ends,
    )
    result = _train(monkeypatch, tmp_path, world, {"A": _behavior(1900, 1920)})
    (_, row, *_) = (
        (result.folder / "A" / "metrics.csv").read_text(encoding="utf-8").splitlines()
    )
    episodes, mean, _, length = row.split(",")[3:7]
    short, long = 480 // 10, 480 // 30
    assert int(episodes) == pytest.approx(2 * (short + long), abs=6)
    assert float(length) == pytest.approx(
        (short * 10 + long * 30) / (short + long), abs=1.0
    )
    assert float(mean) == pytest.approx(float(length), abs=1.5)


def test_halves_that_take_turns_fill_whole_updates(monkeypatch, tmp_path):
    world = Plan(
        ["A"], lambda _, t: list(range(100)) if t % 2 else list(range(100, 200))
    )
    result = _train(monkeypatch, tmp_path, world, {"A": _behavior(2000, 100)})
    assert result.behaviors["A"].steps >= 2000


def test_a_run_goes_on_with_its_own_seed_and_only_in_its_own_world(tmp_path):
    def run(scene, **settings):
        config = {
            "behaviors": {scene: _behavior(1000, 500)},
            "checkpoint_settings": {
                "run_id": "run",
                "results_dir": str(tmp_path),
                **settings.pop("run", {}),
            },
            "env_settings": settings,
        }
        lines = []
        recipe = EnvRecipe("scene", scene, num_areas=settings.get("num_areas"))
        return trainer.train(
            RunConfig.model_validate(config), recipe, lines.append
        ), lines

    seed = [
        line.rpartition("seed ")[2]
        for line in run("3DBall", num_areas=2)[1]
        if "seed " in line
    ]
    before = (tmp_path / "run" / "configuration.yaml").read_text(encoding="utf-8")
    resume = {"resume": True}
    with pytest.raises(
        UsageError,
        match="this run has the target 3DBall, not Basic; resume it with that",
    ):
        run("Basic", num_areas=2, run=resume)
    with pytest.raises(
        UsageError,
        match="--resume: this run has num_areas 2, not 3; resume it with --num-areas 2",
    ):
        run("3DBall", num_areas=3, run=resume)
    with pytest.raises(
        UsageError,
        match="--resume: this run has num_envs 1, not 2; resume it with --num-envs 1",
    ):
        run("3DBall", num_areas=2, num_envs=2, run=resume)
    assert (tmp_path / "run" / "configuration.yaml").read_text(
        encoding="utf-8"
    ) == before
    assert [
        line.rpartition("seed ")[2]
        for line in run("3DBall", num_areas=2, run=resume)[1]
        if "seed " in line
    ] == seed
    assert f'"seed": {seed[0]}' in (
        tmp_path / "run" / "run_logs" / "training_status.json"
    ).read_text(encoding="utf-8")


def _late_world():
    """Three agents of A; B's two agents come with exchange 5. Episodes last ten exchanges."""
    ids = {"A?team=0": [1, 2, 3], "B?team=1": [4, 5]}

    def ends(name, time):
        return ids[name] if time % 10 == 0 and time > 5 else []

    return Plan(list(ids), lambda name, _: ids[name], late={"B?team=1": 5}, ends=ends)


def _actors(slots, versus=()):
    slots.reset(0)
    return load_sides(
        ["random"], versus, slots, "the world", deterministic=False, seed=0
    )


def test_a_behavior_that_comes_later_is_played_and_evaluated_too():
    slots = Slots(_late_world())
    figures = measure(slots, _actors(slots), episodes=6, seed=0)
    assert _episodes(figures) == {"A": 6, "B": 6}


def open_late(recipe):
    """As an entry of `WORLDS` names it: the late world, or what it has of one behavior."""
    world = _late_world()
    if recipe.target != "Late":
        world = Plan([recipe.target], world._plan, ends=world._ends)
    return nullcontext(world)


def test_a_behavior_that_comes_later_is_compared_too(monkeypatch):
    monkeypatch.setitem(WORLDS, "late", World(f"{__name__}:open_late"))

    def compared(other):
        here, player = EnvRecipe("late", "Late"), EnvRecipe("late", other)
        return parity(here, ["random"], reference=player, episodes=6)

    played = {
        name: of["episodes"] for name, of in compared("Late")["behaviors"].items()
    }
    assert played == {"A?team=0": 6, "B?team=1": 6}
    for other, names in (
        ("A?team=0", "A.team=0, B.team=1"),
        ("B?team=1", "A.team=0"),  # refused before anything is played
    ):
        with pytest.raises(UsageError, match=f"those of Late are {names}; parity"):
            compared(other)


def test_a_behavior_that_comes_later_is_recorded_from_then_on():
    slots = Slots(_late_world())
    files = record_episodes(slots, _actors(slots), episodes=4, seed=0)
    assert {name: len(file) for name, file in files.items()} == {
        "A?team=0": 44,
        "B?team=1": 34,  # two of five exchanges, two of ten, and their beginnings
    }


def test_who_comes_later_leaves_the_noise_of_those_before_alone():
    slots = Slots(_late_world())
    actors = _actors(slots)
    first = actors["A?team=0"]
    with pytest.raises(KeyError):
        actors["B?team=1"]
    rows = slots.reset(0)
    while "B?team=1" not in rows:
        rows = slots.step({name: actors[name].act(row) for name, row in rows.items()})
    assert actors["B?team=1"].spec == SPEC
    assert actors["A?team=0"] is first


def test_agents_that_decide_one_after_the_other_are_learned_from_alike(
    monkeypatch, tmp_path
):
    """SAC takes experience after every result, so most actions are open then."""
    learned = np.zeros(10, int)
    add = Replay.add

    def counted(replay, team, trajectories, rewards):
        learned[: trajectories.valid.shape[1]] += trajectories.valid.sum(axis=0)
        add(replay, team, trajectories, rewards)

    monkeypatch.setattr(Replay, "add", counted)
    world = Plan(["A"], lambda _, time: [a for a in range(10) if a % 5 == time % 5])
    behavior = {
        "trainer_type": "sac",
        "max_steps": 300,
        "hyperparameters": {"batch_size": 16, "steps_per_update": 1},
        "network_settings": {"hidden_units": 8},
    }
    _train(monkeypatch, tmp_path, world, {"A": behavior})
    assert learned.sum() >= 300
    assert learned.max() - learned.min() <= 1
