"""What Walker, Crawler and Worm share: targets, orientation cubes, rounds, ends and resets."""

import logging
import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.tableau import Tableau
from touchline.parameters import Parameter
from touchline.physics.kernels import compiled, entry_of
from touchline.physics.ragdoll.lanes import (
    LANES,
    conjugate,
    euler,
    minus,
    multiply,
    plus,
    rotate,
    turn_of,
    vector_of,
)
from touchline.physics.ragdoll.world import DT_S, GRAVITY, RagdollWorld, State
from touchline.physics.shapes import Floats
from touchline.physics.threads import Kernel, Threads
from touchline.physics.world import Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.ragdolls.anatomy import Anatomy, Motors
from touchline.scenes.ragdolls.looks import Stage, tableau_of
from touchline.scenes.ragdolls.rounds import (
    FELL,
    LOST,
    Game,
    Rewarded,
    play_blocks,
    reward_agents,
)
from touchline.scenes.ragdolls.target import Target, TargetPlace, place_target
from touchline.scenes.ragdolls.walk import Walk, turn_cube
from touchline.scenes.scene import Scene

logger = logging.getLogger(__name__)

MAX_STEP = 5000
FALL_REWARD = -1.0


class Start(NamedTuple):
    """The pose of a reset, and room to work it out."""

    position: Floats
    """[B, 3] facing along z"""
    rotation: Floats
    """[B, 4]"""
    carried: NDArray[np.bool_]
    """[B] the parts that a reset moves along with the root but does not stop"""
    new_position: Floats
    """[B, 3] one agent's, before it is turned"""
    new_rotation: Floats


class WalkingScene(Scene):
    """The base of the three scenes: a ragdoll per area that is to reach a cube."""

    seconds_per_step = DT_S
    max_step = MAX_STEP
    parameters = {
        "gravity": Parameter(GRAVITY, 0.0, 100.0, "downward acceleration, m/s²"),
    }
    anatomy: ClassVar[Anatomy]
    stage: ClassVar[Stage]
    target_place: ClassVar[TargetPlace]
    touched_by: ClassVar[tuple[str, ...]] = ()
    """The parts that move the target by touching it; none: all."""
    deadly: ClassVar[tuple[str, ...]] = ()
    """Parts that may not touch the ground."""
    goal_speeds: ClassVar[tuple[float, float]]
    """m/s, drawn for each episode from this range."""
    rewarded: ClassVar[Rewarded]
    carried: ClassVar[tuple[str, ...]] = ()
    """Parts that a reset moves along with the root but does not stop."""
    dropped_below_m: ClassVar[float] = -math.inf
    """The height of the root at which an episode ends."""

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        # A block of agents takes long enough to be worth a thread.
        self._threads = Threads(num_threads, min_share=1)
        anatomy = self.anatomy
        top = self.stage.ground_top
        self.world = RagdollWorld(
            anatomy.ragdoll, num_areas, self._threads, ground_top=top
        )
        drives = anatomy.ragdoll.num_drives
        joints = self.world.model.joints
        drive_of = np.full(len(anatomy.ragdoll.parts), -1)
        drive_of[joints["owner"]] = joints["drive"]
        self.walk = Walk(
            cube=np.zeros((num_areas, 3)),
            ahead=np.zeros((num_areas, 2)),
            goal_speed=np.zeros(num_areas),
            strength=np.zeros((num_areas, drives)),
            target=Target(position=np.zeros((num_areas, 3)), fall=np.zeros(num_areas)),
            parents=anatomy.parents,
            drive_of=drive_of,
            ended=np.zeros(num_areas, np.int64),
        )
        # Masks over all parts, because kernels cannot look parts up by name.
        self._game = Game(
            model=self.world.model,
            state=self.world.current,
            work=self.world.work,
            walk=self.walk,
            reactive=anatomy.chosen(self.touched_by or list(anatomy.index)),
            deadly=anatomy.chosen(self.deadly),
            dropped_below_m=self.dropped_below_m,
            place=self.target_place,
            rewarded=self.rewarded,
        )
        self._entry: Kernel | None = None
        """The round's kernel, once it was called."""
        self._start = Start(
            position=anatomy.position,
            rotation=anatomy.rotation,
            carried=anatomy.chosen(self.carried),
            new_position=np.empty_like(anatomy.position),
            new_rotation=np.empty_like(anatomy.rotation),
        )
        self._is_started = np.zeros(1, np.bool_)
        """Whether the bodies had a pose before this reset."""

    def arrays(self) -> Arrays:
        walk = self.walk
        return self.world.arrays() | {
            "cube": walk.cube,
            "ahead": walk.ahead,
            "goal_speed": walk.goal_speed,
            "strength": walk.strength,
            "cube_position": walk.target.position,
            "cube_fall": walk.target.fall,
            "is_started": self._is_started,
        }

    def parameter_arrays(self) -> dict[str, Floats]:
        return {"gravity": self.world.current.gravity}

    # reset

    def restart(self) -> None:
        current = self.world.current
        self._stand_still(self._areas)
        # Until the first action, drives hold the prefab's pose with all their torque.
        current.target[:] = (0.0, 0.0, 0.0, 1.0)
        current.torque[:] = self.anatomy.motors.max_torque
        self.walk.strength[:] = 0.0
        self._is_started[:] = False
        for area in range(self.num_areas):
            streams = self.streams.arrays()
            place_target(self.walk.target, area, self.target_place, streams)

    def _stand_still(self, areas: Agents) -> None:
        anatomy, current = self.anatomy, self.world.current
        current.position[areas] = anatomy.position
        current.rotation[areas] = anatomy.rotation
        current.velocity[areas] = 0.0
        current.spin[areas] = 0.0
        self.walk.cube[areas] = anatomy.position[0]

    def begin_episodes(self, agents: Agents) -> None:
        """Put the ragdoll back to its start, turned at random; drives keep their targets."""
        self.streams.next_episode(agents)
        draws = self.streams.uniform(agents, 2)
        low, high = self.goal_speeds
        self.walk.goal_speed[agents] = low + (high - low) * draws[:, 1]
        values = self.parameter_values.read("gravity", agents)
        self.world.current.gravity[agents] = values
        self.put_back(agents, 2.0 * math.pi * draws[:, 0])
        self._is_started[:] = True

    def put_back(self, agents: Agents, yaw: Floats) -> None:
        """Put K ragdolls back to their start, turned by `yaw` [K] rad."""
        put_back(agents, yaw, self._start, self.world.current, self.walk)

    # observe

    def sense(self, kernel: Kernel, agents: Agents, *sizes: int) -> list[NDArray[Any]]:
        """Observations [K, size] that kernel(first, last, agents, state, walk, *observations)
        writes.
        """
        count = len(agents)
        observations = [np.empty((count, size), np.float32) for size in sizes]
        arguments = agents, self.world.current, self.walk, *observations

        def sense_blocks(first: int, last: int) -> None:
            kernel(first * LANES, min(last * LANES, count), *arguments)

        # Threads share agents by blocks of 16, the last of which may be partly empty.
        self._threads.run(sense_blocks, -(-count // LANES))
        return observations

    # play

    def act(self) -> None:
        # Once per decision, which precedes this round by one clock step.
        if self.academy.clock % self.decision_period == 1:
            _act(
                self.academy.continuous,
                self.anatomy.motors,
                self.world.current,
                self.walk.strength,
            )

    def simulate(self, most: int) -> int:
        arguments = self._game, self.streams.arrays(), self.academy.reward
        if self._entry is None:
            self._entry = entry_of(play_blocks, 0, 0, *arguments)
        for played in range(1, most + 1):
            self._threads.run(self._entry, self.world.num_blocks, *arguments)
            if np.count_nonzero(self.walk.ended):
                return played
        return most

    def fixed_update(self, rounds: int) -> None:
        ended = np.flatnonzero(self.walk.ended)
        if len(ended):
            self._end_episodes(ended)
            # Ends come before rewards: this round's reward counts for the new episode.
            self.reward(ended)

    def reward(self, agents: Agents) -> None:
        """The fixed update of K agents: turn the orientation cubes, add the rewards of a round."""
        current, reward = self.world.current, self.academy.reward
        reward_agents(agents, current, self.walk, self.rewarded, reward)

    def _end_episodes(self, agents: Agents) -> None:
        reasons = self.walk.ended[agents]
        # Mostly one: agents fall in nearly every round of a young policy.
        for why in sorted(set(reasons.tolist())):
            ending = agents[reasons == why]
            if why == LOST:
                self._restore_lost(ending)
            if why == FELL:
                # Set, not added: GroundContact.cs calls SetReward, which replaces the step's
                # reward.
                self.academy.reward[ending] = FALL_REWARD
            # A state that broke is no result of the game.
            self.academy.end(self, ending, interrupted=why == LOST)
            self.begin_episodes(ending)

    def _restore_lost(self, areas: NDArray[np.intp]) -> None:
        """Log broken bodies and bring them back, so that their last observations are finite."""
        self._stand_still(areas)
        rewards = self.academy.reward
        paid = rewards[areas]
        rewards[areas] = np.nan_to_num(paid, posinf=0.0, neginf=0.0)
        for area in areas:
            logger.warning(
                "%s: the body of area %d left the world or was not finite, in episode %d of "
                "seed %d at step %d; its episode was interrupted",
                self.name,
                area,
                self.streams.episode[area],
                self.streams.seed,
                self.academy.step_count[area, 0],
            )

    def tableau(self, area: int) -> Tableau:
        current = self.world.current
        target = self.walk.target.position[area]
        position = current.position[area]
        rotation = current.rotation[area]
        parts = self.anatomy.ragdoll.parts
        return tableau_of(self.stage, parts, position, rotation, target)


@compiled
def _act(
    actions: NDArray[np.float32], motors: Motors, state: State, strength: Floats
) -> None:
    """Set the targets and torques of all drives from the actions [N, 1, C]."""
    for agent in range(len(actions)):
        action = actions[agent, 0]
        for d in range(len(motors.strength)):
            x = _angle(action, motors, d, 0)
            y = _angle(action, motors, d, 1)
            z = _angle(action, motors, d, 2)
            state.target[agent, d] = euler(x, y, z)
            # JointDriveController.cs: -1 to 1 becomes 0 to 1 of the greatest torque.
            wanted = _clipped(action[motors.strength[d]])
            strong = 0.5 * (wanted + 1.0)
            strength[agent, d] = strong
            state.torque[agent, d] = strong * motors.max_torque


@compiled
def _clipped(value: float) -> float:
    # Drives are computed in double precision; only exchanges are in single.
    wide = np.float64(value)
    return min(max(wide, -1.0), 1.0)


@compiled
def _angle(action: NDArray[np.float32], motors: Motors, drive: int, axis: int) -> float:
    """The target angle of an axis, rad: -1 to 1 is the whole range."""
    index = motors.actions[drive, axis]
    value = _clipped(action[index]) if index >= 0 else 0.0
    low = motors.low[drive, axis]
    high = motors.high[drive, axis]
    angle: float = low + 0.5 * (high - low) * (value + 1.0)
    return angle


@compiled
def put_back(
    agents: Agents, yaw: Floats, start: Start, state: State, walk: Walk
) -> None:
    """Put ragdolls back to their start, turned by `yaw` [K] rad; drives keep their targets."""
    for k in range(len(agents)):
        find_start(agents[k], start, state)
        stand(agents[k], yaw[k], start, state, walk)


@compiled
def find_start(agent: int, start: Start, state: State) -> None:
    """The pose of an agent's reset, facing along z, into `new_position` and `new_rotation`."""
    root = vector_of(state.position[agent, 0])
    back = conjugate(turn_of(state.rotation[agent, 0]))
    new_root = vector_of(start.position[0])
    new_turn = turn_of(start.rotation[0])
    for i in range(len(start.carried)):
        at = vector_of(start.position[i])
        turn = turn_of(start.rotation[i])
        if start.carried[i]:
            # It follows the root's transform: where it was, seen from that, it stays.
            old = minus(vector_of(state.position[agent, i]), root)
            at = plus(new_root, rotate(new_turn, rotate(back, old)))
            kept = multiply(back, turn_of(state.rotation[agent, i]))
            turn = multiply(new_turn, kept)
        start.new_position[i] = at
        start.new_rotation[i] = turn


@compiled
def stand(agent: int, yaw: float, start: Start, state: State, walk: Walk) -> None:
    """Give an agent the new pose, turned about its root, with nothing left of what was before."""
    facing = (0.0, math.sin(0.5 * yaw), 0.0, math.cos(0.5 * yaw))
    root = vector_of(start.position[0])
    for i in range(len(start.carried)):
        arm = minus(vector_of(start.new_position[i]), root)
        at = plus(root, rotate(facing, arm))
        turn = multiply(facing, turn_of(start.new_rotation[i]))
        state.position[agent, i] = at
        state.rotation[agent, i] = turn
        if not start.carried[i]:
            state.velocity[agent, i] = 0.0
            state.spin[agent, i] = 0.0
        # Friction anchors and touches belong to where the body was before.
        state.anchors.number[agent, i] = 0
        state.touching[agent, i] = False
    turn_cube(state, walk, agent)
