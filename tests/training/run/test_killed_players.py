"""Players that are killed cost a training nothing but their open episodes."""

import pytest
from tests.training.run.killed_players import kill_players


def check(outcome, kills):
    print(outcome)
    assert outcome.kills == outcome.restarts == kills
    assert outcome.updates > 0
    assert outcome.lost == 0


def test_training_loses_no_optimizer_step_when_players_are_killed():
    check(kill_players(3), 3)


@pytest.mark.slow
def test_training_loses_no_optimizer_step_when_a_hundred_players_are_killed():
    check(kill_players(100, num_players=4), 100)
