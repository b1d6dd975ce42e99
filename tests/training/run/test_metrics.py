"""What a summary holds."""

import csv
import gc
import tracemalloc
from itertools import pairwise

from matplotlib.image import imread
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from touchline.policies.files.run_layout import RunLayout
from touchline.statistics import StatsAggregationMethod as Method
from touchline.training.config.settings import BehaviorConfig
from touchline.training.run import metrics
from touchline.training.run.metrics import (
    MetricsWriter,
    Summary,
    _thinned,
    progress_line,
    tags_of,
)


def _writer(folder, **behavior):
    tags = tags_of(BehaviorConfig.model_validate(behavior))
    return MetricsWriter(RunLayout(folder.parent), folder.name, tags)


def _written(folder, *summaries, writer=None):
    writer = writer or _writer(folder)
    for summary in summaries:
        writer.write(summary)
    writer.close()
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def test_figures_of_the_world_are_aggregated_as_it_says(tmp_path):
    methods = {
        "a": Method.AVERAGE,
        "r": Method.MOST_RECENT,
        "s": Method.SUM,
        "h": Method.HISTOGRAM,
    }
    reported = {name: [(1.0, m), (5.0, m), (3.0, m)] for name, m in methods.items()}
    events = _written(tmp_path, Summary(100, [], [], statistics=reported))
    assert [events.Scalars(name)[0].value for name in "ars"] == [3.0, 3.0, 9.0]
    histogram = events.Histograms("h")[0].histogram_value
    assert (histogram.min, histogram.max) == (1, 5)


def test_a_figure_without_values_in_an_older_resume_point_is_skipped(tmp_path):
    reported = {"none": [], "one": [(2.0, Method.MOST_RECENT)]}
    events = _written(tmp_path, Summary(100, [], [], statistics=reported))
    assert "none" not in events.Tags()["scalars"]
    assert events.Scalars("one")[0].value == 2.0


def test_metrics_stand_under_the_tags_of_ml_agents_or_their_own_names(tmp_path):
    figures = {"policy_loss": 1.0, "curiosity_value_estimate": 2.0, "my_figure": 3.0}
    figures |= {"baseline_loss": 6.0, "extrinsic_baseline_estimate": 7.0}
    summary = Summary(10, [1.0], [5], figures, group_returns=[2.0, 4.0])
    signals = {"extrinsic": {}, "curiosity": {}}
    writer = _writer(tmp_path, trainer_type="poca", reward_signals=signals)
    events = _written(tmp_path, summary, writer=writer)
    tags = {
        "Losses/Policy Loss": 1.0,
        "Policy/Curiosity Value Estimate": 2.0,
        "Training/my_figure": 3.0,
        "Losses/Baseline Loss": 6.0,
        "Policy/Extrinsic Baseline Estimate": 7.0,
        "Environment/Cumulative Reward": 1.0,
        "Environment/Episode Length": 5.0,
        "Environment/Group Cumulative Reward": 3.0,
    }
    assert {tag: events.Scalars(tag)[0].value for tag in tags} == tags
    histogram = events.Histograms("Environment/Group Cumulative Reward_hist")[0]
    assert histogram.histogram_value.num == 2


def test_a_metric_that_comes_later_gets_a_column_in_all_rows(tmp_path):
    _written(
        tmp_path,
        Summary(10, [], [], {"a": 1.0}),
        Summary(20, [2.0], [3], {"a": 2.0, "b": 5.0}),
    )
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["10", "20"]
    assert [(row["a"], row["b"]) for row in rows] == [("1.0", ""), ("2.0", "5.0")]
    assert rows[1]["mean_return"] == "2.0"


def test_a_resumed_run_drops_what_was_written_after_its_resume_point(tmp_path):
    _written(
        tmp_path, *(Summary(step, [1.0], [1], {"a": 1.0}) for step in (10, 20, 30))
    )
    writer = _writer(tmp_path)
    writer.drop_after(20)
    writer.write(Summary(25, [1.0], [1], {"a": 1.0}))
    writer.close()
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["10", "20", "25"]


def test_a_long_curve_is_thinned_and_keeps_its_ends():
    points = [(float(step), 1.0) for step in range(1001)]
    kept = _thinned(points, most=100)
    assert 50 <= len(kept) <= 101
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    gaps = {after[0] - before[0] for before, after in pairwise(kept)}
    assert max(gaps) == 16.0
    assert _thinned(points, most=2000) == points
    assert _thinned([], most=10) == []


def test_a_curve_is_drawn_where_an_episode_has_ended(tmp_path):
    writer = _writer(tmp_path)
    writer.write(Summary(10, [], []))
    assert writer.draw_curve() is None
    writer.write(Summary(20, [1.0, 3.0], [1, 2]))
    assert writer._points("step", "mean_return", "std_return") == [(20.0, 2.0, 1.0)]
    assert writer._points("step", "elo", "elo_error") == []
    curve = writer.draw_curve()
    assert curve.read_bytes().startswith(b"\x89PNG")
    writer.close()


def test_a_curve_is_drawn_whatever_its_behavior_is_called(tmp_path):
    """Two dollar signs are mathematics to matplotlib, and its font has no such letters."""
    writer = _writer(tmp_path / "$}$ 跑")
    writer.write(Summary(20, [1.0, 3.0], [1, 2]))
    assert writer.draw_curve().read_bytes().startswith(b"\x89PNG")
    writer.close()


def test_a_single_point_can_be_seen(tmp_path):
    """One summary is all that the shortest runs have."""
    writer = _writer(tmp_path)
    picture = imread(writer._draw([(10.0, 1.0)], "return"))
    writer.close()
    is_blue = picture[..., 2] - picture[..., 0] > 0.3
    assert is_blue.sum() > 20


def test_the_curve_of_groups_shows_what_groups_earned(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        MetricsWriter, "_draw", lambda _, points, label: drawn.append((points, label))
    )
    writer = _writer(tmp_path)
    writer.write(Summary(10, [0.0, 1.0], [1, 2], group_returns=[1.0, 0.5]))
    writer.draw_curve()
    writer.close()
    assert drawn == [([(10.0, 0.75)], "group return of finished episodes (mean)")]


def test_summaries_and_curves_of_a_long_run_take_no_more_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "CURVE_POINTS", 20)
    writer = _writer(tmp_path)

    def write(count):
        """What is allocated afterwards, and at most on the way, in bytes."""
        tracemalloc.reset_peak()
        for _ in range(count):
            writer.write(Summary(10, [1.0, 3.0], [1, 2], {"a": 1.0}))
        writer.draw_curve()
        gc.collect()
        return tracemalloc.get_traced_memory()

    writer.write(Summary(10, [1.0, 3.0], [1, 2], {"a": 1.0}))
    writer.draw_curve()  # loads matplotlib, and fills its caches
    tracemalloc.start()
    try:
        write(30)
        kept_before, most_before = write(5)
        kept, most = write(200)
    finally:
        tracemalloc.stop()
        writer.close()
    assert kept - kept_before < 50_000
    assert most - most_before < 100_000


def test_a_last_update_that_goes_beyond_the_steps_is_still_all():
    row = {"step": 1200, "steps_per_s": 10.0}
    line = progress_line("B", row, 1000)
    assert "1,200 of 1,000 (100 %), to the end of a buffer" in line
    exact = progress_line("B", row | {"step": 1000}, 1000)
    assert "buffer" not in exact
