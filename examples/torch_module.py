"""A policy that nothing trained, as a torch module for Unity: a rule that balances 3DBall's ball.

    python examples/torch_module.py --onnx balancer.onnx

Any torch module goes the same way. It takes one tensor for each sensor and returns the continuous
actions; what else it may take and return is in `docs/any_policy.md`.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import touchline

POSITION, VELOCITY, ROTATION = 0.5, 1.0, 3.0
"""Gains, chosen by trial."""


class Balancer(nn.Module):
    """Tilts the platform against where the ball is and goes, and back to level."""

    def forward(self, ball: Tensor) -> Tensor:
        # What the agent observes: rotation about z and x, the ball's position and its velocity.
        rotation_z, rotation_x, x, _, z, speed_x, _, speed_z = ball.unbind(dim=1)
        about_z = POSITION * x + VELOCITY * speed_x - ROTATION * rotation_z
        about_x = -POSITION * z - VELOCITY * speed_z - ROTATION * rotation_x
        return torch.stack([about_z, about_x], dim=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--onnx", type=Path, default=Path("balancer.onnx"))
    parser.add_argument("--episodes", type=int, default=24)
    arguments = parser.parse_args()
    with touchline.make("3DBall") as world:
        spec = world.behaviors["3DBall?team=0"]
    touchline.export_policy(Balancer(), spec, arguments.onnx)
    figures = touchline.evaluate("3DBall", arguments.onnx, episodes=arguments.episodes)
    print(f"{arguments.onnx}: return {figures['mean_return']:.2f}")
