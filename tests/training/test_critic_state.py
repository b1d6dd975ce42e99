"""`critic_sees_state`: a value function that learns from more than agents observe."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import yaml
from safetensors.numpy import load_file

from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import read_arrays
from touchline.policies.loading import load_policies, load_policy
from touchline.policies.nets.memory import Sequences
from touchline.policies.network import Architecture, make_network
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training import trainer
from touchline.training.collect.local import LocalCollector
from touchline.training.collect.opening import world_of
from touchline.training.config.reading import read_config
from touchline.training.evaluation import measure

STATE = replace(ObservationSpec.vector(4, "State"), critic_only=True)
MODELS = Path(__file__).parents[2] / "models"
SMALL = {
    "behaviors.*.hyperparameters.critic_sees_state": True,
    "behaviors.*.hyperparameters.batch_size": 256,
    "behaviors.*.hyperparameters.buffer_size": 1024,
    "behaviors.*.network_settings.hidden_units": 8,
    "behaviors.*.self_play.save_steps": 1000,
    "behaviors.*.summary_freq": 2000,
    "behaviors.*.max_steps": 4000,
    "env_settings.num_areas": 4,
    "env_settings.seed": 1,
}

MEMORY = {"memory_size": 8, "sequence_length": 16}


def _train(folder, scene="SoccerTwos", **changes):
    keys = SMALL | {"checkpoint_settings.results_dir": str(folder)} | changes
    config = read_config(scene, (), keys)
    return trainer.train(config, EnvRecipe("scene", scene, 4))


@pytest.mark.parametrize("kind", ["ppo", "poca"])
def test_collectors_act_without_the_state(tmp_path, kind):
    result = _train(
        tmp_path,
        "PushBlock",
        **{
            "behaviors.*.trainer_type": kind,
            "behaviors.*.hyperparameters.batch_size": 32,
            "behaviors.*.hyperparameters.buffer_size": 64,
            "behaviors.*.max_steps": 150,
            "behaviors.*.self_play": None,
            "cluster_settings.collectors": 2,
        },
    )
    assert result.behaviors["PushBlock"].steps >= 150


def test_the_policy_does_without_the_state(tmp_path):
    # One more opponent that never saw a state either.
    versus = {"behaviors.*.self_play.versus": [str(MODELS / "SoccerTwos.onnx")]}
    result = _train(tmp_path, **versus)
    model = onnx.load(result.folder / "SoccerTwos.onnx")
    inputs = [given.name for given in model.graph.input]
    assert inputs == ["obs_0", "obs_1", "action_masks"]
    for policy in (result.folder, result.folder / "SoccerTwos.onnx"):
        with make(EnvRecipe("scene", "SoccerTwos", 4)) as world:
            actors = load_policies([str(policy)], world.behaviors)
            assert measure(Slots(world), actors, 4, seed=0)


@pytest.mark.parametrize("memory", [None, MEMORY], ids=["plain", "memory"])
def test_a_world_without_the_state_gets_no_values(memory, tmp_path):
    changes = {"behaviors.*.network_settings.memory": memory}
    checkpoint = (
        _train(tmp_path, **changes).folder / "SoccerTwos" / "checkpoint.safetensors"
    )
    for options in ({}, {"state": True}):
        with make(EnvRecipe("scene", "SoccerTwos", 1, options=options)) as world:
            slots = Slots(world)
            name, rows = next(iter(slots.reset(3).items()))
            policy = load_policy(checkpoint, name, slots.behaviors[name]).policy
            outlook = policy.outlook(rows, policy.new_memory())
        assert (outlook.value is None) == (not options)
        probabilities = outlook.probabilities[0].sum(axis=1)
        np.testing.assert_allclose(probabilities, 1.0, rtol=1e-5)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    "changes",
    [
        {"network_settings.normalize": False},
        {"network_settings.normalize": True},
        {"network_settings.memory": MEMORY},
        {"reward_signals.rnd.strength": 0.1, "network_settings.normalize": True},
        {"reward_signals.curiosity.strength": 0.1},
    ],
    ids=["plain", "normalized", "memory", "rnd", "curiosity"],
)
def test_a_run_resumes_bit_for_bit(changes, tmp_path, monkeypatch):
    changes = {f"behaviors.*.{key}": value for key, value in changes.items()}
    whole = _train(tmp_path / "whole", **changes).folder
    collect, count = LocalCollector.collect, []

    def interrupted(self, wanted):
        count.append(1)
        if len(count) == 150:
            raise KeyboardInterrupt
        return collect(self, wanted)

    with monkeypatch.context() as patches:
        patches.setattr(trainer, "RESUME_EVERY_S", 0.0)
        patches.setattr(LocalCollector, "collect", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _train(tmp_path / "cut", **changes)
    _, about = read_arrays(tmp_path / "cut" / "ppo" / "resume.safetensors")
    assert about["behaviors"]["SoccerTwos"]["steps"] > 0  # it does not start over
    changes["checkpoint_settings.resume"] = True
    resumed = _train(tmp_path / "cut", **changes).folder
    for name in ("SoccerTwos.onnx", "SoccerTwos/checkpoint.safetensors"):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.usefixtures("unchecked_shapes")
def test_the_critic_of_a_group_sees_the_state_and_its_policies_do_not(tmp_path):
    keys = SMALL | {"checkpoint_settings.results_dir": str(tmp_path)}
    del keys["behaviors.*.self_play.save_steps"]
    recipe = EnvRecipe("scene", "DungeonEscape", 4)
    folder = trainer.train(read_config("DungeonEscape", (), keys), recipe).folder
    weights = load_file(folder / "DungeonEscape" / "checkpoint.safetensors")
    with make(EnvRecipe("scene", "DungeonEscape", 1, options={"state": True})) as shown:
        (spec,) = shown.behaviors.values()
    assert spec.state_size
    assert weights["critic.member.weight"].shape[1] == spec.observation_size
    with make(EnvRecipe("scene", "DungeonEscape", 1)) as world:
        actors = load_policies([str(folder)], world.behaviors)
        assert measure(Slots(world), actors, 2, seed=0)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("memory", [None, MEMORY], ids=["plain", "memory"])
@pytest.mark.parametrize("target_critics", [False, True])
def test_the_critics_of_sac_see_the_state_and_its_policy_does_not(
    target_critics, memory, tmp_path
):
    block = "behaviors.PushBlock"
    keys = {
        f"{block}.hyperparameters.critic_sees_state": True,
        f"{block}.hyperparameters.target_critics": target_critics,
        f"{block}.hyperparameters.buffer_init_steps": 256,
        f"{block}.hyperparameters.batch_size": 64,
        f"{block}.network_settings.normalize": True,
        f"{block}.network_settings.hidden_units": 8,
        f"{block}.network_settings.memory": memory,
        f"{block}.max_steps": 1000,
        "env_settings.num_areas": 4,
        "checkpoint_settings.results_dir": str(tmp_path),
    }
    recipe = EnvRecipe("scene", "PushBlock", 4)
    folder = trainer.train(read_config("PushBlock_sac", (), keys), recipe).folder
    with make(EnvRecipe("scene", "PushBlock", 1, options={"state": True})) as shown:
        (spec,) = shown.behaviors.values()
    weights = load_file(folder / "PushBlock" / "checkpoint.safetensors")
    seen = [
        w.shape[1]
        for name, w in weights.items()
        if name.startswith("critics.") and w.ndim == 2
    ]
    assert spec.observation_size in seen
    model = onnx.load(folder / "PushBlock.onnx")
    sizes = [i.type.tensor_type.shape.dim[1].dim_value for i in model.graph.input]
    assert spec.state_size not in sizes[:-1]
    with make(EnvRecipe("scene", "PushBlock", 1)) as world:
        actors = load_policies([str(folder / "PushBlock.onnx")], world.behaviors)
        assert measure(Slots(world), actors, 2, seed=0)


def test_default_settings_ask_for_the_state_too(tmp_path):
    block = {"trainer_type": "ppo", "hyperparameters": {"critic_sees_state": True}}
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump({"default_settings": block}))
    recipe = world_of(EnvRecipe("scene", "SoccerTwos"), read_config(str(file)), 3)
    assert recipe.options == {"state": True}


@pytest.mark.parametrize("memory_size", [0, 8])
@pytest.mark.parametrize("shape", [(6,), (3, 20, 20)], ids=["numbers", "picture"])
def test_the_state_moves_values_and_nothing_else(shape, memory_size):
    sensors = (ObservationSpec.vector(5, "own"), ObservationSpec(shape), STATE)
    spec = BehaviorSpec(sensors, ActionSpec(1, (3,)))
    torch.manual_seed(0)
    architecture = Architecture(hidden_units=16, memory_size=memory_size)
    network = make_network(spec, architecture)
    numbers = torch.rand(4, 5 + (shape[0] if len(shape) == 1 else 0) + 4)
    others = () if len(shape) == 1 else (torch.rand(4, *shape),)
    changed = numbers.clone()
    changed[:, -4:] += 1.0  # the state comes last
    sequences = None
    if network.memory_shape is not None:
        sequences = Sequences(torch.tensor([4]), torch.zeros(1, *network.memory_shape))
    before, value = network((numbers, *others), None, sequences)
    after, other_value = network((changed, *others), None, sequences)
    for one, other in zip(before.log_probs, after.log_probs, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(before.mode()[0], after.mode()[0])
    assert (value != other_value).all()


def test_a_world_that_has_no_state_is_refused(tmp_path):
    with pytest.raises(UsageError, match="scene Basic: it has no state to show"):
        _train(tmp_path, "Basic")


def test_all_behaviors_of_a_run_see_the_state_or_none(tmp_path):
    key = "behaviors.Goalie.hyperparameters.critic_sees_state"
    with pytest.raises(UsageError, match=r"Goalie.*all behaviors or none"):
        _train(tmp_path, "StrikersVsGoalie", **{key: False})


@pytest.mark.parametrize("force", [False, True])
def test_players_are_refused_and_an_earlier_run_stays(force, tmp_path):
    keys = SMALL | {
        "checkpoint_settings.results_dir": str(tmp_path),
        "checkpoint_settings.force": force,
    }
    if force:
        earlier = tmp_path / "ppo"
        earlier.mkdir()
        (earlier / "configuration.yaml").write_text("kept")
        (earlier / "resume.safetensors").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    config = read_config("SoccerTwos", (), keys)
    with pytest.raises(UsageError, match="only scenes can show their state"):
        trainer.train(config, EnvRecipe("unity", "game.x86_64"))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("hyperparameters.shared_critic", True, "shared_critic"),
        ("behavioral_cloning", {"demo_path": "x.demo"}, "behavioral_cloning"),
    ],
)
def test_what_does_not_go_with_it_is_refused_when_the_file_is_read(key, value, named):
    changes = {
        "behaviors.SoccerTwos.hyperparameters.critic_sees_state": True,
        f"behaviors.SoccerTwos.{key}": value,
    }
    with pytest.raises(UsageError, match=rf"{named}.*critic_sees_state"):
        read_config("SoccerTwos", (), changes)


def test_cloning_does_not_go_with_it_in_groups_either():
    block = "behaviors.DungeonEscape"
    changes = {
        f"{block}.hyperparameters.critic_sees_state": True,
        f"{block}.behavioral_cloning": {"demo_path": "x.demo"},
    }
    with pytest.raises(UsageError, match=r"behavioral_cloning.*critic_sees_state"):
        read_config("DungeonEscape", (), changes)
