"""Playing in an agent's place: take it over, press its keys, record what it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import viser

from touchline.errors import TouchlineError
from touchline.log import Log
from touchline.protocol.demonstrations import SUFFIX, DemoFile, encode_demo
from touchline.training.recording import write_demos
from touchline.viewer.insight import Seat
from touchline.viewer.keys import (
    action_of,
    keyboard_html,
    keys_of,
    listener_html,
    script_html,
)
from touchline.viewer.scene_simulation import SceneSimulation
from touchline.viewer.sheet import text_html

KEYS_FIELD = "Keys held"
LONGEST_KEYS = 200
"""A page may send any text as its held keys."""


class HandsPanel:
    """The controls of whoever plays the selected agent of a scene."""

    def __init__(
        self,
        server: viser.ViserServer,
        simulation: SceneSimulation,
        record: Path | None = None,
        log: Log = print,
    ) -> None:
        """`record` is the .demo file that recordings are written to; where it is there already, the
        next one has a number behind its name. None: viewers get them.
        """
        self._log = log
        self._is_open = True
        self._server = server
        self._record_path = record
        self._simulation = simulation
        self._keys = keys_of(simulation.env.scene.name)
        self._seat: Seat | None = None
        self._player: viser.ClientHandle | None = None
        """The page that took the agent over; its keys alone count."""
        self._listener: viser.GuiHtmlHandle | None = None
        """What listens to the keyboard, in the player's page alone."""
        self._held: viser.GuiInputHandle[str] | None = None
        """A hidden field of the player's page, which writes the keys that are held into it."""
        self._unsaved: list[Mapping[str, DemoFile]] = []
        """Recordings that could not be written yet."""

    def add_controls(self, folder: viser.GuiFolderHandle) -> None:
        self._folder = folder
        gui = self._server.gui
        self._take = gui.add_checkbox("Take over", False, visible=False)
        self._take.on_update(self._take_over)
        self._keyboard = gui.add_html("", visible=False)
        self._record = gui.add_button("Record", visible=False)
        self._record.on_click(self._toggle_recording)
        self._saved = gui.add_html("")

    def choose(self, seat: Seat | None, viewer: viser.ClientHandle | None) -> None:
        """Offer this agent to be played, because a viewer selected it."""
        self._let_go(viewer)
        self._seat = seat
        self._take.visible = seat is not None and bool(self._keys)

    def refresh(self) -> None:
        tape = self._simulation.tape
        self._record.label = (
            "Record" if tape is None else f"End recording ({len(tape)})"
        )

    def meet(self, client: viser.ClientHandle) -> None:
        """A page was opened: it goes on playing where the player's page is gone, as on reload."""
        if self._take.value and self._player is None:
            self._listen_to(client)

    def part(self, client: viser.ClientHandle) -> None:
        """A page was closed: release its keys if it was the player's."""
        if self._player is not None and client.client_id == self._player.client_id:
            self._player = self._listener = self._held = None
            self._play(())

    def close(self) -> None:
        """Write what is still being recorded; the simulation has ended."""
        self._is_open = False
        self._deliver(self._simulation.end_recording(), None)

    async def _take_over(self, event: Any) -> None:
        if event.client is None:
            return  # set by `_let_go`
        if not self._take.value:
            self._let_go(event.client)
            return
        self._keyboard.visible = True
        self._listen_to(event.client)
        self._play(())
        self._record.visible = True
        if self._record_path is not None:
            self._start_recording()

    def _listen_to(self, client: viser.ClientHandle) -> None:
        """Let this page be the player's, whose keyboard is heard."""
        self._player = client
        with self._folder:
            self._held = client.gui.add_text(KEYS_FIELD, "")
            self._held.on_update(self._press)
            content = listener_html(self._keys, KEYS_FIELD)
            self._listener = client.gui.add_html(content)

    async def _press(self, _: Any) -> None:
        if self._held is not None:
            # A page may send any text.
            self._play(self._held.value[:LONGEST_KEYS].split())

    def _play(self, held: tuple[str, ...] | list[str]) -> None:
        """Let the agent do what these keys say."""
        seat, simulation = self._seat, self._simulation
        if seat is None:
            return
        spec = simulation.slots.behaviors[simulation.behavior_of(seat)].action_spec
        action = action_of(self._keys, held, spec)
        names = simulation.action_names
        self._keyboard.content = keyboard_html(self._keys, names, held)
        # Named by the seat: of two agents in turn, the order for one must not replace the other's.
        simulation.order(f"hands {seat}", lambda: simulation.take_over(seat, action))

    async def _toggle_recording(self, event: Any) -> None:
        if self._simulation.tape is None:
            self._start_recording()
        else:
            self._end_recording(event.client)

    def _start_recording(self) -> None:
        seat, simulation = self._seat, self._simulation
        if seat is not None:
            simulation.order("tape", lambda: simulation.record(seat))

    def _end_recording(self, viewer: viser.ClientHandle | None) -> None:
        """Stop; the file is the player's, or this viewer's where the player's page is gone."""
        simulation, client = self._simulation, self._player or viewer
        simulation.order("tape", lambda: self._try_to_deliver(client))

    def _try_to_deliver(self, client: viser.ClientHandle | None) -> None:
        """End the recording. Where it cannot be written, as on a full disk, the world plays on."""
        try:
            self._deliver(self._simulation.end_recording(), client)
        except (TouchlineError, OSError) as error:
            kept = "the recording is kept, and tried again after the next one and at the end"
            self._show([f"{error}; {kept}"])

    def _deliver(
        self, files: Mapping[str, DemoFile], client: viser.ClientHandle | None
    ) -> None:
        """Write a recording to the file that was named, or else send it to a viewer."""
        path = self._record_path
        if path is not None:
            self._unsaved += [files] if files else []
            while self._unsaved:
                written = write_demos(self._unsaved[0], _free(path))
                self._confirm("saved", map(str, written), self._unsaved.pop(0))
        elif files and client is not None:
            # Windows allows no question mark in the name of a file.
            names = [name.replace("?team=", "-") + SUFFIX for name in files]
            for name, file in zip(names, files.values(), strict=True):
                client.send_file_download(
                    name, encode_demo(file), save_immediately=True
                )
            self._confirm("sent to the browser:", names, files)

    def _confirm(
        self, done: str, names: Iterable[str], files: Mapping[str, DemoFile]
    ) -> None:
        """Say on the page and in the terminal what a demonstration holds."""
        self._show(
            [
                f"{done} {name}: {_summary(file)}"
                for name, file in zip(names, files.values(), strict=True)
            ]
        )

    def _show(self, lines: Sequence[str]) -> None:
        """Show lines on the page and in the terminal."""
        # viser warns of a page that is gone.
        if self._is_open:
            self._saved.content = "".join(map(text_html, lines))
        for line in lines:
            self._log(line)

    def _let_go(self, viewer: viser.ClientHandle | None) -> None:
        """Give the agent back to its policy, because this viewer wants that."""
        seat, simulation = self._seat, self._simulation
        self._record.visible = False
        if simulation.tape is not None:
            self._end_recording(viewer)
        self._take.value = False
        self._keyboard.visible = False
        if self._listener is not None and self._held is not None:
            # Removing the element would leave what it has added to the page's window.
            self._listener.content = script_html("window.touchlineKeys?.remove()")
            self._held.remove()
        self._player = self._listener = self._held = None
        if seat is not None:
            simulation.order(f"hands {seat}", lambda: simulation.take_over(seat, None))


def _free(path: Path) -> Path:
    """The first of NAME, NAME-2, NAME-3, ... that is not there."""
    numbered = (
        path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2)
    )
    return next(one for one in chain([path], numbered) if not one.exists())


def _summary(file: DemoFile) -> str:
    """Episodes, decisions and mean return of a demonstration; an open episode has no return yet."""
    ends = np.flatnonzero(file.done)
    if not len(ends):
        return f"{len(file)} records of an episode that has not ended"
    earned = (file.reward + file.group_reward)[: ends[-1] + 1].sum()
    episodes = "1 episode" if len(ends) == 1 else f"{len(ends)} episodes"
    return f"{episodes}, mean return {earned / len(ends):.3f}"
