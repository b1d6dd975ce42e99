"""Writes networks of official ML-Agents 1.1.0 with random weights, and what they compute.

    .venv-official-learn/bin/python tests/interop/official_networks.py tests/policies/files/official

Each is a `.pt` checkpoint in the form of `TorchModelSaver`, the `.onnx` of `ModelSerializer`, and a
`.npz` with observations and the network's outputs for them. Run by the Python that has `mlagents`.
"""

import functools
import sys
from pathlib import Path

import numpy as np
import torch
from mlagents.trainers.policy.torch_policy import TorchPolicy
from mlagents.trainers.settings import EncoderType, NetworkSettings
from mlagents.trainers.torch_entities.model_serialization import ModelSerializer
from mlagents.trainers.torch_entities.networks import (
    SharedActorCritic,
    SimpleActor,
    ValueNetwork,
)
from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)

# As in `bench/official/learn.py`.
torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)

ROWS = 7
MEMORY = NetworkSettings.MemorySettings(sequence_length=4, memory_size=8)
CASES = {
    "vectors": ([(5,), (3,)], (2, ()), {"num_layers": 2, "normalize": True}),
    "hybrid": ([(4,)], (1, (3, 2)), {"num_layers": 3}),
    "image_first": (
        [(1, 20, 20), (4,)],
        (0, (3,)),
        {"num_layers": 1, "normalize": True},
    ),
    "memory": ([(6,)], (0, (4,)), {"num_layers": 1, "memory": MEMORY}),
    "shared": ([(3,), (2,)], (2, ()), {"num_layers": 1, "normalize": True}),
}
"""Sensors, actions, and network settings besides hidden_units 8."""
SIGNALS = ["extrinsic", "curiosity"]


def behavior_spec(shapes, actions):
    sensors = [
        ObservationSpec(
            shape,
            (DimensionProperty.NONE,) * len(shape)
            if len(shape) == 1
            else (DimensionProperty.NONE,)
            + (DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,) * 2,
            ObservationType.DEFAULT,
            f"sensor {shape}",
        )
        for shape in shapes
    ]
    return BehaviorSpec(sensors, ActionSpec(actions[0], actions[1]))


def scramble(module):
    """Every weight and every statistic of a normalizer, other than as they start."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn_like(parameter)


def write(name, folder):
    shapes, actions, settings = CASES[name]
    spec = behavior_spec(shapes, actions)
    network = NetworkSettings(
        hidden_units=8, vis_encode_type=EncoderType.SIMPLE, **settings
    )
    is_shared = name == "shared"
    actor_class = SharedActorCritic if is_shared else SimpleActor
    kwargs = {"conditional_sigma": False, "tanh_squash": False}
    if is_shared:
        kwargs["stream_names"] = SIGNALS
    policy = TorchPolicy(1, spec, network, actor_class, kwargs)
    actor = policy.actor
    critic = (
        actor if is_shared else ValueNetwork(SIGNALS, spec.observation_specs, network)
    )
    for module in {actor, critic}:
        scramble(module)
    obs = [torch.randn(ROWS, *shape) for shape in shapes]
    for encoder in actor.network_body.observation_encoder.processors:
        if getattr(encoder, "normalizer", None) is not None:
            size = encoder.normalizer.running_mean.shape[0]
            encoder.normalizer.update(2.0 + 3.0 * torch.randn(50, size))
    critic.network_body.copy_normalization(actor.network_body)
    modules = {
        "Policy": actor,
        "global_step": policy.global_step,
        "Optimizer:critic": critic,
    }
    torch.save(
        {key: module.state_dict() for key, module in modules.items()},
        folder / f"{name}.pt",
    )
    ModelSerializer(policy).export_policy_model(str(folder / name))
    found = computed(actor, critic, obs, network.memory is not None)
    found |= {f"obs_{i}": part.numpy() for i, part in enumerate(obs)}
    np.savez(folder / f"{name}.npz", **found)


def computed(actor, critic, obs, has_memory):
    """Means and logits [ROWS, P], log_std [C], values [ROWS, S]; memories of actor and critic."""
    found = {}
    kept = [None, None]
    if has_memory:
        kept = [torch.randn(1, ROWS, 8) for _ in range(2)]
        found |= {
            "actor_memory": kept[0][0].numpy(),
            "critic_memory": kept[1][0].numpy(),
        }
    with torch.no_grad():
        encoding, after = actor.network_body(obs, memories=kept[0])
        model, outputs = actor.action_model, []
        if model._continuous_distribution is not None:
            outputs.append(model._continuous_distribution.mu(encoding))
            found["log_std"] = model._continuous_distribution.log_sigma[0].numpy()
        if model._discrete_distribution is not None:
            outputs += [b(encoding) for b in model._discrete_distribution.branches]
        values, critic_after = critic.critic_pass(obs, memories=kept[1])
    if has_memory:
        found |= {
            "actor_memory_after": after[0].numpy(),
            "critic_memory_after": critic_after[0].numpy(),
        }
    found["outputs"] = torch.cat(outputs, dim=1).numpy()
    found["values"] = torch.stack([values[s] for s in SIGNALS], dim=1).numpy()
    return found


if __name__ == "__main__":
    torch.manual_seed(0)
    for case in CASES:
        write(case, Path(sys.argv[1]))
