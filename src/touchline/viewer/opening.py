"""A world, the policies that play in it, and a page that shows them, opened together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from touchline.envs.env import Env, EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.errors import NotDrawableError, TouchlineError, UsageError
from touchline.flag import Flag
from touchline.log import Log, Progress, no_progress
from touchline.operating_systems import quoted
from touchline.policies.files.run_layout import RunLayout, has_runs, run_of
from touchline.policies.loading import PolicySource, as_trained, load_sides, sources_in
from touchline.policies.policy import SlotActor
from touchline.viewer.keys import keys_of
from touchline.viewer.page import Page
from touchline.viewer.run_panel import StillStartingError, sources_of, world_of
from touchline.viewer.server import (
    LOOPBACK,
    address_of,
    close_server,
    is_loopback,
    open_server,
)
from touchline.viewer.sheet import text_html
from touchline.viewer.simulation import Simulation
from touchline.whole import require_writable

if TYPE_CHECKING:
    from touchline.viewer.scene_page import ScenePage

LOOK_S = 1.0
"""Between two looks whether a run has started."""
Load = Callable[..., Mapping[str, SlotActor]]
"""Actors for the behaviors of these slots, from the sources of the call or from others."""


@dataclass(frozen=True)
class ViewOptions:
    """Where the page is, and how the policies act."""

    host: str = LOOPBACK
    port: int = 8080
    """0: any that is free."""
    versus: Sequence[str] = ()
    """The policy of the other teams; otherwise all teams play by the same one."""
    deterministic: bool = False
    record: Path | None = None
    """The .demo file for what people play; without, they can download it."""
    log: Log = print
    """Gets what a saved demonstration holds."""
    run: Path | None = None
    """The training run whose newest checkpoint plays; `sources` are its checkpoints then."""


DEFAULTS = ViewOptions()


def view(
    env: str | EnvRecipe,
    policy: PolicySource | Sequence[PolicySource] = "random",
    *,
    port: Annotated[int, Flag(min=0, max=65535)] = 8080,
    host: str = "127.0.0.1",
    versus: PolicySource | Sequence[PolicySource] | None = None,
    record: Annotated[Path | str | None, Flag(metavar="FILE.demo")] = None,
    save: Annotated[Path | str | None, Flag(metavar="FILE.html")] = None,
    seconds: Annotated[float, Flag(min=0.1)] = 20.0,
    deterministic: bool = False,
    about_world: Mapping[str, Any] | None = None,
    log: Log = print,
    progress: Progress = no_progress,
) -> None:
    """Open a page in the browser on which a scene plays: watch in 3-D, pause, step, go back.

    ENV is a scene's name, or the folder of a run, whose newest checkpoint plays; of several seeds
    or trials, the best by evaluation. Of a Unity player or a recording the page shows what agents
    observe and do.

    Parameters
    ----------
    policy
        A run folder, a checkpoint, an ONNX file, `random` (the default), `zero`, or `greedy`
        (Match3). Repeat it for several behaviors.
    port
        Port; 0: any.
    host
        Address to listen on. With any but the default, whoever has the token in the address that
        is shown can watch and control the simulation.
    record
        Record what you play in place of an agent into this file; where it is there already, into
        one with a number behind its name.
    save
        Write a replay into this file instead of opening a page: it opens in any browser, without
        Python or a network.
    seconds
        Length of the replay, in simulated time.
    about_world
        Of a run: `seed`, `num_areas` and `parameters` of its world, as `EnvRecipe` has them.
    log
        Gets the page's address, why there is no picture where there is none, and what was saved.
    progress
        Called often with the pictures of the replay that are done, and their total.

    Raises
    ------
    UsageError
        A policy cannot be loaded or does not fit, the port is in use, the world cannot be opened,
        the name of the recording does not end in `.demo`, or that of the replay in `.html`.

    Notes
    -----
    The call returns at Ctrl-C. Without `record`, the page offers what people play for download. The
    seed and the number of areas are those of the recipe.
    """
    if not math.isfinite(seconds):
        raise UsageError(f"--seconds: expected a finite number, got {seconds:g}")
    sources, others = sources_in(policy), sources_in(versus or ())
    run = run_of(Path(env), log) if isinstance(env, str) and has_runs(env) else None
    about = about_world or {}
    if run is None:
        recipe = EnvRecipe.parse(env, **about)
    else:
        # The default counts as not given: a call that names it looks the same here.
        if sources != ["random"]:
            raise UsageError(
                f"{run}: a run plays its own checkpoints; leave --policy away, or name its scene"
            )
        (where, sources), port = _until_started(run, host, port, log)
        recipe = EnvRecipe(*where, **about)
        if recipe.kind.is_player:
            # The run may be a copy of another person's, and its files name the program.
            raise UsageError(
                f"{run}: it learned with {recipe.target}, which no file of a run starts; start it "
                f"yourself: touchline view {quoted(recipe.target)} --policy {quoted(str(run))}"
            )
    recipe = as_trained(recipe.at_natural_pace(640, 480), [*sources, *others])
    path = None if record is None else Path(record)
    options = ViewOptions(host, port, others, deterministic, path, log, run)
    if save is not None:
        _save(recipe, sources, options, Path(save), seconds, progress)
        log(f"wrote {save}")
        return
    with opened(recipe, sources, options) as page:
        log(f"open {address_of(host, page.port)} in a browser; Ctrl-C ends")
        if page.limits:
            log(page.limits)
        if not is_loopback(host):
            log("whoever has this address can watch and control the simulation")
        page.simulation.join()


def _until_started(
    run: Path, host: str, port: int, log: Log
) -> tuple[tuple[tuple[str, str], list[str]], int]:
    """The world and the checkpoints of a run as soon as it has some, and the port to use then.

    Until then, a page on this address says why there is nothing to see; it continues as the page of
    the run, because browsers connect again.
    """
    try:
        return (world_of(run), sources_of(run)), port
    except StillStartingError as error:
        reason = str(error)
    server = open_server(host, port, "Touchline · waiting")
    # Of port 0, the one that was found: the run's page must be where browsers connect again.
    port = int(server.get_port())
    try:
        server.gui.add_html(text_html(f"{reason}. The page begins by itself then."))
        log(f"{reason}; waiting for it on {address_of(host, port)}, Ctrl-C ends")
        while True:
            time.sleep(LOOK_S)
            with suppress(StillStartingError):
                return (world_of(run), sources_of(run)), port
    finally:
        close_server(server)


@contextmanager
def opened(
    recipe: EnvRecipe, sources: Sequence[str], options: ViewOptions = DEFAULTS
) -> Iterator[Page]:
    """The page while it is open; the world plays in a thread of its own.

    `sources` are policies as `load_policies` takes them. A scene is shown in 3-D; other worlds, and
    a scene without tableau, by their agents' observations. Raises a UsageError for a port in use,
    or a policy that fits no behavior.
    """
    _check_record(recipe, options)
    load = _loader(recipe, sources, options)
    with make(recipe) as env:
        page = _page_of(env, recipe, options, load)
        page.start()
        farewell = "It goes on here when it is started again."
        try:
            yield page
        except TouchlineError as error:
            farewell = str(error)
            raise
        finally:
            page.close(farewell)


def _loader(recipe: EnvRecipe, sources: Sequence[str], options: ViewOptions) -> Load:
    def load(slots: Slots, chosen: Sequence[str] = sources) -> Mapping[str, SlotActor]:
        return load_sides(
            with_critics(chosen),
            with_critics(options.versus),
            slots,
            recipe.target,
            deterministic=options.deterministic,
            seed=recipe.seed,
        )

    return load


def with_critics(sources: Sequence[str]) -> list[str]:
    """These policies, with the checkpoints of runs in place of their models for Unity.

    Those have no value to show. Without torch, and of a run of several behaviors, models play.
    """
    if find_spec("torch") is None:
        return list(sources)
    chosen = []
    for source in sources:
        folder = Path(source)
        with suppress(UsageError):
            if folder.is_dir():
                source = str(RunLayout(run_of(folder, lambda _: None)).checkpoint())
        chosen.append(source)
    return chosen


def _save(
    recipe: EnvRecipe,
    sources: Sequence[str],
    options: ViewOptions,
    path: Path,
    seconds: float,
    progress: Progress,
) -> None:
    """Write a replay; mistakes are found before anything plays."""
    if path.suffix != ".html":
        raise UsageError(f"--save {path}: expected a file name that ends in .html")
    if options.record is not None:
        raise UsageError(
            "--save plays by policies alone, and --record by hand: give one"
        )
    if not recipe.kind.is_scene:
        raise UsageError(f"--save: {recipe.target} is not a scene and has no picture")
    require_writable(path)
    from touchline.viewer.replay import save_replay

    # The file is sent to others, whom folders of this machine do not concern.
    sides = [
        ", ".join(Path(*Path(source).parts[-2:]).as_posix() for source in side)
        for side in (sources, options.versus)
        if side
    ]
    caption = f"{recipe.target} · {' against '.join(sides)} · seed {recipe.seed}"
    load = _loader(recipe, sources, options)
    save_replay(recipe, load, path, caption, seconds, progress)


def _check_record(recipe: EnvRecipe, options: ViewOptions) -> None:
    if options.record is None:
        return
    if not recipe.kind.is_scene:
        raise UsageError(
            f"--record: {recipe.target} cannot be played by hand, only a scene can; to record a "
            "policy, use `touchline record`"
        )
    if not keys_of(recipe.target):
        raise UsageError(
            f"--record: {recipe.target} has no keys to play it with; to record a policy, use "
            "`touchline record`"
        )
    # Like all that plays scenes, it needs more than the extra of this page.
    from touchline.training.recording import check_name

    check_name(options.record)
    require_writable(options.record)


def _page_of(env: Env, recipe: EnvRecipe, options: ViewOptions, load: Load) -> Page:
    """The page that fits a world, which is not playing yet."""
    why = "players and recordings send no picture"
    if recipe.kind.is_scene:
        try:
            return _scene_page(env, recipe, options, load)
        except NotDrawableError as error:
            why = str(error)
    simulation = Simulation(env, load, seed=recipe.seed)
    return Page(simulation, options.host, options.port, recipe.target, why)


def _scene_page(
    env: Env, recipe: EnvRecipe, options: ViewOptions, load: Load
) -> ScenePage:
    # Imported late, because players and recordings are shown without the extra of scenes.
    from touchline.envs.scene_env import SceneEnv, open_scene
    from touchline.viewer.run_panel import RunPanel
    from touchline.viewer.scene_page import ScenePage
    from touchline.viewer.scene_simulation import SceneSimulation

    assert isinstance(env, SceneEnv)
    simulation = SceneSimulation(env, load, seed=recipe.seed)
    page = ScenePage(
        simulation, options.host, options.port, options.record, options.log
    )
    if options.run is not None:
        page.run = RunPanel(
            page.server,
            simulation,
            options.run,
            lambda chosen: load(simulation.slots, chosen),
            partial(open_scene, recipe),
        )
    return page
