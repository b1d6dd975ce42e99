"""The replay: what followed each action, also at ends, across pieces and after going round."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.slot_rows import slot_rows
from tests.training.group_tasks import Anything, practiced
from tests.training.practice import Practice, make_learner

from touchline.envs.env import EnvRecipe
from touchline.errors import UsageError
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.algorithms.learner import SettingError
from touchline.training.config.reading import read_config
from touchline.training.config.settings import BehaviorConfig
from touchline.training.experience.replay import NONE, Replay, row_bytes
from touchline.training.trainer import train

SPEC = BehaviorSpec((ObservationSpec.vector(1, "time"),), ActionSpec(1, ()))


def _learner(**hyper):
    settings = {
        "trainer_type": "sac",
        "hyperparameters": {"batch_size": 4, "buffer_size": 64} | hyper,
        "network_settings": {"hidden_units": 4, "num_layers": 1},
    }
    return make_learner(SPEC, BehaviorConfig.model_validate(settings))


def _pieces(lengths, end=None, terminated=False):
    """One slot that observes 0, 1, 2 … and is paid as much; it may end before it observes `end`.

    Gives trajectories with so many actions each.
    """
    practice = Practice(_learner())
    time, pieces = 0, []
    practice.add(slot_rows([np.float32([[0]])], begins=True, closed=False))
    for length in lengths:
        for _ in range(length):
            practice.act()
            time += 1
            ends = time == end
            rows = slot_rows(
                [np.float32([[time]])],
                begins=ends,
                closed=True,
                terminated=ends and terminated,
                truncated=ends and not terminated,
                reward=np.float32([time]),
                final_slot=[0] if ends else (),
                final_obs=(np.float32([[100]]),) if ends else None,
            )
            practice.add(rows)
        pieces.append(practice.rollout.trajectories())
        practice.rollout.begin(rows)
    return pieces


def _filled(pieces, capacity=64):
    replay = Replay(capacity)
    for piece in pieces:
        replay.add("A", piece, piece.reward[..., None])
    return replay


def _drawn(replay, steps, discount=0.5, size=300):
    generator = torch.Generator().manual_seed(0)
    sample = replay.sample(size, [discount], generator, return_steps=steps)
    columns = (sample.obs[0], sample.reward, sample.next_obs[0], sample.discount)
    rows = torch.cat(columns, dim=1).tolist()
    return {row[0]: tuple(row[1:]) for row in rows}


@pytest.mark.parametrize("lengths", [[8], [1] * 8, [3, 1, 4]])
def test_returns_reach_over_the_pieces_in_which_experience_arrives(lengths):
    drawn = _drawn(_filled(_pieces(lengths)), steps=3)
    assert drawn[2.0] == (3 + 4 / 2 + 5 / 4, 5.0, 1 / 8)
    assert drawn[7.0] == (8.0, 8.0, 1 / 2)  # what follows is not known yet


@pytest.mark.parametrize("terminated", [False, True])
def test_a_return_ends_with_its_episode_and_its_true_last_observation(terminated):
    drawn = _drawn(_filled(_pieces([4, 4], end=4, terminated=terminated)), steps=3)
    keeps = 0.0 if terminated else 1.0
    assert drawn[3.0] == (4.0, 100.0, keeps / 2)
    assert drawn[2.0] == (3 + 4 / 2, 100.0, keeps / 4)
    assert drawn[4.0][1] == 7.0


def test_the_newest_actions_stay_when_it_is_full():
    replay = _filled(_pieces([5, 5, 5]), capacity=6)
    drawn = _drawn(replay, steps=2)
    assert sorted(drawn) == [9.0, 10.0, 11.0, 12.0, 13.0, 14.0]
    for now in (9.0, 10.0, 11.0, 12.0, 13.0):
        assert drawn[now][1] == now + 2
    longer = _filled(_pieces([15]), capacity=6)
    assert _drawn(longer, steps=2) == drawn


def test_it_goes_on_from_its_state_with_the_same_bits():
    pieces = _pieces([3, 4, 5])
    whole = _filled(pieces, capacity=8)
    half, restored = _filled(pieces[:2], capacity=8), Replay(8)
    restored.load_state(half.state())
    restored.load_rows(
        0, half.rows(0, 2)
    )  # all but the first of these has gone already
    restored.load_rows(2, half.rows(2, 7))
    restored.add("A", pieces[2], pieces[2].reward[..., None])
    for name, tensor in whole.state().items():
        assert torch.equal(tensor, restored.state()[name]), name
    for name, column in whole._columns.items():
        np.testing.assert_array_equal(column, restored._columns[name], name)


def test_a_smaller_replay_takes_the_newest_actions_of_a_larger_one():
    pieces = _pieces([5, 5])
    large, small = _filled(pieces, capacity=64), Replay(4)
    small.load_state(large.state())
    small.load_rows(0, large.rows(0, 10))
    assert _drawn(small, steps=2) == _drawn(_filled(pieces, capacity=4), steps=2)


def test_agents_that_come_and_go_are_followed_by_their_own_actions():
    settings = {"trainer_type": "sac", "hyperparameters": {"batch_size": 4}}
    learner = make_learner(Anything.spec, BehaviorConfig.model_validate(settings))
    trajectories = practiced(Anything(0), learner, 40)
    replay = Replay(5000)
    replay.add("A", trajectories, trajectories.reward[..., None])
    t, slot = np.nonzero(trajectories.valid)
    agent = trajectories.agent_id[t, slot]
    following = replay._columns["following"][: len(t)]
    known = np.flatnonzero(following != NONE)
    assert len(known) > 20
    np.testing.assert_array_equal(agent[known], agent[following[known]])
    for part in range(len(trajectories.obs)):
        np.testing.assert_array_equal(
            replay._columns[f"next_obs.{part}"][known],
            replay._columns[f"obs.{part}"][following[known]],
        )


def test_more_than_the_machine_has_is_refused():
    with pytest.raises(SettingError, match=r"buffer_size: .* need .* GB, more than"):
        _learner(buffer_size=10**12)


def test_a_run_names_the_line_of_a_replay_that_is_too_large(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(
        "default_settings:\n  trainer_type: sac\n"
        "  hyperparameters:\n    buffer_size: 10000000000\n"
    )
    config = read_config(str(path), {"checkpoint_settings.results_dir": str(tmp_path)})
    with pytest.raises(UsageError, match=r"a\.yaml:4:5: .*buffer_size: 10,000,000,000"):
        train(config, EnvRecipe("scene", "Basic"))


def test_a_row_takes_the_memory_that_is_counted_for_it():
    (piece,) = _pieces([2])
    replay = _filled([piece])
    found = sum(column[:1].nbytes for column in replay._columns.values())
    assert found == row_bytes(SPEC, 1, None)


# pictures


def _with_pictures(replay, pictures):
    """Put actions that saw these pictures [B, C, H, W] behind those that are there."""
    size, first = len(pictures), replay.added
    replay.added += size
    columns = {
        "obs.0": pictures,
        "next_obs.0": pictures,
        "continuous": np.zeros((size, 1), np.float32),
        "discrete": np.zeros((size, 0), np.int64),
        "reward": np.zeros((size, 1), np.float32),
        "terminated": np.zeros(size, np.bool_),
        "previous": np.full(size, NONE),
    }
    replay.load_rows(first, columns)


def _seen(replay, number):
    return replay.transitions(np.array([number])).obs[0][0].numpy()


def test_pictures_of_whole_255ths_take_a_byte_per_number_and_lose_nothing():
    whole = np.arange(256, dtype=np.uint8).reshape(4, 1, 8, 8)
    pictures = whole.astype(np.float32) / np.float32(255)
    replay = Replay(16)
    _with_pictures(replay, pictures)
    assert replay.rows(0, 4)["obs.0"].dtype == np.uint8
    for number, picture in enumerate(pictures):
        np.testing.assert_array_equal(_seen(replay, number), picture)
    spec = BehaviorSpec((ObservationSpec((1, 8, 8), name="seen"),), ActionSpec(1, ()))
    found = sum(column[:1].nbytes for column in replay._columns.values())
    assert found == row_bytes(spec, 1, None)


def test_pictures_with_other_numbers_stay_as_they_are():
    replay = Replay(16)
    first = np.full((2, 1, 3, 3), 0.2, np.float32)  # 51 of 255
    _with_pictures(replay, first)
    assert replay.rows(0, 2)["obs.0"].dtype == np.uint8
    for other in (0.3, -1.0, 2.0, np.float32(0.2) + np.float32(1e-7)):
        _with_pictures(replay, np.full((1, 1, 3, 3), other, np.float32))
    assert replay.rows(0, 6)["obs.0"].dtype == np.float32
    np.testing.assert_array_equal(_seen(replay, 1), first[1])
    np.testing.assert_array_equal(_seen(replay, 2), np.full((1, 3, 3), 0.3, np.float32))
    kept = replay.rows(0, 6)
    loaded = Replay(16)
    loaded.added = 6
    for start in (0, 2):  # a piece that was written before, and one after
        piece = {
            n: c[start : start + (2 if start == 0 else 4)] for n, c in kept.items()
        }
        loaded.load_rows(start, piece)
    for number in range(6):
        np.testing.assert_array_equal(_seen(loaded, number), _seen(replay, number))


# sequences


def _in_sequences(pieces, length, capacity=64):
    """A replay of sequences; what each action's slot remembered is 1 for every action before."""
    replay = Replay(capacity, sequence_length=length)
    for piece in pieces:
        time = piece.obs[0][..., None]  # [T + 1, 1, 1, 1]
        memory = np.broadcast_to(time, (*time.shape[:2], 2, 4)).copy()
        remembering = replace(piece, memory=memory)
        replay.add("A", remembering, piece.reward[..., None])
    return replay


def _drawn_sequences(replay, steps=1, size=400):
    """By the first observation of each sequence: those of all its actions, and the memory."""
    sample = replay.sample(
        size, [0.5], torch.Generator().manual_seed(0), return_steps=steps
    )
    lengths = sample.sequences.length.tolist()
    parts = torch.split(sample.obs[0][:, 0], lengths)
    memories = sample.sequences.memory[:, 0, 0].tolist()
    pairs = zip(parts, memories, strict=True)
    return {float(part[0]): (part.tolist(), memory) for part, memory in pairs}


@pytest.mark.parametrize("lengths", [[10], [1] * 10, [3, 1, 6]])
def test_sequences_lie_end_to_end_whatever_pieces_they_came_in(lengths):
    drawn = _drawn_sequences(_in_sequences(_pieces(lengths), 4))
    assert drawn == {
        0.0: ([0, 1, 2, 3], 0.0),
        4.0: ([4, 5, 6, 7], 4.0),
        8.0: ([8, 9], 8.0),
    }


def test_a_sequence_ends_with_its_episode_and_the_next_begins_one():
    drawn = _drawn_sequences(_in_sequences(_pieces([10], end=5), 4))
    first = [part for part, _ in drawn.values()]
    assert sorted(map(len, first)) == [1, 1, 4, 4]
    assert drawn[4.0][0] == [4.0]
    assert drawn[5.0][0] == [5, 6, 7, 8]


def test_a_sequence_whose_beginning_has_gone_is_not_drawn():
    """X9: cut anywhere, ML-Agents' sequences start in their middle from then on."""
    drawn = _drawn_sequences(_in_sequences(_pieces([5, 5, 5]), 4, capacity=6))
    assert drawn == {12.0: ([12, 13, 14], 12.0)}


def test_where_every_beginning_has_gone_any_action_begins_a_sequence():
    """As with 1,000 agents, sequences of 64 and a buffer of 50,000: each has 50 actions left."""
    drawn = _drawn_sequences(_in_sequences(_pieces([4]), 4, capacity=3))
    assert drawn == {
        1.0: ([1, 2, 3], 1.0),
        2.0: ([2, 3], 2.0),
        3.0: ([3], 3.0),
    }


def test_a_return_ends_with_its_sequence():
    replay = _in_sequences(_pieces([6], end=6, terminated=True), 4)
    sample = replay.sample(64, [0.5], torch.Generator().manual_seed(0), return_steps=3)
    rows = {}
    for i in range(len(sample)):
        last = int(sample.last[i])
        reward, discount = float(sample.reward[i]), float(sample.discount[i])
        rows[float(sample.obs[0][i])] = (
            reward,
            discount,
            float(sample.next_obs[0][last]),
        )
    assert rows[0.0] == (1 + 2 / 2 + 3 / 4, 1 / 8, 3.0)
    assert rows[2.0] == (3 + 4 / 2, 1 / 4, 4.0)
    assert rows[3.0] == (4.0, 1 / 2, 4.0)
    assert rows[4.0] == (5 + 6 / 2, 0.0, 100.0)
    assert rows[5.0] == (6.0, 0.0, 100.0)


def test_sequences_go_on_from_a_resume_point():
    pieces = _pieces([3, 4, 5])
    whole, half = _in_sequences(pieces, 4), _in_sequences(pieces[:2], 4)
    restored = Replay(64, sequence_length=4)
    restored.load_state(half.state())
    restored.load_rows(0, half.rows(0, 7))
    piece = pieces[2]
    memory = np.zeros((*piece.obs[0].shape[:2], 2, 4), np.float32)
    restored.add("A", replace(piece, memory=memory), piece.reward[..., None])
    for name in ("position", "previous", "following"):
        found, wanted = restored._columns[name], whole._columns[name]
        np.testing.assert_array_equal(found, wanted, name)


def test_more_than_ten_sensors_keep_their_order():
    replay, restored = Replay(2), Replay(2)
    columns = {
        f"{kind}.{i}": np.full((1, 1), i, np.float32)
        for kind in ("obs", "next_obs")
        for i in range(12)
    }
    columns |= {
        "continuous": np.zeros((1, 1), np.float32),
        "discrete": np.zeros((1, 0), np.int64),
        "reward": np.zeros((1, 1), np.float32),
        "terminated": np.zeros(1, np.bool_),
        "previous": np.full(1, NONE),
    }
    replay.added = 1
    replay.load_rows(0, columns)
    restored.load_state(replay.state())
    restored.load_rows(0, dict(sorted(columns.items())))  # as files list them
    seen = restored.transitions(np.array([0])).obs
    assert [int(part) for part in seen] == list(range(12))
