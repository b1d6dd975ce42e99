"""Policies that `export_policy` cannot follow: one line, and no file."""

import re

import gymnasium
import pytest
import torch
from torch import nn

import touchline
from touchline.errors import UsageError
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

BALL = BehaviorSpec((ObservationSpec.vector(8, "ball"),), ActionSpec(2))
BASIC = BehaviorSpec((ObservationSpec.vector(20, "position"),), ActionSpec(0, (3,)))
PICTURE = BehaviorSpec((ObservationSpec((3, 36, 40), name="eye"),), ActionSpec(0, (5,)))


def _refusal(policy, spec, tmp_path):
    path = tmp_path / "policy.onnx"
    with pytest.raises(UsageError) as refusal:
        touchline.export_policy(policy, spec, path)
    assert "\n" not in str(refusal.value)
    assert not any(tmp_path.iterdir())
    return str(refusal.value)


class Agent(nn.Module):
    """After the manner of CleanRL, with parts of any names."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


@pytest.mark.parametrize(
    ("other", "part", "actor"),
    [
        ("lstm", nn.LSTM(20, 20), "actor"),
        ("shared", nn.Linear(20, 20), "actor"),
        ("encoder", nn.Linear(20, 20), "actor"),
        ("scale", nn.Parameter(torch.ones(20)), "actor"),
        ("network", nn.Linear(8, 8), "actor_mean"),
    ],
)
def test_an_agent_with_a_part_of_another_name_is_refused(tmp_path, other, part, actor):
    agent = Agent(actor=nn.Linear(20, 3), critic=nn.Linear(20, 1), **{other: part})
    spec = BASIC
    if actor == "actor_mean":
        std = nn.Parameter(torch.zeros(1, 2))
        agent = Agent(actor_mean=nn.Linear(8, 2), actor_logstd=std, **{other: part})
        spec = BALL
    line = _refusal(agent, spec, tmp_path)
    assert f"and critics, got {other}; wrap what acts in a torch module" in line


class QNetwork(nn.Sequential):
    def forward(self, x):
        return super().forward(x / 255.0)


def test_a_q_network_that_sees_pictures_is_refused(tmp_path):
    network = QNetwork(nn.Flatten(), nn.Linear(3 * 36 * 40, 5))
    assert "divides them by 255" in _refusal(network, PICTURE, tmp_path)


class Does(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_a_policy_that_decides_by_its_observations_is_told_what_follows_them(tmp_path):
    policy = Does(lambda x: x[:, :2] if x.sum() > 0 else -x[:, :2])
    line = _refusal(policy, BALL, tmp_path)
    assert "it decides by observations; `if` does so, torch.where does not" in line


class Double(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2).double()
        self.register_buffer("mean", torch.zeros(8, dtype=torch.float64))

    def forward(self, x):
        return self.layer(x - self.mean)


class Ticking(nn.Module):
    """Keeps something of its own from decision to decision."""

    time = 0

    def forward(self, x):
        self.time += 1
        return x[:, :2] * 0.01 * self.time


class Remembers(nn.Module):
    def forward(self, x, memory):
        return {"continuous": x[:, :2], "memory": memory}


UNLOADABLE = "onnxruntime cannot run this model"
DIFFERENT = "depends on nothing but its inputs"


@pytest.mark.parametrize(
    ("make", "spec", "reason"),
    [
        (lambda: Does(lambda x: torch.cat([x[:, :1], x[:, :1] > 0], 1)), BALL, UNLOADABLE),
        (lambda: Does(lambda x: torch.logaddexp(x[:, :2], x[:, 2:4])), BALL, UNLOADABLE),
        (Double, BALL, UNLOADABLE),
        (lambda: Does(lambda x: (x[:, :3] * 5).long()), BASIC, UNLOADABLE),
        (lambda: Does(lambda x: x[:, :2] - x.sum(0, keepdim=True)[:, :2] / x.shape[0]), BALL, DIFFERENT),
        (lambda: Does(lambda x: x[:, :2] + torch.randn_like(x[:, :2])), BALL, "other deterministic for the same"),
        (Ticking, BALL, "gives other continuous for the same|gives other deterministic for the same"),
        (lambda: Does(lambda x: x[:, :2] * float("nan")), BALL, "are not numbers"),
        (lambda: torch.jit.trace(nn.Linear(8, 2), torch.zeros(2, 8)), BALL, "torch.jit: expected"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_file_that_would_not_do_the_same_is_refused(tmp_path, make, spec, reason):
    assert re.search(reason, _refusal(make(), spec, tmp_path))


class Sized(nn.Linear):
    def __init__(self, memory_size):
        super().__init__(8, 2)
        self.memory_size = memory_size


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Remembers(), "returns a NoneType as memory; expected a tensor"),
        (Does(lambda x: {"continuous": 3}), "returns a int as continuous; expected a tensor"),
        (Does(lambda x: {"continuous": x[:, :2].tolist()}), "a list as continuous; expected"),
        (Sized("x"), "memory_size: expected a whole number from 0 on, got 'x'"),
        (Sized(-3), "memory_size: expected a whole number from 0 on, got -3"),
        (nn.Linear(8, 200).state_dict(), "expected a torch module, or a policy of .*got Ordered"),
    ],
)  # fmt: skip
def test_what_is_no_policy_is_one_line(tmp_path, policy, reason):
    line = _refusal(policy, BALL, tmp_path)
    assert re.search(reason, line)
    assert len(line) < 400


@pytest.mark.parametrize("path", ["folder.onnx", "file/policy.onnx", None])
def test_a_place_that_takes_no_file_is_one_line(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as refusal:
        touchline.export_policy(nn.Linear(8, 2), BALL, path)
    assert "\n" not in str(refusal.value)


def test_a_table_of_what_is_observed_needs_no_other_numbers(tmp_path):
    table = nn.Embedding(20, 3)
    policy = Does(lambda x: table(x[:, 0].long()))
    touchline.export_policy(policy, BASIC, tmp_path / "policy.onnx")


def test_actors_of_torchrl_with_memories_that_unity_lacks_are_refused(tmp_path):
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.modules import GRUModule, LSTMModule

    head = TensorDictModule(nn.Linear(6, 2), in_keys=["y"], out_keys=["action"])
    first = LSTMModule(
        8,
        6,
        in_keys=["observation", "h", "c"],
        out_keys=["x", ("next", "h"), ("next", "c")],
    )
    second = LSTMModule(
        6, 6, in_keys=["x", "g", "d"], out_keys=["y", ("next", "g"), ("next", "d")]
    )
    gru = GRUModule(8, 6, in_key="observation", out_key="y")
    for parts in ((first, second, head), (gru, head)):
        line = _refusal(TensorDictSequential(*parts), BALL, tmp_path)
        assert "expected one LSTMModule at most" in line


def test_a_model_of_sb3_with_an_actor_of_its_own_is_refused(tmp_path):
    from stable_baselines3 import PPO
    from stable_baselines3.common.policies import ActorCriticPolicy

    class Halved(ActorCriticPolicy):
        def _predict(self, observation, deterministic=False):
            return super()._predict(observation, deterministic) * 0.5

    box = gymnasium.spaces.Box
    world = gymnasium.Env()
    world.observation_space = box(-9.0, 9.0, (8,))
    world.action_space = box(-1.0, 1.0, (2,))
    more = {"policy_kwargs": {"ortho_init": False}, "n_steps": 8, "batch_size": 8}
    model = PPO(Halved, world, device="cpu", **more)
    assert "acts otherwise than" in _refusal(model, BALL, tmp_path)


def test_an_actor_that_its_own_library_cannot_run_is_warned_of(tmp_path):
    from tensordict.nn import TensorDictModule, TensorDictSequential

    class Counting(TensorDictSequential):
        def forward(self, tensordict, **_):
            return super().forward(tensordict.set("n", tensordict["step_count"]))

    actor = Counting(TensorDictModule(nn.Linear(8, 2), ["observation"], ["action"]))
    with pytest.warns(UserWarning, match="not compared with .*KeyError.*step_count"):
        touchline.export_policy(actor, BALL, tmp_path / "policy.onnx")


def test_a_layer_called_as_a_part_of_cleanrls_is_a_layer(tmp_path):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc_mean = nn.Linear(8, 2)

        def forward(self, x):
            return torch.tanh(self.fc_mean(x))

    policy = Named()
    touchline.export_policy(policy, BALL, tmp_path / "policy.onnx")
    # CleanRL's also scales its actions, and returns both.
    policy.fc_logstd = nn.Linear(8, 2)
    touchline.export_policy(policy, BALL, tmp_path / "policy.onnx")


def test_a_buffer_that_is_replaced_while_it_acts_is_put_back(tmp_path):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(2, 8))

        def forward(self, x):
            self.last = x.detach()
            return x[:, :2]

    policy = Last()
    with pytest.raises(UsageError):
        touchline.export_policy(policy, BALL, tmp_path / "policy.onnx")
    assert torch.equal(policy.last, torch.zeros(2, 8))


def test_a_buffer_that_is_taken_out_while_it_acts_is_put_back(tmp_path):
    class Once(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.ones(2))

        def forward(self, x):
            self.cache = None
            return x[:, :2]

    policy = Once()
    assert "changes its buffer policy.cache" in _refusal(policy, BALL, tmp_path)
    assert torch.equal(policy.cache, torch.ones(2))


def test_buffers_that_become_one_stay_as_they_are(tmp_path):
    class Alias(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("first", torch.ones(2))
            self.register_buffer("second", torch.ones(2))

        def forward(self, x):
            self.second = self.first
            return x[:, :2]

    touchline.export_policy(Alias(), BALL, tmp_path / "policy.onnx")


def test_nan_alone_is_no_reason_to_refuse(tmp_path):
    from tensordict.nn import TensorDictModule

    linear = nn.Linear(8, 2)
    linear.register_buffer("unused", torch.tensor(float("nan")))
    touchline.export_policy(linear, BALL, tmp_path / "policy.onnx")
    roots = TensorDictModule(lambda x: x[:, :2].sqrt(), ["observation"], ["action"])
    touchline.export_policy(roots, BALL, tmp_path / "policy.onnx")


def test_an_actor_that_the_file_cannot_be_like_is_refused(tmp_path):
    from tensordict.nn import TensorDictModule, TensorDictSequential

    body = TensorDictModule(
        nn.Linear(8, 2), in_keys=["observation"], out_keys=["action"]
    )
    noise = TensorDictModule(lambda x: x * 0.5, in_keys=["action"], out_keys=["action"])
    actor = TensorDictSequential(body, noise)
    touchline.export_policy(actor, BALL, tmp_path / "policy.onnx")

    class Halved(TensorDictSequential):
        def forward(self, tensordict, **_):
            done = super().forward(tensordict)
            return done.set("action", done["action"] * 0.5)

    (tmp_path / "policy.onnx").unlink()
    assert "acts otherwise than" in _refusal(Halved(body), BALL, tmp_path)


class Counting(nn.Module):
    """Normalizes with what it has seen, also in eval mode."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        self.mean += 0.1 * (x.mean(0) - self.mean)
        return (x - self.mean)[:, :2]


def test_a_policy_that_changes_while_it_acts_is_refused_and_left_as_it_was(tmp_path):
    policy = Counting()
    assert "changes its buffer policy.mean" in _refusal(policy, BALL, tmp_path)
    assert policy.training
    assert not policy.mean.any()


def test_an_output_with_a_gradient_is_no_obstacle(tmp_path):
    policy = nn.Sequential(nn.Linear(8, 2), nn.Dropout())
    policy.last = policy(torch.ones(1, 8))
    touchline.export_policy(policy, BALL, tmp_path / "policy.onnx")
    assert policy.training


def test_an_actor_of_torchrl_that_gives_no_action_is_refused(tmp_path):
    from tensordict.nn import TensorDictModule

    actor = TensorDictModule(
        nn.Linear(8, 2), in_keys=["observation"], out_keys=["value"]
    )
    assert "gives ['value']; expected a key `action`" in _refusal(actor, BALL, tmp_path)
