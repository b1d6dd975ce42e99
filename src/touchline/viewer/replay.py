"""A replay to send: one file that any browser opens, without Python or a network.

viser's own client plays it: play, pause, scrub, speed, and a camera that orbits. The page's scene
is drawn as always, by the `Stage`, while viser records the messages that a page would get.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from touchline.drawing.tableau import Tableau
from touchline.envs.env import EnvRecipe, make
from touchline.envs.scene_env import SceneEnv
from touchline.envs.slots import Slots
from touchline.errors import NotDrawableError, UsageError
from touchline.log import Progress
from touchline.policies.policy import SlotActor
from touchline.viewer.scoreboard import Scoreboard
from touchline.viewer.server import LOOPBACK, STILL_CAMERA, close_server, open_server
from touchline.viewer.simulation import new_returns, no_returns
from touchline.viewer.stage import WIDE, Stage, camera_of
from touchline.whole import write_whole

MOST_BYTES = 20_000_000
"""What mail and the cards of hubs still take."""
FRAMES_PER_S = 25.0
"""At most: half of what films have, for half the bytes."""

_CAPTION = (
    '<div style="position:fixed;top:0;left:0;z-index:9;padding:6px 10px;pointer-events:none;'
    'font:13px sans-serif;color:#222;background:rgba(255,255,255,.7)">{}</div>'
)


def save_replay(
    recipe: EnvRecipe,
    load: Callable[[Slots], Mapping[str, SlotActor]],
    path: Path,
    caption: str,
    seconds: float,
    progress: Progress,
) -> None:
    """Let a scene's policies play for so many seconds, and write what there is to see.

    `caption` stands on the page. Raises a UsageError where there is no picture, or for a file that
    would be larger than `MOST_BYTES`.
    """
    # Not the scene's own number: all areas are shown, and each adds to the file.
    recipe = replace(recipe, num_areas=recipe.num_areas or 1)
    with make(recipe) as env:
        assert isinstance(env, SceneEnv), "worlds without a picture are refused before"
        try:
            tableaux = _tableaux(env)
        except NotDrawableError as error:
            raise UsageError(f"--save: {error}") from error
        server = open_server(LOOPBACK, 0, env.scene.name)
        try:
            stage = Stage(server)
            stage.show(tableaux)
            first = next(iter(tableaux.values()))
            places = list(stage.places.values())
            view = camera_of(first.camera, places, WIDE, stage.size_m)
            stage.look(server.initial_camera, view)
            page = _recorded(env, load, stage, seconds, progress, recipe.seed)
        finally:
            close_server(server)
    text = html.escape(caption)
    page = page.replace("<title>Viser</title>", f"<title>{text}</title>", 1)
    start, end, rest = page.rpartition("</body>")
    added = f"{_CAPTION.format(text)}<script>{STILL_CAMERA}</script>"
    data = "".join([start, added, end, rest]).encode()
    if len(data) > MOST_BYTES:
        raise UsageError(
            f"{path}: {seconds:g} s take {len(data) / 1e6:.0f} MB, more than "
            f"{MOST_BYTES / 1e6:.0f}: give fewer --seconds or --num-areas"
        )
    write_whole(path, data)


def _recorded(
    env: SceneEnv,
    load: Callable[[Slots], Mapping[str, SlotActor]],
    stage: Stage,
    seconds: float,
    progress: Progress,
    seed: int,
) -> str:
    """Play, and return the page that shows it again."""
    slots = Slots(env)
    rows = slots.reset(seed)
    actors = load(slots)
    per_second, every = env.film_rate
    skipped = max(1, math.ceil(per_second / FRAMES_PER_S))
    total = max(1, round(seconds * per_second / skipped))
    board = Scoreboard(env.scene.team_names)
    returns = no_returns(rows)
    count = 0
    stage.score(f"0.0 s · {board}")
    recording = stage.server.get_scene_serializer()

    def look() -> None:
        nonlocal count
        # The last exchange may have more rounds than are wanted.
        if count == total:
            return
        recording.insert_sleep(skipped / per_second)
        count += 1
        stage.show(_tableaux(env))
        stage.score(f"{count * skipped / per_second:.1f} s · {board}")

    with env.watched(look, every * skipped):
        while count < total:
            actions = {name: actors[name].act(row) for name, row in rows.items()}
            before, rows = rows, slots.step(actions)
            time_s = count * skipped / per_second
            board = board.after(slots, before, returns, rows, f"{time_s:.1f} s")
            returns = new_returns(returns, rows)
            progress(count, total)
    return str(recording.as_html())


def _tableaux(env: SceneEnv) -> dict[int, Tableau]:
    return {area: env.tableau(area) for area in range(env.num_areas)}
