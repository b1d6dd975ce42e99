"""Films of a policy at play, drawn by the environment itself."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from touchline.envs.env import Drawable, Env, EnvRecipe, Watchable, make
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.flag import Flag
from touchline.log import Progress, no_progress
from touchline.operating_systems import remove_file, replace_file
from touchline.policies.loading import PolicySource, as_trained, load_sides, sources_in
from touchline.scenes import MOST_AREAS
from touchline.training.demonstrations import read_demonstration
from touchline.whole import PART, require_writable

PICTURES_PER_SECOND = 10.0
"""Rate for a film of observations: a usual rate of decisions."""
PICTURE_HEIGHT = 336
"""Roughly, in pixels: observed pictures are small, so they are enlarged."""


def play(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource],
    *,
    versus: PolicySource | Sequence[PolicySource] | None = None,
    area: Annotated[int, Flag(min=0)] = 0,
    size: tuple[int, int] = (640, 480),
    record: Annotated[Path | str | None, Flag(metavar="FILE.mp4")] = None,
    seconds: Annotated[float, Flag(min=0.1)] = 20.0,
    deterministic: bool = False,
    progress: Progress = no_progress,
) -> None:
    """Watch a policy play: film a scene, or run a Unity player in its window at normal speed.

    Parameters
    ----------
    area
        Which area to film.
    size
        (width, height) of the film or the window in pixels.
    record
        The film to write; not needed for a Unity player, which has a window.
    seconds
        Length of the film, in simulated time.
    progress
        Called often with the pictures of the film that are done, and their total.

    Raises
    ------
    UsageError
        The world cannot be opened or filmed, or a policy cannot be loaded or does not fit.

    Notes
    -----
    A Unity player plays for `seconds` of real time. The seed is that of the recipe.
    """
    sources, others = sources_in(policy), sources_in(versus or ())
    recipe = as_trained(EnvRecipe.parse(env), [*sources, *others])
    _check_record(recipe, record)
    if not 0 <= area < MOST_AREAS:
        raise UsageError(f"--area: expected 0 to {MOST_AREAS - 1:,}, got {area}")
    if not math.isfinite(seconds):
        raise UsageError(f"--seconds: expected a finite number, got {seconds:g}")
    if record is None:
        with make(recipe.at_natural_pace(*size)) as world:
            slots = Slots(world)
            rows = slots.reset(recipe.seed)
            actors = load_sides(
                sources,
                others,
                slots,
                "this player",
                deterministic=deterministic,
                seed=recipe.seed,
            )
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                actions = {name: actors[name].act(row) for name, row in rows.items()}
                rows = slots.step(actions)
        return
    num_areas = max(recipe.num_areas or 0, area + 1)  # counted from 0
    with make(replace(recipe, num_areas=num_areas)) as world:
        film(
            world,
            sources,
            Path(record),
            versus=others,
            seconds=seconds,
            area=area,
            size=size,
            deterministic=deterministic,
            seed=recipe.seed,
            progress=progress,
        )


def film_demonstration(
    path: str | os.PathLike[str], to: str | os.PathLike[str]
) -> None:
    """What the cameras of a demonstration saw, as an mp4 file `to`, side by side, ten actions per
    second.

    Raises a UsageError that names the file, also where its agents had no camera: a demonstration
    holds what agents observed and not the world, which therefore cannot be drawn.
    """
    cameras = read_demonstration(os.fspath(path)).pictures()
    if not cameras:
        raise UsageError(
            f"{path}: its agents observe no pictures, and a demonstration holds nothing else of "
            "the world, so there is nothing to film"
        )
    _check_file(Path(to))
    height = max(camera.shape[2] for camera in cameras)
    scale = max(1, round(PICTURE_HEIGHT / height))
    height += height * scale % 2  # video needs even lengths
    shown = []
    for camera in cameras:
        # Unless three channels make up each picture, they are gray; of stacked ones the latest
        # are shown.
        is_gray = camera.shape[1] % 3 > 0
        colors = camera[:, -1:].repeat(3, 1) if is_gray else camera[:, -3:]
        above = (
            (0, 0),
            (0, 0),
            (height - camera.shape[2], 0),
            (0, camera.shape[3] % 2),
        )
        shown.append(np.pad(colors, above))
    joined = np.concatenate(shown, axis=3).transpose(0, 2, 3, 1)  # [R, H, W, 3]
    pictures = np.clip(joined * 255 + 0.5, 0, 255).astype(np.uint8)
    size = (pictures.shape[2] * scale, pictures.shape[1] * scale)
    with _open_video(Path(to), size, PICTURES_PER_SECOND) as video:
        for picture in pictures:
            _write(video, [picture.repeat(scale, axis=0).repeat(scale, axis=1)])


def _check_record(recipe: EnvRecipe, record: Path | str | None) -> None:
    """Scenes need a file to be filmed into; players have a window instead, recordings neither."""
    if recipe.kind.is_replay:
        raise UsageError(
            f"{recipe.target}: a recording has no picture; touchline view shows what its agents "
            "observed"
        )
    if recipe.kind.is_player and record is not None:
        raise UsageError(
            f"{recipe.target} draws in its own window and cannot be recorded from here; "
            "leave --record away"
        )
    if not recipe.kind.is_player and record is None:
        raise UsageError(
            f"{recipe.target} has no window: say where to film it, --record FILE.mp4"
        )
    if record is not None:
        _check_file(Path(record))


def film(
    env: Env,
    sources: Sequence[str],
    path: Path,
    *,
    versus: Sequence[str] = (),
    seconds: float = 20.0,
    area: int = 0,
    size: tuple[int, int] = (640, 480),
    deterministic: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> None:
    """Film one area into an mp4 file while policies play.

    `sources` and `versus` are policies as `load_sides` takes them, `seconds` are of simulated time,
    `size` is (width, height) in pixels; `progress` counts pictures. Raises a UsageError for an
    environment that cannot be drawn, or a file that cannot be written or has another ending.
    """
    if not (isinstance(env, Watchable) and isinstance(env, Drawable)):
        raise UsageError(
            "this world cannot be recorded: it draws in a window of its own, or not at all; "
            "leave --record away"
        )
    _check_file(path)
    # Video needs even lengths.
    width, height = (length + length % 2 for length in size)
    slots = Slots(env)
    rows = slots.reset(seed)
    actors = load_sides(
        sources, versus, slots, "this world", deterministic=deterministic, seed=seed
    )
    frames_per_second, steps_per_frame = env.film_rate
    # Drawn before the file is made, so that an environment that cannot draw leaves no file behind.
    frames = [env.render(area, width, height)]

    def take_frame() -> None:
        frames.append(env.render(area, width, height))

    # A film of no time shows one picture.
    total = remaining = max(1, round(seconds * frames_per_second))
    with (
        _open_video(path, (width, height), frames_per_second) as video,
        env.watched(take_frame, every=steps_per_frame),
    ):
        while remaining > 0:
            _write(video, frames[:remaining])
            remaining -= len(frames)
            frames.clear()
            progress(total - remaining, total)
            # One exchange can be several frames long, or shorter than one.
            actions = {name: actors[name].act(row) for name, row in rows.items()}
            rows = slots.step(actions)


def _check_file(path: Path) -> None:
    if path.suffix != ".mp4":
        raise UsageError(f"{path}: expected a file name that ends in .mp4")
    require_writable(path)


@contextmanager
def _open_video(
    path: Path, size: tuple[int, int], frames_per_second: float
) -> Iterator[Any]:
    """A video that takes frames; the file is there, and replaces another, when the context ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # ffmpeg goes by the ending. A name such as -x.mp4 or a:b.mp4 it takes for something else.
    part = path.absolute().with_name(f"{path.stem}{PART}{path.suffix}")
    video: Any = imageio_ffmpeg.write_frames(
        str(part),
        size,
        fps=frames_per_second,
        # Of 16 by default, which would scale most pictures; H.264 needs only even lengths.
        macro_block_size=2,
        output_params=["-loglevel", "error"],
    )
    video.send(None)  # the generator starts ffmpeg and waits for the first frame
    try:
        yield video
        video.close()
        replace_file(part, path)
    finally:
        video.close()
        remove_file(part)


def _write(video: Any, frames: Sequence[NDArray[np.uint8]]) -> None:
    for frame in frames:
        video.send(np.ascontiguousarray(frame))
