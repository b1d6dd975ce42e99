"""The ragdolls of N agents: their state, and a step of all of them."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.ground import Anchors, build_ground
from touchline.physics.ragdoll.joints import build_drive, build_joint
from touchline.physics.ragdoll.lanes import (
    LANES,
    add,
    columns,
    dot,
    get,
    get_turn,
    minus,
    multiply,
    put,
    put_turn,
    rotate,
    times,
    turn_of,
    turned_by,
    vector_of,
)
from touchline.physics.ragdoll.model import (
    BOX,
    PartRecord,
    Ragdoll,
    Settings,
    colliding_pairs,
    joint_records,
    num_rows,
    part_records,
)
from touchline.physics.ragdoll.own_contacts import find_own_contacts, sweep_own_contacts
from touchline.physics.ragdoll.records import Body, Work, new_work
from touchline.physics.ragdoll.solve import keep_velocity, sweep_ground, sweep_joints
from touchline.physics.shapes import Floats
from touchline.physics.threads import Threads
from touchline.physics.world import Arrays, PhysicsWorld

DT_S = 0.01333
"""Fixed time step of Unity's ragdoll scenes."""
GRAVITY = 14.715
"""1.5 times Unity's default, m/s²."""
FRICTION = 0.6
"""Unity's default material."""
SWEEPS = 12
"""Before the poses move, and again after."""
FRICTION_FROM = 9
"""PhysX solves friction in the last three of the sweeps that move poses."""
_PART_REACH_M = 0.01
"""A part's contact offset; Unity's default."""


class State(NamedTuple):
    """Everything that the next step of N agents depends on; also what the scene reads and sets."""

    position: Floats
    """[N, B, 3] of the body's origin"""
    rotation: Floats
    """[N, B, 4]"""
    velocity: Floats
    """[N, B, 3] of the center of mass"""
    spin: Floats
    """[N, B, 3] angular velocity, in the world's axes"""
    target: Floats
    """[N, D, 4] of each drive: the rotation of the connected frame to be reached"""
    torque: Floats
    """[N, D] greatest torque of each drive, N m"""
    touching: NDArray[np.bool_]
    """[N, B] whether a part touched the ground in the last step"""
    gravity: Floats
    """[N] downward acceleration"""
    anchors: Anchors


class Model(NamedTuple):
    """The constants of a ragdoll and of the world's steps."""

    parts: NDArray[np.void]
    joints: NDArray[np.void]
    pairs: NDArray[np.int64]
    settings: Settings


class RagdollWorld(PhysicsWorld):
    """N agents with a ragdoll each, on a level ground. No agent affects another."""

    def __init__(
        self,
        ragdoll: Ragdoll,
        num_agents: int,
        threads: Threads | None = None,
        *,
        ground_top: float = 0.0,
        friction_from: int = FRICTION_FROM,
    ) -> None:
        """`friction_from` 0 solves friction in every sweep, which PhysX can do as an option."""
        parts = len(ragdoll.parts)
        drives = ragdoll.num_drives
        joints = joint_records(ragdoll)
        self.num_agents = num_agents
        # Rounded up: the last block may have idle lanes.
        self.num_blocks = -(-num_agents // LANES)
        self.threads = threads or Threads(1)
        self.model = Model(
            parts=part_records(ragdoll, DT_S),
            joints=joints,
            pairs=colliding_pairs(ragdoll),
            settings=Settings(
                dt=DT_S,
                # Whole numbers would be another type, for which all kernels compile again.
                ground_top=float(ground_top),
                friction=FRICTION,
                spring=float(ragdoll.spring),
                damper=float(ragdoll.damper),
                friction_from=friction_from,
            ),
        )
        self.work = new_work(self.num_blocks, parts, num_rows(joints))
        self.current = _new_state(num_agents, parts, drives)

    def step(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.threads.run(
                step_blocks, self.num_blocks, self.model, self.current, self.work
            )

    def arrays(self) -> Arrays:
        """The state by field, and the friction anchors."""
        state = self.current._asdict()
        anchors: Anchors = state.pop("anchors")
        return state | {f"anchor_{k}": v for k, v in anchors._asdict().items()}


def _new_state(agents: int, parts: int, drives: int) -> State:
    def room(*shape: int) -> Floats:
        return np.zeros((agents, *shape))

    state = State(
        position=room(parts, 3),
        rotation=room(parts, 4),
        velocity=room(parts, 3),
        spin=room(parts, 3),
        target=room(drives, 4),
        torque=room(drives),
        touching=np.zeros((agents, parts), np.bool_),
        gravity=np.full(agents, GRAVITY),
        anchors=Anchors(
            number=np.zeros((agents, parts), np.int64),
            body=room(parts, 2, 3),
            world=room(parts, 2, 3),
            normal=room(parts, 3),
        ),
    )
    state.rotation[..., 3] = 1.0
    state.target[..., 3] = 1.0
    return state


@compiled
def step_blocks(first: int, last: int, model: Model, state: State, work: Work) -> None:
    """One step of the agents of these blocks of 16."""
    for block in range(first, last):
        step_block(block, first, model, state, work)


@compiled
def step_block(block: int, room: int, model: Model, state: State, work: Work) -> None:
    """One step of the agents of a block, worked out in this room of `work`."""
    # A thread uses the room of its first block for all of them: it fits into the processor's cache,
    # and nothing in it outlasts a block.
    start = block * LANES
    count = min(LANES, len(state.position) - start)
    own = Work(
        work.bodies[room],
        work.frames[room],
        work.rows[room],
        work.patches[room],
        work.normals[room],
        work.frictions[room],
        work.own[room],
        work.num_own[room],
        work.points[room],
    )
    _build(own, start, count, model, state)
    for sweep in range(2 * SWEEPS):
        _sweep(sweep, model, own)
        # Poses move with the velocity that corrects errors; the velocity that is kept comes
        # after it.
        if sweep == SWEEPS - 1:
            for i in range(len(model.parts)):
                _move(own.bodies[i], model.settings.dt)
            keep_velocity(model.joints, own)
    for i in range(len(model.parts)):
        part, body, patch = model.parts[i], own.bodies[i], own.patches[i]
        _store(part, body, patch, i, state, start, count)


@compiled
def _build(work: Work, start: int, count: int, model: Model, state: State) -> None:
    """Load the bodies, and build the rows of joints and contacts from their poses."""
    parts = model.parts
    settings = model.settings
    bodies = work.bodies
    # One frame serves all joints, one after the other.
    frame = work.frames[0]
    for i in range(len(parts)):
        _load(parts[i], bodies[i], i, state, start, count)
        _prepare(parts[i], bodies[i], state.gravity, start, count, settings.dt)
    for j in range(len(model.joints)):
        joint = model.joints[j]
        build_joint(joint, bodies, parts, frame, work.rows, settings)
        if joint.num_drive_rows:
            _load_drive(state, joint.drive, start, count, frame)
            build_drive(joint, bodies, frame, work.rows, settings)
    for i in range(len(parts)):
        build_ground(
            parts[i], i, work, start, count, state.anchors, state.touching, settings
        )
    find_own_contacts(model.pairs, parts, work, count, settings)


@compiled
def _sweep(sweep: int, model: Model, work: Work) -> None:
    """Solve every row once: joints first, then contacts, as PhysX orders them; within a sweep the
    ground's impulses come last and override them.
    """
    friction = model.settings.friction
    with_friction = sweep >= model.settings.friction_from
    is_moving = sweep < SWEEPS
    sweep_joints(model.joints, work.bodies, work.rows)
    sweep_own_contacts(model.parts, work, is_moving, with_friction, friction)
    sweep_ground(model.parts, work, with_friction, friction)


@compiled
def _load(
    part: PartRecord, body: Body, index: int, state: State, start: int, count: int
) -> None:
    """A part of 16 agents into its lanes; lanes without an agent repeat the last one."""
    position = state.position
    rotation = state.rotation
    center = vector_of(part.center)
    for lane in range(LANES):
        agent = start + min(lane, count - 1)
        for k in range(4):
            body.rotation[k, lane] = rotation[agent, index, k]
        for k in range(3):
            # Adding 0 turns −0 into 0, so that rows of other lanes, which add 0, change no bit.
            body.velocity[k, lane] = state.velocity[agent, index, k] + 0.0
            body.spin[k, lane] = state.spin[agent, index, k] + 0.0
            body.center[k, lane] = position[agent, index, k]
        arm = rotate(get_turn(body.rotation, lane), center)
        add(body.center, lane, arm)


@compiled
def _prepare(
    part: PartRecord, body: Body, gravity: Floats, start: int, count: int, h: float
) -> None:
    """Reach of the contacts, then gravity, drag and the limit of the spin, then the inertia."""
    turn = turn_of(part.turn)
    for lane in range(LANES):
        q = get_turn(body.rotation, lane)
        velocity = get(body.velocity, lane)
        spin = get(body.spin, lane)
        speed = math.sqrt(dot(velocity, velocity))
        rate = math.sqrt(dot(spin, spin))
        extent = _extent(part, columns(multiply(q, turn)))
        # Unity's "continuous speculative" detection: as far as any point of the part may come
        # in a step.
        body.reach[lane] = _PART_REACH_M + h * (speed + rate * extent)

        g = gravity[start + min(lane, count - 1)]
        # Gravity before drag, and the limit of the spin before the solver, not after it.
        velocity = (velocity[0], velocity[1] - g * h, velocity[2])
        put(body.velocity, lane, times(velocity, part.keep))
        rate *= part.keep_spin
        scale = part.max_spin / rate if rate > part.max_spin else 1.0
        put(body.spin, lane, times(spin, part.keep_spin * scale))
    # R diag(a, b, c) Rᵀ of the principal moments' inverses, in the order of `Symmetric`.
    a, b, c = vector_of(part.inverse_moments)
    for lane in range(LANES):
        x, y, z = columns(get_turn(body.rotation, lane))
        body.inertia[0, lane] = a * x[0] * x[0] + b * y[0] * y[0] + c * z[0] * z[0]
        body.inertia[1, lane] = a * x[0] * x[1] + b * y[0] * y[1] + c * z[0] * z[1]
        body.inertia[2, lane] = a * x[0] * x[2] + b * y[0] * y[2] + c * z[0] * z[2]
        body.inertia[3, lane] = a * x[1] * x[1] + b * y[1] * y[1] + c * z[1] * z[1]
        body.inertia[4, lane] = a * x[1] * x[2] + b * y[1] * y[2] + c * z[1] * z[2]
        body.inertia[5, lane] = a * x[2] * x[2] + b * y[2] * y[2] + c * z[2] * z[2]


@compiled
def _extent(part: PartRecord, axes: Any) -> float:
    """Half the diagonal of the collider's bounding box along the world's axes."""
    half = vector_of(part.half)
    square = 0.0
    for k in range(3):
        along = (abs(axes[0][k]), abs(axes[1][k]), abs(axes[2][k]))
        reach = dot(along, half) if part.kind == BOX else half[0] + along[0] * half[1]
        square += reach * reach
    return math.sqrt(square)


@compiled
def _load_drive(state: State, drive: int, start: int, count: int, frame: Any) -> None:
    """A drive's targets and torques into `frame`."""
    for lane in range(LANES):
        agent = start + min(lane, count - 1)
        for k in range(4):
            frame.target[k, lane] = state.target[agent, drive, k]
        frame.torque[lane] = state.torque[agent, drive]


@compiled
def _move(body: Body, dt: float) -> None:
    """Move a part by its velocity and spin."""
    for lane in range(LANES):
        add(body.center, lane, times(get(body.velocity, lane), dt))
    for lane in range(LANES):
        spin = get(body.spin, lane)
        turned = turned_by(get_turn(body.rotation, lane), spin, dt)
        put_turn(body.rotation, lane, turned)


@compiled
def _store(
    part: PartRecord,
    body: Body,
    patch: Any,
    index: int,
    state: State,
    start: int,
    count: int,
) -> None:
    """A part's lanes back into the state; patches that slipped lose their anchors."""
    center = vector_of(part.center)
    for lane in range(count):
        agent = start + lane
        arm = rotate(get_turn(body.rotation, lane), center)
        origin = minus(get(body.center, lane), arm)
        for k in range(4):
            state.rotation[agent, index, k] = body.rotation[k, lane]
        for k in range(3):
            state.position[agent, index, k] = origin[k]
            state.velocity[agent, index, k] = body.velocity[k, lane]
            state.spin[agent, index, k] = body.spin[k, lane]
        if patch.num_points > 0 and patch.slips[lane] > 0.0:
            state.anchors.number[agent, index] = 0
