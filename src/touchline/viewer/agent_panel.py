"""The part of the page about one agent: choose it, see what it sees and what its policy thinks."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import viser

from touchline.scenes.scene import ActionNames
from touchline.specs import ActionTuple
from touchline.viewer.critic import Critic
from touchline.viewer.curve import add_curve, draw_curve
from touchline.viewer.influence import influences, usual_obs
from touchline.viewer.insight import Insight, Seat
from touchline.viewer.sensors_panel import AllSensors, OneSensor, sensor_names
from touchline.viewer.sheet import (
    choice_name,
    facts_html,
    influences_html,
    outlook_html,
    text_html,
)
from touchline.viewer.simulation import Agent, Place, Simulation

if TYPE_CHECKING:
    from touchline.viewer.hands_panel import HandsPanel

NO_AGENT = "none"
CURVE_S = 1.0
"""Between two looks at the curve of returns."""


class AgentPanel:
    def __init__(
        self,
        server: viser.ViserServer,
        simulation: Simulation,
        sensors: AllSensors | None = None,
        hands: HandsPanel | None = None,
    ) -> None:
        """`sensors` shows its observations; None: one sensor at a time, in the same folder."""
        self._simulation = simulation
        self._hands = hands
        self._agents: dict[str, Agent] = {}
        self._chosen: Agent | None = None
        self._shown: tuple[object, ...] = ()
        """The rows and actors of the last look: nothing is drawn twice."""
        self._curve_s = -math.inf
        self._critic = Critic()
        self._follow: viser.GuiCheckboxHandle | None = None
        gui = server.gui
        folder = gui.add_folder("Agent")
        with folder:
            self._agent = gui.add_dropdown("Agent", (NO_AGENT,), initial_value=NO_AGENT)
            self._agent.on_update(self._choose)
            self._facts = gui.add_html("", visible=False)
            if hands is not None:
                self._follow = gui.add_checkbox(
                    "Follow",
                    initial_value=False,
                    hint="The camera moves with the agent, and can still orbit.",
                )
                hands.add_controls(folder)
            when = "decision" if hands is None else "time"
            self._curve = add_curve(gui, when, "rewards so far", visible=False)
            self._judged = add_curve(gui, when, "value", "advantage", visible=False)
            self._outlook = gui.add_html("", visible=False)
            self._explain = gui.add_button(
                "What decided this?",
                visible=False,
                hint="Hide each part of what the agent observes, and see how far its action moves.",
            )
            self._explain.on_click(self._explain_action)
            self._influences = gui.add_html("", visible=False)
            self._sensors = sensors or OneSensor(gui, simulation)

    @property
    def follows(self) -> bool:
        return self._follow is not None and bool(self._follow.value)

    def offer_anew(self) -> None:
        """Offer the agents that there are now, and select none of them."""
        self._agents = self._simulation.agents()
        self._agent.options = (NO_AGENT, *self._agents)
        # viser calls `_choose` for this, too, which gives up the agent that was selected.
        self._agent.value = NO_AGENT

    def offer_new(self) -> None:
        """Offer agents that appeared; the first one is selected where none ever was."""
        agents = self._simulation.agents()
        if agents.keys() == self._agents.keys() or not agents:
            return
        self._agents = agents
        chosen = self._agent.value
        self._agent.options = tuple(agents)
        self._select(chosen if chosen in agents else next(iter(agents)))

    def pick(self, agent: Agent) -> None:
        for label, offered in self._agents.items():
            if offered == agent:
                self._select(label)

    def refresh(self) -> None:
        simulation = self._simulation
        if self._hands is not None:
            self._hands.refresh()
        agent = self._chosen
        rows, actors, tags = simulation.rows, simulation.actors, simulation.seen_tags
        if agent is None or self._has_shown(rows, actors, tags):
            return
        self._shown = rows, actors, tags
        insight = simulation.insight(agent)
        if insight is None:
            self._facts.content = facts_html([("agent", "away")])
            return
        self._show(insight)
        now = time.monotonic()
        if now - self._curve_s >= CURVE_S:
            self._curve_s = now
            times, returns = simulation.curve(agent)
            if len(times):
                draw_curve(self._curve, times, returns)
            if insight.outlook is not None and insight.outlook.value is not None:
                self._judge(agent)

    def _judge(self, agent: Agent) -> None:
        simulation = self._simulation
        place = simulation.place_of(agent)
        if place is None:
            return
        past, actor = simulation.past_of(place), simulation.actors[place.behavior]
        times, values, advantages = self._critic.curve(past, place, actor)
        known = ~np.isnan(advantages)
        if known.any():
            draw_curve(self._judged, times[known], values[known], advantages[known])
        elif len(times):
            # No advantage without the run's discount, but the plot was made with two curves.
            draw_curve(self._judged, times, values, np.zeros(len(times)))
        self._judged.visible = len(times) > 0

    async def _explain_action(self, _: Any) -> None:
        simulation, agent = self._simulation, self._chosen
        insight = None if agent is None else simulation.insight(agent)
        if insight is None:
            return
        past = simulation.past_of(Place(insight.behavior, insight.slot))
        found = influences(insight, usual_obs(insight, past))
        if found is None:
            text = text_html("This policy shows no probabilities.")
        else:
            hidden = "its mean over the moments kept" if past else "0"
            text = text_html(
                f"At {simulation.time_s():.1f} s, the action moves by so much when what is "
                f"observed is {hidden}:"
            ) + influences_html(found, sensor_names(insight))
        self._influences.content = text
        self._influences.visible = True

    def _has_shown(self, *seen: object) -> bool:
        # The simulation replaces these and never writes to them; `_shown` keeps the ids taken.
        return [*map(id, self._shown)] == [*map(id, seen)]

    def _show(self, insight: Insight) -> None:
        simulation = self._simulation
        facts = [
            ("behavior", insight.behavior),
            ("agent id", str(insight.agent_id)),
            ("rewards so far", f"{insight.episode_return:.3f}"),
            ("last reward", f"{insight.reward:.3f}"),
        ]
        taken = simulation.taken.get(insight.behavior)
        if taken is not None and insight.slot < len(taken):
            text = _action_text(taken, insight.slot, simulation.action_names)
            facts.append(("last action", text))
        self._facts.content = facts_html(facts)
        self._outlook.content = outlook_html(insight.outlook, simulation.action_names)
        self._sensors.show(insight)

    def _select(self, label: str) -> None:
        self._agent.value = label
        self._choose_by(label, None)

    async def _choose(self, event: Any) -> None:
        self._choose_by(self._agent.value, event.client)

    def _choose_by(self, label: str, viewer: viser.ClientHandle | None) -> None:
        agent = self._agents.get(label)
        self._chosen = agent
        self._shown = ()
        self._curve_s = -math.inf
        for handle in (self._facts, self._curve, self._outlook, self._explain):
            handle.visible = agent is not None
        self._judged.visible = self._influences.visible = False
        self._sensors.set_visible(agent is not None)
        if self._hands is not None:
            self._hands.choose(agent if isinstance(agent, Seat) else None, viewer)
        self._simulation.order("select", lambda: self._simulation.select(agent))


def _action_text(actions: ActionTuple, slot: int, names: ActionNames) -> str:
    """One agent's action: continuous numbers, then the choices of its branches."""
    numbers = [f"{value:+.2f}" for value in actions.continuous[slot][:8]]
    choices = [
        choice_name(names, branch, int(choice))
        for branch, choice in enumerate(actions.discrete[slot][:16])
    ]
    return " ".join(numbers + [", ".join(choices)])
