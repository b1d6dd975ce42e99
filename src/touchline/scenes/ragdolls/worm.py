"""Worm: four segments that are to crawl to a cube at 10 m/s.

Only the first segment's speed and direction count. Nothing ends an episode but the step limit.

Source: ML-Agents Release 22, `WormAgent.cs`, `Worm.prefab`, `PlatformWorm.prefab`.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchline.physics.frames import product, rotate
from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.lanes import minus, turn_of, vector_of
from touchline.physics.ragdoll.model import NO_TURN, capsule, sphere
from touchline.physics.ragdoll.world import State
from touchline.physics.shapes import Floats, Vector
from touchline.scenes.academy import Agents
from touchline.scenes.ragdolls.anatomy import STILL, Anatomy, Bone, assemble
from touchline.scenes.ragdolls.game import WalkingScene
from touchline.scenes.ragdolls.looks import Stage
from touchline.scenes.ragdolls.rounds import Rewarded
from touchline.scenes.ragdolls.target import TargetPlace
from touchline.scenes.ragdolls.walk import Walk, angle_deg, observe_target
from touchline.scenes.scene import ActionNames
from touchline.sensors.body import (
    in_cube,
    relative_turn,
    write,
    write_turn,
)
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

GOAL_SPEED_MPS = 10.0
# WormAgent.cs casts a ray down for the height; it reports 1 where nothing is within 10 m.
SEEN_DOWN_M = 10.0
GROUND_TOP_M = 0.5
TURNED_AWAY_DEG = 30.0
"""There is no reward beyond this angle between the first segment and the target."""
OBS_SIZE = 64
SEGMENTS = 4

_X = (1.0, 0.0, 0.0)
_Y = (0.0, 1.0, 0.0)
_BACK = (0.0, 0.0, -1.0)


def _chain() -> list[tuple[list[float], list[float]]]:
    """The poses of the four segments: each is the child of the one before."""
    local = [
        ((0.0, 1.65, 0.0), NO_TURN),
        ((0.0, 0.0001001358, -1.3162999), (0.70697504, 0.0, 0.0, 0.7072385)),
        ((0.0, -1.1247, -0.00031888), NO_TURN),
        ((0.0, -1.1159996, -0.00041592), NO_TURN),
    ]
    position = np.zeros(3)
    turn = np.array(NO_TURN)
    poses = []
    for offset, own in local:
        position = position + rotate(turn, np.array(offset))
        turn = product(turn, np.array(own))
        poses.append((position.tolist(), turn.tolist()))
    return poses


def _segment(
    owner: str, connected: str, anchor: Vector, secondary: Vector, k: int
) -> Bone:
    """The joint behind segment k, which the next one hangs on."""
    actions = (2 * k, 2 * k + 1, STILL)
    bone = Bone(owner, connected, anchor, _X, secondary, (-60.0, 60.0), 60.0)
    return replace(bone, actions=actions, strength=6 + k)


def _anatomy() -> Anatomy:
    half = math.sqrt(0.5)
    head = [
        ((0.0, 1.65 - 0.16541958, 0.9368001), (half, 0.0, 0.0, half)),
        ((-0.27, 1.65 + 0.101, 0.598), NO_TURN),
        ((0.289, 1.65 + 0.04, 0.648), NO_TURN),
    ]
    return assemble(
        parts=[
            capsule("seg0", 10.0, 0.37, 2.0, "z"),
            capsule("seg1", 10.0, 0.33, 1.5, "y"),
            capsule("seg2", 10.0, 0.28, 1.48, "y"),
            capsule("seg3", 10.0, 0.26, 1.46, "y"),
            sphere("mouth", 1.0, 0.31083, (-0.0202, 0.04913, -0.13097)),
            sphere("eyeL", 1.0, 0.12567),
            sphere("eyeR", 1.0, 0.12567),
        ],
        poses=[*_chain(), *head],
        bones=[
            _segment("seg0", "seg1", (0.0, 0.0, -0.8), _Y, 0),
            _segment("seg1", "seg2", (0.0, -0.55, 0.0), _BACK, 1),
            _segment("seg2", "seg3", (0.0, -0.55, 0.0), _BACK, 2),
            Bone(
                "mouth", "seg0", (0.0, 0.0, 0.0), _X, _Y, inverse_mass_scale=(0.1, 1.0)
            ),
            Bone("eyeL", "seg0", (0.0, 0.0, 0.0), _X, _Y, free=True),
            Bone("eyeR", "seg0", (0.0, 0.0, 0.0), _X, _Y, free=True),
        ],
        parents={"seg1": "seg0", "seg2": "seg1", "seg3": "seg2", "seg0": "seg0"},
        spring=(3000.0, 30.0, 10000.0),
        drag=0.0,
        # Unity's default; JointDriveController.cs raises it only for the bodies that it drives.
        max_spin={"mouth": 7.0, "eyeL": 7.0, "eyeR": 7.0},
    )


class Worm(WalkingScene):
    """Crawl to a cube at 10 m/s.

    Observation `VectorSensor_size64`. In C: along the axes of the orientation cube, which is level,
    is at the first segment, and points to the target.

    | index | meaning |
    | --- | --- |
    | 0 | height of the first segment above the ground / 10 m, at most 1 |
    | 1-3 | goal velocity in C, m/s: 0, 0, 10 |
    | 4 | angle between first segment and C / 180 degrees |
    | 5-8 | shortest rotation from the first segment's z axis to C's (x, y, z, w) |
    | 9-11 | target's position in C, m |
    | 12-19 | first segment: touches the ground, velocity in C, spin in C, strength |
    | 20-34, 35-49 | second, third: touch, velocity, spin, position from the first in C, |
    | | rotation seen from the segment before, strength |
    | 50-63 | fourth: likewise without strength |

    Actions: target angles x, y of the joints behind the first three segments (0-5), their
    strengths (6-8). They are executed once per decision and stay.
    """

    name = "Worm"
    action_names = ActionNames(
        [
            *(f"joint {joint} {axis}" for joint in range(1, 4) for axis in "xy"),
            *(f"joint {joint} strength" for joint in range(1, 4)),
        ]
    )
    unity_areas = 10
    behaviors = {
        "Worm?team=0": BehaviorSpec(
            (ObservationSpec.vector(OBS_SIZE, f"VectorSensor_size{OBS_SIZE}"),),
            ActionSpec.create_continuous(9),
        )
    }
    anatomy = _anatomy()
    stage = Stage(
        ground_top=GROUND_TOP_M,
        half_m=50.0,
        wall_m=4.0,
        target_m=1.0,
        eyes=("seg0", 0, 0.0),
        camera_offset=(-5.0, 4.0, 5.5),
    )
    target_place = TargetPlace(
        edge=1.0, radius=40.0, y=1.65, z=0.0, ground_top=GROUND_TOP_M
    )
    touched_by = ("mouth",)
    carried = ("mouth", "eyeL", "eyeR")
    goal_speeds = (GOAL_SPEED_MPS, GOAL_SPEED_MPS)
    rewarded = Rewarded(1, 0, TURNED_AWAY_DEG)
    # WormAgent.cs: 2 m below where it started.
    dropped_below_m = 1.65 - 2.0

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        return self.sense(_observe, agents, OBS_SIZE)


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
        _observe_one(agents[row], state, walk, obs[row])


@compiled
def _observe_one(
    agent: int, state: State, walk: Walk, out: NDArray[np.float32]
) -> None:
    ahead = (walk.ahead[agent, 0], walk.ahead[agent, 1])
    root = vector_of(state.position[agent, 0])
    out[0] = min((root[1] - GROUND_TOP_M) / SEEN_DOWN_M, 1.0)
    at = write(out, 1, (0.0, 0.0, GOAL_SPEED_MPS))
    out[at] = angle_deg(state, walk, agent) / 180.0
    at = observe_target(agent, (0,), state, walk, at + 1, out)
    for i in range(SEGMENTS):
        out[at] = state.touching[agent, i]
        velocity = vector_of(state.velocity[agent, i])
        at = write(out, at + 1, in_cube(ahead, velocity))
        spin = vector_of(state.spin[agent, i])
        at = write(out, at, in_cube(ahead, spin))
        # Seen from itself the first segment is always at 0, unturned: WormAgent.cs leaves it out.
        if i > 0:
            offset: Vector = minus(vector_of(state.position[agent, i]), root)
            at = write(out, at, in_cube(ahead, offset))
            parent: Floats = state.rotation[agent, walk.parents[i]]
            own = turn_of(state.rotation[agent, i])
            at = write_turn(out, at, relative_turn(turn_of(parent), own))
        # The last segment has no joint behind it, and so no strength.
        if i < SEGMENTS - 1:
            out[at] = walk.strength[agent, walk.drive_of[i]]
            at += 1
