"""Playing in an agent's place: take it over, press its keys, record what it does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import viser

from touchline.protocol.demonstrations import SUFFIX, DemoFile, encode_demo
from touchline.training.recording import write_demos
from touchline.viewer.hands import action_of
from touchline.viewer.insight import Seat
from touchline.viewer.keys import keys_of, listener_html, no_listener_html
from touchline.viewer.scene_simulation import SceneSimulation

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
    ) -> None:
        """`record` is the .demo file that recordings are written to; None: viewers get them."""
        self._server = server
        self._record_path = record
        self._num_written = 0
        self._simulation = simulation
        self._keys = keys_of(simulation.env.scene.name)
        self._seat: Seat | None = None
        self._player: viser.ClientHandle | None = None
        """The page that took the agent over; its keys alone count."""
        self._listener: viser.GuiHtmlHandle | None = None
        """What listens to the keyboard, in the player's page alone."""
        self._pressed = ""
        """The keys that the player holds, as its page wrote them."""

    def add_controls(self, folder: viser.GuiFolderHandle) -> None:
        """Add them to the folder of the agent."""
        self._folder = folder
        gui = self._server.gui
        self._take = gui.add_checkbox("Take over", False, visible=False)
        self._take.on_update(self._take_over)
        self._held = gui.add_text(KEYS_FIELD, "", visible=False)
        self._held.on_update(self._press)
        self._record = gui.add_button("Record", visible=False)
        self._record.on_click(self._toggle_recording)

    def choose(self, seat: Seat | None, viewer: viser.ClientHandle | None) -> None:
        """Offer this agent to be played, because a viewer selected it."""
        self._let_go(viewer)
        self._seat = seat
        self._take.visible = seat is not None and bool(self._keys)

    def refresh(self) -> None:
        """Show how long a recording is."""
        tape = self._simulation.tape
        self._record.label = (
            "Record" if tape is None else f"End recording ({tape.length})"
        )

    def meet(self, client: viser.ClientHandle) -> None:
        """A page was opened: it goes on playing where the player's page is gone, as on reload."""
        if self._take.value and self._player is None:
            self._listen_to(client)

    def part(self, client: viser.ClientHandle) -> None:
        """A page was closed: release its keys if it was the player's."""
        if self._is_player(client):
            self._player = None
            self._release_keys()

    def close(self) -> None:
        """Write what is still being recorded; the simulation has ended."""
        self._deliver(self._simulation.end_recording(), None)

    async def _take_over(self, event: Any) -> None:
        if event.client is None:
            return  # set by `_let_go`
        if not self._take.value:
            self._let_go(event.client)
            return
        self._held.visible = True
        self._listen_to(event.client)
        self._release_keys()
        self._record.visible = True
        if self._record_path is not None:
            self._start_recording()

    def _listen_to(self, client: viser.ClientHandle) -> None:
        """Let this page be the player's, whose keyboard is heard."""
        self._player = client
        with self._folder:
            content = listener_html(self._keys, KEYS_FIELD)
            self._listener = client.gui.add_html(content)

    def _is_player(self, client: viser.ClientHandle | None) -> bool:
        player = self._player
        if player is None or client is None:
            return False
        return bool(player.client_id == client.client_id)

    def _release_keys(self) -> None:
        self._pressed = self._held.value = ""
        self._play(())

    async def _press(self, event: Any) -> None:
        if not self._take.value or event.client is None:
            return  # set by this class
        if self._is_player(event.client):
            self._pressed = self._held.value[:LONGEST_KEYS]
            if self._pressed != self._held.value:
                # Otherwise the text would be kept, and sent to every page that opens later.
                self._held.value = self._pressed
            self._play(self._pressed.split())
        else:
            # Of another page, which has this field, too. viser reports only values that differ
            # from the last one: left as it is, this one could hide what the player does next.
            self._held.value = self._pressed

    def _play(self, held: tuple[str, ...] | list[str]) -> None:
        """Let the agent do what these keys say."""
        seat, simulation = self._seat, self._simulation
        if seat is None:
            return
        spec = simulation.slots.behaviors[simulation.behavior_of(seat)].action_spec
        action = action_of(self._keys, held, spec)
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
        simulation.order(
            "tape", lambda: self._deliver(simulation.end_recording(), client)
        )

    def _deliver(
        self, files: Mapping[str, DemoFile], client: viser.ClientHandle | None
    ) -> None:
        """Write a recording to the file that was named, or else send it to a viewer."""
        if not files:
            return
        path = self._record_path
        if path is not None:
            self._num_written += 1
            if self._num_written > 1:
                path = path.with_name(f"{path.stem}-{self._num_written}{path.suffix}")
            write_demos(files, path)
        elif client is not None:
            for name, file in files.items():
                text = name.replace("?team=", "-") + SUFFIX
                client.send_file_download(
                    text, encode_demo(file), save_immediately=True
                )

    def _let_go(self, viewer: viser.ClientHandle | None) -> None:
        """Give the agent back to its policy, because this viewer wants that."""
        seat, simulation = self._seat, self._simulation
        self._record.visible = False
        if simulation.tape is not None:
            self._end_recording(viewer)
        self._take.value = False
        self._held.visible = False
        if self._listener is not None:
            self._listener.content = no_listener_html()
        self._player = self._listener = None
        if seat is not None:
            simulation.order(f"hands {seat}", lambda: simulation.take_over(seat, None))
