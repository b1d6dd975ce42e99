"""How many episodes each agent plays."""

import pytest

import touchline
from touchline.errors import UsageError


def test_more_episodes_than_can_be_counted_are_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"at most 1,000,000,000,000 .* got 1000000"):
        touchline.evaluate("Basic", "random", episodes=10**30)
    with pytest.raises(UsageError, match=r"at most 1,000,000,000,000 episodes"):
        touchline.record("Basic", "random", tmp_path / "x.demo", episodes=10**30)
