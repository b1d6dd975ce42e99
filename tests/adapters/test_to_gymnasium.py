"""Gymnasium's own checker, and the same steps beside the slots they come from."""

import pickle
import re
import subprocess
import sys
from contextlib import closing
from copy import deepcopy

import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordVideo
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordVideo as VectorRecordVideo
from scene_params import SCENE_PARAMS
from tests.scripted_world import EpisodeEnd, ScriptedWorld

import touchline
from touchline.adapters.gymnasium_names import (
    OF_ONE_AGENT,
    OF_SEVERAL_AGENTS,
    WITH_GAPS,
)
from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.errors import RunError, UsageError
from touchline.scenes import SCENES
from touchline.specs import ActionTuple
from touchline.testing import Ledger, random_slot_actions

UNBOUNDED = "ignore:.*A Box observation space (min|max)imum value is -?infinity"
"""Gymnasium's checker takes that for a mistake; nothing bounds what a sensor may send."""


def _single(scene, **options):
    try:
        return touchline.make_gymnasium(scene, **options)
    except UsageError as refused:
        advice = "shows one (agent|behavior), .* (vector=True|make_torchrl)"
        if not re.search(advice, str(refused)):
            raise
        pytest.skip(str(refused))


class OneAgent(ScriptedWorld):
    """One agent with masks, hybrid actions and group rewards, that ends often."""

    def __init__(self):
        super().__init__(1, periods=(1,), moves=False, births=False, vanishings=False)


@pytest.mark.filterwarnings(UNBOUNDED)
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("scene", SCENE_PARAMS)
def test_gymnasiums_checker_finds_nothing(scene, flat):
    options = {"join_vectors": flat, "flatten_branches": flat, "uint8_images": True}
    _single(scene).close()
    env = gymnasium.make(f"touchline/{scene}-v0", **options)
    check_env(env.unwrapped, skip_render_check=True)
    env.close()
    env.close()


@pytest.mark.filterwarnings(UNBOUNDED)
@pytest.mark.parametrize(
    "scene",
    [
        "3DBall",
        *(pytest.param(s, marks=pytest.mark.slow) for s in SCENES if s != "3DBall"),
    ],
)
def test_gymnasiums_render_checker_finds_nothing(scene):
    _single(scene).close()
    env = gymnasium.make(f"touchline/{scene}-v0", render_mode="rgb_array")
    check_env(env.unwrapped, skip_close_check=True)
    env.close()


@pytest.mark.filterwarnings(UNBOUNDED)
def test_the_checker_finds_nothing_where_there_are_masks_and_both_kinds_of_action():
    env = touchline.make_gymnasium(OneAgent())
    env.spec = None
    check_env(env, skip_render_check=True)


def test_a_step_tells_what_the_slots_tell():
    env = touchline.make_gymnasium(OneAgent())
    slots = Slots(OneAgent())
    obs, info = env.reset(seed=5)
    (row,) = slots.reset(5).values()
    env.action_space.seed(1)
    ends = 0
    for _ in range(500):
        np.testing.assert_array_equal(obs, row.obs[0][0])
        np.testing.assert_array_equal(info["action_mask"], row.action_mask[0])
        action = env.action_space.sample(info["action_mask"])
        assert info["action_mask"][:3][action["discrete"][0]]
        assert info["action_mask"][3:][action["discrete"][1]]
        obs, reward, terminated, truncated, info = env.step(action)
        batched = ActionTuple(action["continuous"][None], action["discrete"][None])
        row = slots.step({"Walker?team=0": batched})["Walker?team=0"]
        assert reward == row.reward[0] + row.group_reward[0]
        assert info["group_reward"] == row.group_reward[0]
        assert (terminated, truncated) == (row.terminated[0], row.truncated[0])
        if terminated or truncated:
            ends += 1
            np.testing.assert_array_equal(obs, row.final_obs[0][0])
            assert info["step"]["interrupted"] == truncated
            assert info["step"]["reward"] == row.reward[0]
            obs, info = env.reset()
        else:
            assert [m.tolist() for m in info["step"]["action_mask"]] == [
                (~row.action_mask[0, :3]).tolist(),
                (~row.action_mask[0, 3:]).tolist(),
            ]
    assert ends > 20


def test_info_tells_what_later_branches_allow_after_each_first_choice():
    world = {
        "periods": (1,),
        "moves": False,
        "births": False,
        "vanishings": False,
        "staged": True,
    }
    rng = np.random.default_rng(0)
    for agents, vector in ((1, False), (4, True)):
        env, slots = (
            touchline.make_gymnasium(ScriptedWorld(agents, **world), vector=vector),
            Slots(ScriptedWorld(agents, **world)),
        )
        _, info = env.reset(seed=5)
        (row,) = slots.reset(5).values()
        for _ in range(60):
            np.testing.assert_array_equal(
                info["second_mask"], row.second_mask if vector else row.second_mask[0]
            )
            assert info["second_mask"].dtype == np.int8
            action = random_slot_actions(slots.behaviors["Walker?team=0"], row, rng)
            both = {"continuous": action.continuous, "discrete": action.discrete}
            _, _, terminated, truncated, info = env.step(
                both if vector else {k: v[0] for k, v in both.items()}
            )
            row = slots.step({"Walker?team=0": action})["Walker?team=0"]
            if not vector and (terminated or truncated):
                assert info["second_mask"].all(), (
                    "after an end there is nothing to choose"
                )
                _, info = env.reset()


def test_reset_after_an_end_restarts_nothing_and_in_mid_episode_restarts_the_world():
    ledger = Ledger(OneAgent())
    env = touchline.make_gymnasium(ledger)
    env.reset()
    assert ledger.resets == 1
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        ended = terminated or truncated
    first, _ = env.reset()
    assert ledger.resets == 1
    assert first[1] > 0, "the next episode of the same agent"
    env.reset()
    assert ledger.resets == 2
    env.step(env.action_space.sample())
    env.reset()
    assert ledger.resets == 3


@pytest.mark.parametrize("vector", [False, True])
def test_every_reset_begins_another_episode(vector):
    env = touchline.make_gymnasium("3DBall", vector=vector, num_areas=1)
    starts = [env.reset()[0] for _ in range(3)]
    assert len({start.tobytes() for start in starts}) == 3
    env.close()


@pytest.mark.parametrize("scene", SCENE_PARAMS)
def test_500_steps_are_the_same_for_the_same_seed(scene):
    def path(env):
        obs, info = env.reset(seed=3)
        env.action_space.seed(3)
        seen = [obs]
        for _ in range(500):
            obs, reward, terminated, truncated, info = env.step(
                env.action_space.sample(info.get("action_mask"))
            )
            seen += [obs, reward, terminated, truncated]
            if terminated or truncated:
                obs, info = env.reset()
                seen.append(obs)
        env.close()
        return seen

    a, b = (path(_single(scene)) for _ in range(2))
    assert gymnasium.utils.env_checker.data_equivalence(a, b)


def test_a_vector_env_is_the_slots_in_other_words():
    env = gymnasium.make_vec("touchline/3DBall-v0", num_envs=4)
    assert (
        env.metadata["autoreset_mode"] is env.autoreset_mode is AutoresetMode.SAME_STEP
    )
    assert env.observation_space.shape == (4, 8)
    slots = Slots(make(EnvRecipe("scene", "3DBall", num_areas=4)))
    obs, info = env.reset(seed=2)
    (row,) = slots.reset(2).values()
    held = []
    ends = 0
    for _ in range(300):
        np.testing.assert_array_equal(obs, row.obs[0])
        assert info["mask"].all()
        action = env.action_space.sample()
        obs, reward, terminated, truncated, info = env.step(action)
        (row,) = slots.step({"3DBall?team=0": ActionTuple(action)}).values()
        np.testing.assert_array_equal(reward, row.reward)
        np.testing.assert_array_equal(terminated, row.terminated)
        np.testing.assert_array_equal(truncated, row.truncated)
        if len(row.final_slot):
            ends += len(row.final_slot)
            np.testing.assert_array_equal(info["_final_obs"], terminated | truncated)
            for slot, last in zip(row.final_slot, row.final_obs[0], strict=True):
                np.testing.assert_array_equal(info["final_obs"][slot], last)
            assert info["final_info"]["_group_reward"] is info["_final_info"]
        else:
            assert "final_obs" not in info
        held.append((obs, obs.copy()))
    assert ends > 20
    for array, copy in held:
        np.testing.assert_array_equal(array, copy)
    env.close()
    env.close()


def test_with_next_step_an_end_shows_its_own_observation_and_the_next_step_the_next_episode():
    """Beside the slots: the agent of an ended row does nothing in the step that is its reset."""
    env = touchline.make_gymnasium(
        "3DBall", num_envs=4, autoreset_mode=AutoresetMode.NEXT_STEP
    )
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    slots = Slots(make(EnvRecipe("scene", "3DBall", num_areas=4)))
    obs, _ = env.reset(seed=2)
    slots.reset(2)
    was_ended = np.zeros(4, bool)
    resets = 0
    for _ in range(300):
        action = env.action_space.sample()
        obs, reward, terminated, truncated, info = env.step(action)
        action[was_ended] = 0
        (row,) = slots.step({"3DBall?team=0": ActionTuple(action)}).values()
        ended = (row.terminated | row.truncated) & ~was_ended
        np.testing.assert_array_equal(terminated | truncated, ended)
        np.testing.assert_array_equal(reward, np.where(was_ended, 0, row.reward))
        expected = row.obs[0].copy()
        for slot, last in zip(row.final_slot, row.final_obs[0], strict=True):
            if ended[slot]:
                expected[slot] = last
        np.testing.assert_array_equal(obs, expected)
        assert "final_obs" not in info
        resets += was_ended.sum()
        was_ended = ended
    assert resets > 20
    env.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_gymnasiums_wrappers_take_the_modes_that_they_name(mode):
    env = touchline.make_gymnasium("PushBlock", num_envs=2, autoreset_mode=mode)
    normalized = gymnasium.wrappers.vector.FlattenObservation(env)
    normalized.reset(seed=1)
    assert normalized.step(env.action_space.sample())[0].shape == (2, 210)
    env.close()
    env = touchline.make_gymnasium("3DBall", num_envs=2, autoreset_mode=mode)
    if mode is AutoresetMode.NEXT_STEP:
        env = gymnasium.wrappers.vector.NormalizeObservation(env)
        obs, _ = env.reset(seed=1)
        for _ in range(100):
            obs = env.step(env.action_space.sample())[0]
        assert np.abs(obs).max() < 20
    env.close()


def test_with_disabled_ended_rows_wait_for_a_reset_of_their_own():
    env = touchline.make_gymnasium(
        "3DBall", num_envs=4, autoreset_mode=AutoresetMode.DISABLED
    )
    slots = Slots(make(EnvRecipe("scene", "3DBall", num_areas=4)))
    obs, _ = env.reset(seed=2)
    slots.reset(2)
    resets = 0
    for _ in range(300):
        action = env.action_space.sample()
        obs, reward, terminated, truncated, _ = env.step(action)
        (row,) = slots.step({"3DBall?team=0": ActionTuple(action)}).values()
        np.testing.assert_array_equal(reward, row.reward)
        ended = terminated | truncated
        np.testing.assert_array_equal(obs[row.final_slot], row.final_obs[0])
        if ended.any():
            with pytest.raises(
                UsageError, match=r"1 episodes? have ended|have ended: call"
            ):
                env.step(action)
            running = np.flatnonzero(~ended)
            if len(running):
                with pytest.raises(UsageError, match="in the middle of an episode"):
                    env.reset(options={"reset_mask": ~ended})
            obs, info = env.reset(options={"reset_mask": ended})
            np.testing.assert_array_equal(obs, row.obs[0])
            assert info["mask"].all()
            resets += ended.sum()
    assert resets > 20
    with pytest.raises(UsageError, match="reset_mask: expected 4 booleans"):
        env.reset(options={"reset_mask": np.zeros(4, bool)})
    env.close()


def test_with_disabled_ended_rows_that_are_not_reset_keep_their_last_observation():
    world = ScriptedWorld(6, periods=(1,), moves=False, births=False, vanishings=False)
    with closing(
        touchline.make_gymnasium(
            world, vector=True, autoreset_mode=AutoresetMode.DISABLED
        )
    ) as env:
        _, info = env.reset(seed=1)
        ended = np.zeros(6, bool)
        while np.count_nonzero(ended) < 2:
            if ended.any():
                _, info = env.reset(options={"reset_mask": ended})
            masks = info["action_mask"]
            choices = np.stack([masks[:, :3].argmax(1), masks[:, 3:].argmax(1)], 1)
            actions = {"continuous": np.zeros((6, 1), np.float32), "discrete": choices}
            last, _, terminated, truncated, info = env.step(actions)
            ended = terminated | truncated
        last = last.copy()
        first, second = np.flatnonzero(ended)[:2]
        is_reset = np.arange(6) == first
        now, _ = env.reset(options={"reset_mask": is_reset})
        np.testing.assert_array_equal(now[~is_reset], last[~is_reset])
        assert not np.array_equal(now[first], last[first])
        now[second] = 0  # arrays are the caller's
        then, _ = env.reset(options={"reset_mask": ended & ~is_reset})
        assert not np.array_equal(then[second], last[second])
        np.testing.assert_array_equal(then[~ended], last[~ended])


def test_gymnasiums_own_statistics_agree_with_the_rewards():
    env = RecordEpisodeStatistics(touchline.make_gymnasium("3DBall", num_envs=3))
    env.reset(seed=0)
    running, length, seen = np.zeros(3), np.zeros(3, int), 0
    for _ in range(400):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        running += reward
        length += 1
        ended = terminated | truncated
        if ended.any():
            np.testing.assert_allclose(
                info["episode"]["r"][ended], running[ended], rtol=1e-6
            )
            np.testing.assert_array_equal(info["episode"]["l"][ended], length[ended])
            seen += ended.sum()
            running[ended], length[ended] = 0, 0
    assert seen > 10


def test_a_vector_reset_right_after_all_agents_ended_does_not_restart_the_world():
    class EndsTogether(ScriptedWorld):
        def __init__(self):
            super().__init__(
                2, periods=(1,), moves=False, births=False, vanishings=False
            )

        def step_agent(self, agent_id):
            agent = self.agents[agent_id]
            agent.age += 1
            if agent.age < 5:
                return None
            obs = [agent_id, agent.episode, agent.age, self.tick]
            agent.episode, agent.age = agent.episode + 1, 0
            return EpisodeEnd(agent.behavior, agent_id, obs)

    ledger = Ledger(EndsTogether())
    env = touchline.make_gymnasium(ledger, vector=True)
    env.reset()
    for _ in range(5):
        obs, *_ = env.step(env.action_space.sample())
    again, _ = env.reset()
    np.testing.assert_array_equal(obs, again)
    assert ledger.resets == 1
    env.step(env.action_space.sample())
    env.reset()
    assert ledger.resets == 2


def test_idle_rows_are_refused_or_shown():
    # Uneven decision times.
    world = ScriptedWorld(4, moves=False, births=False, vanishings=False)
    env = touchline.make_gymnasium(world, vector=True)
    env.reset(seed=0)
    with pytest.raises(
        RunError,
        match=r"rows have no agent that acts now, .* allow_idle=True .* make_torchrl",
    ):
        env.step(env.action_space.sample())
    env = touchline.make_gymnasium(world, vector=True, allow_idle=True)
    _, info = env.reset(seed=0)
    masks = []
    rng = np.random.default_rng(0)
    for _ in range(50):
        rows = env._groups.rows["Walker"]
        chosen = random_slot_actions(env._groups.specs["Walker"], rows, rng)
        *_, info = env.step(
            {"continuous": chosen.continuous, "discrete": chosen.discrete}
        )
        masks.append(info["mask"])
    assert 0 < np.mean(masks) < 1


IN_A_FRESH_PROCESS = [
    ("import touchline, gymnasium", "touchline/Basic-v0"),
    ("import gymnasium, touchline", "touchline/Basic-v0"),
    ("import gymnasium", "touchline:touchline/Basic-v0"),
    ("import touchline, gymnasium", "touchline:touchline/Basic-v0"),
]


@pytest.mark.parametrize(("imports", "name"), IN_A_FRESH_PROCESS)
def test_gymnasium_knows_the_scenes_once_touchline_is_imported(imports, name):
    code = f"{imports}\nprint(gymnasium.make({name!r}).reset(seed=0)[0].shape)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == "(20,)\n", done.stderr


def test_names_do_not_import_gymnasium_and_are_registered_once():
    code = (
        "import sys, touchline\n"
        "assert 'gymnasium' not in sys.modules\n"
        "finders = len(sys.meta_path)\n"
        "import gymnasium\n"
        "assert len(sys.meta_path) == finders - 1, 'the hook is gone'\n"
        "from touchline.adapters.gymnasium_names import register_when_imported\n"
        "register_when_imported()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ids_registered_with_gymnasium_are_unitys_names():
    known = {*OF_ONE_AGENT, *OF_SEVERAL_AGENTS}
    assert set(SCENES) - known == {"StrikersVsGoalie", "Match3"}, "behaviors differ"
    registered = {name for name in gymnasium.registry if name.startswith("touchline/")}
    assert registered == {f"touchline/{name}-v0" for name in {*known, "World"}}
    assert gymnasium.spec("touchline/World-v0").nondeterministic


def _slow_but(scene, quick):
    return scene if scene in quick else pytest.param(scene, marks=pytest.mark.slow)


@pytest.mark.parametrize("scene", [_slow_but(s, {"Basic"}) for s in OF_ONE_AGENT])
def test_every_registered_scene_of_one_agent_opens(scene):
    with gymnasium.make(f"touchline/{scene}-v0") as env:
        obs, _ = env.reset(seed=0)
        assert env.observation_space.contains(obs)
    with closing(gymnasium.make_vec(f"touchline/{scene}-v0", num_envs=3)) as env:
        env.reset(seed=0)
        env.action_space.seed(0)
        # So many that each of Basic's agents ends an episode.
        for _ in range(60 if scene == "Basic" else 10):
            env.step(env.action_space.sample())


@pytest.mark.parametrize("scene", sorted(WITH_GAPS))
@pytest.mark.parametrize("make", [touchline.make_sb3, touchline.make_gymnasium])
def test_scenes_whose_agents_are_gone_at_times_are_refused_at_once(scene, make):
    expected = f"agents of {scene} are gone for some steps, .* allow_idle=True"
    with pytest.raises(UsageError, match=expected):
        make(scene, num_envs=12, group_by="all")


@pytest.mark.parametrize("make", [touchline.make_sb3, touchline.make_gymnasium])
def test_one_agent_of_basic_alone_is_never_missed(make):
    with closing(make("Basic", num_envs=1)) as env:
        env.reset()
        for _ in range(60):
            env.step(np.array([2]))


@pytest.mark.parametrize(
    "scene", [_slow_but(s, {"SoccerTwos"}) for s in OF_SEVERAL_AGENTS]
)
def test_every_registered_scene_of_several_agents_opens_as_the_refusal_says(scene):
    with pytest.raises(UsageError, match=rf'make_vec\("touchline/{scene}-v0"'):
        gymnasium.make(f"touchline/{scene}-v0")
    with pytest.raises(
        UsageError, match=r"num_envs: expected a multiple of (\d+)"
    ) as e:
        gymnasium.make_vec(f"touchline/{scene}-v0", num_envs=1)
    agents = int(re.search(r"multiple of (\d+)", str(e.value))[1])
    name = f"touchline/{scene}-v0"
    with closing(gymnasium.make_vec(name, num_envs=2 * agents)) as env:
        env.reset(seed=0)
        for _ in range(20):
            env.step(env.action_space.sample())


def test_both_teams_of_a_behavior_are_one_vector_env_by_group_by():
    with closing(
        touchline.make_gymnasium("SoccerTwos", num_envs=8, group_by="base")
    ) as env:
        _, info = env.reset(seed=0)
        assert len(info["group_id"]) == 8
        assert env.single_action_space.shape == (3,)
    advice = r"SoccerTwos_1, SoccerTwos_0; take vector=True with group_by='base'"
    with pytest.raises(UsageError, match=advice):
        touchline.make_gymnasium("SoccerTwos", vector=True)
    with pytest.raises(UsageError, match=r"Striker, Goalie; take make_torchrl or"):
        touchline.make_gymnasium("StrikersVsGoalie", vector=True)


def test_observations_have_no_bounds_but_images_as_bytes():
    with closing(touchline.make_gymnasium("Basic")) as env:
        space = env.observation_space
        assert np.isneginf(space.low).all()
        assert np.isposinf(space.high).all()
        assert not space.is_bounded()
    with closing(touchline.make_gymnasium("GridWorld", uint8_images=True)) as env:
        (image,) = [s for s in env.observation_space.values() if len(s.shape) == 3]
        assert (image.low.min(), image.high.max()) == (0, 255)


def test_gymnasiums_own_wrapper_records_a_film(tmp_path):
    env = gymnasium.make("touchline/Basic-v0", render_mode="rgb_array")
    folder = tmp_path / "films"
    env = RecordVideo(env, str(folder), episode_trigger=lambda episode: episode == 0)
    env.reset(seed=0)
    for _ in range(5):
        env.step(env.action_space.sample())
    env.close()
    (film,) = folder.glob("*.mp4")
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(film))
    assert frames == 6, "the first observation's, and one for each step"
    assert seconds == pytest.approx(0.6, abs=0.05), "ten decisions a second"


@pytest.mark.filterwarnings("ignore:.*autoreset mode is same-step")
def test_a_vector_env_renders_the_area_of_each_row(tmp_path):
    env = gymnasium.make_vec("touchline/Basic-v0", num_envs=3, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.array([0, 2, 2]))
    first, second, third = env.render()
    assert not np.array_equal(first, second), "the second agent has moved"
    np.testing.assert_array_equal(second, third)
    folder = tmp_path / "films"
    with closing(VectorRecordVideo(env, str(folder), video_length=2)) as recorded:
        recorded.reset(seed=0)
        recorded.step(np.array([0, 2, 2]))
    assert list(folder.glob("*.mp4"))


def test_agents_of_one_area_share_its_picture():
    env = touchline.make_gymnasium(
        "SoccerTwos", num_envs=8, group_by="base", render_mode="rgb_array"
    )
    with closing(env):
        env.reset(seed=0)
        pictures = env.render()
        of_area = {id(picture): area for area, picture in enumerate(pictures)}
        assert len(pictures) == 8
        assert len(of_area) == 2
        # Merged, both areas' first team comes before both areas' second.
        rows = [of_area[id(picture)] for picture in pictures]
        assert rows[:4] == rows[4:]
        assert rows[0] == rows[1] != rows[2] == rows[3]


@pytest.mark.parametrize("options", [{}, {"num_envs": 2}])
def test_a_copied_env_opens_its_world_again(options):
    env = touchline.make_gymnasium("3DBall", seed=3, **options)
    first, _ = env.reset()
    for other in (pickle.loads(pickle.dumps(env)), deepcopy(env)):
        np.testing.assert_array_equal(other.reset()[0], first)
        other.close()
    env.close()
    with (
        make("Basic") as world,
        pytest.raises(UsageError, match="was open already cannot be pickled"),
    ):
        deepcopy(touchline.make_gymnasium(world, vector=True))


def test_num_envs_builds_a_scene_to_measure():
    assert touchline.make_gymnasium("3DBall", num_envs=7).num_envs == 7
    assert touchline.make_gymnasium("3DBall", vector=True).num_envs == 12, (
        "as many as Unity's own scene has"
    )
    with pytest.raises(
        UsageError,
        match="num_envs: expected 3, the agents that this world has, or None; got 4",
    ):
        touchline.make_gymnasium(EnvRecipe("scene", "3DBall", num_areas=3), num_envs=4)


def test_what_the_view_cannot_express_is_refused_with_the_view_that_can():
    with pytest.raises(
        UsageError, match=r"shows one agent, 3DBall has room for 12; .* vector=True"
    ):
        touchline.make_gymnasium(EnvRecipe("scene", "3DBall", num_areas=12))
    for vector in (False, True):
        with pytest.raises(
            UsageError,
            match=r"shows one behavior, .* group_by='all', or make_torchrl or make_pettingzoo",
        ):
            touchline.make_gymnasium(ScriptedWorld(), vector=vector)
    with pytest.raises(
        UsageError, match="seed: expected one number for the whole world"
    ):
        touchline.make_gymnasium("3DBall", num_envs=2).reset(seed=[1, 2])
    with pytest.raises(UsageError, match="expected None or 'rgb_array', got 'human'"):
        touchline.make_gymnasium("3DBall", render_mode="human")


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            np.zeros((3, 2)),
            r"continuous action: expected floats of shape \(4, 2\), got float64 of shape \(3, 2\)",
        ),
        (np.zeros((4, 2), complex), "expected floats"),
        (
            [[0, 0], [0]],
            "continuous action: expected an array: setting an array element",
        ),
        ({"continuous": np.zeros((4, 2))}, "expected floats"),
        (
            None,
            r"continuous action: expected floats of shape \(4, 2\), got object of shape \(\)",
        ),
    ],
)
def test_actions_of_the_wrong_form_are_named(action, message):
    env = touchline.make_gymnasium("3DBall", num_envs=4)
    env.reset()
    with pytest.raises(UsageError, match=message):
        env.step(action)


def test_wrong_keys_dtypes_and_masked_actions_are_named():
    env = touchline.make_gymnasium(OneAgent())
    with pytest.raises(UsageError, match="call reset"):
        env.step(env.action_space.sample())
    env.reset()
    with pytest.raises(
        UsageError,
        match=r"dict with 'continuous' .* and 'discrete' .*, got keys \['move'\]",
    ):
        env.step({"move": np.zeros(1)})
    with pytest.raises(
        UsageError,
        match=r"discrete action: expected integers of shape \(1, 2\), got float",
    ):
        env.step({"continuous": np.zeros(1, np.float32), "discrete": np.zeros(2)})
    basic = touchline.make_gymnasium("Basic")
    basic.reset()
    with pytest.raises(UsageError, match="expected 0 to 2, got 3"):
        basic.step(3)
    # As int32 it would be choice 2.
    with pytest.raises(UsageError, match="choices counted from 0, got 4294967298"):
        basic.step(2**32 + 2)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_whoever_writes_into_observations_changes_nothing_that_is_shown_later(num_envs):
    def steps(spoil):
        env = touchline.make_gymnasium("3DBall", num_envs=num_envs, vector=True)
        obs = [env.reset(seed=0)[0].copy()]
        env.action_space.seed(0)
        for _ in range(150):
            seen, _, terminated, truncated, _ = env.step(env.action_space.sample())
            obs.append(seen.copy())
            seen[:] = spoil
            if (terminated | truncated).all():
                seen, _ = env.reset()
                obs.append(seen.copy())
                seen[:] = spoil
        env.close()
        return np.stack(obs)

    np.testing.assert_array_equal(steps(np.nan), steps(0.0))


def test_whoever_writes_into_infos_changes_nothing_that_is_shown_later():
    def infos(spoils):
        env = touchline.make_gymnasium("Basic", num_envs=2, allow_idle=True)
        shown = [env.reset(seed=0)[1]]
        for t in range(8):
            kept = {key: np.array(value) for key, value in shown[-1].items()}
            if spoils:
                for array in shown[-1].values():
                    if isinstance(array, np.ndarray):
                        array[:] = 0
            shown[-1] = kept
            # Both agents end in the seventh step, so that this reset restarts nothing.
            shown.append(env.reset()[1] if t == 7 else env.step(np.array([2, 2]))[-1])
        env.close()
        return [[info[key] for info in shown] for key in ("agent_id", "mask")]

    np.testing.assert_array_equal(infos(spoils=True), infos(spoils=False))


def test_whoever_writes_into_observations_of_a_world_of_their_own_leaves_it_as_it_was():
    with make(EnvRecipe("scene", "3DBall", num_areas=2)) as world:
        env = touchline.make_gymnasium(world, vector=True)
        env.reset(seed=0)
        seen, *_ = env.step(env.action_space.sample())
        seen[:] = np.nan
        assert np.isfinite(world.state()["exchange/3DBall?team=0/decision/obs/0"]).all()
