"""Every kind of exported network against the operators that Unity's importers list."""

from dataclasses import replace

import pytest
import torch
from test_onnx import ARCHITECTURES, CASES
from tests.unity_importer import require_known

from touchline.policies.files.onnx_out import build_onnx
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.nets.encoders import SMALLEST_SIDE
from touchline.policies.network import Architecture
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec


def _networks():
    for case, spec in CASES.items():
        for name, architecture in ARCHITECTURES.items():
            # Their pictures are too small for the default encoder; all of them follow below.
            if architecture.vis_encode_type == "simple":
                architecture = replace(architecture, vis_encode_type="resnet")
            yield pytest.param(spec, architecture, id=f"{case}, {name}")
    for encoder, side in SMALLEST_SIDE.items():
        image = ObservationSpec((3, max(side, 1), max(side, 1)), name="camera")
        spec = BehaviorSpec((image,), ActionSpec(2, (3,)))
        architecture = Architecture(
            hidden_units=16, num_layers=1, vis_encode_type=encoder
        )
        yield pytest.param(spec, architecture, id=f"a picture, {encoder}")
    gru = Architecture(hidden_units=16, memory_size=12, memory_type="gru")
    yield pytest.param(CASES["hybrid, two sensors"], gru, id="a GRU")
    for case in ("continuous", "hybrid, two sensors"):
        squashed = Architecture(hidden_units=16, squashed=True)
        yield pytest.param(CASES[case], squashed, id=f"{case}, of SAC")


@pytest.mark.parametrize(("spec", "architecture"), list(_networks()))
def test_unitys_importers_know_every_operator_of_an_exported_network(
    spec, architecture
):
    torch.manual_seed(0)
    model = build_onnx(ActorCritic(spec, architecture))
    require_known(model)
