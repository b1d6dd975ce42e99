"""A scene served over the wire: a process that official ML-Agents tools take for a Unity build.

    python -m touchline.player 3DBall --mlagents-port 5005

`build` writes an executable that does this. A player takes a Unity build's arguments and ignores the ones that
only an engine could follow. It executes what it is told as Unity would: masked actions too, an index outside
its branch as 0, a missing action as zeros, NaN as 0. What it says and when: `protocol.session`.
"""

from __future__ import annotations

import argparse
import logging
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from touchline.envs.env import EnvRecipe
from touchline.errors import TouchlineError, UsageError
from touchline.parameters import ParameterValue
from touchline.scenes import scene_class
from touchline.specs import ActionSpec, ActionTuple

MOST_REPLY_BYTES = 4 * 2**20
"""Official Python refuses longer messages (gRPC's default) and then waits in vain."""
GOODBYE_S = 2.0

logger = logging.getLogger("touchline.player")


def build(scene: str, folder: str | os.PathLike[str], num_areas: int | None = None) -> Path:
    """Write `<folder>/<scene>.x86_64`, an executable player of `scene`, and return its path.

    It runs with the Python and the Touchline that wrote it.
    """
    scene_class(scene)
    if not sys.platform.startswith("linux"):
        raise UsageError(
            f"players can be built on Linux so far, this is {sys.platform}; here, run the scene in process, or serve it "
            f"by hand: {sys.executable} -m touchline.player {scene} --mlagents-port 5005"
        )
    path = Path(folder) / f"{scene}.x86_64"
    source = Path(__file__).resolve().parents[1]
    areas = f" --num-areas {num_areas}" if num_areas is not None else ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "#!/bin/sh\n"
            f"# The Touchline scene {scene} as a player; takes the arguments of a Unity build.\n"
            f'export PYTHONPATH="{source}${{PYTHONPATH:+:$PYTHONPATH}}"\n'
            f'exec "{sys.executable}" -m touchline.player {scene}{areas} "$@"\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError as error:
        raise UsageError(f"cannot write the player {path}: {error.strerror}") from error
    return path


def executed(spec: ActionSpec, actions: ActionTuple) -> ActionTuple:
    """What a scene makes of any actions at all: no NaN, and no index outside its branch."""
    inside = (actions.discrete >= 0) & (actions.discrete < np.asarray(spec.discrete_branches or (1,), np.int64))
    return ActionTuple(np.nan_to_num(actions.continuous), np.where(inside, actions.discrete, 0))


class Player:
    """One scene at the end of one connection: `run` plays until Python says goodbye."""

    def __init__(self, scene: str, port: int, num_areas: int | None = None) -> None:
        self._scene = scene_class(scene)
        self._port = port
        self._num_areas = num_areas

    def run(self) -> None:
        """Connect, introduce, play. Returns when Python says goodbye or hangs up."""
        import grpc

        from touchline.envs.scene_env import open_scene
        from touchline.envs.wire_server import METHOD, SERVICE
        from touchline.protocol.session import Command, Order, PlayerSession, Welcome
        from touchline.protocol.side_channels import SideChannels, StatsSideChannel

        session = PlayerSession({})
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        with grpc.insecure_channel(f"localhost:{self._port}", options) as channel:
            call = channel.unary_unary(f"/{SERVICE}/{METHOD}")

            def ask(message: bytes, timeout_s: float | None = None) -> Any:
                if len(message) > MOST_REPLY_BYTES:
                    logger.warning(
                        "this message has %.1f MiB, and official ML-Agents takes 4; use fewer areas",
                        len(message) / 2**20,
                    )
                try:
                    return session.receive(call(message, timeout=timeout_s, wait_for_ready=timeout_s is None))
                except grpc.RpcError as error:  # Python closed, or died: a Unity build quits, too
                    logger.info("Python hung up: %s", error)
                    return None

            welcome = ask(session.introduction())
            if not isinstance(welcome, Welcome):
                return
            areas = self._num_areas if welcome.num_areas <= 1 else welcome.num_areas
            with open_scene(EnvRecipe("scene", self._scene.name, areas, welcome.seed, {}, {"num_threads": 1})) as env:
                session.specs = env.behaviors
                stats = StatsSideChannel()
                channels = SideChannels([stats, *_listeners(env)])
                order = ask(session.ready())
                try:
                    while isinstance(order, Order):
                        channels.deliver(order.side_channel)
                        if order.command is Command.RESET:
                            env.reset()
                        else:
                            for name in env.behaviors:
                                count = len(env.steps(name)[0])
                                if count:
                                    chosen = session.actions(order, name, count)
                                    env.execute(name, executed(env.behaviors[name].action_spec, chosen))
                            env.step()
                        _report(stats, env)
                        order = ask(session.exchange(env.exchange, channels.gather()))
                finally:
                    if order is not None and sys.exc_info()[0] is not None:
                        ask(session.farewell(), GOODBYE_S)
