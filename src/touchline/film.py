"""Films of a policy at play, drawn by the scene itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np

from touchline.envs.env import Env
from touchline.envs.scene_env import SceneEnv
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.policies.policy import load_policies

SLOWEST_FPS, FASTEST_FPS = 5, 50
"""A scene that decides at every step is slowed down to what an eye can follow."""


def film(
    env: Env,
    sources: Sequence[str],
    path: Path,
    *,
    seconds: float = 20.0,
    area: int = 0,
    size: tuple[int, int] = (640, 480),
    deterministic: bool = False,
    seed: int = 0,
) -> None:
    """Film one area for so many seconds of simulated time, one picture per physics step, into an mp4 file.

    `size` is (width, height); video wants even numbers. Raises a UsageError for a world that cannot be drawn.
    """
    if not isinstance(env, SceneEnv):
        raise UsageError("only embedded scenes can be recorded: a Unity player draws in its own window")
    if path.suffix != ".mp4":
        raise UsageError(f"{path}: expected a file name that ends in .mp4")
    width, height = (n + n % 2 for n in size)
    slots = Slots(env)
    rows = slots.reset(seed)
    policies = load_policies(sources, slots.behaviors, deterministic=deterministic, seed=seed)
    physics_fps = 1.0 / env.scene.seconds_per_step
    fps = SLOWEST_FPS if env.scene.academy.decision_period == 1 else min(physics_fps, FASTEST_FPS)
    first = env.render(area, width, height)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer: Any = imageio_ffmpeg.write_frames(
        str(path), (width, height), fps=fps, macro_block_size=2, output_params=["-loglevel", "error"]
    )
    writer.send(None)
    frames = [first]
    steps_per_frame = max(1, round(physics_fps / fps)) if fps != SLOWEST_FPS else 1
    with env.watched(lambda: frames.append(env.render(area, width, height)), every=steps_per_frame):
        try:
            remaining = round(seconds * fps)
            while remaining > 0:
                for frame in frames[:remaining]:
                    writer.send(np.ascontiguousarray(frame))
                remaining -= len(frames)
                frames.clear()
                rows = slots.step({name: policies[name].act(slots.behaviors[name], row) for name, row in rows.items()})
        finally:
            writer.close()
