"""When things are due, and which snapshots stay."""

import itertools
import json

import pytest

from touchline.training.self_play.pool import Every, surplus


def test_as_ml_agents_the_timeline_of_a_run(shared):
    """Recorded from the ghost trainer of ML-Agents 1.1.0: what happened at which counts."""
    path = shared / "golden" / "self_play_timeline.json"
    golden = json.loads(path.read_text(encoding="utf-8"))
    settings, events = golden["settings"], golden["events"]
    save = Every(settings["save_steps"])
    change = Every(settings["team_change"])
    swap = Every(settings["swap_steps"])
    moments = {}
    for name, steps, *_ in events[1:]:
        moments.setdefault(int(steps), []).append(name.lstrip("_"))
    opponent_steps = {int(s): int(g) for n, s, g, _ in events if g != "-"}
    for steps, expected in moments.items():
        happened = []
        if change.is_due(steps):
            happened.append("team")
        if save.is_due(steps):
            happened.append("save")
        count = opponent_steps[steps]
        if swap.is_due(count) or "team" in happened:
            swap.last = count
            happened.append("swap")
        assert sorted(happened) == sorted(expected), steps


def test_the_next_interval_begins_at_what_was_counted():
    every = Every(100)
    assert [n for n in (50, 100, 170, 260, 271, 400) if every.is_due(n)] == [
        170,
        271,
        400,
    ]


@pytest.mark.parametrize("most", [1, 2, 5, 10])
def test_a_pool_of_the_whole_run_spans_it(most):
    steps = []
    for step in range(0, 100_000, 100):
        steps.append(step)
        for at in reversed(surplus(steps, most, 100)):
            del steps[at]
        assert len(steps) <= most
        assert steps[-1] == step, "the newest stays"
    if most > 1:
        assert steps[0] == 0, "the first stays"
    if most == 10:
        ages = [100_000 - step for step in steps]
        ratios = [a / b for a, b in itertools.pairwise(ages)]
        assert max(ratios) < 5, "ages grow about geometrically"
