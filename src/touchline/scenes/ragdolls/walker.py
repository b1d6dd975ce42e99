"""Walker: a humanoid of 16 parts that is to walk to a cube at a goal speed.

Only shins and feet may touch the ground.

Source: ML-Agents Release 22, `WalkerAgent.cs`, `WalkerRagdoll.prefab`, `Platform.prefab`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.lanes import (
    conjugate,
    minus,
    multiply,
    plus,
    rotate,
    turn_of,
    vector_of,
)
from touchline.physics.ragdoll.world import State
from touchline.physics.shapes import Floats
from touchline.scenes.academy import Agents
from touchline.scenes.ragdolls.game import Start, WalkingScene, find_start, stand
from touchline.scenes.ragdolls.humanoid import GROUND_TOP_M, humanoid
from touchline.scenes.ragdolls.looks import Stage
from touchline.scenes.ragdolls.rounds import Rewarded
from touchline.scenes.ragdolls.target import TargetPlace
from touchline.scenes.ragdolls.walk import Walk, observe_speeds, observe_target
from touchline.scenes.scene import ActionNames
from touchline.sensors.body import (
    in_cube,
    relative_turn,
    write,
    write_turn,
)
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

OBS_SIZE = 243
PARTS = 16
HIPS = 0
CHEST = 1
SPINE = 2
HEAD = 3


_SIDES = ("left", "right")
_TURNS = {
    **dict.fromkeys(("chest", "spine"), "xyz"),
    **{f"{side} thigh": "xy" for side in _SIDES},
    **{f"{side} shin": "x" for side in _SIDES},
    **dict.fromkeys(("right foot", "left foot"), "xyz"),
    **{f"{side} upper arm": "xy" for side in _SIDES},
    **{f"{side} forearm": "x" for side in _SIDES},
    "head": "xy",
}
"""The axes of the parts' target angles, in the order of the actions."""
_STRONG = (
    *("chest", "spine", "head"),
    *(f"{side} {part}" for side in _SIDES for part in ("thigh", "shin", "foot")),
    *(f"{side} {part}" for side in _SIDES for part in ("upper arm", "forearm")),
)


class Walker(WalkingScene):
    """Walk on two legs to a cube, at a goal speed.

    Observation `VectorSensor_size243`. In C: along the axes of the orientation cube, which is
    level, is at the hips, and points to the target.

    | index | meaning |
    | --- | --- |
    | 0 | difference between goal velocity and the parts' mean velocity, m/s |
    | 1-3, 4-6 | mean velocity, goal velocity in C |
    | 7-10, 11-14 | shortest rotation from the hips' z axis to C's, from the head's (x, y, z, w) |
    | 15-17 | target's position in C, m |
    | 18-242 | of each part: whether it touches the ground, velocity, spin, position from the hips |
    | | in C; of all but hips and hands: rotation seen from the parent, strength |

    Parts: hips, chest, spine, head, left thigh, shin, foot, right thigh, shin, foot, left upper
    arm, forearm, hand, right upper arm, forearm, hand.

    Actions: target angles of chest and spine x, y, z (0-5), left and right thigh x, y (6-9), left
    and right shin x (10, 11), right and left foot x, y, z (12-17), left and right upper arm x, y
    (18-21), left and right forearm x (22, 23), head x, y (24, 25); then the strengths of chest,
    spine, head, left thigh, shin, foot, right thigh, shin, foot, left upper arm, forearm, right
    upper arm, forearm (26-38). They are executed once per decision and stay.
    """

    name = "Walker"
    action_names = ActionNames(
        [
            *(f"{part} {axis}" for part, axes in _TURNS.items() for axis in axes),
            *(f"{part} strength" for part in _STRONG),
        ]
    )
    unity_areas = 10
    behaviors = {
        "Walker?team=0": BehaviorSpec(
            (ObservationSpec.vector(OBS_SIZE, f"VectorSensor_size{OBS_SIZE}"),),
            ActionSpec.create_continuous(39),
        )
    }
    anatomy = humanoid()
    stage = Stage(
        ground_top=GROUND_TOP_M,
        half_m=12.5,
        wall_m=1.0,
        target_m=0.25,
        eyes=("head", 0, 0.045),
        camera_offset=(-2.2, 0.9, 3.0),
    )
    target_place = TargetPlace(
        edge=0.25, radius=9.0, y=1.0, z=1.0, ground_top=GROUND_TOP_M
    )
    deadly = (
        *("hips", "chest", "spine", "head", "thighL", "thighR"),
        *("armL", "forearmL", "handL", "armR", "forearmR", "handR"),
    )
    goal_speeds = (0.1, 10.0)
    rewarded = Rewarded(parts=PARTS, facing=HEAD)

    def put_back(self, agents: Agents, yaw: Floats) -> None:
        # At a world's start nothing has moved yet, so no chest is displaced.
        if not self._is_started[0]:
            super().put_back(agents, yaw)
        else:
            current = self.world.current
            _put_back_displaced(agents, yaw, self._start, current, self.walk)

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        return self.sense(_observe, agents, OBS_SIZE)


@compiled
def _put_back_displaced(
    agents: Agents, yaw: Floats, start: Start, state: State, walk: Walk
) -> None:
    for k in range(len(agents)):
        find_start(agents[k], start, state)
        _displace_chest(agents[k], start, state)
        stand(agents[k], yaw[k], start, state, walk)


@compiled
def _displace_chest(agent: int, start: Start, state: State) -> None:
    """Where Unity's reset leaves the chest."""
    # It writes hips, chest, spine in turn, and a part carries along what hangs on it. So the chest,
    # already in place, is moved again with the spine, from where the new hips have left that.
    from_hips = conjugate(turn_of(state.rotation[agent, HIPS]))
    spine_turn = multiply(from_hips, turn_of(state.rotation[agent, SPINE]))
    hips = vector_of(state.position[agent, HIPS])
    to_spine = minus(vector_of(state.position[agent, SPINE]), hips)
    new_hips = vector_of(start.new_position[HIPS])
    spine = plus(new_hips, rotate(from_hips, to_spine))
    # From there the spine goes to its place, and the chest with it.
    back = conjugate(spine_turn)
    offset = rotate(back, minus(vector_of(start.new_position[CHEST]), spine))
    chest = plus(vector_of(start.new_position[SPINE]), offset)
    turn = multiply(back, turn_of(start.new_rotation[CHEST]))
    start.new_position[CHEST] = chest
    start.new_rotation[CHEST] = turn


@compiled
def _observe(
    first: int,
    last: int,
    agents: Agents,
    state: State,
    walk: Walk,
    obs: NDArray[np.float32],
) -> None:
    for row in range(first, last):
        agent = agents[row]
        out = obs[row]
        at = observe_speeds(agent, state, walk, PARTS, out)
        at = observe_target(agent, (HIPS, HEAD), state, walk, at, out)
        ahead = (walk.ahead[agent, 0], walk.ahead[agent, 1])
        hips = vector_of(state.position[agent, HIPS])
        for i in range(PARTS):
            out[at] = state.touching[agent, i]
            velocity = vector_of(state.velocity[agent, i])
            at = write(out, at + 1, in_cube(ahead, velocity))
            spin = vector_of(state.spin[agent, i])
            at = write(out, at, in_cube(ahead, spin))
            offset = minus(vector_of(state.position[agent, i]), hips)
            at = write(out, at, in_cube(ahead, offset))
            # Hips and hands have no drive: WalkerAgent.cs leaves out their rotation as well.
            drive = walk.drive_of[i]
            if drive >= 0:
                parent = turn_of(state.rotation[agent, walk.parents[i]])
                own = turn_of(state.rotation[agent, i])
                at = write_turn(out, at, relative_turn(parent, own))
                out[at] = walk.strength[agent, drive]
                at += 1
