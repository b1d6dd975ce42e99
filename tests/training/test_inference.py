"""Acting without learning: who acts, and with which random numbers."""

import numpy as np
from tests.slot_rows import slot_rows
from tests.training.practice import make_learner

from touchline.policies.files.checkpoints import network_metadata, write_checkpoint
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.config.settings import RunConfig
from touchline.training.inference import _TrainedPolicies


def test_teams_and_behaviors_of_one_policy_draw_each_their_own_noise(tmp_path):
    spec = BehaviorSpec((ObservationSpec.vector(2, "vector"),), ActionSpec(2))
    path = tmp_path / "checkpoint.safetensors"
    config = RunConfig.model_validate(
        {"behaviors": {name: {"init_path": str(path)} for name in ("Tiny", "Other")}}
    )
    learner = make_learner(spec, config.behaviors["Tiny"])
    metadata = network_metadata(learner.policy.network)
    write_checkpoint(path, learner.state(), metadata)

    lineup = _TrainedPolicies(config, seed=0)
    rows = slot_rows(obs=(np.zeros((4, 2), np.float32),))
    drawn = []
    for name in ("Tiny?team=0", "Tiny?team=1", "Other?team=0"):
        seat = lineup.seat(name, spec)
        drawn.append(seat.policy.act(rows, None, seat.generator).actions.continuous)
    assert len(np.unique(np.round(drawn, 3))) == 3 * 4 * 2
