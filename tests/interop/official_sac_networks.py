"""Writes SAC's networks of official ML-Agents 1.1.0 with random weights, and what they compute.

    .venv-official-learn/bin/python tests/interop/official_sac_networks.py \\
        tests/policies/files/official

Each is a `.pt` checkpoint with the modules that `TorchModelSaver` puts in it, the `.onnx` of
`ModelSerializer`, and a `.npz` with observations, actions and the networks' outputs for them. Run
by the Python that has `mlagents`.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from mlagents.trainers.policy.torch_policy import TorchPolicy
from mlagents.trainers.sac.optimizer_torch import SACSettings, TorchSACOptimizer
from mlagents.trainers.settings import EncoderType, NetworkSettings, TrainerSettings
from mlagents.trainers.torch_entities.model_serialization import ModelSerializer
from mlagents.trainers.torch_entities.networks import SimpleActor
from official_networks import MEMORY, ROWS, behavior_spec, scramble

CASES = {
    "sac_vectors": ([(5,), (3,)], (2, ()), {"num_layers": 2, "normalize": True}),
    "sac_hybrid": ([(4,)], (1, (3, 2)), {"num_layers": 1}),
    "sac_image_first": (
        [(1, 20, 20), (4,)],
        (2, (3,)),
        {"num_layers": 1, "normalize": True},
    ),
    "sac_memory": ([(6,)], (0, (4,)), {"num_layers": 1, "memory": MEMORY}),
}
"""Sensors, actions, and network settings besides hidden_units 8."""


def write(name, folder):
    shapes, actions, settings = CASES[name]
    network = NetworkSettings(
        hidden_units=8, vis_encode_type=EncoderType.SIMPLE, **settings
    )
    trainer = TrainerSettings(
        trainer_type="sac", hyperparameters=SACSettings(), network_settings=network
    )
    kwargs = {"conditional_sigma": True, "tanh_squash": True}
    spec = behavior_spec(shapes, actions)
    policy = TorchPolicy(1, spec, network, SimpleActor, kwargs)
    optimizer = TorchSACOptimizer(policy, trainer)
    actor = policy.actor
    critics = [optimizer._critic, optimizer.target_network]
    for module in (actor, optimizer.q_network, *critics):
        scramble(module)
    for encoder in actor.network_body.observation_encoder.processors:
        if getattr(encoder, "normalizer", None) is not None:
            size = encoder.normalizer.running_mean.shape[0]
            encoder.normalizer.update(2.0 + 3.0 * torch.randn(50, size))
    bodies = [optimizer.q_network.q1_network, optimizer.q_network.q2_network, *critics]
    for module in bodies:
        module.network_body.copy_normalization(actor.network_body)
    modules = {"Policy": actor, "global_step": policy.global_step}
    modules |= optimizer.get_modules()
    torch.save(
        {key: module.state_dict() for key, module in modules.items()},
        folder / f"{name}.pt",
    )
    ModelSerializer(policy).export_policy_model(str(folder / name))
    obs = [torch.randn(ROWS, *shape) for shape in shapes]
    found = computed(actor, optimizer, obs, actions[0], network.memory is not None)
    found |= {f"obs_{i}": part.numpy() for i, part in enumerate(obs)}
    np.savez(folder / f"{name}.npz", **found)


def computed(actor, optimizer, obs, size, has_memory):
    """Means, logarithms of spreads and logits [ROWS, P]; q1 and q2 [ROWS, choices] of an action;
    values of the value network and its target [ROWS, 1]. Memories are empty before.
    """
    memories = torch.zeros(1, ROWS, 8) if has_memory else None
    action = torch.tanh(torch.randn(ROWS, size)) if size else None
    with torch.no_grad():
        encoding, _ = actor.network_body(obs, memories=memories)
        model, outputs = actor.action_model, []
        if model._continuous_distribution is not None:
            normal = model._continuous_distribution
            outputs += [normal.mu(encoding), normal.log_sigma(encoding)]
        if model._discrete_distribution is not None:
            outputs += [b(encoding) for b in model._discrete_distribution.branches]
        q1, q2 = optimizer.q_network(obs, action, memories=memories)
        value, _ = optimizer._critic.critic_pass(obs, memories=memories)
        target, _ = optimizer.target_network(obs, memories=memories)
    return {
        "outputs": torch.cat(outputs, dim=1).numpy(),
        "action": np.zeros((ROWS, 0), np.float32) if action is None else action.numpy(),
        "q1": q1["extrinsic"].reshape(ROWS, -1).numpy(),
        "q2": q2["extrinsic"].reshape(ROWS, -1).numpy(),
        "value": value["extrinsic"].reshape(ROWS, 1).numpy(),
        "target": target["extrinsic"].reshape(ROWS, 1).numpy(),
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    for case in CASES:
        write(case, Path(sys.argv[1]))
