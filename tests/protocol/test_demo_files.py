"""The bytes of demonstration files: written as they are read, and broken ones refused."""

import time
from dataclasses import fields

import numpy as np
import pytest
from tests.training.demo_bytes import TWO_EPISODES

from touchline.errors import UsageError
from touchline.protocol.demonstrations import (
    DemoFile,
    encode_demo,
    parts_of,
    read_demo,
)
from touchline.protocol.schema import MESSAGES
from touchline.specs import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)

MOVES = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
NONE = DimensionProperty.NONE
VECTOR = ObservationSpec.vector(3, "vector")
GOAL = ObservationSpec((2,), (NONE,), ObservationType.GOAL_SIGNAL, "goal")
LIST = ObservationSpec((4, 2), (DimensionProperty.VARIABLE_SIZE, NONE), name="list")
IMAGE = ObservationSpec((3, 5, 6), (NONE, MOVES, MOVES), name="camera")
OLD_IMAGE = ObservationSpec((5, 6, 3), (MOVES, MOVES, NONE), name="old camera")

SPECS = {
    "continuous": BehaviorSpec((VECTOR,), ActionSpec(2)),
    "discrete": BehaviorSpec((VECTOR, GOAL), ActionSpec(0, (3, 2))),
    "hybrid": BehaviorSpec((LIST, VECTOR), ActionSpec(3, (2,))),
    "images": BehaviorSpec((IMAGE, VECTOR), ActionSpec(0, (5,))),
    "hwc images": BehaviorSpec((OLD_IMAGE,), ActionSpec(1)),
}


def made_up(spec, records=12, seed=0):
    """A file of three episodes, the second one interrupted."""
    rng = np.random.default_rng(seed)
    action = spec.action_spec
    done = np.zeros(records, bool)
    done[[3, 7, records - 1]] = True
    interrupted = np.zeros(records, bool)
    interrupted[7] = True
    forbidden = None
    if action.discrete_branches:
        forbidden = rng.random((records, action.mask_size)) < 0.3
        forbidden[done] = False
    return DemoFile(
        behavior="Made up?team=0",
        spec=spec,
        obs=[
            rng.random((records, *sensor.shape), np.float32)
            for sensor in spec.observation_specs
        ],
        forbidden=forbidden,
        actions=action.random_action(records, rng),
        reward=rng.random(records, np.float32),
        group_reward=rng.random(records, np.float32),
        done=done,
        interrupted=interrupted,
        agent_id=np.repeat([0, 1, 2], [4, 4, records - 8]).astype(np.int32),
        group_id=np.full(records, 3, np.int32),
        has_current_actions=True,
        name="Made up",
    )


@pytest.mark.parametrize("kind", SPECS)
def test_what_is_written_is_read_again(kind, tmp_path):
    file = made_up(SPECS[kind])
    path = tmp_path / "made.demo"
    path.write_bytes(encode_demo(file))
    again = read_demo(path)
    assert again.spec == file.spec
    for part in fields(DemoFile):
        before, after = getattr(file, part.name), getattr(again, part.name)
        if isinstance(before, ActionTuple):
            np.testing.assert_array_equal(before.continuous, after.continuous)
            np.testing.assert_array_equal(before.discrete, after.discrete)
        elif isinstance(before, list | np.ndarray):
            for one, other in zip(before, after, strict=True):
                np.testing.assert_array_equal(one, other)
        else:
            assert before == after, part.name


def test_the_metadata_lie_where_unity_puts_them():
    data = encode_demo(made_up(SPECS["hybrid"]))
    meta = MESSAGES.DemonstrationMetaProto.FromString(data[1 : 1 + data[0]])
    assert data[0] < 33
    assert not any(data[1 + data[0] : 33])
    assert (meta.api_version, meta.number_steps, meta.number_episodes) == (1, 12, 3)
    brain = MESSAGES.BrainParametersProto.FromString(data[34 : 34 + data[33]])
    assert brain.brain_name == "Made up?team=0"
    assert not brain.is_training


def test_the_mean_return_in_the_metadata_is_exact():
    file = made_up(SPECS["continuous"])
    data = encode_demo(file)
    meta = MESSAGES.DemonstrationMetaProto.FromString(data[1 : 1 + data[0]])
    total = file.reward.sum() + file.group_reward.sum()
    assert meta.mean_reward == pytest.approx(total / 3)


def test_a_long_name_is_cut_so_that_the_metadata_fit():
    file = made_up(SPECS["continuous"])
    object.__setattr__(file, "name", "Ein sehr langer Name, auch mit ümlaut")
    data = encode_demo(file)
    meta = MESSAGES.DemonstrationMetaProto.FromString(data[1 : 1 + data[0]])
    assert meta.demonstration_name == "Ein sehr langer "
    assert data[0] < 33


def test_the_metadata_of_many_short_episodes_fit_next_to_a_long_name(tmp_path):
    """Their number takes three bytes, where Unity has left no room for it."""
    file = made_up(SPECS["continuous"], 16_384)
    vars(file)["name"] = "PickUpTheRedCube"
    file.done[:] = True
    path = tmp_path / "many.demo"
    path.write_bytes(encode_demo(file))
    again = read_demo(path)
    assert (len(again), int(again.done.sum())) == (16_384, 16_384)
    assert again.name == "PickUpTheRedCub"


def test_a_file_of_too_many_records_is_cut_at_the_ends_of_episodes():
    file = made_up(SPECS["hybrid"])  # episodes of 4, 4 and 4 records
    parts = parts_of(file, most=9)
    assert [len(part) for part in parts] == [8, 4]
    assert [part.done[-1] for part in parts] == [True, True]
    np.testing.assert_array_equal(
        np.concatenate([part.actions.discrete for part in parts]), file.actions.discrete
    )
    for sensor, whole in enumerate(file.obs):
        joined = np.concatenate([part.obs[sensor] for part in parts])
        np.testing.assert_array_equal(joined, whole)
    assert [len(part) for part in parts_of(file, most=3)] == [3, 1, 3, 1, 3, 1]
    (same,) = parts_of(file)
    np.testing.assert_array_equal(same.reward, file.reward)


def mutated(data, rng):
    """A few bytes changed, cut off, doubled or inserted."""
    data = bytearray(data)
    kind = rng.integers(4)
    at = int(rng.integers(len(data)))
    if kind == 0:
        for place in rng.integers(len(data), size=rng.integers(1, 6)):
            data[place] = rng.integers(256)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at:at] = data[: rng.integers(1, 200)]
    else:
        data[at : at + 4] = b"\xff\xff\xff\x7f"
    return bytes(data)


def test_mutated_files_are_read_or_refused_in_one_line_and_soon(tmp_path):
    """From 60 seeds; a mutation may leave a file that can still be read."""
    originals = [TWO_EPISODES, *(encode_demo(made_up(spec)) for spec in SPECS.values())]
    path = tmp_path / "mutated.demo"
    refusals = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        path.write_bytes(mutated(originals[seed % len(originals)], rng))
        started = time.monotonic()
        try:
            read_demo(path)
        except UsageError as error:
            refusals.append(str(error))
        assert time.monotonic() - started < 1.0, seed
    assert len(refusals) > 20
    for refusal in refusals:
        assert refusal.startswith(f"{path}: ")
        assert "\n" not in refusal
        assert len(refusal) < 700
