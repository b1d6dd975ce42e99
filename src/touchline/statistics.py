"""Named numbers that a world reports about itself, for the training log (Unity's StatsRecorder).

Source: ML-Agents 3.0.0, `StatsSideChannel.cs`, `StatsRecorder.cs`.
"""

import enum
from collections.abc import Iterable


class StatsAggregationMethod(enum.IntEnum):
    """How the values that arrive between two summaries become one number."""

    AVERAGE = 0
    MOST_RECENT = 1
    SUM = 2
    """Since package 1.8."""
    HISTOGRAM = 3
    """Since package 1.8."""


EnvironmentStats = dict[str, list[tuple[float, StatsAggregationMethod]]]
"""Name -> values in order of arrival, each with its aggregation."""


def merged_statistics(reports: Iterable[EnvironmentStats]) -> EnvironmentStats:
    """The reports of several worlds as one; where only the latest value counts, the first's."""
    merged: EnvironmentStats = {}
    for index, report in enumerate(reports):
        for name, values in report.items():
            for value, method in values:
                is_latest = method is StatsAggregationMethod.MOST_RECENT
                if index == 0 or not is_latest:
                    merged.setdefault(name, []).append((value, method))
    return merged
