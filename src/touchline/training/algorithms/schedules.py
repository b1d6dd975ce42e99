"""Settings that change in the course of training."""


def linear_schedule(start: float, end: float, progress: float) -> float:
    """From `start` to `end` as `progress` goes from 0 to 1, and no further."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


def scheduled(
    start: float, floor: float, schedule: str | None, progress: float
) -> float:
    """A setting now: constant, or in a straight line from `start` to `floor`.

    Source: ML-Agents 1.1.0, `torch_entities/utils.py`, `DecayedValue`.
    """
    if schedule == "constant":
        return start
    return linear_schedule(start, floor, progress)
