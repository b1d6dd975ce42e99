"""Crawler: a body on four legs that is to walk to a cube at a goal speed.

The body and the upper legs may not touch the ground.

Source: ML-Agents Release 22, `CrawlerAgent.cs`, `PhysicsBodySensor.cs`, `Crawler.prefab`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.physics.frames import rotate
from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.lanes import minus, turn_of, vector_of
from touchline.physics.ragdoll.model import Part, Quaternion, capsule, sphere
from touchline.physics.ragdoll.world import State
from touchline.scenes.academy import Agents
from touchline.scenes.ragdolls.anatomy import STILL, UPRIGHT, Anatomy, Bone, assemble
from touchline.scenes.ragdolls.game import WalkingScene
from touchline.scenes.ragdolls.looks import Stage
from touchline.scenes.ragdolls.rounds import Rewarded
from touchline.scenes.ragdolls.target import TargetPlace
from touchline.scenes.ragdolls.walk import Walk, observe_speeds, observe_target
from touchline.scenes.scene import ActionNames
from touchline.sensors.body import (
    cube_rotation,
    in_cube,
    relative_turn,
    write,
    write_turn,
)
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

GROUND_TOP_M = 0.5
# CrawlerAgent.cs casts a ray down for the height; it reports 1 where nothing is within 10 m.
SEEN_DOWN_M = 10.0
BODY_SENSOR_SIZE, VECTOR_SIZE = 126, 32
PARTS = 9
START_M = (0.0, 2.656, 0.0)
_UP_TO_HIP_M = np.array((0.6363961, -0.1500001, 0.6363963))
_SIDES = ((1, -1), (-1, -1), (-1, 1), (1, 1))
"""Side of the body, along x and z, on which each leg is."""
_TURNS: tuple[Quaternion, ...] = (
    (-0.6532815, -0.270598, -0.270598, 0.6532815),
    (-0.6532815, 0.270598, 0.270598, 0.6532815),
    (-0.270598, 0.6532815, 0.6532815, 0.270598),
    (-0.270598, -0.6532815, -0.6532815, 0.270598),
)


def _anatomy() -> Anatomy:
    parts: list[Part] = [sphere("body", 20.0, 0.5)]
    poses: list[Any] = [(START_M, UPRIGHT)]
    bones = []
    x = (1.0, 0.0, 0.0)
    back = (0.0, 0.0, -1.0)
    for k, (side, ahead) in enumerate(_SIDES):
        upper, lower = f"leg{k}", f"fore{k}"
        parts.append(capsule(upper, 2.0, 0.15, 0.95, "y"))
        parts.append(capsule(lower, 1.0, 0.15, 1.5, "y"))
        turn = _TURNS[k]
        mirrored = (side, 1, ahead)
        hip = np.array(START_M) + _UP_TO_HIP_M * mirrored
        # The prefab places the lower leg 1.08 m along the upper leg's own y axis.
        down_the_leg = np.array((0.0, 1.08, 0.0))
        knee = hip + rotate(np.array(turn), down_the_leg)
        poses.append((hip.tolist(), turn))
        poses.append((knee.tolist(), turn))
        # Actions list the hips' angles, then the knees', then strengths in the same order.
        hip_actions = (2 * k, 2 * k + 1, STILL)
        knee_actions = (8 + k, STILL, STILL)
        at = (0.0, -0.5, 0.0)
        below = (0.0, -0.75, 0.0)
        bones += [
            Bone(
                *(upper, "body", at, x, back),
                x_deg=(-60.0, 0.0),
                y_deg=20.0,
                actions=hip_actions,
                strength=12 + k,
            ),
            Bone(
                *(lower, upper, below, x, back),
                x_deg=(0.0, 150.0),
                actions=knee_actions,
                strength=16 + k,
            ),
        ]
    return assemble(
        parts=parts,
        poses=poses,
        bones=bones,
        parents={},
        spring=(40000.0, 5000.0, 20000.0),
        drag=0.05,
        max_spin={},
    )


class Crawler(WalkingScene):
    """Walk on four legs to a cube, at a goal speed.

    In C: in the frame of the orientation cube, which is level, is at the body, and faces the
    target. Parts: body, then upper and lower leg 0, 1, 2, 3 (back right, back left, ahead left,
    ahead right).

    Observation `PhysicsBodySensor:Body` (126):

    | index | meaning |
    | --- | --- |
    | 0-62 | of each part its position and rotation (x, y, z, w) in C |
    | 63-89 | of each part its velocity in C, m/s |
    | 90-125 | of each part its rotation seen from the part it hangs on; of the body, from C |

    Observation `VectorSensor_size32`:

    | index | meaning |
    | --- | --- |
    | 0 | difference between goal velocity and the parts' mean velocity, m/s |
    | 1-3, 4-6 | mean velocity, goal velocity in C |
    | 7-10 | shortest rotation from the body's z axis to C's |
    | 11-13 | target's position in C, m |
    | 14 | height of the body above the ground / 10 m, at most 1 |
    | 15 | whether the body touches the ground |
    | 16-31 | of each leg's parts: whether it touches the ground, its strength |

    Actions: target angles x, y of the hips (0-7), x of the knees (8-11), strengths of hips (12-15)
    and knees (16-19). They are executed once per decision and stay.
    """

    name = "Crawler"
    action_names = ActionNames(
        [
            *(f"hip {leg} {axis}" for leg in range(1, 5) for axis in "xy"),
            *(f"knee {leg} x" for leg in range(1, 5)),
            *(
                f"{part} {leg} strength"
                for part in ("hip", "knee")
                for leg in range(1, 5)
            ),
        ]
    )
    unity_areas = 10
    behaviors = {
        "Crawler?team=0": BehaviorSpec(
            (
                ObservationSpec.vector(BODY_SENSOR_SIZE, "PhysicsBodySensor:Body"),
                ObservationSpec.vector(VECTOR_SIZE, f"VectorSensor_size{VECTOR_SIZE}"),
            ),
            ActionSpec.create_continuous(20),
        )
    }
    anatomy = _anatomy()
    stage = Stage(
        ground_top=GROUND_TOP_M,
        half_m=50.0,
        wall_m=4.0,
        target_m=1.0,
        eyes=("body", 0, 0.1),
        camera_offset=(-4.0, 3.0, 5.0),
    )
    target_place = TargetPlace(
        edge=1.0, radius=40.0, y=START_M[1], z=0.0, ground_top=GROUND_TOP_M
    )
    deadly = ("body", "leg0", "leg1", "leg2", "leg3")
    goal_speeds = (0.1, 15.0)
    rewarded = Rewarded(parts=PARTS, facing=0)

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        return self.sense(_observe, agents, BODY_SENSOR_SIZE, VECTOR_SIZE)


@compiled
def _observe(
    first: int,
    last: int,
    agents: Agents,
    state: State,
    walk: Walk,
    body: NDArray[np.float32],
    vector: NDArray[np.float32],
) -> None:
    for row in range(first, last):
        agent = agents[row]
        _sense_body(agent, state, walk, body[row])
        _observe_one(agent, state, walk, vector[row])


@compiled
def _sense_body(agent: int, state: State, walk: Walk, out: NDArray[np.float32]) -> None:
    ahead = (walk.ahead[agent, 0], walk.ahead[agent, 1])
    cube = vector_of(walk.cube[agent])
    cube_turn = cube_rotation(ahead)
    at = 0
    for i in range(PARTS):
        position = vector_of(state.position[agent, i])
        offset = minus(position, cube)
        at = write(out, at, in_cube(ahead, offset))
        own = turn_of(state.rotation[agent, i])
        at = write_turn(out, at, relative_turn(cube_turn, own))
    for i in range(PARTS):
        velocity = vector_of(state.velocity[agent, i])
        at = write(out, at, in_cube(ahead, velocity))
    for i in range(PARTS):
        # The body hangs on nothing, so its rotation is seen from the orientation cube.
        parent = cube_turn
        if i > 0:
            parent = turn_of(state.rotation[agent, walk.parents[i]])
        own = turn_of(state.rotation[agent, i])
        at = write_turn(out, at, relative_turn(parent, own))


@compiled
def _observe_one(
    agent: int, state: State, walk: Walk, out: NDArray[np.float32]
) -> None:
    at = observe_speeds(agent, state, walk, PARTS, out)
    at = observe_target(agent, (0,), state, walk, at, out)
    height = state.position[agent, 0, 1] - GROUND_TOP_M
    out[at] = min(height / SEEN_DOWN_M, 1.0)
    out[at + 1] = state.touching[agent, 0]
    at += 2
    for i in range(1, PARTS):
        out[at] = state.touching[agent, i]
        # Drives are numbered by strength, which lists the hips before the knees.
        out[at + 1] = walk.strength[agent, walk.drive_of[i]]
        at += 2
