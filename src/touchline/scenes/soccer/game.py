"""What SoccerTwos and StrikersVsGoalie share: kickoffs, observations, goals, rewards and time."""

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from touchline.drawing import look
from touchline.drawing.look import GRASS, WALL_COLOR, WHITE
from touchline.drawing.tableau import (
    Camera,
    DrawnShapes,
    Tableau,
    box_shapes,
    eye_shapes,
    floor_shapes,
    join,
    lowered,
    round_shapes,
)
from touchline.parameters import Parameter
from touchline.physics.shapes import BOX_TAG, Floats, ball, box, boxes, rounds
from touchline.physics.world import GRAVITY, Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.scene import ActionNames, Scene
from touchline.scenes.soccer import physics
from touchline.scenes.soccer.field import (
    BALL_RADIUS_M,
    BALL_TAG,
    BLUE,
    BLUE_AGENT,
    BLUE_GOAL,
    FLOOR,
    HEIGHT_M,
    PLAYER_RADIUS_M,
    PURPLE,
    PURPLE_AGENT,
    PURPLE_GOAL,
    TAGS,
    WALL,
    Player,
)
from touchline.scenes.soccer.state import team_first, write_state
from touchline.sensors.rays import RayFan, RaySensor, Traces, View
from touchline.sensors.stacking import Stack, stacked_spec
from touchline.specs import ActionSpec, BehaviorSpec

_STATE = (
    *("rounds", "velocity", "yaw", "kick", "touching", "timer"),
    *("gravity", "touch_reward", "progress_reward"),
)
MAX_FIELD_STEPS = 5000
"""The field's own time limit (MaxEnvironmentSteps); agents have none."""
TOUCH_REWARD = 0.2  # AgentSoccer.cs: AddReward(.2f * m_BallTouch)
FRAMES = 3
CAMERA = Camera(eye=(0.0, 25.0, -28.0), target=(0.0, 0.0, -0.8))
TEAM_COLORS = np.array([look.BLUE, look.PURPLE])
"""Rows `BLUE` and `PURPLE`."""
_WALL_TOP_M = 1.0
_GOAL_TOP_M = 2.0
_LINE_M = 0.12
_SIDE_M, _END_M = 7.3, 14.4
"""Distances of the lines along the field and across its ends from the middle."""
_BOX_DEPTH_M, _BOX_HALF_M = 3.0, 4.2
_CIRCLE_M, _CIRCLE_PARTS = 2.4, 32


class Soccer(Scene):
    """Players on a field; each scene names them, the field and their sensors.

    Actions, three branches of three: 0 nothing, 1 ahead (arms the kick), 2 back · 1 right, 2 left,
    which wins over the first branch · 1 turn left, 2 turn right by 2° per step. Every fifth step,
    repeated in between.

    Group reward: +(1 - steps/5000) for a goal, -1 against one.
    """

    unity_areas = 8
    action_names = ActionNames(
        branches=[
            ("nothing", "ahead", "back"),
            ("nothing", "right", "left"),
            ("nothing", "turn left", "turn right"),
        ]
    )
    team_names = ("blue", "purple")
    parameters = {
        "gravity": Parameter(
            GRAVITY,
            0.0,
            1000.0,
            "downward acceleration, m/s²; it only presses on the floor",
        ),
        "ball_touch": Parameter(
            0.0, -1000.0, 1000.0, "a fifth of this is paid for each touch of the ball"
        ),
        "ball_progress": Parameter(
            0.0,
            -1000.0,
            1000.0,
            "paid for each meter that the ball moves towards the other goal, and lost by the other "
            "team; not in Unity",
        ),
    }
    players: ClassVar[tuple[Player, ...]]
    field: ClassVar[Floats]
    """[walls, 9] boxes"""
    sensors: ClassVar[Mapping[str, Mapping[str, RaySensor]]]
    """Full behavior name -> sensor name -> sensor, in Unity's order."""

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self._names = [player.behavior for player in self.players]
        """The name of each player's behavior in exchanges."""
        self._teams = np.array([player.team for player in self.players])
        num_players = len(self.players)
        self.rounds = np.tile(_bodies(self.players), (num_areas, 1, 1))
        """[A, P + 1, 6] the players, then the ball."""
        self.velocity = np.zeros((num_areas, num_players + 2, 6))
        self.yaw = np.zeros((num_areas, num_players))
        self.kick = np.zeros((num_areas, 2))
        """What the ball's velocity gets in the next step, x and z, m/s."""
        self.touching = np.zeros((num_areas, num_players), np.bool_)
        self.timer = np.zeros(num_areas, np.int32)
        """[A] steps of the running episode."""
        self.gravity = np.zeros(num_areas)
        self.touch_reward = np.zeros(num_areas)
        self.progress_reward = np.zeros(num_areas)
        self._rays = {
            name: functools.reduce(RaySensor.joined_with, sensors.values())
            for name, sensors in self.sensors.items()
        }
        num_agents = num_areas * num_players
        self._stacks = {
            name: Stack(num_agents, FRAMES, rays.size)
            for name, rays in self._rays.items()
        }
        no_boxes = np.tile(boxes(), (num_areas, 1, 1))
        self._view = View(self.rounds, self.yaw, self.field, no_boxes, self.rounds)
        self._pitch = pitch(self.field)
        self._team_first = team_first(self._teams)
        self.restart()

    def arrays(self) -> Arrays:
        stacks = {f"stack/{name}": stack.frames for name, stack in self._stacks.items()}
        return stacks | {name: getattr(self, name) for name in _STATE}

    def parameter_arrays(self) -> dict[str, Floats]:
        return {"gravity": self.gravity}

    def capacity(self, behavior: str) -> int:
        return self.num_areas * self._names.count(behavior)

    # reset

    def restart(self) -> None:
        """Groups are numbered from 1, blue before purple in each field."""
        academy = self.academy
        academy.group_id[:] = 1 + 2 * self._areas[:, None] + self._teams
        academy.behavior[:] = [academy.names.index(name) for name in self._names]
        # Here, not in `__init__`: merging teams brings another Academy.
        self.fields = physics.Fields(
            discrete=academy.discrete,
            reward=academy.reward,
            players=np.array([player[1:] for player in self.players]),
            field=self.field,
            gravity=self.gravity,
            touch_reward=self.touch_reward,
            progress_reward=self.progress_reward,
            inverse=physics.inverse_masses(len(self.players)),
            rounds=self.rounds,
            yaw=self.yaw,
            velocity=self.velocity,
            kick=self.kick,
            touching=self.touching,
            goal=np.zeros(self.num_areas, np.int8),
        )

    def begin_episodes(self, agents: Agents) -> None:
        """Restart these agents' fields, which Unity's reset does not touch."""
        areas = np.unique(agents // len(self.players))
        self._reset(areas)
        # The controllers' first update comes before the first decision.
        self.timer[areas] = 1

    def _reset(self, areas: NDArray[np.intp]) -> None:
        """Kick off: new places and empty sensor stacks."""
        self.streams.next_episode(areas)
        self.gravity[areas] = self.parameter_values.read("gravity", areas)
        ball_touch = self.parameter_values.read("ball_touch", areas)
        self.touch_reward[areas] = TOUCH_REWARD * ball_touch
        self.progress_reward[areas] = self.parameter_values.read("ball_progress", areas)
        physics.place(areas, self.streams.arrays(), self.fields)
        self.kick[areas] = 0.0
        self.touching[areas] = False
        self.timer[areas] = 0
        agents = self._agents_of(areas)
        for stack in self._stacks.values():
            stack.clear(agents)

    # observe

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        rays, stack = self._rays[behavior], self._stacks[behavior]
        return rays.observe(self._threads, stack, agents, self._view)

    def observe_state(self, behavior: str, agents: Agents) -> NDArray[np.float32]:
        state = np.empty((len(agents), self.state_size), np.float32)
        write_state(
            agents,
            self._team_first,
            self._teams,
            self.rounds,
            self.velocity,
            self.yaw,
            self.kick,
            self.timer,
            state,
        )
        return state

    def rays(self, area: int, agent: int) -> Traces:
        behavior = self.players[agent].behavior
        frames = self._stacks[behavior].frames[area * len(self.players) + agent]
        return self._rays[behavior].traces(self._view, area, agent, frames[-1])

    # play

    def act(self) -> None:
        physics.act(0, self.num_areas, self.fields)

    def simulate(self, most: int) -> int:
        # Compiled code does not watch the time limit, so no field may reach it in there.
        most = min(most, MAX_FIELD_STEPS - int(self.timer.max()))
        return self._play_kernel(physics.play_rounds, max(most, 1), self.fields)

    # reward and end

    def fixed_update(self, rounds: int) -> None:
        self.timer += rounds - 1
        if np.count_nonzero(self.fields.goal):
            self._end_at_goals()
        # The last of these rounds, which a goal comes before.
        self.timer += 1
        if self.timer.max() >= MAX_FIELD_STEPS:
            areas = np.flatnonzero(self.timer >= MAX_FIELD_STEPS)
            drawn = np.full((len(areas), len(self.players)), 0.5)
            self._end(areas, drawn, interrupted=True)

    def _end_at_goals(self) -> None:
        """Reward both groups for a goal, the scoring one by how early it falls; end both."""
        goal = self.fields.goal
        areas = np.flatnonzero(goal)
        scorer = np.where(goal[areas] == PURPLE_GOAL, BLUE, PURPLE)
        earned = 1.0 - self.timer[areas] / MAX_FIELD_STEPS
        has_scored = self._teams == scorer[:, None]  # [K, P]
        reward = np.where(has_scored, earned[:, None], -1.0)
        self.academy.group_reward[areas] += reward
        self._end(areas, has_scored.astype(np.float64))

    def _end(
        self, areas: NDArray[np.intp], scores: Floats, *, interrupted: bool = False
    ) -> None:
        """End the games of K areas, and state how they ended for each player: [K, P]."""
        groups = self.academy.group_id[areas].reshape(-1).tolist()
        values = scores.reshape(-1).tolist()
        pairs = zip(groups, values, strict=True)
        self.game_scores |= dict(pairs)
        self.academy.end(self, self._agents_of(areas), interrupted=interrupted)
        self._reset(areas)

    def tableau(self, area: int) -> Tableau:
        teams = [TEAM_COLORS[player.team] for player in self.players]
        bodies = self.rounds[area]  # the players, then the ball
        return Tableau(
            static=self._pitch,
            moving=join(
                round_shapes(bodies, [*teams, WHITE]),
                eye_shapes(bodies[: len(teams)], self.yaw[area]),
            ),
            camera=CAMERA,
        )


def _bodies(players: tuple[Player, ...]) -> Floats:
    """[P + 1, 6] round shapes: the players, then the ball."""
    tag_of_team = {BLUE: BLUE_AGENT, PURPLE: PURPLE_AGENT}
    center = (0.0, HEIGHT_M, 0.0)
    rows = [
        ball(center, PLAYER_RADIUS_M, tag_of_team[player.team]) for player in players
    ]
    return rounds(*rows, ball(center, BALL_RADIUS_M, BALL_TAG))


def field_player_sensors(color: str, tags: list[str]) -> dict[str, RaySensor]:
    """A field player's two sensors by name: ahead, and behind."""
    return {
        f"{color}RayPerceptionSensor": ray_sensor(tags, 5, 60.0),
        f"{color}RayPerceptionSensorReverse": ray_sensor(tags, 1, 45.0, yaw_deg=180.0),
    }


def ray_sensor(
    tags: list[str], rays_per_direction: int, max_degrees: float, yaw_deg: float = 0.0
) -> RaySensor:
    """A level ray sensor of 20 m, 0.5 m above the body's center."""
    return RaySensor(
        TAGS,
        tags,
        RayFan(
            rays_per_direction=rays_per_direction,
            max_degrees=max_degrees,
            length_m=20.0,
            start_m=0.5,
            end_m=0.5,
            yaw_deg=yaw_deg,
            tie_m=1e-5,
        ),
    )


def behaviors_of(
    sensors: Mapping[str, Mapping[str, RaySensor]],
) -> dict[str, BehaviorSpec]:
    """The specs that go with these sensors, by full behavior name."""
    actions = ActionSpec.create_discrete((3, 3, 3))
    specs = {}
    for behavior, by_name in sensors.items():
        stacked = [
            stacked_spec(name, sensor.size, FRAMES) for name, sensor in by_name.items()
        ]
        specs[behavior] = BehaviorSpec(tuple(stacked), actions)
    return specs


def pitch(field: Floats) -> DrawnShapes:
    """A field with these walls and goals [S, 9], which are drawn so low that they hide nothing."""
    tag = field[:, BOX_TAG]
    goals = field[tag != WALL]
    team = np.where(goals[:, BOX_TAG] == BLUE_GOAL, BLUE, PURPLE)
    return join(
        floor_shapes(FLOOR, GRASS, cells=(12, 1)),
        box_shapes(_lines(), WHITE),
        box_shapes(lowered(field[tag == WALL], _WALL_TOP_M), WALL_COLOR),
        box_shapes(lowered(goals, _GOAL_TOP_M), TEAM_COLORS[team]),
    )


def _lines() -> Floats:
    """Sides, ends, the line and the circle in the middle, and the boxes in front of the goals."""
    inner = _END_M - _BOX_DEPTH_M
    ends = [_line((x, 0.0), (0.0, 2 * _SIDE_M)) for x in (-_END_M, 0.0, _END_M)]
    sides = [_line((0.0, z), (2 * _END_M, 0.0)) for z in (-_SIDE_M, _SIDE_M)]
    fronts = [_line((x, 0.0), (0.0, 2 * _BOX_HALF_M)) for x in (-inner, inner)]
    middle = inner + _BOX_DEPTH_M / 2
    flanks = [
        _line((x, z), (_BOX_DEPTH_M, 0.0))
        for x in (-middle, middle)
        for z in (-_BOX_HALF_M, _BOX_HALF_M)
    ]
    part_m = 2 * _CIRCLE_M * np.tan(np.pi / _CIRCLE_PARTS)
    circle = [
        _line(
            (_CIRCLE_M * np.sin(bearing), _CIRCLE_M * np.cos(bearing)),
            (part_m - _LINE_M, 0.0),
            float(np.degrees(bearing)),
        )
        for bearing in np.arange(_CIRCLE_PARTS) * 2 * np.pi / _CIRCLE_PARTS
    ]
    return boxes(*ends, *sides, *fronts, *flanks, *circle)


def _line(
    middle: tuple[float, float], reach_m: tuple[float, float], yaw_deg: float = 0.0
) -> list[float]:
    """A white line around a place (x, z), a little above the grass."""
    width_m, depth_m = reach_m
    size = (width_m + _LINE_M, 0.02, depth_m + _LINE_M)
    return box((middle[0], 0.0, middle[1]), size, yaw_deg=yaw_deg)
