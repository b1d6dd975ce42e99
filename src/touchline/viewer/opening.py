"""A world, the policies that play in it, and a page that shows them, opened together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from touchline.envs.env import EnvRecipe, make
from touchline.envs.scene_env import SceneEnv
from touchline.envs.slots import Slots
from touchline.errors import UsageError
from touchline.policies.policy import SlotActor
from touchline.policies.sides import load_sides
from touchline.training.recording import check_name
from touchline.viewer.page import Page
from touchline.viewer.run_panel import RunPanel
from touchline.viewer.server import LOOPBACK
from touchline.viewer.simulation import Simulation


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
    run: Path | None = None
    """The training run whose newest checkpoint plays; `sources` are its checkpoints then."""


DEFAULTS = ViewOptions()


@contextmanager
def opened(
    recipe: EnvRecipe, sources: Sequence[str], options: ViewOptions = DEFAULTS
) -> Iterator[Page]:
    """The page while it is open; the simulation plays in a thread of its own.

    `sources` are policies as `load_policies` takes them. Raises a UsageError for a world without
    shapes, a port in use, or a policy that fits no behavior.
    """
    if not recipe.kind.is_scene:
        raise UsageError(
            f"view shows scenes, and {recipe.target} is not one: its world has no shapes to draw "
            "in 3-D; `touchline play` shows a Unity player in its own window"
        )

    if options.record is not None:
        check_name(options.record)

    def load(sources: Sequence[str], slots: Slots) -> Mapping[str, SlotActor]:
        return load_sides(
            sources,
            options.versus,
            slots.behaviors,
            recipe.target,
            deterministic=options.deterministic,
            seed=recipe.seed,
        )

    with make(recipe) as env:
        assert isinstance(env, SceneEnv)
        simulation = Simulation(
            env, lambda slots: load(sources, slots), seed=recipe.seed
        )
        page = Page(simulation, options.host, options.port, options.record)
        if options.run is not None:
            page.run = RunPanel(
                page.server,
                simulation,
                options.run,
                lambda chosen: load(chosen, simulation.slots),
            )
        simulation.start()
        try:
            yield page
        finally:
            page.close()
            simulation.close()
            page.agent.close()
