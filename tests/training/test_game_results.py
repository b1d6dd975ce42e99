"""Intervals of win rates, and the table of results."""

import pytest

from touchline.training.evaluation_figures import games_table, wilson_interval


def test_the_interval_of_a_win_rate_is_wilsons():
    """Worked by hand: with z² = 3.8416, none of 10 ends at z² / (10 + z²)."""
    assert wilson_interval(0, 10) == pytest.approx([0.0, 0.2775], abs=1e-3)
    assert wilson_interval(50, 100) == pytest.approx([0.4038, 0.5962], abs=1e-3)
    assert wilson_interval(0, 0) == [0.0, 1.0]


def test_a_table_has_a_line_for_each_opponent_and_names_faults():
    figures = {"games": 4, "won": 3, "tied": 1, "lost": 0, "faults": 2}
    rate = {"win_rate": 0.75, "win_rate_ci95": wilson_interval(3, 4)}
    header, line = games_table({"coac": figures | rate}).splitlines()
    assert header.split()[:5] == ["opponent", "games", "won", "tied", "lost"]
    assert line.split()[:6] == ["coac", "4", "3", "1", "0", "0.75"]
    assert line.endswith("2 faults")
