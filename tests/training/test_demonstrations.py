"""Reading demonstrations: which action belongs to which observation, and what is refused."""

import numpy as np
import pytest
from tests.conftest import ROOT
from tests.training.demo_bytes import TWO_EPISODES

from touchline.envs.env import EnvRecipe
from touchline.envs.scene_env import open_scene
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.protocol.demonstrations import read_demo
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec, base_name
from touchline.training.config.reading import preset_names, read_config
from touchline.training.demonstrations import read_demonstration
from touchline.training.world import check_files

META_VERSION, META_STEPS, BRAIN_AT = 2, 10, 33
"""Bytes of TWO_EPISODES: the version, the number of steps, and the behavior's length."""


@pytest.fixture
def two_episodes(tmp_path):
    path = tmp_path / "two.demo"
    path.write_bytes(TWO_EPISODES)
    return path


def test_an_action_is_paired_with_the_observation_that_it_answered(two_episodes):
    # Golden: demo_two_episodes, "right".
    demo = read_demonstration(two_episodes)
    np.testing.assert_array_equal(demo.obs[0][:, 0], [0, 1, 10, 11])
    np.testing.assert_array_equal(demo.next_obs()[0][:, 0], [1, 2, 11, 12])
    np.testing.assert_allclose(demo.actions.continuous[:, 0], [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_array_equal(demo.reward, [1, 2, 5, 6])
    ended = demo.terminated | demo.truncated
    np.testing.assert_array_equal(ended, [False, True, False, True])
    np.testing.assert_array_equal(demo.episode, [0, 0, 1, 1])
    np.testing.assert_array_equal(demo.returns, [3, 11])
    assert demo.finished.all()


def test_the_pairing_can_be_overridden(two_episodes):
    # As ML-Agents 1.1.0 pairs them, without the ends that it takes for experience.
    demo = read_demonstration(two_episodes, pairing="same")
    np.testing.assert_allclose(demo.actions.continuous[:, 0], [0, 0.1, 0, 0.3])
    assert demo.lines[0].endswith("in the same record: as configured")


def test_the_choice_is_one_line_with_its_reason(two_episodes):
    (line,) = read_demonstration(two_episodes).lines
    assert line == (
        f"{two_episodes}: 4 actions in 2 episodes, mean return 7.00; an observation's action is "
        "in the next record: its behavior's name has a team, as since package 1.0"
    )


def test_the_files_of_a_folder_never_run_into_each_other(two_episodes):
    one = read_demonstration(two_episodes)
    two_episodes.with_name("again.demo").write_bytes(TWO_EPISODES)
    two_episodes.with_name("notes.txt").write_text("not a demonstration")
    demo = read_demonstration(two_episodes.parent)
    assert (len(demo), demo.num_episodes, len(demo.lines)) == (8, 4, 2)
    np.testing.assert_array_equal(demo.episode, [0, 0, 1, 1, 2, 2, 3, 3])
    for joined, single in zip(demo.next_obs(), one.next_obs(), strict=True):
        np.testing.assert_array_equal(joined, np.concatenate([single, single]))
    np.testing.assert_array_equal(demo.returns, [3, 11, 3, 11])


DEMOS = {
    # Name: pairing, actions, episodes, finished ones, mean return of the finished (or of all).
    "Expert3DBall": ("same", 548, 1, 0, 54.8),
    "Expert3DBallHard": ("same", 275, 1, 0, 27.5),
    "ExpertBasic": ("same", 62, 11, 10, 0.93),
    # 10.08 with the rewards on first decisions, which belong to no action.
    "test": ("next", 2122, 22, 21, 10.0),
    "test4": ("next", 24, 1, 0, 2.4),
    "testdcvis": ("same", 37, 1, 0, 0.0),
    "testhybridvis": ("next", 24, 1, 0, 4.0),
    "ExpertPyramid-part": ("next", 499, 2, 2, 1.75),
    "ExpertPushBlock-part": ("same", 347, 14, 14, 4.97),
    "ExpertHallway-part": ("same", 770, 15, 15, 0.90),
}
"""Decoded from the files of the ML-Agents repository with the official classes."""


@pytest.mark.parametrize("name", DEMOS)
def test_files_of_every_generation_are_read(name, shared):
    pairing, actions, episodes, finished, mean_return = DEMOS[name]
    demo = read_demonstration(shared / "demos" / f"{name}.demo")
    assert f"in the {pairing} record" in demo.lines[0]
    assert (len(demo), demo.num_episodes) == (actions, episodes)
    assert demo.finished.sum() == finished
    counted = demo.returns[demo.finished] if finished else demo.returns
    assert counted.mean() == pytest.approx(mean_return, abs=0.01)
    ends = demo.terminated | demo.truncated
    assert ends.sum() == episodes
    assert all(np.isfinite(sensor).all() for sensor in demo.obs)


@pytest.mark.parametrize(
    ("name", "pairing"), [("test", "next"), ("Expert3DBall", "same")]
)
def test_actions_go_with_what_they_do(name, pairing, shared):
    """A 3DBall action turns the platform at once, so it correlates with the turn that follows."""
    path = shared / "demos" / f"{name}.demo"

    def correlation(pairing):
        demo = read_demonstration(path, pairing=pairing)
        turn = (demo.next_obs()[0] - demo.obs[0])[:, 0]
        inside = ~(demo.terminated | demo.truncated)
        return abs(np.corrcoef(turn[inside], demo.actions.continuous[inside, 0])[0, 1])

    other = {"same": "next", "next": "same"}[pairing]
    assert correlation(pairing) > 0.95
    assert correlation(other) < 0.3


def test_images_are_chw_whoever_recorded_them(shared):
    for name in ("testdcvis", "testhybridvis"):
        demo = read_demonstration(shared / "demos" / f"{name}.demo")
        assert demo.spec.observation_specs[0].shape == (3, 84, 84)
        image = demo.obs[0]
        assert image.shape[1:] == (3, 84, 84)
        assert 0.0 <= image.min() < image.max() <= 1.0


def test_vectors_of_no_numbers_are_left_out(shared):
    demo = read_demonstration(shared / "demos" / "testdcvis.demo")
    assert len(demo.spec.observation_specs) == 1
    assert demo.actions.discrete.max(axis=0).tolist() <= [2, 2, 2, 1]


def test_an_unclosed_file_is_read_to_its_end(tmp_path):
    unclosed = bytearray(TWO_EPISODES)
    unclosed[:BRAIN_AT] = bytes(BRAIN_AT)  # metadata comes with the close
    path = tmp_path / "unclosed.demo"
    path.write_bytes(unclosed + b"\x7f\x01")
    assert len(read_demonstration(path)) == 4


def _with(at, value):
    broken = bytearray(TWO_EPISODES)
    broken[at] = value
    return bytes(broken)


BROKEN = {
    "empty": (b"", "expected a demonstration, the file is empty"),
    "header only": (TWO_EPISODES[:20], "cut off: 20 bytes are less than a header"),
    "cut in a record": (TWO_EPISODES[:200], "cut off or broken at record"),
    "no records": (TWO_EPISODES[:48], "the demonstration is empty"),
    "later version": (
        _with(META_VERSION, 7),
        "expected a demonstration of version 0 or 1, got version 7",
    ),
    "another format": (b"PK\x03\x04" + bytes(400), "not a demonstration file"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused_in_one_line_with_its_name(what, tmp_path):
    content, message = BROKEN[what]
    path = tmp_path / "broken.demo"
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        read_demonstration(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_single_record_is_no_demonstration(tmp_path):
    header_and_first = TWO_EPISODES[:93]
    one = bytearray(header_and_first)
    one[:BRAIN_AT] = bytes(BRAIN_AT)
    path = tmp_path / "short.demo"
    path.write_bytes(one)
    assert len(read_demo(path)) == 1
    with pytest.raises(UsageError, match=r"short\.demo: expected an episode of two"):
        read_demonstration(path)


def test_another_games_demonstration_is_refused_with_both_specs(two_episodes):
    spec = BehaviorSpec((ObservationSpec((8,)),), ActionSpec(2))
    with pytest.raises(UsageError) as refused:
        read_demonstration(two_episodes, spec, behavior="3DBall")
    assert str(refused.value) == (
        f"{two_episodes}: recorded in another game: B has observations [3] and 2 continuous "
        "actions, 3DBall has observations [8] and 2 continuous actions"
    )


def test_a_path_that_leads_nowhere_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no such file or folder"):
        read_demonstration(tmp_path / "gone.demo")
    with pytest.raises(UsageError, match=r"expected \.demo files in this folder"):
        read_demonstration(tmp_path)
    (tmp_path / "video.mp4").write_bytes(b"")
    with pytest.raises(UsageError, match=r"expected a file that ends in \.demo"):
        read_demonstration(tmp_path / "video.mp4")


DIE_FOR_THEIR_GROUP = {"DungeonEscape": 3}
"""Behaviors whose members may return nothing in a game that is won, with their number. One area
was recorded, so the episodes of a member are in the order of the games."""
IMITATING = [name for name in preset_names() if "_imitation" in name]


def test_scenes_of_official_imitation_files_have_presets():
    official = {name for name in IMITATING if name.endswith("_official")}
    assert official == {
        "Crawler_imitation_official",
        "PushBlock_imitation_official",
        "Hallway_imitation_official",
        "Pyramids_imitation_official",
    }


def demonstrated(config):
    """Behavior -> the path of its demonstration; a preset shows at least one behavior."""
    blocks = {
        name: [behavior.behavioral_cloning, behavior.reward_signals.get("gail")]
        for name, behavior in config.behaviors.items()
    }
    paths = {
        name: {block.demo_path for block in of_behavior if block is not None}
        for name, of_behavior in blocks.items()
    }
    return {name: path for name, (path,) in ((n, p) for n, p in paths.items() if p)}


@pytest.mark.parametrize("name", IMITATING)
def test_the_demonstration_of_a_preset_is_small_and_of_its_scene(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    config = read_config(name)
    check_files(config)
    paths = demonstrated(config)
    assert paths
    with open_scene(EnvRecipe("scene", config.env_settings.env_path)) as scene:
        env = Slots(scene)
        env.reset(0)
        specs = {
            base_name(full_name): (full_name, spec)
            for full_name, spec in env.behaviors.items()
        }
    for behavior, path in paths.items():
        assert (ROOT / path).stat().st_size < 1_000_000
        full_name, spec = specs[behavior]  # of either team
        demo = read_demonstration(path, spec, behavior=full_name)
        assert demo.finished.all()
        if behavior in DIE_FOR_THEIR_GROUP:
            games = demo.returns.reshape(DIE_FOR_THEIR_GROUP[behavior], -1)
            np.testing.assert_array_equal(games.max(axis=0), 1.0)  # all of them won
        else:
            assert demo.returns.min() > 0
