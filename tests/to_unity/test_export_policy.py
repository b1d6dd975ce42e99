"""Policies of other libraries as ONNX files: the same actions and memories, and the same returns."""

import json
import math
import subprocess
import sys

import gymnasium
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from gymnasium import spaces
from tests.unity_importer import require_known
from torch import nn

import touchline
from touchline.errors import UsageError
from touchline.policies.files.onnx_in import draw_choices_outside
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

BALL = BehaviorSpec((ObservationSpec.vector(8, "ball"),), ActionSpec(2))
BASIC = BehaviorSpec((ObservationSpec.vector(20, "position"),), ActionSpec(0, (3,)))
MANY = BehaviorSpec(
    (ObservationSpec.vector(5, "a"), ObservationSpec.vector(3, "b")),
    ActionSpec(0, (3, 2)),
)
PICTURE = BehaviorSpec((ObservationSpec((3, 36, 40), name="eye"),), ActionSpec(0, (5,)))
NUM = 1000


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class World(gymnasium.Env):
    """Spaces alone: what a model needs to be built."""

    def __init__(self, observation, action):
        self.observation_space, self.action_space = observation, action


def _world(spec, join=False, scale=None):
    boxes = [
        spaces.Box(-np.inf, np.inf, o.shape, np.float32)
        if len(o.shape) == 1
        else spaces.Box(0, 255, (*o.shape[1:], o.shape[0]), np.uint8)
        for o in spec.observation_specs
    ]
    names = [o.name for o in spec.observation_specs]
    observation = spaces.Dict(dict(zip(names, boxes, strict=True)))
    if len(boxes) == 1:
        (observation,) = boxes
    elif join:
        observation = spaces.Box(-np.inf, np.inf, (spec.observation_size,), np.float32)
    action = spaces.Box(-1, 1, (spec.action_spec.continuous_size,), np.float32)
    branches = spec.action_spec.discrete_branches
    if branches:
        one = len(branches) == 1
        action = spaces.Discrete(branches[0]) if one else spaces.MultiDiscrete(branches)
    return World(
        observation, action if scale is None else spaces.Box(-scale, scale, (2,))
    )


def _shaken(model):
    """Away from first weights, which give zeros."""
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def _exported(policy, spec, tmp_path, masks=None):
    path = touchline.export_policy(policy, spec, tmp_path / "policy.onnx")
    model = onnx.load(path)
    require_known(model)
    session = ort.InferenceSession(path.read_bytes())
    rng = np.random.default_rng(0)
    feeds = {}
    for given in session.get_inputs():
        shape = (NUM, *given.shape[1:])
        is_picture = len(shape) == 4
        values = (
            rng.integers(0, 256, shape) / 255 if is_picture else rng.normal(size=shape)
        )
        feeds[given.name] = values.astype(np.float32)
    if "action_masks" in feeds:
        feeds["action_masks"][:] = 1 if masks is None else masks
    names = [o.name for o in session.get_outputs()]
    found = dict(zip(names, session.run(None, feeds), strict=True))
    if branches := draw_choices_outside(model.graph):
        session = ort.InferenceSession(model.SerializeToString())
        found["logits"] = session.run(branches, feeds)
    return feeds, found


def _model(name, policy, world, **settings):
    import sb3_contrib
    import stable_baselines3

    library = stable_baselines3 if hasattr(stable_baselines3, name) else sb3_contrib
    if name.endswith("PPO"):
        settings = {"n_steps": 8, "batch_size": 8} | settings
    return getattr(library, name)(policy, world, device="cpu", **settings)


@pytest.mark.parametrize(
    ("name", "spec"),
    [("PPO", BALL), ("A2C", BALL), ("SAC", BALL), ("TD3", BALL), ("DDPG", BALL), ("TQC", BALL),
     ("PPO", BASIC), ("A2C", MANY), ("DQN", BASIC), ("MaskablePPO", MANY)],
)  # fmt: skip
@pytest.mark.parametrize("join", [False, True])
def test_a_model_of_sb3_acts_the_same(tmp_path, name, spec, join):
    is_dict = spec is MANY and not join
    policy = "MultiInputPolicy" if is_dict else "MlpPolicy"
    model = _shaken(_model(name, policy, _world(spec, join)))
    masks, more = None, {}
    if name == "MaskablePPO":
        masks = np.random.default_rng(1).random((NUM, 5)) < 0.6
        masks[:, [0, 3]] = True
        more = {"action_masks": masks}
    feeds, found = _exported(model, spec, tmp_path, masks)
    parts = [feeds[f"obs_{i}"] for i in range(len(spec.observation_specs))]
    obs = np.concatenate(parts, axis=1)
    if is_dict:
        names = [o.name for o in spec.observation_specs]
        obs = dict(zip(names, parts, strict=True))
    expected, _ = model.predict(obs, deterministic=True, **more)
    _check(found, expected)
    if spec.action_spec.discrete_size and hasattr(model.policy, "get_distribution"):
        seen, _ = model.policy.obs_to_tensor(obs)
        drawn = model.policy.get_distribution(seen, **more)
        parts = getattr(drawn, "distributions", None) or drawn.distribution
        parts = parts if isinstance(parts, list) else [parts]
        _check_logits(found, [part.logits for part in parts])


def _check_logits(found, expected):
    """Of all branches; logits that differ by a constant are the same distribution."""
    for own, logits in zip(found["logits"], expected, strict=True):
        given = torch.log_softmax(torch.from_numpy(own), dim=1).clamp(min=-1e7)
        wanted = torch.log_softmax(logits.detach(), dim=1).clamp(min=-1e7)
        torch.testing.assert_close(given, wanted, atol=1e-5, rtol=0)


def _check(found, expected):
    if "deterministic_continuous_actions" in found:
        own = found["deterministic_continuous_actions"]
        np.testing.assert_allclose(own, expected, atol=1e-5)
        assert expected.std() > 0.05
    else:
        own = found["deterministic_discrete_actions"]
        np.testing.assert_array_equal(own, expected.reshape(own.shape))
        assert len(np.unique(expected)) > 1


def test_a_model_that_sees_pictures_acts_the_same(tmp_path):
    model = _shaken(_model("PPO", "CnnPolicy", _world(PICTURE)))
    feeds, found = _exported(model, PICTURE, tmp_path)
    pixels = np.rint(feeds["obs_0"] * 255).astype(np.uint8)
    expected, _ = model.predict(pixels, deterministic=True)
    _check(found, expected)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("spec", [BALL, BASIC])
def test_a_recurrent_model_remembers_the_same(tmp_path, spec, layers):
    settings = {"lstm_hidden_size": 12, "n_lstm_layers": layers}
    model = _model(
        "RecurrentPPO", "MlpLstmPolicy", _world(spec), policy_kwargs=settings
    )
    feeds, found = _exported(_shaken(model), spec, tmp_path)
    assert found["memory_size"] == [2 * layers * 12]
    parts = feeds["recurrent_in"].reshape(NUM, 2, layers, 12).transpose(1, 2, 0, 3)
    starts = np.zeros(NUM, bool)
    expected, after = model.predict(
        feeds["obs_0"], state=tuple(parts), episode_start=starts, deterministic=True
    )
    _check(found, expected)
    own = found["recurrent_out"].reshape(NUM, 2, layers, 12).transpose(1, 2, 0, 3)
    np.testing.assert_allclose(own, np.stack(after), atol=1e-5)


def test_observations_are_normalized_as_by_the_models_vec_normalize(tmp_path):
    from stable_baselines3.common.vec_env import VecNormalize

    env = VecNormalize(touchline.make_sb3("3DBall"), clip_obs=2.0)
    model = _shaken(_model("PPO", "MlpPolicy", env))
    model.learn(500)
    feeds, found = _exported(model, BALL, tmp_path)
    expected, _ = model.predict(env.normalize_obs(feeds["obs_0"]), deterministic=True)
    _check(found, expected)
    env.close()


def test_a_policy_without_the_environment_that_normalized_is_warned_of(tmp_path):
    from stable_baselines3 import PPO

    model = _model("PPO", "MlpPolicy", _world(BALL))
    model.save(tmp_path / "model.zip")
    for given in (model.policy, PPO.load(tmp_path / "model.zip")):
        with pytest.warns(UserWarning, match="if VecNormalize scaled what it observed"):
            touchline.export_policy(given, BALL, tmp_path / "policy.onnx")


def test_bytes_of_pictures_are_normalized_as_bytes(tmp_path):
    from stable_baselines3.common.vec_env import (
        DummyVecEnv,
        VecNormalize,
        VecTransposeImage,
    )

    env = VecNormalize(
        VecTransposeImage(DummyVecEnv([lambda: _world(PICTURE)])), clip_obs=2.0
    )
    env.obs_rms.mean = np.full((3, 36, 40), 100.0)
    env.obs_rms.var = np.full((3, 36, 40), 900.0)
    settings = {"normalize_images": False}
    model = _shaken(_model("PPO", "CnnPolicy", env, policy_kwargs=settings))
    feeds, found = _exported(model, PICTURE, tmp_path)
    pixels = np.rint(feeds["obs_0"] * 255).astype(np.uint8)
    expected, _ = model.predict(env.normalize_obs(pixels), deterministic=True)
    _check(found, expected)


class Grids(gymnasium.Env):
    """Numbers in a grid, which are no colors."""

    observation_space = spaces.Box(-np.inf, np.inf, (36, 40, 3), np.float32)
    action_space = spaces.Discrete(5)

    def reset(self, **settings):
        super().reset(**settings)
        seen = self.np_random.normal(size=(36, 40, 3)).clip(0, 1) * 5
        return seen.astype(np.float32), {}

    def step(self, _):
        return self.reset()[0], 0.0, False, False, {}


def test_numbers_above_1_in_a_grid_are_no_bytes(tmp_path):
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = VecNormalize(DummyVecEnv([Grids]))
    model = _shaken(_model("PPO", "MlpPolicy", env, seed=0))
    model.learn(40)
    assert env.obs_rms.mean.max() > 1
    # What is seen decides, not a choice that is likely everywhere.
    with torch.no_grad():
        seen = torch.rand(64, 36, 40, 3).numpy()
        policy = model.policy.get_distribution(torch.tensor(env.normalize_obs(seen)))
        model.policy.action_net.bias -= policy.distribution.logits.mean(0)
    feeds, found = _exported(model, PICTURE, tmp_path)
    seen = env.normalize_obs(feeds["obs_0"].transpose(0, 2, 3, 1))
    expected, _ = model.predict(seen, deterministic=True)
    _check(found, expected)


def test_bytes_of_pictures_in_a_dict_are_normalized_as_bytes(tmp_path):
    from stable_baselines3.common.vec_env import VecNormalize

    env = VecNormalize(touchline.make_sb3("GridWorld", num_areas=4, uint8_images=True))
    model = _shaken(_model("PPO", "MultiInputPolicy", env))
    for pixels in np.random.default_rng(0).integers(0, 256, (9, 4, 64, 84, 3)):
        goals = np.eye(2, dtype=np.float32)[[0, 1, 0, 1]]
        seen = dict(zip(env.observation_space, (pixels, goals), strict=True))
        for name, x in seen.items():
            env.obs_rms[name].update(x)
    with touchline.make("GridWorld") as world:
        (spec,) = world.behaviors.values()
    feeds, found = _exported(model, spec, tmp_path)
    seen = {}
    for i, sensor in enumerate(spec.observation_specs):
        seen[sensor.name] = feeds[f"obs_{i}"]
        if len(sensor.shape) == 3:
            pixels = np.rint(seen[sensor.name] * 255).astype(np.uint8)
            seen[sensor.name] = pixels.transpose(0, 2, 3, 1)
    (pixels, _) = env.venv.env.single_observation_space.values()
    assert pixels.dtype == np.uint8, "the world's own space stays as it was"
    expected, _ = model.predict(env.normalize_obs(seen), deterministic=True)
    _check(found, expected)
    env.close()


def test_drawn_actions_follow_the_original_distribution_and_masks(tmp_path):
    model = _shaken(_model("PPO", "MlpPolicy", _world(BASIC)))
    masks = np.ones((NUM, 3))
    masks[:, 1] = 0
    _, found = _exported(model, BASIC, tmp_path, masks)
    assert set(np.unique(found["discrete_actions"])) == {0, 2}
    model = _shaken(
        _model("PPO", "MlpPolicy", _world(BALL), policy_kwargs={"log_std_init": -2})
    )
    _, found = _exported(model, BALL, tmp_path)
    own = found["deterministic_continuous_actions"]
    is_inside = np.abs(own) < 0.5
    noise = (found["continuous_actions"] - own)[is_inside]
    spread = float(model.policy.log_std.detach().exp().mean())
    assert noise.std() == pytest.approx(spread, rel=0.15)


def test_a_greedy_model_draws_nothing_but_its_best_allowed_choice(tmp_path):
    model = _shaken(_model("DQN", "MlpPolicy", _world(BASIC)))
    masks = np.ones((NUM, 3))
    masks[::2, 1] = 0
    _, found = _exported(model, BASIC, tmp_path, masks)
    best = found["deterministic_discrete_actions"]
    np.testing.assert_array_equal(found["discrete_actions"], best)
    assert not (best[::2] == 1).any()


@pytest.mark.parametrize("seed", range(5))
def test_values_that_differ_by_little_are_no_reason_to_refuse(tmp_path, seed):
    torch.manual_seed(seed)
    model = _model("DQN", "MlpPolicy", _world(BASIC))
    last = model.policy.q_net.q_net[-1]
    with torch.no_grad():
        common = 20 * torch.randn(1, 64)
        last.weight.copy_(common + 0.02 * torch.randn_like(last.weight))
        last.bias.fill_(100)
    feeds, found = _exported(model, BASIC, tmp_path)
    expected, _ = model.predict(feeds["obs_0"], deterministic=True)
    own = found["deterministic_discrete_actions"][:, 0]
    assert np.mean(own == expected) > 0.995, "but for those that rounding decides"


@pytest.mark.parametrize("least", [-1e9, -math.inf])
def test_a_choice_that_the_values_forbid_does_not_even_out_the_others(tmp_path, least):
    model = _shaken(_model("DQN", "MlpPolicy", _world(BASIC)))
    with torch.no_grad():
        model.policy.q_net.q_net[-1].bias[1] = least
    _, found = _exported(model, BASIC, tmp_path)
    best = found["deterministic_discrete_actions"]
    assert set(np.unique(best)) == {0, 2}
    np.testing.assert_array_equal(found["discrete_actions"], best)


def _actor(net, keys, distribution, out=("loc", "scale"), **settings):
    from tensordict.nn import TensorDictModule
    from torchrl.modules import ProbabilisticActor

    module = TensorDictModule(net, in_keys=keys, out_keys=list(out))
    return ProbabilisticActor(
        module,
        in_keys=list(out),
        distribution_class=distribution,
        distribution_kwargs=settings,
        default_interaction_type="deterministic",
    )


def test_an_actor_of_torchrl_acts_the_same(tmp_path):
    from tensordict import TensorDict
    from tensordict.nn import NormalParamExtractor
    from torchrl.modules import MLP, OneHotCategorical, TanhNormal

    body = MLP(in_features=8, out_features=4, num_cells=[16])
    net = nn.Sequential(body, NormalParamExtractor())
    limits = {"low": -torch.ones(4, 2), "high": torch.ones(4, 2)}
    for settings in ({}, {"tanh_loc": True}, limits):
        actor = _actor(net, ["observation"], TanhNormal, **settings)
        feeds, found = _exported(actor, BALL, tmp_path)
        seen = TensorDict({"observation": torch.from_numpy(feeds["obs_0"])}, [NUM])
        _check(found, actor(seen)["action"].detach().numpy())
    net = MLP(in_features=20, out_features=3, num_cells=[16])
    actor = _actor(net, ["observation"], OneHotCategorical, out=["logits"])
    feeds, found = _exported(actor, BASIC, tmp_path)
    seen = TensorDict({"observation": torch.from_numpy(feeds["obs_0"])}, [NUM])
    _check(found, actor(seen)["action"].int().argmax(dim=1).numpy())
    with torch.no_grad():
        _check_logits(found, [net(seen["observation"])])


class Parted(nn.Module):
    """Two continuous actions and branches of 3 and 2."""

    def __init__(self):
        from tensordict.nn import NormalParamExtractor

        super().__init__()
        self.body, self.split = nn.Linear(8, 9), NormalParamExtractor()

    def forward(self, x):
        y = self.body(x)
        return *self.split(y[:, :4]), y[:, 4:7], y[:, 7:]


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 4)

    def forward(self, x):
        from tensordict import TensorDict

        y = self.body(x)
        parts = {"loc": y[:, :2], "more": {"scale": y[:, 2:].exp()}}
        return TensorDict(parts, y.shape[:1])


@pytest.mark.parametrize("reads_whole", [False, True])
def test_parts_of_a_whole_tensordict_are_read_by_their_own_keys(tmp_path, reads_whole):
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.modules import ProbabilisticActor, TanhNormal

    module = TensorDictModule(Whole(), in_keys=["observation"], out_keys=["all"])
    keys = {"loc": ("all", "loc"), "scale": ("all", "more", "scale")}
    if reads_whole:
        take = TensorDictModule(
            lambda whole: (whole["loc"], whole["more", "scale"]), ["all"], [*keys]
        )
        module, keys = TensorDictSequential(module, take), [*keys]
    actor = ProbabilisticActor(module, keys, distribution_class=TanhNormal)
    feeds, found = _exported(actor, BALL, tmp_path)
    body = next(m for m in actor.modules() if isinstance(m, Whole)).body
    mean = body(torch.from_numpy(feeds["obs_0"]))[:, :2].tanh()
    _check(found, mean.detach().numpy())


class PartedWhole(Parted):
    def forward(self, x):
        from tensordict import TensorDict

        loc, scale, first, second = super().forward(x)
        parts = {"continuous": {"loc": loc, "scale": scale}}
        parts |= {"branch_0": {"logits": first}, "branch_1": {"logits": second}}
        return TensorDict(parts, loc.shape[:1])


@pytest.mark.parametrize("is_whole", [False, True])
def test_an_actor_of_torchrl_with_several_parts_acts_the_same(tmp_path, is_whole):
    from tensordict import TensorDict
    from tensordict.nn import CompositeDistribution, TensorDictModule
    from torch.distributions import Categorical
    from torchrl.modules import ProbabilisticActor, TanhNormal

    spec = BehaviorSpec(BALL.observation_specs, ActionSpec(2, (3, 2)))
    keys = [("params", "continuous", "loc"), ("params", "continuous", "scale")]
    keys += [("params", "branch_0", "logits"), ("params", "branch_1", "logits")]
    keys, net = (["params"], PartedWhole()) if is_whole else (keys, Parted())
    module = TensorDictModule(net, in_keys=["observation"], out_keys=keys)
    kinds = {"branch_1": Categorical, "branch_0": Categorical, "continuous": TanhNormal}
    names = {name: ("action", name) for name in kinds}
    actor = ProbabilisticActor(
        module,
        in_keys=["params"],
        out_keys=list(names.values()),
        distribution_class=CompositeDistribution,
        distribution_kwargs={"distribution_map": kinds, "name_map": names},
        default_interaction_type="deterministic",
    )
    feeds, found = _exported(actor, spec, tmp_path)
    seen = TensorDict({"observation": torch.from_numpy(feeds["obs_0"])}, [NUM])
    action = actor(seen)["action"]
    _check(found, action["continuous"].detach().numpy())
    own = found["deterministic_discrete_actions"]
    np.testing.assert_array_equal(own[:, 0], action["branch_0"])
    np.testing.assert_array_equal(own[:, 1], action["branch_1"])
    with pytest.raises(
        UsageError, match=r"draws branch_1, branch_0, .*; expected action"
    ):
        touchline.export_policy(actor, BALL, tmp_path / "other.onnx")


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 2), nn.Linear(3, 2)

    def forward(self, x, z=0.0, y=None):
        return torch.tanh(self.first(x) - self.second(y) + z)

    def other(self, x, y, scale):
        return scale * self.forward(x, y=y)


@pytest.mark.parametrize("method", [None, "other"])
def test_modules_of_tensordict_are_called_as_it_calls_them(tmp_path, method):
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule

    spec = BehaviorSpec(MANY.observation_specs, ActionSpec(2))
    more = {"method": method, "method_kwargs": {"scale": 0.3}} if method else {}
    keys = {"y": ("observation", "b"), "x": ("observation", "a")}
    actor = TensorDictModule(Two(), in_keys=keys, out_keys=["action"], **more)
    feeds, found = _exported(actor, spec, tmp_path)
    parts = {
        "a": torch.from_numpy(feeds["obs_0"]),
        "b": torch.from_numpy(feeds["obs_1"]),
    }
    with torch.no_grad():
        seen = TensorDict({"observation": TensorDict(parts, [NUM])}, [NUM])
        _check(found, actor(seen)["action"].numpy())


def test_actors_in_the_ways_of_torchrls_tutorials_act_the_same(tmp_path):
    from tensordict import TensorDict
    from tensordict.nn import (
        NormalParamExtractor,
        TensorDictModule,
        TensorDictSequential,
    )
    from torchrl.modules import ProbabilisticActor, TanhModule, TanhNormal

    first = TensorDictModule(nn.Linear(8, 2), ["observation"], ["param"])
    last = TanhModule(in_keys=["param"], out_keys=["action"])
    half = TensorDictModule(lambda x: 0.5 * x, ["observation"], ["observation"])
    body = TensorDictModule(nn.Linear(8, 2), ["observation"], ["action"])
    net = nn.Sequential(nn.Linear(8, 4), NormalParamExtractor())
    keys = [("p", "loc"), ("p", "scale")]
    nested = ProbabilisticActor(
        TensorDictModule(net, ["observation"], keys),
        in_keys=keys,
        distribution_class=TanhNormal,
        default_interaction_type="deterministic",
    )
    in_turn = TensorDictSequential(half, body)
    for actor in (TensorDictSequential(first, last), in_turn, nested):
        feeds, found = _exported(actor, BALL, tmp_path)
        seen = TensorDict({"observation": torch.from_numpy(feeds["obs_0"])}, [NUM])
        with torch.no_grad():
            _check(found, actor(seen)["action"].clamp(-1, 1).numpy())


def test_an_actor_of_torchrl_with_values_takes_the_best_one(tmp_path):
    from torchrl.modules import MLP, QValueActor

    net = MLP(in_features=20, out_features=3, num_cells=[16])
    actor = QValueActor(net, in_keys=["observation"], action_space="one-hot")
    feeds, found = _exported(actor, BASIC, tmp_path)
    with torch.no_grad():
        values = net(torch.from_numpy(feeds["obs_0"]))
    _check(found, values.argmax(dim=1).numpy())


def test_of_an_actor_of_torchrl_with_a_critic_the_action_is_taken(tmp_path):
    from tensordict.nn import TensorDictModule
    from torchrl.modules import ActorCriticWrapper, ValueOperator

    spec = BehaviorSpec(BALL.observation_specs, ActionSpec(1))
    net = nn.Sequential(nn.Linear(8, 1), nn.Tanh())
    actor = TensorDictModule(net, in_keys=["observation"], out_keys=["action"])
    critic = ValueOperator(nn.Linear(8, 1), in_keys=["observation"])
    feeds, found = _exported(ActorCriticWrapper(actor, critic), spec, tmp_path)
    with torch.no_grad():
        _check(found, net(torch.from_numpy(feeds["obs_0"])).numpy())


def test_an_actor_of_torchrl_remembers_the_same(tmp_path):
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential
    from torchrl.modules import LSTMModule

    lstm = LSTMModule(input_size=8, hidden_size=6, in_key="observation", out_key="x")
    head = TensorDictModule(
        nn.Sequential(nn.Linear(6, 2), nn.Tanh()), in_keys=["x"], out_keys=["action"]
    )
    actor = TensorDictSequential(lstm, head)
    feeds, found = _exported(actor, BALL, tmp_path)
    states = torch.from_numpy(feeds["recurrent_in"]).view(NUM, 2, 1, 6)
    seen = TensorDict(
        {
            "observation": torch.from_numpy(feeds["obs_0"]),
            "recurrent_state_h": states[:, 0],
            "recurrent_state_c": states[:, 1],
            "is_init": torch.zeros(NUM, 1, dtype=torch.bool),
        },
        [NUM],
    )
    with torch.no_grad():
        done = actor(seen)
    _check(found, done["action"].numpy())
    own = found["recurrent_out"].reshape(NUM, 2, 1, 6)
    np.testing.assert_allclose(own[:, 0], done["next", "recurrent_state_h"], atol=1e-5)
    np.testing.assert_allclose(own[:, 1], done["next", "recurrent_state_c"], atol=1e-5)


class Continuous(nn.Module):
    """After the manner of CleanRL's PPO."""

    def __init__(self):
        super().__init__()
        self.critic = nn.Linear(8, 1)
        self.actor_mean = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
        self.actor_logstd = nn.Parameter(torch.full((1, 2), -1.0))


class Discrete(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.actor, self.critic = nn.Linear(16, 5), nn.Linear(16, 1)


class SoftActor(nn.Module):
    """After the manner of CleanRL's SAC."""

    def __init__(self):
        super().__init__()
        self.fc_mean, self.fc_logstd = nn.Linear(8, 2), nn.Linear(8, 2)
        self.register_buffer("action_scale", torch.tensor([1.0, 0.5]))
        self.register_buffer("action_bias", torch.tensor([0.0, 0.5]))

    def forward(self, x):
        return self.fc_mean(x), torch.tanh(self.fc_logstd(x))


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Linear(20, 3)

    def forward(self, x):
        return self.network(x)


@torch.no_grad()
def test_agents_in_the_manner_of_cleanrl_act_the_same(tmp_path):
    agent = Continuous()
    feeds, found = _exported(agent, BALL, tmp_path)
    x = torch.from_numpy(feeds["obs_0"])
    _check(found, agent.actor_mean(x).clamp(-1, 1).numpy())
    noise = found["continuous_actions"] - found["deterministic_continuous_actions"]
    assert noise.std() == pytest.approx(np.exp(-1), rel=0.25)
    agent = SoftActor()
    feeds, found = _exported(agent, BALL, tmp_path)
    mean, _ = agent(torch.from_numpy(feeds["obs_0"]))
    _check(found, (mean.tanh() * agent.action_scale + agent.action_bias).numpy())
    agent = Discrete()
    feeds, found = _exported(agent, MANY, tmp_path)
    x = torch.from_numpy(np.concatenate([feeds["obs_0"], feeds["obs_1"]], axis=1))
    logits = agent.actor(agent.network(x))
    best = [logits[:, :3].argmax(dim=1), logits[:, 3:].argmax(dim=1)]
    _check(found, torch.stack(best, dim=1).numpy())
    _check_logits(found, logits.split([3, 2], dim=1))
    agent = QNetwork()
    feeds, found = _exported(agent, BASIC, tmp_path)
    expected = agent(torch.from_numpy(feeds["obs_0"])).argmax(dim=1).numpy()
    _check(found, expected)
    np.testing.assert_array_equal(found["discrete_actions"][:, 0], expected)


class Own(nn.Module):
    """A module with everything: two sensors, a memory, masks, both kinds of actions."""

    memory_size = 6

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 6)
        self.head = nn.Linear(6, 2 + 5)

    def forward(self, a, b, action_masks, memory):
        memory = self.cell(torch.cat([a, b], dim=1), memory)
        mean, logits = self.head(memory).split([2, 5], dim=1)
        logits = logits * action_masks
        drawn = torch.tanh(mean + 0.1 * torch.randn_like(mean))
        return {
            "continuous": drawn,
            "deterministic": torch.tanh(mean),
            "logits": logits,
            "memory": memory,
        }


@torch.no_grad()
def test_any_module_acts_and_remembers_the_same(tmp_path):
    spec = BehaviorSpec(MANY.observation_specs, ActionSpec(2, (3, 2)))
    own = Own()
    feeds, found = _exported(own, spec, tmp_path)
    inputs = {name: torch.from_numpy(value) for name, value in feeds.items()}
    expected = own(
        inputs["obs_0"],
        inputs["obs_1"],
        inputs["action_masks"],
        inputs["recurrent_in"][:, 0],
    )
    mean = expected["deterministic"].numpy()
    np.testing.assert_allclose(
        found["deterministic_continuous_actions"], mean, atol=1e-5
    )
    np.testing.assert_allclose(
        found["recurrent_out"][:, 0], expected["memory"], atol=1e-5
    )
    best = [part.argmax(dim=1) for part in expected["logits"].split([3, 2], dim=1)]
    own_best = found["deterministic_discrete_actions"]
    np.testing.assert_array_equal(own_best, torch.stack(best, dim=1).numpy())
    _check_logits(found, expected["logits"].split([3, 2], dim=1))
    noise = found["continuous_actions"] - mean
    assert 0.02 < noise.std() < 0.1


def test_a_tensor_is_continuous_actions_and_then_logits(tmp_path):
    spec = BehaviorSpec(BALL.observation_specs, ActionSpec(2, (3,)))
    module = nn.Linear(8, 5)
    feeds, found = _exported(module, spec, tmp_path)
    with torch.no_grad():
        outputs = module(torch.from_numpy(feeds["obs_0"])).numpy()
    own = found["deterministic_continuous_actions"]
    np.testing.assert_allclose(own, outputs[:, :2].clip(-1, 1), atol=1e-5)
    np.testing.assert_array_equal(own, found["continuous_actions"])
    best = outputs[:, 2:].argmax(axis=1)
    np.testing.assert_array_equal(found["deterministic_discrete_actions"][:, 0], best)


class WithMasks(nn.Module):
    def forward(self, x, action_masks):
        return x[:, :2] + action_masks.sum()


class Forgetful(nn.Linear):
    memory_size = 4


@pytest.mark.parametrize(
    ("make", "spec", "line"),
    [
        (lambda: nn.Linear(9, 2), BALL, r"cannot act on observations \[8\]: RuntimeError: mat1"),
        (lambda: nn.Linear(8, 3), BALL, r"returns \[3, 3\] of 3 agents as continuous; expected 2"),
        (lambda: nn.Linear(20, 2), BASIC, r"returns \[3, 2\] of 3 agents as logits; expected 3"),
        (WithMasks, BALL, "takes action_masks, but the behavior has no branches"),
        (lambda: Forgetful(8, 2), BALL, "memory_size of 4; expected that its forward takes"),
        (lambda: nn.LSTM(8, 2), BALL, "the policy returns tuple; expected a tensor, or a dict"),
        (lambda: nn.Linear(8, 2), "3DBall", "expected a BehaviorSpec, one of .*; got '3DBall'"),
        (lambda: 3, BALL, "expected a torch module, or a policy of SB3, TorchRL or CleanRL; got 3"),
        (lambda: _model("PPO", "MlpPolicy", _world(BALL)), BASIC, "the model's actions are Box"),
        (lambda: _model("PPO", "MlpPolicy", _world(BALL, scale=2)), BALL, "the model's actions are"),
        (lambda: _model("PPO", "MlpPolicy", _world(BASIC)), PICTURE, "the model's actions are"),
        (lambda: _model("PPO", "MlpPolicy", _world(BASIC)), BehaviorSpec(BALL.observation_specs, ActionSpec(0, (3,))), "the model observes Box"),
        (lambda: _model("PPO", "MlpPolicy", _world(BALL), use_sde=True), BALL, "use_sde"),
    ],
)  # fmt: skip
def test_a_policy_that_does_not_fit_is_one_line(tmp_path, make, spec, line):
    with pytest.raises(UsageError, match=line) as refusal:
        touchline.export_policy(make(), spec, tmp_path / "policy.onnx")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "policy.onnx").exists()


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"policy\.pt: expected a file NAME\.onnx"):
        touchline.export_policy(nn.Linear(8, 2), BALL, tmp_path / "policy.pt")


def test_eval_finds_the_return_of_the_original(tmp_path):
    """3DBall, half learned, so that returns differ from policy to policy."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecMonitor

    env = VecMonitor(touchline.make_sb3("3DBall"))
    settings = {"n_steps": 200, "batch_size": 300, "n_epochs": 6, "learning_rate": 1e-3}
    model = PPO(
        "MlpPolicy",
        env,
        seed=1,
        device="cpu",
        policy_kwargs={"net_arch": [64]},
        **settings,
    )
    model.learn(21_000)
    returns, _ = evaluate_policy(model, env, 240, return_episode_rewards=True)
    env.close()
    path = touchline.export_policy(model, BALL, tmp_path / "ball.onnx")
    command = ["eval", "3DBall", "--policy", str(path), "--deterministic"]
    done = subprocess.run(
        [sys.executable, "-m", "touchline", *command, "--episodes", "240", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    error = (np.var(returns) / 240 + figures["std_return"] ** 2 / 240) ** 0.5
    assert 5 < np.mean(returns) < 99
    assert abs(figures["mean_return"] - np.mean(returns)) < 3 * error
