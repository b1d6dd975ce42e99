"""Figures of finished games."""

import pytest

from touchline.microrts.records import GameRecord, win_figures


def record(result, episode_return, ticks, invalid_orders, player=0):
    return GameRecord(
        area=0,
        team=0,
        player=player,
        opponent="coac",
        result=result,
        steps=ticks,
        ticks=ticks,
        rewards={},
        episode_return=episode_return,
        orders=10,
        invalid_orders=invalid_orders,
    )


def test_games_that_end_by_a_fault_of_the_opponent_change_no_figure_but_their_number():
    sound = [record("win", 10.0, 300, 1), record("loss", -10.0, 500, 3, player=1)]
    figures = win_figures(sound)
    assert (figures["mean_return"], figures["mean_ticks"]) == (0.0, 400.0)
    assert figures["invalid_share"] == 0.2
    assert figures["mean_return_by_seat"] == [10.0, -10.0]
    faulty = [record("fault", -3.0, 1, 10)] * 2
    assert win_figures([*sound, *faulty]) == {**figures, "faults": 2}


def test_faults_alone_give_no_win_rate():
    figures = win_figures([record("fault", -3.0, 1, 10)])
    assert (figures["games"], figures["faults"]) == (0, 1)
    assert figures["win_rate_ci95"] == pytest.approx([0.0, 1.0])
    assert (figures["mean_return"], figures["mean_ticks"]) == (0.0, 0.0)
