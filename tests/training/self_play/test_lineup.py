"""Laws of self-play, on a game that ends every few steps."""

import itertools

import numpy as np
import pytest
import torch
from tests.training.self_play.duel import SYMMETRIC, UNLIKE, Duel, Match, config

from touchline.envs.env import WORLDS, EnvRecipe, World
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import load_network
from touchline.policies.shared_slots import OWN
from touchline.training.config.reading import read_config
from touchline.training.config.settings import RunConfig
from touchline.training.self_play.lineup import SelfPlay
from touchline.training.self_play.pool import Pool
from touchline.training.trainer import train


def _who(match):
    """Full name -> who plays in each slot; with the slots where they are learned from."""
    return {name: match.policy(name).player.copy() for name in match.rows}


@pytest.mark.parametrize("names", [SYMMETRIC, UNLIKE])
def test_an_opponent_never_changes_within_a_game(names):
    match, changes = Match(Duel(names)), 0
    before = _who(match)
    for _ in range(150):
        match.step()
        after = _who(match)
        for name, rows in match.rows.items():
            goes_on = ~(rows.terminated | rows.truncated)
            assert (before[name] == after[name])[goes_on].all()
            changes += (before[name] != after[name]).sum()
        before = after
    assert changes > 50


def test_a_team_has_one_policy_in_a_game_and_at_most_one_side_is_a_guest():
    match = Match(Duel(members=2))
    for _ in range(60):
        match.step()
        by_side = [who.reshape(-1, 2) for who in _who(match).values()]
        for side in by_side:
            assert (side[:, 0] == side[:, 1]).all()
        first, second = (side[:, 0] for side in by_side)
        assert ((first == OWN) | (second == OWN)).all()


def test_experience_of_opponents_is_never_learned_from():
    match = Match(Duel(), buffer_size=100_000, play_against_latest_model_ratio=0.3)
    learned = {name: [] for name in match.rows}
    for _ in range(40):
        for name, who in _who(match).items():
            learned[name].append(who == OWN)
        match.step()
    for name, rollout in match.rollouts.items():
        trajectories = rollout.trajectories()
        mask = np.array(learned[name])
        assert not trajectories.acted[~mask].any()
        assert not trajectories.valid[~mask].any()
        assert trajectories.valid[mask].all()
        assert (~mask).any()


def test_both_sides_teach_where_both_are_the_latest():
    match = Match(Duel(), play_against_latest_model_ratio=1.0)
    for _ in range(10):
        match.step()
    for name, rollout in match.rollouts.items():
        assert rollout.trajectories().valid.all(), name


@pytest.mark.usefixtures("unchecked_shapes")
def test_both_seats_are_learned_in_alike():
    match = Match(Duel(num_areas=8), play_against_latest_model_ratio=0.0)
    as_guest = dict.fromkeys(match.rows, 0)
    for _ in range(100):
        match.step()
        for name, who in _who(match).items():
            as_guest[name] += (who != OWN).sum()
    first, second = as_guest.values()
    assert first + second == 100 * 8 * 2
    assert abs(first - second) < 0.25 * (first + second)


@pytest.mark.usefixtures("unchecked_shapes")
def test_teams_that_take_turns_learn_one_at_a_time():
    match = Match(Duel(UNLIKE), take_turns=True, team_change=300)
    steps = []
    for _ in range(300):
        match.step()
        steps.append([learner.steps for learner in match.learners.values()])
    grown = np.diff(steps, axis=0) > 0
    assert grown.any(axis=0).all(), "both learned"
    # An update of one side may still hold what it learned before the turn changed.
    order = [int(np.argmax(row)) for row in grown if row.any()]
    assert sum(a != b for a, b in itertools.pairwise(order)) < len(order) / 2


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_behavior_that_is_done_takes_no_turns_from_the_others_of_its_team():
    names = ("Done?team=0", "More?team=0", "Other?team=1")
    match = Match(Duel(names), take_turns=True, team_change=300)
    match.self_play.pools["Done"].is_done = True
    for _ in range(300):
        match.step()
    more, other = (match.learners[name].steps for name in ("More", "Other"))
    assert abs(more - other) < 0.25 * (more + other)


def test_every_game_is_counted_once_with_the_result_of_the_scene(monkeypatch):
    world = Duel(limited=[2], num_areas=4)
    match = Match(world, play_against_latest_model_ratio=0.0)
    ratings, scores = match.self_play.ratings, []
    record = ratings.record

    def note(player, opponent, score):
        scores.append(score)
        record(player, opponent, score)

    monkeypatch.setattr(ratings, "record", note)
    for _ in range(60):
        match.step()
    assert ratings.games.sum() / 2 == len(world.results)
    draws = sum(score == 0.5 for _, score in world.results)
    assert scores.count(0.5) == draws
    assert any(area == 2 for area, _ in world.results)
    assert all(score == 0.5 for area, score in world.results if area == 2)


def test_games_of_the_latest_policy_against_itself_change_no_rating():
    match = Match(Duel(), play_against_latest_model_ratio=1.0)
    for _ in range(30):
        match.step()
    assert match.self_play.ratings.games.sum() == 0


def test_games_of_the_latest_strikers_and_goalies_count():
    world = Duel(UNLIKE)
    match = Match(world, play_against_latest_model_ratio=1.0)
    for _ in range(30):
        match.step()
    assert match.self_play.ratings.games.sum() / 2 == len(world.results)
    assert "win_rate_latest" in match.self_play.pools["Striker"].metrics()


@pytest.mark.usefixtures("unchecked_shapes")
def test_the_pool_keeps_what_still_plays_and_forgets_the_rest():
    match = Match(Duel(), save_steps=50, window=3)
    for _ in range(400):
        match.step()
        playing = {n for who in _who(match).values() for n in who if n != OWN}
        pool = match.self_play.pools["Duel"]
        assert playing <= set(pool.guests)
        assert len(pool.guests) <= 3 + len(playing) + len(pool.drawn)
    assert len(match.self_play.ratings.names) > 10


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_rating_rises_when_a_side_learns_to_win():
    match = Match(Duel(num_areas=16), save_steps=1000)
    for _ in range(600):
        match.step()
    metrics = match.self_play.pools["Duel"].metrics()
    assert metrics["elo"] > 1200 + 2 * metrics["elo_error"]
    assert metrics["win_rate_pool"] > 0.5


@pytest.mark.usefixtures("unchecked_shapes")
def test_a_rating_is_as_sure_after_a_snapshot_as_before():
    match = Match(Duel(num_areas=16), save_steps=1000)
    pool, ratings = match.self_play.pools["Duel"], match.self_play.ratings
    found = []
    for _ in range(200):
        number, error = pool.current, pool.rating()[1]
        match.step()
        if pool.current != number:
            found.append((error, pool.rating()[1]))
    assert len(found) > 3
    assert len(ratings.apart) == len(ratings.names)
    for before, after in found[1:]:
        # The interval's last update and games come between.
        assert after == pytest.approx(before, rel=0.25)


def test_a_world_of_one_team_has_no_opponents():
    with pytest.raises(UsageError, match=r"self_play: all agents .* on one team"):
        Match(Solo())


class Solo(Duel):
    """One side only."""

    def __init__(self):
        super().__init__(("Duel?team=0",))


def test_a_run_whose_games_never_end_says_so_once(tmp_path, monkeypatch):
    monkeypatch.setitem(
        WORLDS, "duel", World("tests.training.self_play.duel:open_duel")
    )
    monkeypatch.setattr("touchline.training.run.seats.LONG_WAIT", 20)
    overrides = {
        "checkpoint_settings.results_dir": str(tmp_path),
        "behaviors.Duel.trainer_type": "ppo",
        "behaviors.Duel.self_play": {},
        "behaviors.Duel.max_steps": 1000,
        "behaviors.Duel.hyperparameters": {"batch_size": 64, "buffer_size": 256},
        "behaviors.Duel.network_settings": {"hidden_units": 8, "num_layers": 1},
    }
    lines = []
    config = read_config(None, (), overrides)
    monkeypatch.setattr("touchline.training.evaluation.MOST_DECISIONS", 10)
    train(config, EnvRecipe("duel", "Endless"), log=lines.append)
    assert sum("no game was over for 20 decision steps" in line for line in lines) == 1


def test_restored_self_play_goes_on_with_the_same_games(tmp_path):
    match = Match(Duel())
    for _ in range(70):
        match.step()
    counters, arrays = match.self_play.counters(), match.self_play.arrays()
    again = Match(Duel())
    again.self_play.pools.clear()
    again.self_play.restore(counters, arrays)
    for base, learner in match.learners.items():
        spec, settings = learner.policy.network.spec, learner.config.self_play
        again.self_play.enroll(base, spec, settings, learner.policy, learner.steps)
    again.learners = match.learners
    for name in match.rows:
        assert (again.policy(name).player == match.policy(name).player).all()
    assert again.self_play.counters() == counters
    restored = again.self_play.arrays()
    assert restored.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(restored[name], array, err_msg=name)


def test_a_resume_point_keeps_the_pools_of_behaviors_that_have_not_come_back_yet():
    match = Match(Duel(UNLIKE))
    for _ in range(70):
        match.step()
    counters, arrays = match.self_play.counters(), match.self_play.arrays()
    again = Match(Duel(UNLIKE)).self_play
    again.pools.clear()
    again.restore(counters, arrays)
    assert again.counters()["pools"] == counters["pools"]
    learner = match.learners["Striker"]
    spec, settings = learner.policy.network.spec, learner.config.self_play
    again.enroll("Striker", spec, settings, learner.policy, learner.steps)
    assert again.counters()["pools"] == counters["pools"]
    assert again.arrays().keys() == arrays.keys()


def test_a_pool_that_is_empty_after_a_resume_is_refused():
    files = {"window": 0, "play_against_latest_model_ratio": 0.0}
    match = Match(Duel(UNLIKE), **files, versus=["Striker=random", "Goalie=random"])
    counters, arrays = match.self_play.counters(), match.self_play.arrays()
    again = SelfPlay(0)
    again.restore(counters, arrays)
    learner = match.learners["Goalie"]
    settings = config(**files, versus=["Striker=random"]).self_play
    with pytest.raises(UsageError, match="no file is for Goalie, and window 0"):
        again.enroll("Goalie", learner.policy.network.spec, settings, learner.policy, 0)


def test_worlds_that_restart_smaller_leave_no_opponent_behind():
    """A Unity player that is resumed with fewer areas: those that are gone play no more."""
    match = Match(Duel(num_areas=24), play_against_latest_model_ratio=0.0)
    for _ in range(60):
        match.step()
    seating, pool = match.self_play.seating, match.self_play.pools["Duel"]
    match.slots = Slots(Duel(num_areas=2))
    match.rows = match.slots.reset(0)
    match.rollouts.clear()
    match.self_play.begin(match.rows)
    drawn = []
    for _ in range(60):
        match.step()
        drawn.append(tuple(pool.drawn))
        assert len(seating.playing("Duel")) <= 2
    assert len(set(drawn)) > 2, "other opponents are drawn"
    for name, rows in match.rows.items():
        assert len(match.policy(name).player) == len(rows)


def test_what_opponents_remember_ends_where_worlds_restart():
    """Their tables may be smaller than before."""
    match = Match(Duel(num_areas=4))
    for _ in range(10):
        match.step()
    memories = [match.policy(name) for name in match.rows]
    for policy in memories:
        policy.load_state({"0": np.ones((9, 1, 2), np.float32)})
    match.self_play.begin(match.slots.reset(0))
    assert not any(policy.state() for policy in memories)


def test_each_behavior_has_its_own_initial_rating():
    match = Match(Duel(UNLIKE))
    ratings = match.self_play.ratings
    ratings.initial["Goalie"] = 1500.0
    firsts = [ratings.kinds.index(kind) for kind in ("Striker", "Goalie")]
    ratings.record(*firsts, 1.0)
    assert ratings.fit()[0][firsts].tolist() == [1200.0, 1500.0]


def test_a_run_reports_its_rating_and_its_opponents(tmp_path):
    lines = []
    config = read_config(
        "SoccerTwos",
        {
            "behaviors.*.hyperparameters.batch_size": 256,
            "behaviors.*.hyperparameters.buffer_size": 1024,
            "behaviors.*.network_settings.hidden_units": 8,
            "behaviors.*.self_play.save_steps": 1000,
            "behaviors.*.summary_freq": 2000,
            "behaviors.*.self_play.versus": ["random"],
            "behaviors.*.max_steps": 4000,
            "checkpoint_settings.results_dir": str(tmp_path),
            "checkpoint_settings.run_id": "run",
            "env_settings.seed": 1,
        },
    )
    result = train(config, EnvRecipe("scene", "SoccerTwos", num_areas=4), lines.append)
    assert any("ELO" in line and "±" in line for line in lines)
    report = (result.folder / "report.md").read_text(encoding="utf-8")
    assert "SoccerTwos by self-play: ELO" in report
    assert "| SoccerTwos 0 | 1200 ± 0 |" in report
    assert "| random |" in report
    assert (result.folder / "SoccerTwos.png").exists() or "none ended" in report


def test_a_resumed_run_can_begin_self_play(tmp_path, monkeypatch):
    def run(**changes):
        overrides = {
            "behaviors.*.hyperparameters.batch_size": 256,
            "behaviors.*.hyperparameters.buffer_size": 1024,
            "behaviors.*.network_settings.hidden_units": 8,
            "checkpoint_settings.results_dir": str(tmp_path),
            "checkpoint_settings.run_id": "run",
            "env_settings.num_areas": 4,
            "env_settings.seed": 1,
            **changes,
        }
        config = read_config("SoccerTwos", overrides)
        recipe = EnvRecipe("scene", "SoccerTwos", num_areas=4)
        lines = []
        result = train(config, recipe, log=lines.append)
        network = load_network(result.folder / "SoccerTwos/checkpoint.safetensors")
        return lines, network.state_dict()

    lines, learned = run(
        **{"behaviors.*.self_play": None, "behaviors.*.max_steps": 2000}
    )
    assert not any("ELO" in line for line in lines)
    firsts = []
    original = Pool.begin

    def begin(pool, steps):
        original(pool, steps)
        firsts.append((steps, pool.guests[0].policy.network.state_dict()))

    monkeypatch.setattr(Pool, "begin", begin)
    lines, _ = run(
        **{"behaviors.*.max_steps": 4000, "checkpoint_settings.resume": True}
    )
    assert any("ELO" in line for line in lines)
    assert any(line.startswith("this run had no self-play") for line in lines)
    ((steps, snapshot),) = firsts
    assert steps >= 2000
    for name, tensor in learned.items():
        assert torch.equal(snapshot[name], tensor), (
            "what was learned is the first opponent"
        )


def test_a_behavior_that_is_done_gives_its_turn_away_when_a_run_resumes(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(
        WORLDS, "duel", World("tests.training.self_play.duel:open_duel")
    )

    def run(goalie, *, resume):
        def behavior(max_steps):
            return {
                "trainer_type": "ppo",
                "hyperparameters": {"batch_size": 64, "buffer_size": 128},
                "network_settings": {"hidden_units": 8, "num_layers": 1},
                "max_steps": max_steps,
                "self_play": {
                    "save_steps": 200,
                    "take_turns": True,
                    "team_change": 300,
                },
            }

        settings = RunConfig.model_validate(
            {
                "behaviors": {"Striker": behavior(300), "Goalie": behavior(goalie)},
                "env_settings": {"seed": 1},
                "evaluation": {"episodes": 0},
                "checkpoint_settings": {
                    "run_id": "run",
                    "results_dir": str(tmp_path),
                    "resume": resume,
                },
            }
        )
        num_steps = 0

        def watch(_):
            nonlocal num_steps
            num_steps += 1
            assert num_steps < 2000, "the goalie never has its turn again"

        recipe = EnvRecipe("duel", "Unlike", num_areas=6)
        return train(settings, recipe, lambda line: None, watch=watch)

    run(600, resume=False)
    result = run(1200, resume=True)
    assert result.behaviors["Goalie"].steps >= 1200
