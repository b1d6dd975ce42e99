"""Policies act, each in its own way, and are loaded from what `--policy` takes."""

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.scripted_world import ScriptedWorld

from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import network_metadata, write_checkpoint
from touchline.policies.files.onnx_out import export_onnx
from touchline.policies.loading import load_policies, load_policy, sources_in
from touchline.policies.network import Architecture, make_network
from touchline.policies.network_policy import NetworkPolicy
from touchline.policies.policy import SlotActor
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

NAME = "Walker?team=0"


@pytest.fixture(scope="module")
def rows_and_spec():
    slots = Slots(
        ScriptedWorld(6, moves=False, births=False, vanishings=False, periods=(1,))
    )
    rows = slots.reset(0)[NAME]
    return rows, slots.behaviors[NAME]


def _network(spec, seed=0, **settings):
    torch.manual_seed(seed)
    return make_network(spec, Architecture(hidden_units=8, num_layers=1, **settings))


def _same(a, b):
    return np.array_equal(a.continuous, b.continuous) and np.array_equal(
        a.discrete, b.discrete
    )


def test_the_same_seed_draws_the_same_actions(rows_and_spec):
    rows, spec = rows_and_spec
    policy = NetworkPolicy(_network(spec))
    for make in (lambda: policy, lambda: load_policy("random", spec=spec).policy):
        drawn = [SlotActor(make(), spec, seed).act(rows) for seed in (1, 1, 2)]
        assert _same(drawn[0], drawn[1])
        assert not _same(drawn[0], drawn[2])


def test_a_learner_gets_the_raw_actions_and_the_world_limited_ones(rows_and_spec):
    rows, spec = rows_and_spec
    spec = BehaviorSpec(spec.observation_specs, ActionSpec(2))
    network = _network(spec)
    with torch.no_grad():
        network.trunk.policy_bias.fill_(30.0)
    policy = NetworkPolicy(network)
    without_masks = replace(rows, action_mask=None)
    decision = policy.act(without_masks, None, policy.new_generator(0))
    assert (decision.kept.continuous > 3).all()
    assert (decision.actions.continuous == 1).all()


def test_a_deterministic_policy_draws_nothing(rows_and_spec):
    rows, spec = rows_and_spec
    policy = NetworkPolicy(_network(spec), deterministic=True)
    generator = policy.new_generator(0)
    before = generator.get_state()
    first = policy.act(rows, None, generator).actions
    assert torch.equal(generator.get_state(), before)
    assert _same(first, policy.act(rows, None, policy.new_generator(5)).actions)


def test_a_memory_changes_where_slots_decide_and_is_kept_as_it_was_before(
    rows_and_spec,
):
    rows, spec = rows_and_spec
    policy = NetworkPolicy(_network(spec, memory_size=4))
    memory, generator = policy.new_memory(), policy.new_generator(0)
    first = policy.act(rows, memory, generator)
    assert not first.kept.memory.any()
    assert memory.values[rows.deciding].any()
    assert not memory.values[~rows.deciding].any()
    none_begins = np.zeros_like(rows.begins)
    remembered = memory.values.copy()
    second = policy.act(replace(rows, begins=none_begins), memory, generator)
    assert np.array_equal(second.kept.memory, remembered)


def test_one_policy_serves_several_tables_of_slots(rows_and_spec):
    rows, spec = rows_and_spec
    policy = NetworkPolicy(_network(spec, memory_size=4))
    alone = SlotActor(policy, spec, 3)
    expected = [alone.act(rows) for _ in range(3)]
    one, other = SlotActor(policy, spec, 3), SlotActor(policy, spec, 4)
    for actions in expected:
        other.act(rows)
        assert _same(one.act(rows), actions)


def test_zero_takes_the_first_allowed_choice():
    spec = BehaviorSpec((ObservationSpec.vector(1, "a"),), ActionSpec(1, (2, 3)))
    slots = Slots(
        ScriptedWorld(2, moves=False, births=False, vanishings=False, periods=(1,))
    )
    mask = np.array(
        [[False, True, False, False, True], [True, True, False, True, True]]
    )
    rows = replace(slots.reset(0)[NAME], action_mask=mask)
    actions = load_policy("zero", spec=spec).act(rows)
    assert actions.discrete.tolist() == [[1, 2], [0, 1]]
    assert not actions.continuous.any()


@pytest.fixture
def run(tmp_path, rows_and_spec):
    """A run folder with a checkpoint of each of two behaviors, and a model of one."""
    spec = rows_and_spec[1]
    for behavior in ("Walker", "Other"):
        network = _network(spec)
        tensors = {
            f"network.{name}": value for name, value in network.state_dict().items()
        }
        path = tmp_path / "run" / behavior / "checkpoint.safetensors"
        write_checkpoint(path, tensors, network_metadata(network))
    export_onnx(_network(spec), tmp_path / "run" / "Walker.onnx")
    return tmp_path / "run"


def test_a_run_folder_gives_the_policy_of_the_behavior(run, rows_and_spec):
    rows, spec = rows_and_spec
    behaviors = {NAME: spec, "Other?team=1": spec}
    actors = load_policies([str(run)], behaviors, deterministic=True)
    assert _same(
        actors[NAME].act(rows), load_policy(run, NAME, deterministic=True).act(rows)
    )
    assert isinstance(actors["Other?team=1"].policy, NetworkPolicy)
    with pytest.raises(UsageError, match="say which behavior: Other, Walker"):
        load_policy(run)
    with pytest.raises(
        UsageError, match="no run folder with a model for C; it has models for"
    ):
        load_policy(run, "C")


def test_sources_are_chosen_by_name_then_by_fit(run, rows_and_spec):
    _, spec = rows_and_spec
    other = BehaviorSpec((ObservationSpec.vector(77, "a"),), ActionSpec(1))
    named = load_policies([f"Walker={run}", "zero"], {NAME: spec, "Else?team=0": other})
    assert type(named["Else?team=0"].policy).__name__ == "ZeroPolicy"
    checkpoint = str(run / "Walker" / "checkpoint.safetensors")
    fitting = load_policies([checkpoint, "random"], {NAME: spec, "Else?team=0": other})
    assert isinstance(fitting[NAME].policy, NetworkPolicy)
    assert type(fitting["Else?team=0"].policy).__name__ == "RandomPolicy"


def test_two_policies_for_one_behavior_are_one_line(run, rows_and_spec, tmp_path):
    _, spec = rows_and_spec
    checkpoint = str(run / "Walker" / "checkpoint.safetensors")
    again = shutil.copy(checkpoint, tmp_path / "again.safetensors")
    with pytest.raises(
        UsageError, match=r"two policies for Walker\?team=0: .*say which"
    ):
        load_policies([checkpoint, str(again)], {NAME: spec})
    with pytest.raises(UsageError, match="two policies for Walker: zero and random"):
        load_policies(["Walker=zero", "Walker=random"], {NAME: spec})
    with pytest.raises(UsageError, match=r"two policies for Walker.*: zero and random"):
        load_policies(["zero", "random"], {NAME: spec})
    with pytest.raises(
        UsageError, match=r"two policies for Walker.*: zero and .*again"
    ):
        load_policies(["Walker=zero", str(again)], {NAME: spec})


def test_names_with_commas_and_equals_signs_and_files_that_are_not_there(
    run, rows_and_spec, tmp_path, monkeypatch
):
    _, spec = rows_and_spec
    checkpoint = run / "Walker" / "checkpoint.safetensors"
    folder = tmp_path / "a=b,c"
    folder.mkdir()
    copy = shutil.copy(checkpoint, folder / "x.safetensors")
    assert sources_in(f"Walker={copy}") == [f"Walker={copy}"]
    assert load_policies(["random", str(copy)], {NAME: spec})[NAME].name == str(copy)
    with pytest.raises(UsageError, match=r"nope\.safetensors: no such policy file"):
        load_policies([f"Walker={copy}", "nope.safetensors"], {NAME: spec})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(UsageError, match=r"broken\.onnx: not an ONNX file"):
        load_policies([f"Walker={copy}", "broken.onnx"], {NAME: spec})
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty: no run folder with a model"):
        load_policies([f"Walker={copy}", "empty"], {NAME: spec})
    shutil.copy(checkpoint, "Walker=x.safetensors")
    (actor,) = load_policies(["Walker=x.safetensors"], {NAME: spec}).values()
    assert actor.name == "Walker=x.safetensors"


def test_policies_in_one_text_may_have_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
    for text in (
        "Striker=a.onnx,Goalie=b.onnx",
        "random,Goalie=b.onnx",
        "a.onnx,b.onnx",
    ):
        assert sources_in(text) == text.split(",")


def test_a_policy_is_given_to_one_team_by_its_full_name(rows_and_spec):
    _, spec = rows_and_spec
    both = {NAME: spec, "Walker?team=1": spec}
    loaded = load_policies(["Walker?team=1=random", "zero"], both)
    kinds = {name: type(actor.policy).__name__ for name, actor in loaded.items()}
    assert kinds == {NAME: "ZeroPolicy", "Walker?team=1": "RandomPolicy"}


def test_what_cannot_be_loaded_is_said(run, rows_and_spec):
    _, spec = rows_and_spec
    with pytest.raises(
        UsageError, match=r"the policy Jumper=zero: no behavior 'Jumper'; behaviors: "
    ):
        load_policies(["Jumper=zero"], {NAME: spec})
    with pytest.raises(
        UsageError,
        match=r"no policy given for Walker.*; add the policy random, or Walker=FILE",
    ):
        load_policies([], {NAME: spec})
    with pytest.raises(UsageError, match="'random' needs the spec of a behavior"):
        load_policy("random")
    with pytest.raises(UsageError, match=r"missing\.onnx: no such policy file"):
        load_policy("missing.onnx")
    other = BehaviorSpec((ObservationSpec.vector(77, "a"),), ActionSpec(1))
    with pytest.raises(
        UsageError, match="does not fit the behavior: it was trained on"
    ):
        load_policy(run / "Other" / "checkpoint.safetensors", spec=other)


def test_random_and_zero_need_no_torch():
    """The base install has none."""
    code = """
import sys
sys.modules["torch"] = sys.modules["onnx"] = sys.modules["safetensors"] = None
from touchline.policies.loading import load_policies
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
spec = BehaviorSpec((ObservationSpec((3,)),), ActionSpec(1, (2,)))
print(sorted(load_policies(["random"], {"A?team=0": spec}) | load_policies(["zero"], {"B": spec})))
try:
    load_policies(["a.onnx"], {"B": spec})
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    drawn, missing = done.stdout.splitlines()
    assert drawn == "['A?team=0', 'B']", done.stderr
    assert missing.startswith(
        "MissingError the policy a.onnx needs onnx, which is not installed"
    )
