"""The time machine's memory."""

import numpy as np
import pytest

from touchline.viewer.history import MOST_BRANCHES, History, Moment


def _moment(time_s, num_bytes=100):
    world = {"world": np.zeros(num_bytes, np.uint8)}
    return Moment(time_s, world, rows={}, actors={}, returns={})


def test_the_budget_holds_and_older_moments_are_further_apart():
    history = History(budget_bytes=10_000)
    for second in range(1000):
        history.add(_moment(float(second)))
        assert history.num_bytes <= 10_000
    times = np.array([moment.time_s for moment in history])
    assert times[-1] == 999.0
    assert (np.diff(times[-40:]) == 1.0).all()  # as close together as they came
    assert times[0] < 500.0
    assert np.diff(times)[0] > 10.0


def test_a_moment_larger_than_the_budget_is_kept_alone():
    history = History(budget_bytes=50)
    history.add(_moment(0.0))
    history.add(_moment(1.0))
    assert [moment.time_s for moment in history] == [1.0]


@pytest.mark.parametrize(
    ("time_s", "expected"),
    [(-5.0, 0.0), (0.4, 0.0), (0.6, 1.0), (2.0, 2.0), (9.0, 2.0)],
)
def test_the_nearest_moment_is_found(time_s, expected):
    history = History()
    for second in range(3):
        history.add(_moment(float(second)))
    assert history[history.nearest(time_s)].time_s == expected


def test_another_future_leaves_the_one_that_was_as_a_branch():
    history = History()
    for second in range(5):
        history.add(_moment(float(second)))
    history.branch_after(2)
    assert [moment.time_s for moment in history] == [0.0, 1.0, 2.0]
    assert history.num_bytes == 500
    history.add(_moment(3.5))
    assert history.num_bytes == 600
    assert history.choose(1) == 2  # the last moment that both share
    assert [moment.time_s for moment in history] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert history.choose(77) == 4  # no such branch: the present one stays
    assert history.choose(2) == 2
    assert history[-1].time_s == 3.5


def test_branches_keep_within_the_budget_and_the_oldest_go():
    history = History(budget_bytes=10_000)
    for second in range(2000):
        history.add(_moment(float(second)))
        if second % 50 == 49:
            history.branch_after(len(history) // 2)
            history.add(_moment(history[-1].time_s + 0.5))
        kept = {m for branch in history.branches.values() for m in branch.moments}
        assert history.num_bytes == 100 * len(kept) <= 10_000
        times = [moment.time_s for moment in history]
        assert times == sorted(times)
    assert len(history.branches) == MOST_BRANCHES
    assert history.number == max(history.branches)
