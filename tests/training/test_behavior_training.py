"""What one behavior's training counts beside its learner."""

import json

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.training.practice import make_learner

from touchline.policies.files.run_layout import RunLayout
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.statistics import StatsAggregationMethod as Method
from touchline.training.behavior_training import BehaviorTraining
from touchline.training.config.settings import BehaviorConfig
from touchline.training.run.metrics import MetricsWriter

SPEC = BehaviorSpec((ObservationSpec.vector(1, "vector"),), ActionSpec(1))


def _training(folder):
    config = BehaviorConfig()
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
