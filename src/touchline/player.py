"""A scene served over the wire: a process that official ML-Agents tools treat as a Unity build.

    python -m touchline.player 3DBall --mlagents-port 5005

`build` writes an executable that does this. A player accepts a Unity build's arguments and ignores
those that only an engine could follow. It executes actions as Unity would: masked ones too, an
index outside its branch as 0, a missing action as zeros, NaN as 0. Which message it sends when:
`protocol.session`.
"""

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import grpc
import numpy as np

from touchline.envs.env import EnvRecipe
from touchline.envs.scene_env import SceneEnv, open_scene
from touchline.envs.wire_server import METHOD, SERVICE
from touchline.errors import TouchlineError, UsageError
from touchline.flag import Flag
from touchline.operating_systems import Launcher
from touchline.parameters import ParameterValue
from touchline.protocol.session import Command, Order, PlayerSession, State, Welcome
from touchline.protocol.side_channels import (
    EngineConfigurationChannel,
    EnvironmentParametersChannel,
    SideChannels,
    StatsSideChannel,
    TrainingAnalyticsChannel,
)
from touchline.scenes import scene_class
from touchline.specs import ActionSpec, ActionTuple

OFFICIAL_LIMIT_BYTES = 4 * 2**20
"""Official Python refuses longer messages (gRPC's default) and then waits until its time-out."""
FAREWELL_S = 2.0
"""How long to wait for the answer to a farewell."""

logger = logging.getLogger("touchline.player")


def build(
    scene: Annotated[str, Flag("SCENE")],
    folder: Annotated[str | os.PathLike[str], Flag("--output", "DIR", short="-o")],
    num_areas: int | None = None,
) -> Path:
    """Write a scene as a player that official ML-Agents tools start like a Unity build.

    Parameters
    ----------
    scene
        A scene's name, such as 3DBall.
    folder
        Folder to write the player into.

    Returns
    -------
    Path
        The executable: `<folder>/<scene>.x86_64` on Linux, `<scene>.exe` on Windows, and on macOS
        that in the application `<scene>.app`.

    Raises
    ------
    UsageError
        The scene is unknown, `num_areas` is below 1, or the folder cannot be written.

    Notes
    -----
    The player runs with the Python and the Touchline that wrote it.
    """
    scene_class(scene)  # raises for an unknown one
    EnvRecipe("scene", scene, num_areas)  # and this for fewer areas than one
    path = [str(Path(__file__).resolve().parents[1])]
    if ":" in scene:  # the module of a scene of your own
        path.append(str(Path.cwd()))
    areas = [] if num_areas is None else ["--num-areas", str(num_areas)]
    launcher = Launcher(
        f"The Touchline scene {scene} as a player; takes the arguments of a Unity build.",
        "touchline.player",
        [scene, *areas],
        path,
    )
    # A scene of your own, `module:Class`, is a file under its class's name.
    name = scene.rpartition(":")[2]
    try:
        player = launcher.write(Path(folder), name)
    except OSError as error:
        raise UsageError(
            f"cannot write the player {name} into {folder}: {error.strerror}"
        ) from error
    # The scene's kernels are compiled here, not when the player starts: official Python waits a
    # minute for a player's first answer, and no longer.
    with open_scene(EnvRecipe("scene", scene, 1)) as env:
        env.reset()
        env.step()
    return player


def executed(spec: ActionSpec, actions: ActionTuple) -> ActionTuple:
    """The actions that a scene executes: NaN becomes 0, and so does an index outside its branch."""
    discrete = actions.discrete
    branches = np.asarray(spec.discrete_branches or (1,), np.int64)
    is_inside = (discrete >= 0) & (discrete < branches)
    return ActionTuple(
        np.nan_to_num(actions.continuous), np.where(is_inside, discrete, 0)
    )


class Player:
    """One scene at the end of one connection: `run` plays until Python ends it."""

    def __init__(self, scene: str, port: int, num_areas: int | None = None) -> None:
        self.scene = scene
        self.num_areas = num_areas
        self._session = PlayerSession({})
        # Without gRPC's own limit; `_send` logs what official Python would refuse.
        options = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
        ]
        self._channel = grpc.insecure_channel(f"localhost:{port}", options)
        self._call = self._channel.unary_unary(f"/{SERVICE}/{METHOD}")

    def run(self) -> None:
        """Play until Python sends goodbye, hangs up, or turns out not to be there."""
        try:
            welcome = self._send(self._session.introduction())
            if isinstance(welcome, Welcome):
                # 1 is what official tools send by default, and means the scene's own number.
                areas = welcome.num_areas if welcome.num_areas > 1 else self.num_areas
                # A message has room for negative seeds; a scene takes others only.
                seed = welcome.seed % 2**31
                with open_scene(EnvRecipe("scene", self.scene, areas, seed)) as env:
                    self._play(env)
        except BaseException:
            # Python would wait for an answer until its time-out, while the scene loads without end.
            if self._session.state in (State.PLAYER_LOADS, State.PLAYER_SIMULATES):
                self._send(self._session.farewell(), FAREWELL_S)
            raise
        finally:
            self._channel.close()

    def _play(self, env: SceneEnv) -> None:
        self._session.specs = env.behaviors
        stats = StatsSideChannel()
        parameters: dict[str, ParameterValue] = {}
        channels = SideChannels(
            [
                stats,
                EnvironmentParametersChannel(parameters.__setitem__),
                EngineConfigurationChannel(),
                TrainingAnalyticsChannel(),
            ]
        )
        order = self._send(self._session.ready())
        while isinstance(order, Order):
            channels.deliver(order.side_channel)
            # All at once: what is allowed may depend on what else is set.
            _set_parameters(env, parameters)
            parameters.clear()
            if order.command is Command.RESET:
                env.reset()
            else:
                self._step(env, order)
            for name, values in env.take_statistics().items():
                for value, method in values:
                    stats.add_stat(name, value, method)
            order = self._send(self._session.exchange(env.exchange, channels.gather()))

    def _step(self, env: SceneEnv, order: Order) -> None:
        for name, (decisions, _) in env.exchange.items():
            if len(decisions):
                chosen = self._session.actions(order, name, len(decisions))
                env.execute(name, executed(env.behaviors[name].action_spec, chosen))
        env.step()

    def _send(
        self, message: bytes, timeout_s: float | None = None
    ) -> Welcome | Order | None:
        """The answer to a message; None when Python sends goodbye, hangs up or is not there."""
        if len(message) > OFFICIAL_LIMIT_BYTES:
            logger.warning(
                "a message of %.1f MiB: official ML-Agents takes 4 MiB at most, use fewer areas",
                len(message) / 2**20,
            )
        try:
            answer = self._call(message, timeout=timeout_s)
        except grpc.RpcError as error:
            logger.info("Python hung up: %s", error)
            return None
        return self._session.receive(answer)


def _set_parameters(env: SceneEnv, values: Mapping[str, ParameterValue]) -> None:
    """Set parameters. Those that the scene refuses are logged, as games ignore them, too."""
    try:
        env.set_parameters(values)
    except UsageError:
        # Those that are allowed are set by now; this names each of the others.
        for name, value in values.items():
            try:
                env.set_parameters({name: value})
            except UsageError as error:
                logger.warning("%s", error)


def _log_to(file: str | None) -> None:
    """Log everything to the file, as Unity does; without one, warnings to standard error."""
    handler: logging.Handler = logging.StreamHandler()
    level, obstacle = logging.WARNING, None
    if file is not None and file != "-":
        try:
            handler = logging.FileHandler(file, encoding="utf-8")
            level = logging.INFO
        except OSError as error:
            obstacle = error
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    package = logging.getLogger("touchline")
    package.addHandler(handler)
    package.setLevel(level)
    if obstacle is not None:
        logger.warning("there is no log: %s", obstacle)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a player from the command line.

    Returns the exit code: 0 after a goodbye, 1 when it failed, 2 when the call was wrong.
    """
    parser = argparse.ArgumentParser(
        prog="python -m touchline.player",
        description="A scene that official ML-Agents tools treat as a Unity build. Other arguments "
        "of a Unity build (-batchmode, -nographics, -logFile FILE, ...) are accepted; only "
        "-logFile has an effect.",
    )
    parser.add_argument("scene")
    parser.add_argument(
        "--mlagents-port", type=int, metavar="PORT", help="where Python listens"
    )
    parser.add_argument(
        "--num-areas",
        type=int,
        metavar="N",
        help="areas, unless Python requests more than one",
    )
    parser.add_argument(
        "-logFile", "-logfile", metavar="FILE", help="where to write the log"
    )
    # A trainer passes everything that a Unity build takes.
    known, _ = parser.parse_known_args(arguments)
    _log_to(known.logFile)
    if known.mlagents_port is None:
        message = (
            f"{known.scene}: no --mlagents-port given; "
            "a trainer that starts a player passes it"
        )
        print(message, file=sys.stderr)  # noqa: T201
        return 2
    try:
        logger.info("%s: connecting to port %d", known.scene, known.mlagents_port)
        Player(known.scene, known.mlagents_port, known.num_areas).run()
    except TouchlineError as error:
        logger.error("%s", error)
        print(error, file=sys.stderr)  # noqa: T201
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
