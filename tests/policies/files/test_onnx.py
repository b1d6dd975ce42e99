"""ONNX models out and in: what Unity's importer reads, and Unity's own files as policies."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from tests.scripted_world import ScriptedWorld

from touchline.envs.env import make
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import (
    load_network,
    network_metadata,
    write_checkpoint,
)
from touchline.policies.files.onnx_in import OnnxPolicy
from touchline.policies.files.onnx_out import build_onnx, export_onnx
from touchline.policies.loading import load_policies
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.nets.encoders import SMALLEST_SIDE
from touchline.policies.network import Architecture, side_by_side
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.policy import SlotActor
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec, ObservationType

GOAL = ObservationSpec((3,), observation_type=ObservationType.GOAL_SIGNAL, name="goal")
CASES = {
    "continuous": BehaviorSpec((ObservationSpec.vector(8, "a"),), ActionSpec(2)),
    "discrete": BehaviorSpec((ObservationSpec.vector(20, "a"),), ActionSpec(0, (3,))),
    "hybrid, two sensors": BehaviorSpec(
        (ObservationSpec.vector(5, "a"), ObservationSpec.vector(4, "b")),
        ActionSpec(3, (3, 2, 4)),
    ),
    "a picture between vectors": BehaviorSpec(
        (
            ObservationSpec.vector(5, "a"),
            ObservationSpec((2, 16, 24), name="camera"),
            GOAL,
        ),
        ActionSpec(1, (2, 3)),
    ),
    "pictures alone": BehaviorSpec(
        (ObservationSpec((2, 16, 16)), ObservationSpec((1, 20, 16))),
        ActionSpec(0, (4,)),
    ),
    "a goal": BehaviorSpec((GOAL, ObservationSpec.vector(5, "a")), ActionSpec(2)),
    "entities": BehaviorSpec(
        (
            ObservationSpec((5, 3)),
            ObservationSpec.vector(4, "a"),
            ObservationSpec((2, 6)),
        ),
        ActionSpec(2, (3,)),
    ),
    "entities alone": BehaviorSpec((ObservationSpec((5, 3)),), ActionSpec(2)),
}
ARCHITECTURES = {
    "plain": Architecture(hidden_units=16, normalize=True),
    "remembering": Architecture(
        hidden_units=16, num_layers=1, normalize=True, memory_size=12
    ),
    "gated": Architecture(
        hidden_units=16, num_layers=1, memory_size=12, memory_type="gru"
    ),
    "shared": Architecture(
        hidden_units=16, num_layers=1, goal_conditioning_type="none", shared_critic=True
    ),
    "orthogonal": Architecture(
        hidden_units=16, orthogonal_init=True, vis_encode_type="match3"
    ),
}


def _network(case="discrete", architecture=None, seed=3):
    torch.manual_seed(seed)
    network = ActorCritic(
        CASES[case], architecture or Architecture(hidden_units=8, num_layers=1)
    )
    if network.normalizer is not None:
        network.normalizer.update(torch.randn(500, network.sensors.vector_size) * 4 + 1)
    with torch.no_grad():  # heads start near 0, where an error would hide
        for name, parameter in network.named_parameters():
            if "head" in name:
                parameter += torch.randn(parameter.shape) / 4
    return network


@pytest.fixture(params=[f"{case} | {name}" for case in CASES for name in ARCHITECTURES])
def network(request):
    case, _, name = request.param.partition(" | ")
    architecture = ARCHITECTURES[name]
    if (
        any(len(o.shape) == 3 for o in CASES[case].observation_specs)
        and architecture.vis_encode_type == "simple"
    ):
        architecture = replace(architecture, vis_encode_type="resnet")
    return _network(case, architecture)


def _feeds(network, rows, rng):
    spec = network.spec
    feeds = {
        f"obs_{i}": rng.normal(1, 4, (rows, *o.shape))
        for i, o in enumerate(spec.observation_specs)
    }
    for value in feeds.values():
        if value.ndim == 3:
            value[rng.random(value.shape[:2]) < 0.4] = 0  # these entities are not there
    if spec.action_spec.discrete_size:
        feeds["action_masks"] = np.ones((rows, spec.action_spec.mask_size))
    if network.memory_shape:
        feeds["recurrent_in"] = rng.normal(0, 0.5, (rows, 1, network.memory_shape[1]))
    return {name: value.astype(np.float32) for name, value in feeds.items()}


def _outputs(model, feeds):
    session = ort.InferenceSession(model.SerializeToString())
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def _obs(network, feeds):
    arrays = [feeds[f"obs_{i}"] for i in range(len(network.spec.observation_specs))]
    return network.normalized(tuple(map(torch.from_numpy, side_by_side(arrays))))


@torch.no_grad()
def _check_agreement(network, rows):
    feeds = _feeds(network, rows, np.random.default_rng(0))
    outputs, obs = _outputs(build_onnx(network), feeds), _obs(network, feeds)
    if network.memory_shape:
        memory = torch.from_numpy(feeds["recurrent_in"]).repeat(
            1, network.memory_shape[0], 1
        )
        distribution, _, after = network.step(obs, None, memory)
        np.testing.assert_allclose(
            outputs["recurrent_out"], after[:, :1].numpy(), atol=1e-5
        )
    else:
        distribution = network.distribution(obs, None)
    continuous, discrete = distribution.mode()
    if network.spec.action_spec.continuous_size:
        expected = continuous.clamp(-3, 3) / 3
        np.testing.assert_allclose(
            outputs["deterministic_continuous_actions"], expected.numpy(), atol=1e-5
        )
    if network.spec.action_spec.discrete_size:
        best_two = [torch.exp(p).topk(2, dim=1).values for p in distribution.log_probs]
        clear = torch.stack(
            [(p[:, 0] - p[:, 1]) > 1e-5 for p in best_two], dim=1
        ).numpy()  # a tie has no winner
        assert clear.mean() > 0.99
        np.testing.assert_array_equal(
            outputs["deterministic_discrete_actions"][clear], discrete.numpy()[clear]
        )


def test_onnx_and_pytorch_agree(network):
    _check_agreement(network, 1000)


def test_an_empty_batch_gives_empty_results(network):
    """In updates in which no episode ends, the batch of last observations is empty."""
    obs = network.normalized(
        tuple(torch.zeros(0, *shape) for shape in network.sensors.shapes)
    )
    with torch.inference_mode():
        if network.memory_shape:
            _, value, memory = network.step(
                obs, None, torch.zeros(0, *network.memory_shape)
            )
            assert memory.shape == (0, *network.memory_shape)
        else:
            value = network.value(obs)
            assert network.distribution(obs, None).mode()[0].shape[0] == 0
    assert value.shape == (0, 1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_reward_signals_do_not_change_the_file(case, name):
    """The value heads are not part of it."""
    architecture = replace(ARCHITECTURES[name], vis_encode_type="match3")
    one, two = (
        ActorCritic(CASES[case], architecture, num_signals) for num_signals in (1, 2)
    )
    policy = {
        key: value for key, value in one.state_dict().items() if "value_" not in key
    }
    missing, unexpected = two.load_state_dict(policy, strict=False)
    assert not unexpected
    assert all("value_" in key for key in missing)
    files = [build_onnx(network).SerializeToString() for network in (one, two)]
    assert files[0] == files[1]


@pytest.mark.parametrize("kind", SMALLEST_SIDE)
def test_every_image_encoder_is_the_same_in_onnx(kind):
    side = SMALLEST_SIDE[kind]
    CASES["smallest"] = BehaviorSpec(
        (ObservationSpec((3, side, side + 5)),), ActionSpec(2)
    )
    try:
        _check_agreement(
            _network("smallest", Architecture(hidden_units=16, vis_encode_type=kind)),
            100,
        )
    finally:
        del CASES["smallest"]


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
        expected_outputs += [
            "discrete_actions",
            "discrete_action_output_shape",
            "deterministic_discrete_actions",
        ]
    if network.memory_shape:
        expected_inputs += ["recurrent_in"]
        expected_outputs += ["recurrent_out"]
    assert inputs == expected_inputs
    assert outputs == expected_outputs
    for value in (*model.graph.input, *model.graph.output):
        shape = value.type.tensor_type.shape.dim
        constant = value.name in (
            "version_number",
            "memory_size",
        ) or value.name.endswith("_output_shape")
        assert constant or shape[0].dim_param == "batch"


def test_sampling_inside_the_graph_follows_the_distribution():
    network = _network()
    network.trunk.policy_bias.data[:] = torch.tensor([0.0, 1.0, -1.0])
    session = ort.InferenceSession(build_onnx(network).SerializeToString())
    feeds = {
        "obs_0": np.zeros((20_000, 20), np.float32),
        "action_masks": np.ones((20_000, 3), np.float32),
    }
    (drawn,) = session.run(["discrete_actions"], feeds)
    distribution, _ = network((torch.zeros(1, 20),), None)
    share = np.bincount(drawn[:, 0], minlength=3) / 20_000
    np.testing.assert_allclose(
        share, torch.exp(distribution.log_probs[0])[0].detach().numpy(), atol=0.015
    )
    feeds["action_masks"][:, 1] = 0
    assert 1 not in session.run(["discrete_actions"], feeds)[0]


def test_an_exported_policy_acts_here_as_its_checkpoint_does(tmp_path, network):
    spec = network.spec
    export_onnx(network, tmp_path / "p.onnx")
    tensors = {f"network.{k}": v for k, v in network.state_dict().items()}
    write_checkpoint(tmp_path / "p.safetensors", tensors, network_metadata(network))
    first = _rows(spec)
    later = replace(
        first, deciding=np.arange(20) % 4 > 0, begins=np.arange(20) % 3 == 0
    )
    actions = []
    for policy in (
        OnnxPolicy(tmp_path / "p.onnx", deterministic=True),
        NetworkPolicy(load_network(tmp_path / "p.safetensors"), deterministic=True),
    ):
        policy.check("x", spec)
        actor = SlotActor(policy, spec, 0)
        actions.append([actor.act(rows) for rows in (first, later, first)])
    for rows, one, other in zip((first, later, first), *actions, strict=True):
        decided = rows.deciding
        np.testing.assert_allclose(
            one.continuous[decided], other.continuous[decided], atol=1e-5
        )
        np.testing.assert_array_equal(one.discrete[decided], other.discrete[decided])


def test_the_same_seed_draws_the_same_actions(tmp_path, network):
    export_onnx(network, tmp_path / "p.onnx")
    rows = _rows(network.spec)

    def drawn(seed):
        actions = SlotActor(OnnxPolicy(tmp_path / "p.onnx"), network.spec, seed).act(
            rows
        )
        return actions.continuous.tolist(), actions.discrete.tolist()

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def _rows(spec):
    world = ScriptedWorld(20, moves=False, births=False, vanishings=False, periods=(1,))
    world.spec = BehaviorSpec(
        (ObservationSpec.vector(4, "position"),), spec.action_spec
    )
    rows = Slots(world).reset(0)["Walker?team=0"]
    rng = np.random.default_rng(1)
    obs = tuple(
        rng.normal(1, 4, (20, *o.shape)).astype(np.float32)
        for o in spec.observation_specs
    )
    object.__setattr__(rows, "obs", obs)
    if spec.action_spec.discrete_size == 0:
        object.__setattr__(rows, "action_mask", None)
    else:
        object.__setattr__(
            rows, "action_mask", np.ones((20, spec.action_spec.mask_size), bool)
        )
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
    x, y = (
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in "xy"
    )
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", [x], [y]),
        opset_imports=[onnx.helper.make_opsetid("", 9)],
        ir_version=6,
    )
    (tmp_path / "other.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UsageError, match="not an ML-Agents policy"):
        OnnxPolicy(tmp_path / "other.onnx")


def test_a_policy_of_another_scene_is_refused_with_both_shapes(tmp_path):
    export_onnx(_network("continuous"), tmp_path / "p.onnx")
    with pytest.raises(
        UsageError, match=r"its input obs_0 takes \[8\], the behavior gives \[20\]"
    ):
        load_policies([str(tmp_path / "p.onnx")], {"Basic?team=0": CASES["discrete"]})
    narrow = BehaviorSpec(CASES["continuous"].observation_specs, ActionSpec(3))
    with pytest.raises(
        UsageError, match=r"gives 2 continuous actions.* takes 3 continuous"
    ):
        load_policies([str(tmp_path / "p.onnx")], {"X?team=0": narrow})


@pytest.mark.parametrize(
    ("name", "api", "memory"),
    [
        ("3DBall", 3, 0),
        ("Basic", 3, 0),
        ("Hallway", 3, 128),
        ("SoccerTwos", 2, 0),
        ("DungeonEscape", 2, 0),
    ],
)
def test_unitys_own_models_load(shared, name, api, memory):
    policy = OnnxPolicy(shared / "unity-policies" / f"{name}.onnx")
    assert policy.api_version == api
    assert policy.memory_size == memory


def test_unitys_basic_policy_walks_straight_to_the_large_prize(shared):
    with make("Basic") as env:
        slots = Slots(env)
        rows = slots.reset(0)
        policies = load_policies(
            [str(shared / "unity-policies" / "Basic.onnx")],
            slots.behaviors,
            deterministic=True,
        )
        rewards = []
        for _ in range(7):
            actions = {name: policies[name].act(row) for name, row in rows.items()}
            rows = slots.step(actions)
            rewards.append(float(rows["Basic?team=0"].reward[0]))
    assert rows["Basic?team=0"].terminated[0]
    assert sum(rewards) == pytest.approx(0.93)


def test_a_model_from_before_hybrid_actions_learns_its_branches_from_the_behavior(
    tmp_path,
):
    """Its only output of actions are the log-probabilities of all branches together."""
    sizes = {"version_number": 2, "memory_size": 0, "action_output_shape": 5}
    constants = sizes | {"is_continuous_control": 0}
    node, floats = onnx.helper.make_node, onnx.TensorProto.FLOAT

    def info(name, *shape):
        return onnx.helper.make_tensor_value_info(name, floats, shape)

    def tensor(name, values):
        return onnx.numpy_helper.from_array(np.asarray(values, np.float32), name)

    nodes = [
        node("MatMul", ["vector_observation", "weight"], ["logits"]),
        node("Add", ["action_masks", "epsilon"], ["allowed"]),
        node("Log", ["allowed"], ["penalty"]),
        node("Add", ["logits", "penalty"], ["action"]),
    ]
    nodes += [
        node("Constant", [], [name], value=tensor(name, [value]))
        for name, value in constants.items()
    ]
    inputs = [info("vector_observation", None, 4), info("action_masks", None, 5)]
    outputs = [info("action", None, 5), *(info(name, 1) for name in constants)]
    weights = [tensor("weight", np.zeros((4, 5))), tensor("epsilon", 1e-7)]
    graph = onnx.helper.make_graph(nodes, "old", inputs, outputs, weights)
    opset = onnx.helper.make_opsetid("", 9)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=7)
    onnx.save(model, tmp_path / "old.onnx")
    world = ScriptedWorld(moves=False)
    branches = world.spec.action_spec.discrete_branches
    discrete = replace(world.spec, action_spec=ActionSpec(0, branches))
    policy = OnnxPolicy(tmp_path / "old.onnx")
    policy.check("B", discrete)
    rows = Slots(world).reset()["Walker?team=0"]
    drawn = policy.act(rows, None, policy.new_generator(0)).actions.discrete
    assert drawn.shape == (len(rows), 2)
    chosen = np.eye(3)[drawn[:, 0]], np.eye(2)[drawn[:, 1]]
    taken = np.concatenate(chosen, axis=1).astype(bool)
    assert rows.action_mask[rows.deciding][taken[rows.deciding]].all()
    other = replace(discrete, action_spec=ActionSpec(0, (3, 3)))
    with pytest.raises(UsageError, match=r"action_masks takes \[5\]"):
        OnnxPolicy(tmp_path / "old.onnx").check("B", other)
