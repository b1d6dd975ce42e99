"""PettingZoo's own checkers in all modes, and the same episodes beside the slots they come from."""

import copy
import pickle
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, render_test
from scene_params import SCENE_PARAMS
from tests.scripted_world import ScriptedWorld

import touchline
from touchline.envs import scene_env
from touchline.envs.env import EnvRecipe
from touchline.errors import RunError, UsageError
from touchline.testing import Ledger

MODES = ("one_episode", "respawn", "slots")


def _steady():
    """Agents that end, with masks and hybrid actions; no agent appears or leaves."""
    return ScriptedWorld(moves=False, births=False, vanishings=False)


def _sampled(env, observations):
    return {
        name: env.action_space(name).sample(
            o["action_mask"] if isinstance(o, dict) and "action_mask" in o else None
        )
        for name, o in observations.items()
        if name in env.agents
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scene", SCENE_PARAMS)
def test_parallel_checker_finds_nothing_on_a_scene(scene, mode):
    env = touchline.make_pettingzoo(scene, mode=mode, num_areas=2)
    with warnings.catch_warnings():
        # Agents may be born or move to another behavior later.
        if len(env.reset()[0]) < len(env.possible_agents):
            warnings.filterwarnings(
                "ignore", "No agents present but not all possible_agents"
            )
        parallel_api_test(env, num_cycles=80)
    env.close()
    env.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(
    "events",
    [{}, {"moves": False}, {"births": False}, {"births": False, "vanishings": False}],
)
def test_parallel_checker_finds_nothing_through_births_deaths_and_moves(
    mode, flat, events
):
    env = touchline.make_pettingzoo(
        ScriptedWorld(**events),
        mode=mode,
        spare_slots=14,
        flatten_branches=flat,
        join_vectors=flat,
    )
    with warnings.catch_warnings():
        # Spare names wait for agents who may be born; when all agents have ended first, they were
        # never used.
        warnings.filterwarnings(
            "ignore", "No agents present but not all possible_agents"
        )
        parallel_api_test(env, num_cycles=120)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scene", SCENE_PARAMS)
def test_aec_checker_finds_nothing_on_a_scene(scene, mode):
    with warnings.catch_warnings():
        # It wants arrays, while masks make dicts; PettingZoo's own board games are on its list of
        # exceptions.
        warnings.filterwarnings(
            "ignore", "Observation space for each agent probably should be"
        )
        warnings.filterwarnings("ignore", "Observation is not a NumPy array")
        # Nothing bounds what a sensor may send.
        warnings.filterwarnings("ignore", "Agent's .* observation space value is -?inf")
        # A goalie and a striker do.
        warnings.filterwarnings(
            "ignore", "Agents have different observation space sizes"
        )
        warnings.filterwarnings("ignore", "Observations are different shapes")
        # Both kinds of action at once make a dict, as masks do.
        warnings.filterwarnings(
            "ignore", "Action space for each agent probably should be"
        )
        # In mode `slots` a name stays when its agent is gone, and Basic's new agent comes a step after the
        # old one.
        warnings.filterwarnings("ignore", "Observation numpy array is all zeros")
        if scene == "Match3":
            # It recommends <descriptor>_<number>, which `match3vectorobs_0` is, but its pattern
            # has no digits in the descriptor.
            warnings.filterwarnings("ignore", "We recommend agents to be named in the")
        env = touchline.make_pettingzoo(
            scene,
            mode=mode,
            num_areas=2,
            api="aec",
            join_vectors=True,
            flatten_branches=True,
        )
        api_test(env, num_cycles=50)
        env.close()


def test_behaviors_with_one_view_name_it_where_others_have_several():
    """So that PettingZoo's checker also passes without `join_vectors`."""
    env = touchline.make_pettingzoo("StrikersVsGoalie", num_areas=1)
    for agent in env.possible_agents:
        views = env.observation_space(agent)["observation"]
        assert isinstance(views, gymnasium.spaces.Dict), agent
    env.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scene", SCENE_PARAMS)
def test_aec_checker_finds_nothing_on_the_views_as_they_are(scene, mode):
    with warnings.catch_warnings():
        # What is unusual in our spaces is named in the test above.
        warnings.simplefilter("ignore")
        env = touchline.make_pettingzoo(scene, mode=mode, num_areas=1, api="aec")
        api_test(env, num_cycles=40)
        env.close()


def test_a_pickled_env_opens_its_worlds_again():
    env = touchline.make_pettingzoo(
        "SoccerTwos", seed=3, num_areas=1, mode="slots", join_vectors=True
    )
    copies = [pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
    first, _ = env.reset()
    for other in copies:
        assert other.possible_agents == env.possible_agents
        again, _ = other.reset()
        np.testing.assert_array_equal(
            first["soccertwos_0_0"]["observation"],
            again["soccertwos_0_0"]["observation"],
        )
        other.close()
    env.close()
    opened = touchline.make_pettingzoo(_steady())
    with pytest.raises(UsageError, match="was open already cannot be pickled"):
        pickle.dumps(opened)
    opened.close()


@pytest.mark.parametrize(
    ("scene", "areas", "policy"),
    [("PushBlock", 1, "MultiInputPolicy"), ("3DBall", 4, "MlpPolicy")],
)
def test_sb3_learns_through_supersuits_vector_conversion(scene, areas, policy):
    supersuit = pytest.importorskip("supersuit", reason="`make interop` brings it")
    sb3 = pytest.importorskip("stable_baselines3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = touchline.make_pettingzoo(
            scene, num_areas=areas, join_vectors=True, reset_world=False
        )
        if areas > 1:
            env = supersuit.black_death_v3(env)
        vector = supersuit.concat_vec_envs_v1(
            supersuit.pettingzoo_env_to_vec_env_v1(env),
            2,
            num_cpus=0,
            base_class="stable_baselines3",
        )
        model = sb3.PPO(policy, vector, n_steps=64, batch_size=64, device="cpu")
        model.learn(2 * 64 * vector.num_envs)
        assert model.num_timesteps == 2 * 64 * vector.num_envs
        vector.close()


RLLIB = """
import warnings
warnings.simplefilter("ignore")
import ray
import touchline
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.tune.registry import register_env

def push_block(config):
    return ParallelPettingZooEnv(
        touchline.make_pettingzoo(
            "PushBlock", num_areas=2, join_vectors=True, horizon=100, reset_world=False
        )
    )

register_env("push_block", push_block)
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
config = (
    PPOConfig()
    .environment("push_block")
    .env_runners(
        num_env_runners=0,
        env_to_module_connector=lambda *a, **k: FlattenObservations(multi_agent=True),
    )
    .training(train_batch_size_per_learner=200, minibatch_size=64, num_epochs=1)
    .multi_agent(policies={"shared"}, policy_mapping_fn=lambda *a, **k: "shared")
)
algorithm = config.build_algo()
for _ in range(2):
    result = algorithm.train()
print(result["env_runners"]["num_env_steps_sampled_lifetime"])
algorithm.stop()
ray.shutdown()
"""


@pytest.mark.slow
def test_rllib_learns_through_its_wrapper_for_parallel_envs():
    pytest.importorskip("ray")
    for name in ("tree", "pandas", "pyarrow", "tensorboardX", "lz4", "ormsgpack"):
        pytest.importorskip(name, reason=f"RLlib needs {name}: `make interop` has it")
    done = subprocess.run(
        [sys.executable, "-c", RLLIB],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.split()[-1]) >= 400


@pytest.mark.parametrize("mode", MODES)
def test_aec_checker_finds_nothing_through_births_and_deaths(mode):
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Observation space for each agent probably should be"
        )
        warnings.filterwarnings(
            "ignore", "Action space for each agent probably should be"
        )
        warnings.filterwarnings("ignore", "Observation is not a NumPy array")
        # Slots without an agent.
        warnings.filterwarnings("ignore", "Observation numpy array is all zeros")
        api_test(
            touchline.make_pettingzoo(_steady(), mode=mode, api="aec"), num_cycles=60
        )
        api_test(
            touchline.make_pettingzoo(
                ScriptedWorld(), mode=mode, api="aec", spare_slots=14
            ),
            num_cycles=60,
        )


def test_render_checker_finds_nothing():
    def make(render_mode):  # the test opens "human", which we do not offer
        mode = None if render_mode == "human" else render_mode
        return touchline.make_pettingzoo(
            "3DBall", num_areas=1, api="aec", render_mode=mode
        )

    render_test(make)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scene", [*SCENE_PARAMS, "scripted"])
def test_500_steps_are_the_same_for_the_same_seed(scene, mode):
    def path():
        env = touchline.make_pettingzoo(
            _steady() if scene == "scripted" else EnvRecipe("scene", scene, 2),
            mode=mode,
        )
        observations, infos = env.reset(seed=11)
        for space in {
            id(space): space for space in map(env.action_space, env.possible_agents)
        }.values():
            space.seed(1)  # agents may turn up under another behavior later
        seen = [observations, infos]
        for step in range(500):
            if not env.agents:
                observations, infos = env.reset(seed=step)
                seen += [observations, infos]
            results = env.step(_sampled(env, observations))
            observations = results[0]
            seen += results
        env.close()
        return seen

    for one, other in zip(path(), path(), strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_equal(one[name], other[name])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_forbidden_action_is_possible(mode, steps):
    class Strict(ScriptedWorld):
        def set_actions(self, behavior, actions):
            super().set_actions(behavior, actions)
            masks = self.steps(behavior)[0].action_mask
            for branch, forbidden in enumerate(masks):
                assert not forbidden[
                    np.arange(len(actions)), actions.discrete[:, branch]
                ].any()

    world = Strict(moves=False, births=False, vanishings=False)
    env = touchline.make_pettingzoo(world, mode=mode, episodes_per_slot=5000)
    observations, _ = env.reset(seed=0)
    for _ in range(steps):
        if not env.agents:
            observations, _ = env.reset()
        observations, *_ = env.step(_sampled(env, observations))


@pytest.mark.parametrize("mode", MODES)
def test_infos_show_what_later_branches_allow_after_each_first_choice(mode):
    env = touchline.make_pettingzoo(
        ScriptedWorld(moves=False, births=False, vanishings=False, staged=True),
        mode=mode,
        episodes_per_slot=99,
    )
    observations, infos = env.reset(seed=0)
    for _ in range(60):
        second = env._groups.rows["Walker"].second_mask
        for name in env.agents:
            np.testing.assert_array_equal(
                infos[name]["second_mask"], second[int(name.split("_")[1])]
            )
        observations, _, _, _, infos = env.step(_sampled(env, observations))


@pytest.mark.parametrize("mode", ["respawn", "slots"])
def test_rewards_are_conserved_and_nothing_is_restarted(mode):
    ledger = Ledger(_steady())
    env = touchline.make_pettingzoo(ledger, mode=mode)
    observations, _ = env.reset(seed=1)
    before, sent = ledger.actions, ledger.reward + ledger.group_reward
    earned = group = 0.0
    deciding = 0
    counts = env._groups.counts["Walker"][0]
    start = counts.unattributed_reward + counts.unattributed_group_reward
    for _ in range(700):
        deciding += int(env._groups.rows["Walker"].deciding.sum())
        observations, rewards, _, _, infos = env.step(_sampled(env, observations))
        earned += sum(rewards.values())
        group += sum(info["group_reward"] for info in infos.values())
    unattributed = counts.unattributed_reward + counts.unattributed_group_reward - start
    assert earned + unattributed == ledger.reward + ledger.group_reward - sent
    assert 0 < group < ledger.group_reward
    assert ledger.actions - before == deciding
    assert ledger.resets == 2, "one at construction, one with the seed"


@pytest.mark.parametrize("mode", MODES)
def test_no_observation_is_followed_by_one_from_another_episode(mode):
    env = touchline.make_pettingzoo(_steady(), mode=mode)
    observations, infos = env.reset(seed=2)
    running = {name: o["observation"][:2].tolist() for name, o in observations.items()}
    ends = 0
    for _ in range(600):
        if not env.agents:
            observations, infos = env.reset(seed=ends)
            running = {
                name: o["observation"][:2].tolist() for name, o in observations.items()
            }
        observations, _, terminated, truncated, infos = env.step(
            _sampled(env, observations)
        )
        for name, observation in observations.items():
            episode = observation["observation"][:2].tolist()
            ended = terminated[name] or truncated[name]
            if mode == "slots" and (
                infos[name]["terminated"] or infos[name]["truncated"]
            ):
                assert infos[name]["final_observation"][:2].tolist() == running[name]
                running[name] = episode if infos[name]["deciding"] else None
                ends += 1
            elif running.get(name) is None:  # new
                assert not ended
                running[name] = episode if infos[name]["deciding"] else None
            else:
                assert episode == running[name], "the last observation included"
                ends += ended
    assert ends > 50


def test_in_one_episode_every_agent_leaves_once_and_all_is_over_with_the_last():
    env = touchline.make_pettingzoo("3DBall", num_areas=3)
    observations, _ = env.reset(seed=0)
    assert env.agents == env.possible_agents == ["agent_0", "agent_1", "agent_2"]
    left = []
    while env.agents:
        before = list(env.agents)
        observations, _, terminated, truncated, _ = env.step(
            _sampled(env, observations)
        )
        assert list(observations) == before
        gone = [name for name in before if terminated[name] or truncated[name]]
        assert env.agents == [name for name in before if name not in gone]
        left += gone
    assert sorted(left) == env.possible_agents
    assert env.step({}) == ({}, {}, {}, {}, {})


def test_the_horizon_truncates_every_agent():
    env = touchline.make_pettingzoo("3DBall", num_areas=3, horizon=4)
    observations, _ = env.reset(seed=0)
    for _ in range(4):
        observations, _, terminated, truncated, _ = env.step(
            _sampled(env, observations)
        )
    assert all(truncated.values())
    assert not any(terminated.values())
    assert env.agents == []


def test_reset_world_off_hands_out_the_episodes_that_run():
    ledger = Ledger(_steady())
    env = touchline.make_pettingzoo(ledger, horizon=10, reset_world=False)
    ticks = []
    for _ in range(5):
        observations, _ = env.reset()
        while env.agents:
            ticks.append(max(o["observation"][3] for o in observations.values()))
            observations, *_ = env.step(_sampled(env, observations))
    assert ledger.resets == 1
    assert max(ticks) > 20
    env.reset(seed=1)
    assert ledger.resets == 2


def test_names_distinguish_behaviors_and_teams():
    env = touchline.make_pettingzoo(
        ScriptedWorld(), mode="respawn", episodes_per_slot=2
    )
    assert env.possible_agents[:4] == [
        "walker_0_0",
        "walker_1_0",
        "walker_2_0",
        "walker_0_1",
    ]
    assert {name.partition("_")[0] for name in env.possible_agents} == {
        "walker",
        "jumper",
    }
    assert env.observation_space("walker_0_0") is env.observation_space("walker_0_0")


def test_an_empty_pool_of_names_is_an_error_that_names_the_option():
    env = touchline.make_pettingzoo(_steady(), mode="respawn", episodes_per_slot=3)

    def play_long():
        observations, _ = env.reset(seed=0)
        for _ in range(1000):
            observations, *_ = env.step(_sampled(env, observations))

    with pytest.raises(
        RunError, match=r"all 3 names of a slot are used; .* more episodes_per_slot"
    ):
        play_long()


def test_actions_of_the_wrong_form_are_named():
    env = touchline.make_pettingzoo("3DBall", num_areas=2)
    with pytest.raises(UsageError, match=r"call reset\(\) before step\(\)"):
        env.step({})
    env.reset()
    good = np.zeros(2, np.float32)
    with pytest.raises(
        UsageError, match="actions: expected a dict agent -> action, got list"
    ):
        env.step([good, good])
    with pytest.raises(
        UsageError, match="no action for agent_1, which is waiting for one"
    ):
        env.step({"agent_0": good})
    with pytest.raises(
        UsageError,
        match=r"agent_1: expected an action in Box.*, got array\(\[0., 0., 0.\]\)",
    ):
        env.step({"agent_0": good, "agent_1": np.zeros(3)})
    with pytest.raises(
        UsageError,
        match="unknown agent 'striker_0' among the actions; agents: agent_0, agent_1",
    ):
        env.step({"agent_0": good, "agent_1": good, "striker_0": good})
    with pytest.raises(UsageError, match="possible agents: agent_0 to agent_1"):
        env.action_space("agent_9")
    for options, message in (
        ({"mode": "lives"}, "one_episode, respawn, slots"),
        ({"api": "x"}, "'parallel' or 'aec'"),
        ({"horizon": 0}, "horizon: expected 1 or more, got 0"),
        ({"episodes_per_slot": 0}, "episodes_per_slot: expected 1 or more, got 0"),
    ):
        with pytest.raises(UsageError, match=message):
            touchline.make_pettingzoo("3DBall", **options)


def test_a_single_sensor_has_a_name_on_request():
    env = touchline.make_pettingzoo("3DBall", name_single=True)
    observations, _ = env.reset()
    agent = env.agents[0]
    assert list(observations[agent]) == ["VectorSensor_size8"]
    assert env.observation_space(agent).contains(observations[agent])
    env.close()


@pytest.mark.parametrize("make", [touchline.make_pettingzoo, touchline.make_gymnasium])
def test_where_spaces_cannot_be_made_only_worlds_that_were_opened_here_are_closed(
    make, monkeypatch
):
    """A caller's own can be shown in another way, as the error advises."""

    class Wide(ScriptedWorld):
        closed = False

        def close(self):
            self.closed = True

    def wide(*_):
        return Wide(1, periods=(1,), moves=False, births=False, branches=(20, 20, 20))

    opened = []
    monkeypatch.setattr(
        scene_env, "open_scene", lambda _: opened.append(wide()) or opened[-1]
    )
    mine = wide()
    for env in (mine, "Basic"):
        with pytest.raises(UsageError, match="more than 4096 joint choices"):
            make(env, flatten_branches=True)
    assert [world.closed for world in (mine, *opened)] == [False, True]
