"""Scripts written for `mlagents_envs` after one replaced word, against a player and a scene."""

import ast
import importlib
import subprocess
import sys
import uuid
import zipfile
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import touchline
from touchline.adapters.mlagents_envs import timers
from touchline.adapters.mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BaseEnv,
    BehaviorMapping,
    BehaviorSpec,
    DecisionSteps,
    ObservationSpec,
    ObservationType,
    TerminalStep,
    TerminalSteps,
)
from touchline.adapters.mlagents_envs.environment import UnityEnvironment
from touchline.adapters.mlagents_envs.envs import env_helpers
from touchline.adapters.mlagents_envs.envs.unity_aec_env import UnityAECEnv
from touchline.adapters.mlagents_envs.envs.unity_gym_env import (
    ActionFlattener,
    UnityGymException,
    UnityToGymWrapper,
)
from touchline.adapters.mlagents_envs.envs.unity_parallel_env import UnityParallelEnv
from touchline.adapters.mlagents_envs.exception import (
    UnityActionException,
    UnityEnvironmentException,
    UnityException,
    UnitySideChannelException,
)
from touchline.adapters.mlagents_envs.registry import (
    UnityEnvRegistry,
    default_registry,
)
from touchline.adapters.mlagents_envs.registry.remote_registry_entry import (
    RemoteRegistryEntry,
)
from touchline.adapters.mlagents_envs.side_channel import (
    IncomingMessage,
    OutgoingMessage,
    SideChannel,
)
from touchline.adapters.mlagents_envs.side_channel.engine_configuration_channel import (
    EngineConfigurationChannel,
)
from touchline.adapters.mlagents_envs.side_channel.environment_parameters_channel import (
    EnvironmentParametersChannel,
)
from touchline.adapters.mlagents_envs.side_channel.raw_bytes_channel import (
    RawBytesChannel,
)
from touchline.adapters.mlagents_envs.side_channel.side_channel_manager import (
    SideChannelManager,
)
from touchline.adapters.to_gymnasium import make_gymnasium
from touchline.adapters.to_pettingzoo import make_pettingzoo
from touchline.envs.actions import ActionError
from touchline.envs.ml_agents_names import WrappedWorld
from touchline.player import build

HERE = "touchline.adapters.mlagents_envs"

TUTORIAL = '''
import sys
import uuid

import numpy as np

from mlagents_envs.base_env import ActionTuple, BaseEnv, DecisionSteps, TerminalSteps
from mlagents_envs.environment import UnityEnvironment
from mlagents_envs.exception import UnityEnvironmentException, UnityTimeOutException
from mlagents_envs.side_channel.engine_configuration_channel import (
    EngineConfig,
    EngineConfigurationChannel,
)
from mlagents_envs.side_channel.environment_parameters_channel import (
    EnvironmentParametersChannel,
)
from mlagents_envs.side_channel.side_channel import (
    IncomingMessage,
    OutgoingMessage,
    SideChannel,
)
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel


class Log(SideChannel):
    """Text from the game."""

    def __init__(self):
        super().__init__(uuid.UUID("621f0a70-4f87-11ea-a6bf-784f4387d1f7"))

    def on_message_received(self, msg: IncomingMessage) -> None:
        print(msg.read_string())

    def send_string(self, data: str) -> None:
        msg = OutgoingMessage()
        msg.write_string(data)
        super().queue_message_to_send(msg)


engine, parameters = EngineConfigurationChannel(), EnvironmentParametersChannel()
log, stats = Log(), StatsSideChannel()
env = UnityEnvironment(
    file_name=sys.argv[1],
    seed=1,
    worker_id=int(sys.argv[2]),
    side_channels=[engine, parameters, log, stats],
    no_graphics=True,
    timeout_wait=60,
)
engine.set_configuration_parameters(time_scale=2.0)
engine.set_configuration(EngineConfig(80, 80, 1, 20.0, -1, 60))
parameters.set_float_parameter("gravity", 9.81)
log.send_string("hello")
env.reset()

behavior_name = list(env.behavior_specs)[0]
print(f"Name of the behavior: {behavior_name}")
spec = env.behavior_specs[behavior_name]
print("Number of observations:", len(spec.observation_specs))
print("Shapes:", [o.shape for o in spec.observation_specs])
if spec.action_spec.continuous_size > 0:
    print(f"There are {spec.action_spec.continuous_size} continuous actions")
if spec.action_spec.is_discrete():
    print(f"There are {spec.action_spec.discrete_size} discrete actions")
for branch, size in enumerate(spec.action_spec.discrete_branches):
    print(f"Action number {branch} has {size} different options")

decision_steps, terminal_steps = env.get_steps(behavior_name)
env.set_actions(behavior_name, spec.action_spec.empty_action(len(decision_steps)))
env.step()

rng = np.random.default_rng(0)
for episode in range(2):
    env.reset()
    decision_steps, terminal_steps = env.get_steps(behavior_name)
    tracked_agent, done, episode_rewards, steps = -1, False, 0, 0
    while not done and steps < 300:
        if tracked_agent == -1 and len(decision_steps) >= 1:
            tracked_agent = decision_steps.agent_id[0]
        count = len(decision_steps)
        if count and decision_steps.action_mask is not None:
            assert [m.shape for m in decision_steps.action_mask] == [
                (count, size) for size in spec.action_spec.discrete_branches
            ]
        action = ActionTuple()
        if spec.action_spec.continuous_size:
            action.add_continuous(
                rng.uniform(-1, 1, (count, spec.action_spec.continuous_size)).astype(
                    np.float32
                )
            )
        if spec.action_spec.discrete_size:
            action.add_discrete(
                np.column_stack(
                    [rng.integers(0, n, count) for n in spec.action_spec.discrete_branches]
                ).astype(np.int32)
            )
        env.set_actions(behavior_name, action)
        if count:
            first = decision_steps[decision_steps.agent_id[0]]
            env.set_action_for_agent(
                behavior_name,
                first.agent_id,
                spec.action_spec.empty_action(1),
            )
        env.step()
        steps += 1
        decision_steps, terminal_steps = env.get_steps(behavior_name)
        if tracked_agent in decision_steps:
            episode_rewards += decision_steps[tracked_agent].reward
        if tracked_agent in terminal_steps:
            episode_rewards += terminal_steps[tracked_agent].reward
            print("interrupted:", bool(terminal_steps[tracked_agent].interrupted))
            done = True
    print(f"Total rewards for episode {episode} is {episode_rewards:.6f} in {steps}")
print(sorted(stats.get_and_reset_stats()))
env.close()
print("Closed environment")
'''
"""After the notebook "Use the ML-Agents low level API" and the page "Python Low-Level API": what
tutorials do, in our words. Runs with the official package, too (`tests/interop`)."""


def ported(script):
    return script.replace("mlagents_envs", HERE)


def played(python, script, player, worker):
    call = [python, "-c", script, player, str(worker)]
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("scene", "worker"),
    [("Basic", 71), pytest.param("3DBall", 72, marks=pytest.mark.slow)],
)
def test_a_tutorial_runs_after_one_replaced_word(scene, worker, tmp_path):
    printed = played(sys.executable, ported(TUTORIAL), build(scene, tmp_path), worker)
    assert f"Name of the behavior: {scene}?team=0" in printed
    assert "Total rewards for episode 1" in printed
    assert printed.endswith("Closed environment\n")


OFFICIAL_NAMES = {
    "environment": [
        "ActionTuple", "BaseEnv", "BehaviorMapping", "BehaviorSpec", "DecisionSteps",
        "DefaultTrainingAnalyticsSideChannel", "SideChannel", "SideChannelManager", "TerminalSteps",
        "UnityActionException", "UnityCommunicatorStoppedException", "UnityEnvironment",
        "UnityEnvironmentException", "UnityTimeOutException",
    ],
    "base_env": [
        "ActionSpec", "ActionTuple", "AgentId", "BaseEnv", "BehaviorMapping", "BehaviorName",
        "BehaviorSpec", "DecisionStep", "DecisionSteps", "DimensionProperty", "GroupId",
        "ObservationSpec", "ObservationType", "TerminalStep", "TerminalSteps",
        "UnityActionException",
    ],
    "communicator": ["Communicator", "PollCallback"],
    "communicator_objects": ["AgentInfoProto", "CommandProto", "agent_info_pb2"],
    "communicator_objects.unity_to_external_pb2_grpc": [
        "UnityToExternalProto", "UnityToExternalProtoServicer", "UnityToExternalProtoStub",
        "add_UnityToExternalProtoServicer_to_server",
    ],
    "env_utils": ["get_platform", "launch_executable", "validate_environment_path"],
    "exception": [
        "UnityActionException", "UnityCommunicationException", "UnityCommunicatorStoppedException",
        "UnityEnvironmentException", "UnityException", "UnityObservationException",
        "UnityPolicyException",
        "UnitySideChannelException", "UnityTimeOutException", "UnityWorkerInUseException",
    ],
    "logging_util": ["CRITICAL", "DEBUG", "INFO", "NOTSET", "get_logger", "set_log_level"],
    "mock_communicator": ["MockCommunicator"],
    "registry": ["UnityEnvRegistry", "default_registry"],
    "registry.base_registry_entry": ["BaseRegistryEntry"],
    "registry.binary_utils": [
        "BLOCK_SIZE", "ZipFileWithProgress", "download_and_extract_zip", "get_local_binary_path",
        "get_local_binary_path_if_exists", "get_tmp_dirs", "load_local_manifest",
        "load_remote_manifest", "print_progress",
    ],
    "registry.remote_registry_entry": ["RemoteRegistryEntry"],
    "registry.unity_env_registry": ["UnityEnvRegistry", "default_registry"],
    "rpc_communicator": ["RpcCommunicator", "UnityToExternalServicerImplementation"],
    "rpc_utils": [
        "OffsetBytesIO", "PNG_HEADER", "behavior_spec_from_proto", "process_pixels",
        "steps_from_proto",
    ],
    "side_channel": [
        "DefaultTrainingAnalyticsSideChannel", "IncomingMessage", "OutgoingMessage", "SideChannel",
    ],
    "side_channel.side_channel": ["IncomingMessage", "OutgoingMessage", "SideChannel"],
    "side_channel.incoming_message": ["IncomingMessage"],
    "side_channel.outgoing_message": ["OutgoingMessage"],
    "side_channel.default_training_analytics_side_channel": [
        "DefaultTrainingAnalyticsSideChannel",
    ],
    "side_channel.engine_configuration_channel": ["EngineConfig", "EngineConfigurationChannel"],
    "side_channel.environment_parameters_channel": ["EnvironmentParametersChannel"],
    "side_channel.float_properties_channel": ["FloatPropertiesChannel"],
    "side_channel.raw_bytes_channel": ["RawBytesChannel"],
    "side_channel.stats_side_channel": [
        "EnvironmentStats", "StatsAggregationMethod", "StatsSideChannel",
    ],
    "side_channel.side_channel_manager": ["SideChannelManager"],
    "timers": [
        "GaugeNode", "TimerNode", "TimerStack", "get_timer_tree", "hierarchical_timer",
        "merge_gauges", "reset_timers", "set_gauge", "timed",
    ],
    "envs.env_helpers": ["_agent_id_to_behavior", "_behavior_to_agent_id", "_parse_behavior"],
    "envs.pettingzoo_env_factory": ["PettingZooEnvFactory"],
    "envs.unity_aec_env": ["UnityAECEnv"],
    "envs.unity_gym_env": ["ActionFlattener", "UnityGymException", "UnityToGymWrapper"],
    "envs.unity_parallel_env": ["UnityParallelEnv"],
    "envs.unity_pettingzoo_base_env": ["UnityPettingzooBaseEnv"],
}  # fmt: skip
"""Modules of `mlagents_envs` 1.1.0 that scripts import, and what they find there. All names and
signatures are compared with the official package in `tests/interop`.
"""


@pytest.mark.parametrize("module", OFFICIAL_NAMES)
def test_every_path_has_the_official_names(module):
    found = importlib.import_module(f"{HERE}.{module}")
    missing = [name for name in OFFICIAL_NAMES[module] if not hasattr(found, name)]
    assert not missing


def test_there_is_no_module_without_a_line_in_the_table():
    folder = Path(importlib.import_module(HERE).__file__).parent
    paths = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(
            ".__init__"
        )
        for path in folder.rglob("*.py")
    }
    empty = {"__init__", "__main__", "envs"}
    assert paths - empty == set(OFFICIAL_NAMES)
    for path in folder.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_a_scene_has_the_names_of_a_player():
    with touchline.make("SoccerTwos") as env:
        assert isinstance(env, BaseEnv)
        env.reset()
        assert env.behavior_specs is env.behaviors
        for name, spec in env.behavior_specs.items():
            decisions, _ = env.get_steps(name)
            count = len(decisions)
            shapes = [mask.shape for mask in decisions.action_mask]
            assert shapes == [(count, 3), (count, 3), (count, 3)]
            assert not any(mask.any() for mask in decisions.action_mask)
            assert (
                decisions[decisions.agent_id[0]].action_mask[0].tolist() == [False] * 3
            )
            env.set_actions(name, spec.action_spec.random_action(count))
        env.step()


def test_masks_of_a_scene_are_those_that_its_player_sends(tmp_path):
    """Agents without decisions have none; agents with continuous actions have none."""
    for scene in ("GridWorld", "Basic", "3DBall"):
        player = build(scene, tmp_path)
        recipe = touchline.EnvRecipe("scene", scene, seed=4)
        with (
            touchline.UnityEnvironment(player, seed=4) as far,
            touchline.make(recipe) as near,
        ):
            far.reset()
            near.reset()
            (name,) = near.behavior_specs
            for _ in range(30):
                masks = [env.get_steps(name)[0].action_mask for env in (far, near)]
                decides = len(near.get_steps(name)[0]) > 0
                is_discrete = near.behavior_specs[name].action_spec.discrete_size > 0
                assert (masks[1] is not None) == (decides and is_discrete)
                if masks[1] is not None:
                    for sent, own in zip(*masks, strict=True):
                        np.testing.assert_array_equal(sent, own)
                        assert sent.dtype == own.dtype
                far.step()
                near.step()


def test_bare_arrays_are_taken_where_there_is_one_kind_of_actions():
    with touchline.make("3DBall") as env:
        env.reset()
        env.set_actions("3DBall?team=0", np.zeros((12, 2)))
        with pytest.raises(ActionError, match=r"expected continuous \(12, 2\)"):
            env.set_actions("3DBall?team=0", np.zeros((11, 2)))
        with pytest.raises(
            ActionError,
            match=r"3DBall\?team=0: expected ActionTuple\(continuous=floats \[agents, 2\]\), "
            r"got an array of float64 of shape \(12,\)",
        ):
            env.set_actions("3DBall?team=0", np.zeros(12))
    with touchline.make("Basic") as env:
        env.reset()
        env.set_actions("Basic?team=0", np.zeros((1, 1), int))
        with pytest.raises(
            ActionError,
            match=r"discrete=integers \[agents, 1\]\), got an array of float64",
        ):
            env.set_actions("Basic?team=0", np.zeros((1, 1)))
        with pytest.raises(ActionError, match="got list"):
            env.set_actions("Basic?team=0", [[0]])
    with touchline.make("GridFoodCollector") as env:
        env.reset()
        with pytest.raises(
            ActionError,
            match=r"continuous=floats \[agents, 3\], discrete=integers \[agents, 1\]\)",
        ):
            env.set_actions("GridFoodCollector?team=0", np.zeros((5, 4)))


def test_actions_set_one_by_one_are_those_set_at_once():
    recipe = touchline.EnvRecipe("scene", "SoccerTwos", num_areas=2, seed=3)
    with touchline.make(recipe) as together, touchline.make(recipe) as one_by_one:
        rng = np.random.default_rng(0)
        for env in (together, one_by_one):
            env.reset()
        for step in range(20):
            for name, spec in together.behavior_specs.items():
                decisions, _ = together.get_steps(name)
                actions = spec.action_spec.random_action(len(decisions), rng)
                idle = step % len(decisions)
                actions.discrete[idle] = 0
                together.set_actions(name, actions)
                for row, agent in enumerate(decisions.agent_id):
                    if row != idle:
                        own = ActionTuple(discrete=actions.discrete[row : row + 1])
                        one_by_one.set_action_for_agent(name, agent, own)
            together.step()
            one_by_one.step()
            for name in together.behaviors:
                ours, theirs = together.steps(name)[0], one_by_one.steps(name)[0]
                for a, b in zip(ours.obs, theirs.obs, strict=True):
                    np.testing.assert_array_equal(a, b)
        name = next(iter(together.behaviors))
        first = together.steps(name)[0].agent_id[0]
        with pytest.raises(ActionError, match="agent 99 needs no decision; those that"):
            together.set_action_for_agent(name, 99, ActionTuple(discrete=[[0, 0, 0]]))
        with pytest.raises(ActionError, match="expected 0 to 2, got 3"):
            together.set_action_for_agent(
                name, first, ActionTuple(discrete=[[3, 0, 0]])
            )


def test_the_gym_wrapper_plays_an_episode_in_old_gyms_words():
    env = UnityToGymWrapper(
        touchline.make(touchline.EnvRecipe.parse("3DBall", num_areas=1))
    )
    env.action_space.seed(0)
    obs = env.reset()
    assert obs.shape == env.observation_space.shape == (8,)
    done, steps = False, 0
    while not done:
        obs, reward, done, info = env.step(env.action_space.sample())
        steps += 1
    assert steps > 5
    assert isinstance(info["step"], TerminalSteps)
    assert (reward, info["step"].interrupted.tolist()) == (-1.0, [False]), (
        "the ball fell"
    )
    assert info["step"].reward.tolist() == [-1.0]
    with pytest.raises(UnityGymException, match=r"call reset\(\)"):
        env.step(env.action_space.sample())
    env.reset()
    env.close()
    with pytest.raises(UnityGymException, match="shows one behavior"):
        UnityToGymWrapper(touchline.make("SoccerTwos"))


def test_the_gym_wrapper_is_an_env_of_gymnasium():
    with UnityToGymWrapper(touchline.make("Basic")) as env:
        assert isinstance(env, gymnasium.Env)
        assert (env.unwrapped, env.spec, env.name) == (env, None, "Basic?team=0")
        assert env.group_spec.action_spec.discrete_branches == (3,)
        wrapped = gymnasium.wrappers.TransformAction(env, lambda _: 2, None)
        wrapped.reset(seed=1)
        _, reward, done, info = wrapped.step(0)
        decisions = info["step"]
        assert (done, decisions.reward.tolist()) == (False, [np.float32(reward)])
        assert decisions[decisions.agent_id[0]].obs[0].argmax() == 11
        assert [mask.tolist() for mask in decisions.action_mask] == [[[False] * 3]]
        gymnasium.wrappers.TimeLimit(env, 9)


def test_the_gym_wrapper_lists_images_first_and_joined_vectors_last():
    recipe = touchline.EnvRecipe.parse("GridWorld", num_areas=1)
    env = UnityToGymWrapper(
        touchline.make(recipe), uint8_visual=True, allow_multiple_obs=True
    )
    image, vector = env.reset()
    assert (image.shape, image.dtype, vector.shape) == ((64, 84, 3), np.uint8, (2,))
    assert env.render() is image
    assert [space.shape for space in env.observation_space] == [(64, 84, 3), (2,)]
    env.close()
    env = UnityToGymWrapper(
        touchline.make(touchline.EnvRecipe.parse("PushBlock", num_areas=1)),
        action_space_seed=3,
    )
    assert env.reset().shape == (210,), "all vectors joined"
    env.close()


class Corridor(BaseEnv):
    """A world as ML-Agents' documentation shows one: 20 steps long, with a wall after three."""

    def __init__(self, num_agents=1):
        sensors = [ObservationSpec((2,), name="place")]
        self._spec = BehaviorSpec(sensors, ActionSpec.create_discrete((3,)))
        self._num_agents = num_agents
        self.num_resets = self.num_closed = 0
        self._actions = None

    @property
    def behavior_specs(self):
        return BehaviorMapping({"Corridor?team=0": self._spec})

    def reset(self):
        self.num_resets += 1
        self._place = np.zeros(self._num_agents, np.float32)
        self._ended = np.zeros(self._num_agents, bool)
        self._reward = np.zeros(self._num_agents, np.float32)

    def step(self):
        if self._ended.any():
            self._place[self._ended] = 0
        self._place += self._actions.discrete[:, 0] - 1
        self._reward = self._place / 10
        self._ended = self._place >= 3
        self._actions = None

    def set_actions(self, behavior_name, action):
        assert behavior_name == "Corridor?team=0"
        self._actions = action

    def set_action_for_agent(self, behavior_name, agent_id, action):
        # BaseEnv requires it; wrappers set the actions of all agents at once.
        raise NotImplementedError

    def get_steps(self, behavior_name):
        none = np.zeros(self._num_agents, np.int32)
        agents = np.arange(self._num_agents, dtype=np.int32)
        last = np.stack([self._place, self._place], axis=1)
        first = np.where(self._ended[:, None], 0, last)
        reward = np.where(self._ended, 0, self._reward).astype(np.float32)
        decisions = DecisionSteps([first], reward, agents, None, none, reward * 0)
        who = self._ended
        terminals = TerminalSteps(
            [last[who]], self._reward[who], none[who] == 1, agents[who], none[who],
            reward[who] * 0,
        )  # fmt: skip
        return decisions, terminals

    def close(self):
        self.num_closed += 1


def test_a_world_that_the_gym_wrapper_refuses_stays_open_as_in_ml_agents():
    class Listing(Corridor):
        """It observes a list, neither an image nor a vector."""

        def __init__(self):
            super().__init__()
            sensors = (ObservationSpec((1, 2), name="places"),)
            self._spec = replace(self._spec, observation_specs=sensors)

        def get_steps(self, behavior_name):
            return tuple(
                replace(steps, obs=[obs[:, None] for obs in steps.obs])
                for steps in super().get_steps(behavior_name)
            )

    world = Listing()
    with pytest.raises(UnityGymException, match="no image and no vector"):
        UnityToGymWrapper(world)
    assert world.num_closed == 0


def test_an_agent_that_is_left_out_takes_a_choice_that_is_allowed():
    class Masked(Corridor):
        """Its agents must not choose 0."""

        sent = ()

        def get_steps(self, behavior_name):
            decisions, terminals = super().get_steps(behavior_name)
            mask = np.tile([True, False, False], (len(decisions), 1))
            return replace(decisions, action_mask=[mask]), terminals

        def set_actions(self, behavior_name, action):
            super().set_actions(behavior_name, action)
            self.sent = action.discrete[:, 0].tolist()

    world = Masked(3)
    env = UnityParallelEnv(world)
    env.reset()
    env.step({env.agents[1]: 2})
    assert world.sent == [1, 2, 1]
    env.close()


def test_a_world_of_your_own_needs_no_more_than_ml_agents_documents():
    world = Corridor()
    env = UnityToGymWrapper(world)
    assert env.reset().tolist() == [0, 0]
    rewards, done = [], False
    while not done:
        obs, reward, done, _ = env.step(2)
        rewards.append(round(reward, 6))
    assert (obs.tolist(), rewards) == ([3, 3], [0.1, 0.2, 0.3])
    env.close()
    assert world.num_closed == 1

    parallel = make_pettingzoo(Corridor(num_agents=2))
    parallel.reset()
    for _ in range(3):
        observations, _, terminated, _, _ = parallel.step({"agent_0": 2, "agent_1": 1})
    assert terminated == {"agent_0": True, "agent_1": False}
    assert observations["agent_0"]["observation"].tolist() == [3, 3]
    parallel.close()

    vector = make_gymnasium(Corridor(num_agents=4), vector=True)
    vector.reset()
    assert vector.step(np.array([2, 1, 1, 0]))[0][:, 0].tolist() == [1, 0, 0, -1]
    vector.close()


def test_a_world_without_seed_says_that_a_seed_has_no_effect(caplog):
    env = make_gymnasium(Corridor())
    env.reset(seed=3)
    assert "Corridor takes no seed, so seed 3 has no effect" in caplog.text
    env.close()
    with pytest.raises(touchline.UsageError, match="give these to the recipe"):
        touchline.make_pettingzoo(Corridor(), parameters={"gravity": 1.0})


class TwoCorridors(Corridor):
    """Its two teams number their agents alike."""

    @property
    def behavior_specs(self):
        return {f"Corridor?team={team}": self._spec for team in (0, 1)}


def test_two_behaviors_may_share_ids():
    env = make_pettingzoo(TwoCorridors())
    observations, _ = env.reset()
    assert len(observations) == len(env.agents) == 2
    env.close()


class Unsorted(WrappedWorld):
    """An `Env` of another package, which leaves ids as they are."""

    def steps(self, behavior):
        return self._world.get_steps(behavior)


def test_ids_that_two_behaviors_of_an_env_share_are_one_line():
    with pytest.raises(
        touchline.RunError,
        match=r"agent 0 needs a decision in Corridor\?team=[01] and in Corridor\?team=[01] at once",
    ):
        make_pettingzoo(Unsorted(TwoCorridors()))


def test_the_official_arguments_are_taken_by_position(tmp_path):
    player = build("Basic", tmp_path)
    with UnityEnvironment(player, 78, None, 3, True, False, 30, [], [], None, 1) as env:
        env.reset()
        with pytest.raises(UnityActionException, match="unknown behavior 'Other'"):
            env.get_steps("Other")
        with pytest.raises(IndexError, match="agent 99 needs no decision"):
            env.set_action_for_agent("Basic?team=0", 99, ActionTuple())
        with pytest.raises(UnityException, match="expected 0 to 2, got 3"):
            env.set_actions(
                behavior_name="Basic?team=0", action=ActionTuple(None, [[3]])
            )


def test_errors_are_those_that_except_clauses_of_scripts_name():
    channel = EngineConfigurationChannel()
    with pytest.raises(UnitySideChannelException, match="width and height"):
        channel.set_configuration_parameters(height=42)
    channel.set_configuration_parameters(time_scale=0.5)
    assert len(channel.message_queue) == 1
    with pytest.raises(UnityEnvironmentException, match="the Editor is one"):
        UnityEnvironment(None, worker_id=1)
    with pytest.raises(UnityEnvironmentException, match="share the identifier"):
        SideChannelManager([channel, EngineConfigurationChannel()])
    with touchline.make("3DBall") as env:
        env.reset()
        with pytest.raises(UnityActionException, match="expected continuous"):
            env.set_actions("3DBall?team=0", np.zeros((1, 2)))
        with pytest.raises(RuntimeError, match="must be finite"):
            env.set_actions("3DBall?team=0", np.full((12, 2), np.nan))


def test_side_channel_messages_go_in_as_they_came_out():
    """The official manager returns a bytearray and takes one."""
    channel = RawBytesChannel(uuid.UUID(int=5))
    manager = SideChannelManager([channel])
    channel.send_raw_data(b"x")
    sent = manager.generate_side_channel_messages()
    assert isinstance(sent, bytearray)
    manager.process_side_channel_message(sent)
    assert channel.get_and_clear_received_messages() == [b"x"]
    for cut_off in (sent[:-1], sent[:7]):
        with pytest.raises(UnityEnvironmentException) as caught:
            manager.process_side_channel_message(cut_off)
        assert isinstance(caught.value, UnitySideChannelException)


def test_messages_take_the_official_argument_names():
    message = OutgoingMessage()
    message.write_bool(b=True)
    message.write_int32(i=3)
    message.write_float32(f=0.5)
    message.write_string(s="yes")
    arrived = IncomingMessage(buffer=message.buffer, offset=1)
    assert (arrived.read_int32(), arrived.read_float32()) == (3, 0.5)
    assert (arrived.read_string(), arrived.offset) == ("yes", len(arrived.buffer))
    with pytest.raises(TypeError, match="abstract"):
        SideChannel(uuid.UUID(int=5))


def test_specs_and_single_steps_unpack_like_named_tuples():
    spec = Corridor().behavior_specs["Corridor?team=0"]
    (sensor,), action = spec
    assert (sensor, action) == (spec[0][0], spec.action_spec)
    shape, _, kind, name = sensor
    assert (shape, kind, name) == ((2,), ObservationType.DEFAULT, "place")
    continuous, branches = action
    assert (continuous, branches, len(action)) == (0, (3,), 2)
    renamed = spec._replace(observation_specs=[sensor._replace(name="where")])
    assert renamed.observation_specs[0].name == "where"
    assert isinstance(renamed, BehaviorSpec)
    assert action._asdict() == {"continuous_size": 0, "discrete_branches": (3,)}
    with touchline.make("Basic") as env:
        env.reset()
        decisions, _ = env.get_steps("Basic?team=0")
        obs, reward, agent, masks, group, group_reward = decisions[0]
        assert (reward, agent, group, group_reward) == (0.0, 0, 0, 0.0)
        assert (obs[0].shape, masks[0].tolist()) == ((20,), [False] * 3)
    last = TerminalStep([obs], 1.0, True, 7, 0, 0.5)
    assert list(last)[1:] == [1.0, True, 7, 0, 0.5]


def test_a_masked_choice_is_executed_as_official_clients_have_it(tmp_path):
    player, name = build("GridWorld", tmp_path), "GridWorld?team=0"
    with (
        UnityEnvironment(player, seed=4) as theirs,
        touchline.UnityEnvironment(player, seed=4) as own,
    ):
        for env in (theirs, own):
            env.reset()
            while not any(m.any() for m in env.get_steps(name)[0].action_mask or []):
                env.step()
        decisions, _ = theirs.get_steps(name)
        row, choice = np.argwhere(decisions.action_mask[0])[0]
        actions = theirs.behavior_specs[name].action_spec.empty_action(len(decisions))
        actions.discrete[row] = choice
        theirs.set_actions(name, actions)
        one = ActionTuple(discrete=[[choice]])
        theirs.set_action_for_agent(name, decisions.agent_id[row], one)
        theirs.step()
        assert len(theirs.get_steps(name)[0]) + len(theirs.get_steps(name)[1])
        with pytest.raises(ActionError, match="is masked"):
            own.set_actions(name, actions)


def test_capabilities_have_the_names_of_the_protocol(tmp_path):
    with UnityEnvironment(build("Basic", tmp_path)) as env:
        assert env.academy_capabilities.hybridActions
        assert env.academy_capabilities.multiAgentGroups


def test_small_things_that_scripts_rely_on():
    with pytest.raises(UnityActionException, match="expected two axes"):
        ActionTuple([0.0, 0.0])
    assert ActionTuple(np.array([]), [[1]]).discrete.tolist() == [[1]]
    assert ActionTuple([[0.5]], np.array([])).continuous.tolist() == [[0.5]]
    assert EnvironmentParametersChannel.SamplerTypes.GAUSSIAN == 1
    assert EnvironmentParametersChannel.EnvironmentDataTypes.SAMPLER == 1
    assert EngineConfigurationChannel.ConfigurationType.TIME_SCALE == 2
    flattener = ActionFlattener([3, 2])
    assert [flattener.lookup_action(i) for i in (0, 1, 5)] == [[0, 0], [0, 1], [2, 1]]
    assert (
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"import {HERE} as m; from {HERE}.environment import UnityEnvironment; "
                "m.base_env.ActionTuple",
            ],
            check=False,
        ).returncode
        == 0
    )


def test_an_unchanged_script_runs_under_the_official_name(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TUTORIAL)
    player = build("Basic", tmp_path)
    call = [sys.executable, "-m", HERE, script, player, "79"]
    done = subprocess.run(
        call, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("Closed environment\n")


TORCHRL = """
from touchline.adapters.mlagents_envs import take_the_name
take_the_name()
from torchrl.envs.libs.unity_mlagents import UnityMLAgentsEnv
UnityMLAgentsEnv(registered_name="GridWorld", seed=1).rollout(10)  # has masks
env = UnityMLAgentsEnv(registered_name="SoccerTwos", seed=3, num_areas=1)
rollout = env.rollout(8, break_when_any_done=False)
group = next(iter(env.group_map))
agent = env.group_map[group][0]
print(tuple(rollout["next", group, agent, "reward"].shape), len(env.group_map))
env.close()
"""


def test_the_unity_wrapper_of_torchrl_runs_as_it_is():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TORCHRL],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("(8, 1) 16\n") or done.stdout.endswith("(8, 1) 2\n")


def test_names_of_the_old_pettingzoo_wrappers_are_made_and_read():
    behavior = "SoccerTwos?team=1"
    name = env_helpers._behavior_to_agent_id(behavior, 3)
    assert name == "SoccerTwos?team=1?agent_id=3"
    assert env_helpers._agent_id_to_behavior(name) == behavior
    assert env_helpers._parse_behavior(behavior) == ("SoccerTwos", 1)
    assert env_helpers._parse_behavior("Basic") == ("Basic", 0)


def test_the_old_pettingzoo_wrappers_play_in_their_own_words():
    env = UnityParallelEnv(
        touchline.make(touchline.EnvRecipe.parse("SoccerTwos", num_areas=1)), seed=2
    )
    observations = env.reset()
    assert len(env.agents) == len(observations) == 4
    assert env.agents[0].startswith("SoccerTwos?team=0?agent_id=")
    assert [o.shape for o in observations[env.agents[0]]["observation"]] == [
        (264,),
        (72,),
    ]
    for _ in range(3):
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        observations, rewards, dones, infos = env.step(actions)
    assert set(observations) == set(rewards) == set(dones) == set(infos)
    first = env.agents[0]
    for wrong in ([0, 0], [0, 0, 0, 0], [[0, 0], [0]], "no", [0, 0, 3]):
        with pytest.raises(gymnasium.error.Error, match="expected an action in"):
            env.step({first: wrong})
    env.step({first: [[2, 0, 1]]})
    env.close()
    env.close()

    aec = UnityAECEnv(
        touchline.make(touchline.EnvRecipe.parse("3DBall", num_areas=2)), seed=2
    )
    aec.reset()
    ends = 0
    for _ in range(200):
        obs, _, done, info = aec.last()
        assert aec.observation_space(aec.agent_selection).contains(
            np.asarray(obs, np.float32)
        )
        ends += done
        aec.step(None if done else aec.action_space(aec.agent_selection).sample())
    assert info["behavior_name"] == "3DBall?team=0"
    aec.close()


def test_after_a_reset_the_old_pettingzoo_wrappers_show_only_agents_that_act():
    """What WallJump's agents began under their first behaviors ends with the reset itself."""
    world = touchline.make("WallJump")
    env = UnityParallelEnv(world)
    observations = env.reset()
    deciding = sum(len(world.get_steps(name)[0]) for name in world.behavior_specs)
    assert len(env.agents) == len(observations) == deciding
    assert env.possible_agents == env.agents
    for _ in range(20):
        env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    env.close()

    aec = UnityAECEnv(touchline.make("WallJump"))
    aec.reset()
    assert not any(aec.dones.values())
    for _ in range(200):
        *_, done, _ = aec.last()
        aec.step(None if done else aec.action_space(aec.agent_selection).sample())
    aec.close()


def test_the_registry_holds_our_scenes_and_takes_a_manifest(tmp_path):
    assert "3DBall" in default_registry
    assert default_registry["Basic"].identifier == "Basic"
    with pytest.raises(KeyError, match="no environment 'Nothing' in the registry"):
        default_registry["Nothing"]
    manifest = tmp_path / "manifest.yaml"
    fields = "expected_reward: 1, description: d, linux_url: , darwin_url: , win_url: "
    manifest.write_text(f"environments:\n- Mine: {{{fields}}}\n")
    registry = UnityEnvRegistry()
    registry.register_from_yaml(str(manifest))
    assert list(registry) == ["Mine"]
    with pytest.raises(FileNotFoundError, match="Mine has no player for"):
        registry["Mine"].make()
    registry.clear()
    assert len(registry) == 0


def test_a_registered_archive_is_downloaded_once(tmp_path):
    player = build("Basic", tmp_path / "build")
    archive = tmp_path / "game.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.write(player, f"game/{player.name}")
    everywhere = [archive.as_uri()] * 3  # Linux, macOS, Windows
    entry = RemoteRegistryEntry("Mine", None, None, *everywhere, tmp_dir=str(tmp_path))
    for _ in range(2):
        with entry.make(seed=1) as env:
            env.reset()
            assert list(env.behavior_specs) == ["Basic?team=0"]
        archive.unlink(missing_ok=True)


def test_timers_make_a_tree():
    timers.reset_timers()

    @timers.timed
    def work():
        timers.set_gauge("reward", 2.0)
        timers.set_gauge("reward", 1.0)
        timers.set_gauge("reward", float("nan"))

    with timers.hierarchical_timer("outer"):
        work()
        work()
    tree = timers.get_timer_tree()
    outer = tree["children"]["outer"]
    (inner,) = outer["children"].values()
    assert (tree["name"], outer["count"], inner["count"]) == ("root", 1, 2)
    assert tree["total"] >= outer["total"] >= inner["total"]
    assert tree["gauges"]["reward"] == {
        "value": 1.0,
        "min": 1.0,
        "max": 2.0,
        "count": 4,
    }
