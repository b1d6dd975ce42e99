"""Walker: a humanoid of 16 parts that is to walk to a cube at a goal speed.

Only shins and feet may touch the ground.

Source: ML-Agents Release 22, `WalkerAgent.cs`, `WalkerRagdoll.prefab`, `Platform.prefab`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.lanes import (
    LANES,
    conjugate,
    minus,
    multiply,
    plus,
    rotate,
)
from touchline.physics.ragdoll.model import Part, box, capsule, sphere
from touchline.physics.ragdoll.world import State
from touchline.physics.shapes import Floats, Vector
from touchline.scenes.academy import Agents
from touchline.scenes.ragdolls.anatomy import STILL, UPRIGHT, Anatomy, Bone, assemble
from touchline.scenes.ragdolls.game import WalkingScene
from touchline.scenes.ragdolls.looks import Stage
from touchline.scenes.ragdolls.rounds import Rewarded, Start, find_start, stand
from touchline.scenes.ragdolls.walk import (
    TargetPlace,
    Walk,
    observe_speeds,
    observe_target,
)
from touchline.scenes.scene import ActionNames
from touchline.sensors.body import (
    in_cube,
    relative_turn,
    turn_of,
    vector_of,
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
GROUND_TOP_M = 0.125

# In the order in which Unity's agent lists them.
_PLACES_M: dict[str, Vector] = {
    "hips": (0.0, 0.953, 0.0),
    "chest": (0.0, 1.44404, 0.0),
    "spine": (0.0, 1.17839, 0.0),
    "head": (0.0, 1.8935, 0.0),
    "thighL": (-0.131998, 0.689, 0.0),
    "shinL": (-0.131998, 0.359, 0.0),
    "footL": (-0.131998, 0.161, 0.0),
    "thighR": (0.131998, 0.689, 0.0),
    "shinR": (0.131998, 0.359, 0.0),
    "footR": (0.131998, 0.161, 0.0),
    "armL": (-0.4125, 1.44404, 0.0),
    "forearmL": (-0.7425, 1.44404, 0.0),
    "handL": (-0.9735, 1.44404, 0.0),
    "armR": (0.4125, 1.44404, 0.0),
    "forearmR": (0.7425, 1.44404, 0.0),
    "handR": (0.9735, 1.44404, 0.0),
}

_X = (1.0, 0.0, 0.0)
_BACK = (0.0, 0.0, -1.0)
_SOLE_M = (0.12784, 0.04306, 0.23002)
_SOLE_CENTER_M = (0.0, -0.00022, 0.03283)


def _anatomy() -> Anatomy:
    trunk = [
        capsule("hips", 15.0, 0.1, 0.42, "x"),
        capsule("chest", 8.0, 0.13, 0.45, "x"),
        capsule("spine", 10.0, 0.08, 0.36, "x"),
        sphere("head", 6.0, 0.22),
    ]
    legs = [part for side in "LR" for part in _leg(side)]
    arms = [part for side in "LR" for part in _arm(side)]
    bones = {
        bone.owner: bone for bone in (*_trunk_bones(), *_leg_bones(), *_arm_bones())
    }
    return assemble(
        parts=[*trunk, *legs, *arms],
        poses=[(place, UPRIGHT) for place in _PLACES_M.values()],
        bones=[bones[name] for name in _CREATED],
        parents={},
        spring=(40000.0, 5000.0, 20000.0),
        drag=0.05,
        max_spin={},
    )


# The order of the joints' creation, which decides how they are solved: that of the prefab's file,
# reversed. With others, Unity's policy falls more often.
_CREATED = (
    *("chest", "armR", "handR", "forearmL", "shinR", "thighL", "armL"),
    *("head", "thighR", "shinL", "footL", "handL", "forearmR", "footR", "spine"),
)


def _leg(side: str) -> list[Part]:
    return [
        capsule(f"thigh{side}", 14.0, 0.09, 0.30, "y"),
        capsule(f"shin{side}", 7.0, 0.06, 0.32, "y"),
        box(f"foot{side}", 5.0, _SOLE_M, _SOLE_CENTER_M),
    ]


def _arm(side: str) -> list[Part]:
    return [
        capsule(f"arm{side}", 4.0, 0.08, 0.33, "x"),
        capsule(f"forearm{side}", 3.0, 0.08, 0.30, "x"),
        sphere(f"hand{side}", 2.0, 0.08),
    ]


def _trunk_bones() -> list[Bone]:
    bend = (-20.0, 20.0)
    spine = (0.0, -0.1, 0.0)
    chest = (0.0, -0.16, 0.0)
    head = (0.0, -0.28, 0.0)
    nod = (-30.0, 10.0)
    return [
        Bone("spine", "hips", spine, _X, _BACK, bend, 20.0, 15.0, (3, 4, 5), 27),
        Bone("chest", "spine", chest, _X, _BACK, bend, 20.0, 15.0, (0, 1, 2), 26),
        Bone("head", "chest", head, _X, _BACK, nod, 20.0, None, (24, 25, STILL), 28),
    ]


def _leg_bones() -> list[Bone]:
    left = (-1.0, 0.0, 0.0)
    up = (0.0, 1.0, 0.0)
    hip = (0.0, 0.16, 0.0)
    knee = (0.0, 0.17, 0.0)
    ankle = (0.0, 0.03, 0.0)
    bones = []
    # Unity's script sets the right foot before the left one: its actions come first.
    for side, thigh, shin, foot, strength in (
        ("L", (6, 7, STILL), (10, STILL, STILL), (15, 16, 17), 29),
        ("R", (8, 9, STILL), (11, STILL, STILL), (12, 13, 14), 32),
    ):
        upper, lower, sole = f"thigh{side}", f"shin{side}", f"foot{side}"
        bones += [
            Bone(
                *(upper, "hips", hip, left, _BACK),
                x_deg=(-90.0, 60.0),
                y_deg=40.0,
                actions=thigh,
                strength=strength,
            ),
            Bone(
                *(lower, upper, knee, left, _BACK),
                x_deg=(0.0, 120.0),
                actions=shin,
                strength=strength + 1,
            ),
            Bone(
                *(sole, lower, ankle, _X, up),
                x_deg=(-20.0, 20.0),
                y_deg=20.0,
                z_deg=20.0,
                actions=foot,
                strength=strength + 2,
            ),
        ]
    return bones


def _arm_bones() -> list[Bone]:
    ahead = (0.0, 0.0, 1.0)
    bones = []
    for side, sign, arm, forearm, strength in (
        ("L", 1.0, (18, 19, STILL), (22, STILL, STILL), 35),
        ("R", -1.0, (20, 21, STILL), (23, STILL, STILL), 37),
    ):
        upper, lower = f"arm{side}", f"forearm{side}"
        # The prefab mirrors the arms: axis and anchors, while ranges stay the same.
        down = (0.0, -sign, 0.0)
        shoulder = (sign * 0.18, 0.0, 0.0)
        elbow = (sign * 0.16, 0.0, 0.0)
        bones += [
            Bone(
                *(upper, "chest", shoulder, down, ahead),
                x_deg=(-60.0, 120.0),
                y_deg=100.0,
                actions=arm,
                strength=strength,
            ),
            Bone(
                *(lower, upper, elbow, down, ahead),
                x_deg=(0.0, 160.0),
                actions=forearm,
                strength=strength + 1,
            ),
            Bone(f"hand{side}", lower, (0.0, 0.0, 0.0), _X, ahead),
        ]
    return bones


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
    anatomy = _anatomy()
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
    # Blocks hold 16 agents each; the last one may be partly empty.
    end = min(last * LANES, len(agents))
    for row in range(first * LANES, end):
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
