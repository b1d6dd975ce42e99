"""Models out and in: what Unity's importer reads, and what Unity's own files do here."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from touchline.envs.env import make
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.policies.checkpoints import CheckpointPolicy, spec_to_json, write_checkpoint
from touchline.policies.networks import ActorCritic
from touchline.policies.onnx_export import build_onnx, export_onnx
from touchline.policies.onnx_policy import OnnxPolicy
from touchline.policies.policy import load_policies
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.testing import ScriptedWorld

CASES = {
    "continuous": BehaviorSpec((ObservationSpec.vector(8, "a"),), ActionSpec(2)),
    "discrete": BehaviorSpec((ObservationSpec.vector(20, "a"),), ActionSpec(0, (3,))),
    "hybrid, two sensors": BehaviorSpec(
        (ObservationSpec.vector(5, "a"), ObservationSpec.vector(4, "b")), ActionSpec(3, (3, 2, 4))
    ),
}


@pytest.fixture(params=CASES)
def network(request):
    torch.manual_seed(3)
    network = ActorCritic(CASES[request.param], hidden_units=16, num_layers=2, normalize=True)
    network.normalizer.update(torch.randn(500, CASES[request.param].observation_size) * 4 + 1)
    return network


def _feeds(spec, rows, rng):
    feeds = {f"obs_{i}": rng.normal(1, 4, (rows, *o.shape)) for i, o in enumerate(spec.observation_specs)}
    if spec.action_spec.discrete_size:
        feeds["action_masks"] = np.ones((rows, spec.action_spec.mask_size))
    return {name: value.astype(np.float32) for name, value in feeds.items()}


def test_onnx_and_pytorch_agree(network):
    spec, model = network.spec, build_onnx(network)
    session = ort.InferenceSession(model.SerializeToString())
    feeds = _feeds(spec, 1000, np.random.default_rng(0))
    names = [o.name for o in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, feeds), strict=True))
    obs = torch.from_numpy(np.concatenate([feeds[f"obs_{i}"] for i in range(len(spec.observation_specs))], axis=1))
    distribution, _ = network(network.normalized(obs), None)
    continuous, discrete = distribution.mode()
    if spec.action_spec.continuous_size:
        expected = continuous.clamp(-3, 3) / 3
        np.testing.assert_allclose(outputs["deterministic_continuous_actions"], expected.detach().numpy(), atol=1e-5)
    if spec.action_spec.discrete_size:
        np.testing.assert_array_equal(outputs["deterministic_discrete_actions"], discrete.numpy())


def test_the_file_is_what_unitys_importer_reads(network):
    spec, model = network.spec, build_onnx(network)
    assert [o.version for o in model.opset_import] == [9]
    inputs = [i.name for i in model.graph.input]
    outputs = [o.name for o in model.graph.output]
    expected_inputs = [f"obs_{i}" for i in range(len(spec.observation_specs))]
    expected_outputs = ["version_number", "memory_size"]
    if spec.action_spec.continuous_size:
        expected_outputs += ["continuous_actions", "continuous_action_output_shape"]
        expected_outputs += ["deterministic_continuous_actions"]
    if spec.action_spec.discrete_size:
        expected_inputs += ["action_masks"]
        expected_outputs += ["discrete_actions", "discrete_action_output_shape", "deterministic_discrete_actions"]
    assert inputs == expected_inputs
    assert outputs == expected_outputs
    for value in (*model.graph.input, *model.graph.output):
        shape = value.type.tensor_type.shape.dim
        constant = value.name in ("version_number", "memory_size") or value.name.endswith("_output_shape")
        assert constant or shape[0].dim_param == "batch"


def test_sampling_inside_the_graph_follows_the_distribution():
    torch.manual_seed(0)
    network = ActorCritic(CASES["discrete"], hidden_units=8, num_layers=1, normalize=False)
    network.mlp.biases[-1].data[0, 0] = torch.tensor([0.0, 1.0, -1.0])
    session = ort.InferenceSession(build_onnx(network).SerializeToString())
    feeds = {"obs_0": np.zeros((20_000, 20), np.float32), "action_masks": np.ones((20_000, 3), np.float32)}
    (drawn,) = session.run(["discrete_actions"], feeds)
    distribution, _ = network(torch.zeros(1, 20), None)
    share = np.bincount(drawn[:, 0], minlength=3) / 20_000
    np.testing.assert_allclose(share, torch.exp(distribution.log_probs[0])[0].detach().numpy(), atol=0.015)
    feeds["action_masks"][:, 1] = 0
    assert 1 not in session.run(["discrete_actions"], feeds)[0]


def test_an_exported_policy_acts_here_as_its_checkpoint_does(tmp_path, network):
    spec = network.spec
    export_onnx(network, tmp_path / "p.onnx")
    settings = {"hidden_units": 16, "num_layers": 2, "normalize": True}
    tensors = {f"network.{k}": v for k, v in network.state_dict().items()}
    write_checkpoint(tmp_path / "p.safetensors", tensors, {"spec": spec_to_json(spec), "network": settings})
    rows = _rows(spec)
    actions = []
    for policy in (
        OnnxPolicy(tmp_path / "p.onnx", deterministic=True),
        CheckpointPolicy(tmp_path / "p.safetensors", deterministic=True),
    ):
        policy.check("x", spec)
        actions.append(policy.act(spec, rows))
    np.testing.assert_allclose(actions[0].continuous, actions[1].continuous, atol=1e-5)
    np.testing.assert_array_equal(actions[0].discrete, actions[1].discrete)


def test_the_same_seed_draws_the_same_actions(tmp_path, network):
    export_onnx(network, tmp_path / "p.onnx")
    rows = _rows(network.spec)

    def drawn(seed):
        actions = OnnxPolicy(tmp_path / "p.onnx", seed=seed).act(network.spec, rows)
        return actions.continuous.tolist(), actions.discrete.tolist()

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def _rows(spec):
    world = ScriptedWorld(20, moves=False, births=False, vanishings=False, periods=(1,))
    world._spec = BehaviorSpec((ObservationSpec.vector(4, "who"),), spec.action_spec)
    rows = Slots(world).reset(0)["Walker?team=0"]
    rng = np.random.default_rng(1)
    obs = tuple(rng.normal(1, 4, (20, *o.shape)).astype(np.float32) for o in spec.observation_specs)
    object.__setattr__(rows, "obs", obs)
    if spec.action_spec.discrete_size == 0:
        object.__setattr__(rows, "action_mask", None)
    else:
        object.__setattr__(rows, "action_mask", np.ones((20, spec.action_spec.mask_size), bool))
    return rows


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x04"])
def test_a_foreign_or_truncated_file_is_refused_with_its_name(tmp_path, content):
    (tmp_path / "bad.onnx").write_bytes(content)
    with pytest.raises(UsageError, match=r"bad\.onnx: not an ONNX file, or cut short"):
        OnnxPolicy(tmp_path / "bad.onnx")


def test_a_truncated_model_is_refused(tmp_path, network):
    whole = build_onnx(network).SerializeToString()
    for size in (10, len(whole) // 2, len(whole) - 10):
        (tmp_path / "cut.onnx").write_bytes(whole[:size])
        with pytest.raises(UsageError, match=r"cut\.onnx"):
            OnnxPolicy(tmp_path / "cut.onnx")


def test_a_model_that_is_no_policy_is_refused(tmp_path):
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in "xy")
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [x], [y]), opset_imports=[onnx.helper.make_opsetid("", 9)], ir_version=6
    )
    (tmp_path / "other.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="not an ML-Agents policy"):
        OnnxPolicy(tmp_path / "other.onnx")


def test_a_policy_of_another_scene_is_refused_with_both_shapes(tmp_path):
    export_onnx(ActorCritic(CASES["continuous"], hidden_units=8, num_layers=1, normalize=False), tmp_path / "p.onnx")
    with pytest.raises(UsageError, match=r"its input obs_0 takes \[8\], the behavior gives \[20\]"):
        load_policies([str(tmp_path / "p.onnx")], {"Basic?team=0": CASES["discrete"]})
    narrow = BehaviorSpec(CASES["continuous"].observation_specs, ActionSpec(3))
    with pytest.raises(UsageError, match=r"gives 2 continuous actions .* takes 3 continuous"):
        load_policies([str(tmp_path / "p.onnx")], {"X?team=0": narrow})


@pytest.mark.parametrize(
    ("name", "api", "memory"),
    [("3DBall", 3, 0), ("Basic", 3, 0), ("Hallway", 3, 128), ("SoccerTwos", 2, 0), ("DungeonEscape", 2, 0)],
)
def test_unitys_own_models_load(shared, name, api, memory):
    policy = OnnxPolicy(shared / "unity-policies" / f"{name}.onnx")
    assert policy.api_version == api
    assert policy.memory_size == memory


def test_unitys_basic_policy_walks_straight_to_the_large_prize(shared):
    with make("Basic") as env:
        slots = Slots(env)
        rows = slots.reset(0)
        policies = load_policies([str(shared / "unity-policies" / "Basic.onnx")], slots.behaviors, deterministic=True)
        rewards = []
        for _ in range(7):
            actions = {name: policies[name].act(slots.behaviors[name], row) for name, row in rows.items()}
            rows = slots.step(actions)
            rewards.append(float(rows["Basic?team=0"].reward[0]))
    assert rows["Basic?team=0"].terminated[0]
    assert sum(rewards) == pytest.approx(0.93)
