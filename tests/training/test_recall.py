"""Memories pass the learning tests of ML-Agents that need one, with its settings and budget."""

import numpy as np
import pytest
from tests.training.recall import CASES, LAST_RETURNS, returns_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unchecked_shapes")]


@pytest.mark.parametrize("seed", [1337, 1338, 1339])
@pytest.mark.parametrize("case", list(CASES))
def test_a_goal_that_was_shown_at_first_is_reached(case, seed):
    returns = returns_of(case, seed)
    assert np.mean(returns[-LAST_RETURNS:]) > 0.9, (
        "the best is 1.01, or 1.05 with a choice"
    )
