"""Ratings: ML-Agents' formula, and what a fit over all games must give."""

import json

import numpy as np
import pytest

from touchline.training.self_play.ratings import (
    ELO,
    SPREAD_OF_SUCCESSORS,
    Ratings,
)


def test_as_ml_agents_the_change_of_a_rating(shared):
    """Recorded from ML-Agents 1.1.0: K = 1, change = result - expected score."""
    golden = json.loads((shared / "golden" / "elo.json").read_text(encoding="utf-8"))
    for row in golden["rows"]:
        odds_against = np.exp((float(row["opponent"]) - float(row["rating"])) / ELO)
        change = row["result"] - 1.0 / (1.0 + odds_against)
        assert change == pytest.approx(row["change"], abs=1e-5)


def test_a_policy_that_meets_itself_keeps_its_rating(shared):
    """As in ML-Agents, where the change is added and subtracted."""
    golden = json.loads((shared / "golden" / "elo.json").read_text(encoding="utf-8"))
    ratings = _table((1, 0, 1.0, 3), players=2)
    before = ratings.fit()[0].copy()
    ratings.record(1, 1, 0.5)
    assert golden["self_match"]["rating_after"] == 1200.0
    np.testing.assert_allclose(ratings.fit()[0], before)


def _table(*games, players=3):
    ratings = Ratings()
    for number in range(players):
        ratings.add("A", f"p{number}")
    for player, opponent, score, count in games:
        for _ in range(count):
            ratings.record(player, opponent, score)
    return ratings


def test_the_first_player_has_the_initial_rating_without_error():
    rating, error = _table((1, 0, 1.0, 30), (0, 1, 1.0, 10)).fit()
    assert rating[0] == 1200
    assert error[0] == 0
    assert error[1] > 0


def test_many_games_give_the_rating_that_predicts_their_score():
    rating, error = _table((1, 0, 1.0, 3000), (0, 1, 1.0, 1000), players=2).fit()
    assert rating[1] - rating[0] == pytest.approx(400 * np.log10(3), abs=2)
    # The information of n games won with probability p is n p (1 - p).
    assert error[1] == pytest.approx(ELO / np.sqrt(4000 * 0.25 * 0.75), rel=0.01)


def test_a_draw_is_half_a_win():
    drawn, _ = _table((1, 0, 0.5, 20), players=2).fit()
    shared_out, _ = _table((1, 0, 1.0, 10), (0, 1, 1.0, 10), players=2).fit()
    assert drawn == pytest.approx(shared_out)


def test_players_who_never_met_are_compared_through_others():
    rating, _ = _table((1, 0, 1.0, 300), (0, 1, 1.0, 100), (2, 1, 1.0, 300),
                       (1, 2, 1.0, 100)).fit()  # fmt: skip
    assert rating[2] - rating[1] == pytest.approx(rating[1] - rating[0], abs=25)


def test_a_player_without_games_is_as_strong_as_the_one_it_learned_on_from():
    ratings = _table((1, 0, 1.0, 30), (0, 1, 1.0, 10), players=2)
    successor = ratings.add("A", "next", predecessor=1)
    ratings.learned(successor, 1.0)
    rating, error = ratings.fit()
    assert rating[successor] == pytest.approx(rating[1])
    # Var(a − b) of independent steps add up.
    assert error[successor] == pytest.approx(np.hypot(error[1], SPREAD_OF_SUCCESSORS))


def test_a_policy_is_known_as_well_as_the_snapshot_just_taken_of_it():
    ratings = _table((1, 0, 1.0, 30), (0, 1, 1.0, 10), players=2)
    latest = ratings.add("A", "latest", predecessor=1)
    errors = []
    for intervals in (0.0, 0.25, 1.0):
        ratings.learned(latest, intervals)
        errors.append(ratings.fit()[1][latest])
    assert errors[0] == pytest.approx(ratings.fit()[1][1], rel=1e-3)
    assert errors[0] < errors[1] < errors[2]


def test_a_player_that_won_all_its_games_has_a_finite_rating():
    rating, error = _table((1, 0, 1.0, 1000), players=2).fit()
    assert 1600 < rating[1] < 4000
    assert error[1] < 800


def test_the_order_of_games_does_not_matter():
    games = [(1, 0, 1.0, 5), (0, 2, 0.5, 3), (2, 1, 1.0, 4)]
    first, _ = _table(*games).fit()
    second, _ = _table(*reversed(games)).fit()
    np.testing.assert_allclose(first, second)


def test_the_first_of_each_kind_has_the_initial_rating():
    """Strikers never meet strikers; the advantage of a side is no one's strength."""
    ratings = Ratings()
    for kind in ("Striker", "Goalie", "Striker"):
        ratings.add(kind, kind)
    for _ in range(50):
        ratings.record(0, 1, 1.0)
        ratings.record(2, 1, 1.0)
        ratings.record(2, 1, 0.0)
    rating, error = ratings.fit()
    assert rating[0] == rating[1] == 1200
    assert error[0] == error[1] == 0
    assert rating[2] < 1200


def test_ratings_survive_saving():
    ratings = _table((1, 0, 1.0, 5), (0, 2, 0.5, 3))
    again = Ratings()
    again.load_state(json.loads(json.dumps(ratings.state())))
    np.testing.assert_array_equal(again.points, ratings.points)
    np.testing.assert_array_equal(again.fit()[0], ratings.fit()[0])
