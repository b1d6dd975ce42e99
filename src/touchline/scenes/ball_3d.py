"""3DBall and 3DBallHard: tilt a cube so that the ball on it stays there.

Each area is a cube of 5 m, rotated by its agent, and a ball of 1 m across. An agent earns 0.1 per
decision while its ball is up, and -1 when the ball falls, which ends the episode; after 1000
decisions it is interrupted, so the best return is 100.

Source: ML-Agents Release 22, `Ball3DAgent.cs`, `Ball3DHardAgent.cs` and their prefabs.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from touchline.drawing.look import BLUE, DARK, HEADBAND, WHITE
from touchline.drawing.tableau import (
    NO_SHAPES,
    Camera,
    Kind,
    Tableau,
    join,
    make_shapes,
)
from touchline.operating_systems import num_cores
from touchline.parameters import Parameter, ParameterValue
from touchline.physics.frames import (
    from_mujoco_quaternion,
    product,
    swap_axes,
    to_mujoco_quaternion,
    turn_about,
)
from touchline.physics.kernels import compiled
from touchline.physics.mujoco_batch import MujocoBatch
from touchline.physics.mujoco_import import mujoco
from touchline.physics.world import Arrays
from touchline.scenes.academy import Agents
from touchline.scenes.scene import ActionNames, Scene
from touchline.sensors.stacking import Stack
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

MAX_STEP = 5000
TILT_RAD_PER_STEP = np.deg2rad(2.0)
"""Full deflection turns the cube by 2 degrees per physics step, so by up to 10 per decision."""
TILT_LIMIT = 0.25
"""The cube tilts no further once this component of its quaternion (sine of half the angle: 29
degrees) is passed."""
START_TILT_RAD = np.deg2rad(10.0)
START_SPREAD_M = 1.5
START_HEIGHT_M = 4.0
FALLEN_BELOW_M = -2.0
FALLEN_ASIDE_M = 3.0
BALL_RADIUS_M = 0.5
UP_REWARD, FALL_REWARD = 0.1, -1.0
STACKED_FRAMES = 9

CUBE_M = 5.0
GROUND_M = -6.0
"""In pictures; a ball that falls is out of the game before it would arrive there."""
CAMERA = Camera(
    eye=(-4.0, 9.0, -15.0),
    target=(0.0, 0.8717, -0.0812),
    extent_m=8.83,
)
_TILT_RAD = math.radians(-1.892)
_HEADBAND_TILT = (0.0, 0.0, math.sin(_TILT_RAD / 2), math.cos(_TILT_RAD / 2))
_ALONG_X = (0.0, 0.0, math.sqrt(0.5), math.sqrt(0.5))
_CUBE = join(
    make_shapes(
        Kind.BOX,
        CUBE_M / 2,
        (0.0, 0.0, 0.0),
        BLUE,
    ),
    make_shapes(
        Kind.BOX,
        (2.610, 0.482, 2.610),
        (0.0, 1.705, 0.0),
        HEADBAND,
        _HEADBAND_TILT,
    ),
    make_shapes(
        Kind.ELLIPSOID,
        (0.55, 0.55, 0.12),
        [(-0.8, 0.8, -2.5), (0.8, 0.8, -2.5)],
        WHITE,
    ),
    make_shapes(
        Kind.ELLIPSOID,
        (0.25, 0.25, 0.08),
        [(-0.8, 0.8, -2.6), (0.8, 0.8, -2.6)],
        DARK,
    ),
    make_shapes(Kind.CAPSULE, (0.1, 0.7, 0.1), (0.0, -0.8, -2.5), DARK, _ALONG_X),
)
"""The agent with its headband and face, in its own frame: eyes, pupils, mouth.

The headband's size, place, tilt and color are those of ML-Agents' `AgentCube_Blue.prefab` and
`Headband.mat`; the scene scales the head by 5 and turns it by 180 degrees about y.
"""
_VECTOR = ObservationSpec.vector(8, "VectorSensor_size8")
STATE_MIDDLE = np.array([0, 0, 0, 3, 0, 0, 0, 0], np.float32)
STATE_SPREAD = np.array([0.15, 0.15, 1, 0.5, 1, 2, 2, 2], np.float32)


class Ball3D(Scene):
    """Tilt a cube so that the ball on it stays there.

    Observation `VectorSensor_size8`, in Unity's frame:

    | index | meaning | range |
    | --- | --- | --- |
    | 0, 1 | z and x of the cube's quaternion (x, y, z, w) | about ±0.25 |
    | 2-4 | ball minus cube, x, y, z | m; ±3, 2.5 to 4, ±3 |
    | 5-7 | the ball's velocity x, y, z | m/s |

    Action 0 turns the cube about its own z axis, action 1 about its own x axis.
    """

    name = "3DBall"
    action_names = ActionNames(("tilt left / tilt right", "tilt ahead / tilt back"))
    unity_areas = 12
    behaviors = {
        "3DBall?team=0": BehaviorSpec((_VECTOR,), ActionSpec.create_continuous(2))
    }
    max_step = MAX_STEP
    state_size = 8
    parameters = {
        "mass": Parameter(1.0, 1e-3, 1e3, "the ball's mass, kg"),
        "scale": Parameter(1.0, 0.05, 4.0, "the ball's diameter, m"),
        "gravity": Parameter(9.81, 0.0, 100.0, "downward acceleration, m/s²"),
    }
    read_by_episode: ClassVar[Sequence[str]] = ("mass", "scale", "gravity")
    """Parameters that are read at the start of each episode, not only at start-up."""

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        model = mujoco.MjModel.from_xml_path(
            str(Path(__file__).with_name("ball_3d.xml"))
        )
        # Measured: a second thread is a quarter faster at 64 simulations, not at all at 12.
        most = min(num_areas // 32, num_cores())
        threads = num_threads or max(1, most)
        self.world = MujocoBatch(model, num_areas, threads)
        self._quaternion = np.zeros((num_areas, 4))
        """[A, (x, y, z, w)] of the cube, in Unity's frame."""
        self._mass = np.ones(num_areas)
        self._scale = np.ones(num_areas)
        self._gravity = np.full(num_areas, self.parameters["gravity"].default)

    def arrays(self) -> Arrays:
        return self.world.arrays() | {
            "quaternion": self._quaternion,
            "mass": self._mass,
            "scale": self._scale,
            "gravity": self._gravity,
        }

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        super().load_state(state)
        self._apply_physical_parameters()

    def parameter_arrays(self) -> dict[str, NDArray[np.float64]]:
        return {"gravity": self._gravity}  # acts at once, as in Unity

    def set_parameter(self, name: str, value: ParameterValue) -> None:
        super().set_parameter(name, value)
        if name in self.parameter_arrays():
            self._apply_physical_parameters()

    def restart(self) -> None:
        self.world.reset()
        self._read(("mass", "scale"), self._areas)

    def begin_episodes(self, agents: Agents) -> None:
        """Tilt the cube by up to 10 degrees and drop the ball from above."""
        # The ball keeps its spin, as in Unity.
        self.streams.next_episode(agents)
        draws = self.streams.uniform(agents, 4, -1.0, 1.0)
        tilt = draws[:, :2] * START_TILT_RAD
        about_x = turn_about(0, tilt[:, 0])
        self._quaternion[agents] = product(about_x, turn_about(2, tilt[:, 1]))
        self.world.mocap_quat[agents, 0] = to_mujoco_quaternion(
            self._quaternion[agents]
        )
        self.world.qpos[agents, 0:2] = draws[:, 2:4] * START_SPREAD_M
        self.world.qpos[agents, 2] = START_HEIGHT_M
        self.world.qvel[agents, 0:3] = 0.0
        self._read(self.read_by_episode, agents)

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        obs = np.empty((len(agents), 8), np.float32)
        obs[:, 0] = self._quaternion[agents, 2]
        obs[:, 1] = self._quaternion[agents, 0]
        obs[:, 2:5] = swap_axes(self.world.qpos[agents, :3])
        obs[:, 5:8] = swap_axes(self.world.qvel[agents, :3])
        return [obs]

    def observe_state(self, behavior: str, agents: Agents) -> NDArray[np.float32]:
        """What agents of 3DBall observe, for 3DBallHard and Visual3DBall."""
        (numbers,) = Ball3D.observe(self, behavior, agents)
        return (numbers - STATE_MIDDLE) / STATE_SPREAD

    # play

    def act(self) -> None:
        """Turn every cube by its action; a fallen ball ends the episode before physics."""
        reward = self.academy.reward
        any_fallen = _act(
            self._quaternion,
            self.academy.continuous,
            self.world.qpos,
            reward,
            self.world.mocap_quat,
        )
        if any_fallen:
            fallen = np.flatnonzero(reward == np.float32(FALL_REWARD))
            self.academy.end(self, fallen)
            self.begin_episodes(fallen)

    def simulate(self, most: int) -> int:
        self.world.step()
        return 1

    def tableau(self, area: int) -> Tableau:
        qpos = self.world.qpos[area]
        radius = BALL_RADIUS_M * self._scale[area]
        ball = make_shapes(
            Kind.SPHERE,
            radius,
            swap_axes(qpos[:3]),
            WHITE,
            from_mujoco_quaternion(qpos[3:7]),
        )
        cube = _CUBE.attached_to(np.zeros(3), self._quaternion[area])
        return Tableau(
            static=NO_SHAPES, moving=join(cube, ball), camera=CAMERA, ground_m=GROUND_M
        )

    def _read(self, names: Sequence[str], areas: Agents) -> None:
        """Read some of `parameters` for these areas."""
        kept_by_name = {
            "mass": self._mass,
            "scale": self._scale,
            "gravity": self._gravity,
        }
        changed = False
        for name in names:
            kept = kept_by_name[name]
            value = self.parameter_values.read(name, areas)
            changed |= bool(np.any(kept[areas] != value))
            kept[areas] = value
        if changed:  # deriving the constants of all areas takes longer than a step
            self._apply_physical_parameters()

    def _apply_physical_parameters(self) -> None:
        """Give every area its own ball and gravity; before, all areas share the model's."""
        world = self.world
        ball = world.model.body("ball").id
        geom = world.model.geom("ball").id
        radius = BALL_RADIUS_M * self._scale
        # Of a solid ball.
        inertia = 0.4 * self._mass * radius**2
        world.per_area("opt.gravity")[:, 2] = -self._gravity
        world.per_area("geom_size")[:, geom, 0] = radius
        # MuJoCo's bounding sphere, which it does not derive again by itself.
        world.per_area("geom_rbound")[:, geom] = radius
        world.per_area("body_mass")[:, ball] = self._mass
        world.per_area("body_inertia")[:, ball] = inertia[:, None]
        world.update_constants()


_PREFIX = f"StackingSensor_size{STACKED_FRAMES}_ObservableAttribute:Ball3DHardAgent"
_POSITION = ObservationSpec.vector(STACKED_FRAMES * 3, f"{_PREFIX}.PositionDelta")
_ROTATION = ObservationSpec.vector(STACKED_FRAMES * 2, f"{_PREFIX}.Rotation")


class Ball3DHard(Ball3D):
    """3DBall without velocities, which the last nine frames imply.

    Observation `StackingSensor_size9_ObservableAttribute:Ball3DHardAgent.PositionDelta`: 9 x (ball
    minus cube, m); then `...Ball3DHardAgent.Rotation`: 9 x (z, x of the cube's quaternion). Oldest
    frame first.
    """

    name = "3DBallHard"
    behaviors = {
        "3DBallHard?team=0": BehaviorSpec(
            (_POSITION, _ROTATION), ActionSpec.create_continuous(2)
        )
    }
    read_by_episode = ("gravity",)

    def __init__(self, num_areas: int, num_threads: int = 0) -> None:
        super().__init__(num_areas, num_threads)
        self._position = Stack(num_areas, STACKED_FRAMES, 3)
        self._rotation = Stack(num_areas, STACKED_FRAMES, 2)

    def arrays(self) -> Arrays:
        return super().arrays() | {
            "position": self._position.frames,
            "rotation": self._rotation.frames,
        }

    def begin_episodes(self, agents: Agents) -> None:
        super().begin_episodes(agents)
        self._position.clear(agents)
        self._rotation.clear(agents)

    def observe(self, behavior: str, agents: Agents) -> list[NDArray[Any]]:
        (obs,) = super().observe(behavior, agents)
        return [
            self._position.push(agents, obs[:, 2:5]),
            self._rotation.push(agents, obs[:, 0:2]),
        ]


@compiled
def _act(
    quaternion: NDArray[np.float64],
    action: NDArray[np.float32],
    qpos: NDArray[np.float64],
    reward: NDArray[np.float32],
    mocap: NDArray[np.float64],
) -> bool:
    """Turn every cube [A, 4] by its action [A, 1, 2], and reward it for its ball.

    `qpos` [A, (x, depth, height, ...)] are the balls. Writes MuJoCo's quaternions [A, 1, 4].
    Returns whether any ball is off its cube.
    """
    any_fallen = False
    for area in range(len(quaternion)):
        _tilt(quaternion[area], action[area, 0])
        x, y, z, w = quaternion[area]
        mocap[area, 0] = w, -x, -z, -y  # as `frames.to_mujoco_quaternion`
        reward[area, 0] = UP_REWARD  # set, not added: one step's worth per decision
        aside = max(abs(qpos[area, 0]), abs(qpos[area, 1]))
        if qpos[area, 2] < FALLEN_BELOW_M or aside > FALLEN_ASIDE_M:
            reward[area, 0] = FALL_REWARD
            any_fallen = True
    return any_fallen


@compiled
def _tilt(q: NDArray[np.float64], action: NDArray[np.float32]) -> None:
    """Turn one cube's quaternion by its action, first about z, then about x, up to the limit."""
    for turn, i in enumerate((2, 0)):
        # In double precision, as the quaternion is.
        limited = min(max(np.float64(action[turn]), -1.0), 1.0)
        tilt = limited * TILT_RAD_PER_STEP
        may_rise = tilt > 0.0 and q[i] < TILT_LIMIT
        may_sink = tilt < 0.0 and q[i] > -TILT_LIMIT
        if may_rise or may_sink:
            s = np.sin(tilt / 2)
            c = np.cos(tilt / 2)
            # The product with a rotation about one axis, written out: most of its terms are zero.
            j = (i + 1) % 3
            k = (i + 2) % 3
            q[i], q[3] = q[i] * c + q[3] * s, q[3] * c - q[i] * s
            q[j], q[k] = q[j] * c + q[k] * s, q[k] * c - q[j] * s
