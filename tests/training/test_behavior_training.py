"""What one behavior's training counts beside its learner."""

import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.training.practice import make_learner

from touchline.errors import UsageError
from touchline.policies.files.run_layout import RunLayout
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.statistics import StatsAggregationMethod as Method
from touchline.training.behavior_training import BehaviorTraining
from touchline.training.config.settings import BehaviorConfig
from touchline.training.run.metrics import MetricsWriter

SPEC = BehaviorSpec((ObservationSpec.vector(1, "vector"),), ActionSpec(1))


def _training(folder, **settings):
    config = BehaviorConfig.model_validate(settings)
    writer = MetricsWriter(RunLayout(folder), "Tiny", {})
    return BehaviorTraining("Tiny", config, make_learner(SPEC, config), writer)


def test_what_worlds_reported_before_a_kill_is_in_the_next_summary(tmp_path):
    killed = _training(tmp_path)
    killed.record_statistics({"food": [(1.0, Method.SUM), (2.0, Method.SUM)]})
    # As a resume point holds them.
    counters = json.loads(json.dumps(killed.counters()))
    arrays = killed.arrays()
    killed.writer.close()

    resumed = _training(tmp_path)
    resumed.restore(counters, arrays)
    resumed.record_statistics({"food": [(4.0, Method.SUM)]})
    resumed.summarize({})
    resumed.writer.close()
    events = EventAccumulator(str(tmp_path / "Tiny"))
    events.Reload()
    assert [event.value for event in events.Scalars("food")] == [7.0]


def test_a_resumed_run_may_want_summaries_and_checkpoints_sooner(tmp_path):
    rare = _training(tmp_path, summary_freq=50_000, checkpoint_interval=500_000)
    rare.learner.steps = 1000
    often = _training(tmp_path, summary_freq=100, checkpoint_interval=200)
    often.restore(json.loads(json.dumps(rare.counters())), rare.arrays())
    due = {}
    for often.learner.steps in range(1000, 1300, 50):
        due[often.learner.steps] = often.summary_is_due(), often.checkpoint_is_due()
    rare.writer.close()
    often.writer.close()
    assert min(step for step, (summary, _) in due.items() if summary) == 1100
    assert min(step for step, (_, checkpoint) in due.items() if checkpoint) == 1200


def test_a_run_with_another_network_is_refused_with_the_part_that_differs(tmp_path):
    small = _training(tmp_path, network_settings={"hidden_units": 16})
    large = _training(tmp_path, network_settings={"hidden_units": 32})
    expected = r"network\.\S+ has the shape \(.*16.*\), not \(.*32.*\); resume it with"
    with pytest.raises(UsageError, match=expected):
        large.restore(json.loads(json.dumps(small.counters())), small.arrays())
    small.writer.close()
    large.writer.close()
