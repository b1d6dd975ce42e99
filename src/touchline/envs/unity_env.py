"""A Unity player, or the Editor, as an Env.

`UnityEnvironment` has the constructor and methods that users of `mlagents_envs.environment` know,
and the contract of `Env`. It differs on purpose in four points: a build gets a free port unless one
is given; `close` is idempotent; masked actions are refused; each failure has its own exception
(`protocol.errors`).
"""

# ruff: noqa: ARG002 - the contract of Env has arguments that a Unity player cannot use
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from touchline.envs.actions import ActionError
from touchline.envs.env import EnvRecipe, MLAgentsEnv
from touchline.envs.player_connection import (
    PlayerConnection,
    PlayerLaunch,
    require_seed,
)
from touchline.envs.player_process import find_player
from touchline.errors import UsageError
from touchline.parameters import ParameterValue
from touchline.protocol.errors import (
    BehaviorWithoutAgentsError,
    PlayerUsageError,
    UnityEnvironmentException,
)
from touchline.protocol.recording import SUFFIX
from touchline.protocol.session import Command
from touchline.protocol.side_channels import (
    EngineConfigurationChannel,
    EnvironmentParametersChannel,
    SideChannel,
    SideChannels,
    StatsSideChannel,
)
from touchline.specs import ActionTuple, BehaviorSpec
from touchline.statistics import EnvironmentStats
from touchline.steps import DecisionSteps, TerminalSteps

UnityActionException = ActionError
"""The name under which users of `mlagents_envs` catch a wrong action."""

ENGINE: Mapping[str, Any] = {
    "width": 84,
    "height": 84,
    "quality_level": 5,
    "time_scale": 20.0,
    "target_frame_rate": -1,
    # Every frame is 1/60 s of game time, however long the player takes to compute it.
    "capture_frame_rate": 60,
}
"""What `mlagents-learn` 1.1.0 sets by default."""
MOST_STATISTICS = 100_000
"""How many values of statistics wait to be taken, about 20 MB; trainers take them in every step."""


RECIPE_OPTIONS = (
    "worker_id",
    "base_port",
    "no_graphics",
    "timeout_wait",
    "additional_args",
    "log_folder",
    "max_message_mib",
    "image_layout",
    "record_wire",
    "engine",
)
"""What the options of a recipe may name; `engine` is a mapping like `ENGINE`."""


def open_unity(recipe: EnvRecipe) -> UnityEnvironment:
    """The world "unity": a player's path, or "editor".

    Options: `RECIPE_OPTIONS`.
    """
    recipe.check_options(*RECIPE_OPTIONS)
    options = dict(recipe.options)
    engine = dict(ENGINE) | dict(options.pop("engine", {}))
    channel = EngineConfigurationChannel()
    channel.set_configuration_parameters(**engine)
    env = UnityEnvironment(
        None if recipe.is_editor else recipe.target,
        seed=recipe.seed,
        num_areas=recipe.num_areas or 1,
        side_channels=[channel],
        **options,
    )
    env.set_parameters(recipe.parameters)
    return env


class UnityEnvironment(MLAgentsEnv):
    """One player. Use as a context manager, or call `close`.

    Parameters
    ----------
    file_name
        The player; None waits for the Editor's Play button.
    worker_id, base_port
        The port is their sum. Without `base_port`, the Editor's is 5004, and a player gets
        5005 + `worker_id` if that is given, else a free port. A `base_port` of 0 also means a free
        port.
    seed
        Seeds the player's random numbers when it starts.
    no_graphics, no_graphics_monitor
        Run without a window; with the second, worker 0 has one.
    timeout_wait
        Seconds to wait for the first call and for each answer.
    additional_args
        Further arguments for the player, as they are.
    side_channels
        Your own, or those in `touchline.protocol.side_channels`.
    log_folder
        Where the player writes `Player-<worker_id>.log`; None keeps the log only for messages.
    num_areas
        Replicas of the training area, for scenes with ML-Agents' TrainingAreaReplicator.
    max_message_mib
        The longest message to accept from the player.
    image_layout
        "HWC" or "CHW", when the package version misleads about images.
    record_wire
        A file to record the session to (`protocol.recording`).
    """

    API_VERSION = "1.5.0"
    DEFAULT_EDITOR_PORT = 5004
    BASE_ENVIRONMENT_PORT = 5005

    def __init__(
        self,
        file_name: str | Path | None = None,
        worker_id: int | None = None,
        base_port: int | None = None,
        seed: int = 0,
        no_graphics: bool = False,
        no_graphics_monitor: bool = False,
        timeout_wait: float = 60,
        additional_args: Sequence[str] | None = None,
        side_channels: Sequence[SideChannel] | None = None,
        log_folder: str | Path | None = None,
        num_areas: int = 1,
        *,
        max_message_mib: float = 256,
        image_layout: str | None = None,
        record_wire: str | Path | None = None,
    ) -> None:
        # Worker ids tell players apart by their ports; the Editor's port is fixed.
        if file_name is None and worker_id:
            raise PlayerUsageError(
                f"the Editor is one, so worker_id must be 0 or None, got {worker_id}"
            )
        self.name = "the Editor" if file_name is None else str(file_name)
        self._closed = False
        self._channels = SideChannels(side_channels or ())
        self._parameters = self._channel(EnvironmentParametersChannel)
        # Only trainers take statistics; in all other loops a game would fill the memory.
        self.stats: StatsSideChannel = self._channel(StatsSideChannel, MOST_STATISTICS)
        self._actions: dict[str, ActionTuple] = {}
        self._record_wire = None if record_wire is None else Path(record_wire)
        self._num_connections = 0
        self._waited_before_s = 0.0
        hides_window = no_graphics_monitor and bool(worker_id)
        log_name = f"Player-{worker_id or 0}.log"
        self._launch = PlayerLaunch(
            name=self.name,
            path=None if file_name is None else find_player(file_name),
            port=self._port_of(file_name is None, worker_id, base_port),
            no_graphics=no_graphics or hides_window,
            log_file=None if log_folder is None else Path(log_folder, log_name),
            additional_args=list(additional_args or ()),
            num_areas=num_areas,
            max_message_bytes=int(max_message_mib * 2**20),
            image_layout=image_layout,
        )
        self._connect(seed, float(timeout_wait))

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        """Full behavior name -> spec, a live view; empty before the first reset."""
        # Read-only, because the session decodes by this very dictionary.
        return MappingProxyType(self._connection.session.behaviors)

    @property
    def package_version(self) -> str:
        """The version of com.unity.ml-agents in the player."""
        return self._connection.session.dialect.package_version

    @property
    def communication_version(self) -> str:
        """The protocol version that the player speaks."""
        return self._connection.session.dialect.communication_version

    @property
    def capabilities(self) -> frozenset[str]:
        """What the player says it supports, by the protocol's names."""
        return self._connection.session.dialect.capabilities

    @property
    def port(self) -> int | None:
        """Where the player is served; None after `close`."""
        return self._connection.port

    @property
    def pid(self) -> int | None:
        """The player's process; None for the Editor and after `close`."""
        return self._connection.pid

    @property
    def exchanges(self) -> int:  # type: ignore[override]
        """How many exchanges this process has sent."""
        return self._connection.num_exchanges

    @property
    def waited_s(self) -> float:
        """Seconds spent waiting for the player."""
        return self._waited_before_s + self._connection.waited_s

    @property
    def has_settings_to_come(self) -> bool:
        """Whether a side channel has messages for the next reset or step."""
        return self._channels.have_queued

    @property
    def timeout_wait(self) -> float:
        """Seconds to wait for each answer; may be changed."""
        return self._connection.timeout_s

    @timeout_wait.setter
    def timeout_wait(self, seconds: float) -> None:
        self._connection.timeout_s = float(seconds)

    def capacity(self, behavior: str) -> int | None:
        """None: a player does not say how many agents it may create."""
        return None

    def set_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        """Send environment parameters with the next reset or step.

        A player does not say which parameters it knows, so unknown ones have no effect.
        """
        self._parameters.set_parameters(parameters, self._connection.seed)

    def reset(
        self,
        seed: int | None = None,
        parameters: Mapping[str, ParameterValue] | None = None,
    ) -> None:
        """Restart the world.

        A player takes its seed when it starts, so another seed starts another process.
        """
        connection = self._connection
        is_fresh = seed == connection.seed and connection.num_exchanges == 1
        if is_fresh and not parameters and not self._channels.have_queued:
            return  # nothing has happened since this seed's first reset
        # A process that has not been reset yet still has its seed unused.
        has_begun = connection.exchange is not None
        if seed is not None and (has_begun or seed != connection.seed):
            self._restart(seed)
        self.set_parameters(parameters or {})
        self._command(Command.RESET)

    def execute(self, behavior: str, actions: ActionTuple) -> None:
        """Set actions without checking them; the player executes masked ones."""
        self._actions[behavior] = actions

    def step(self) -> None:
        """Deliver the actions and wait for the next exchange. The very first step is a reset."""
        is_first = self._connection.exchange is None
        self._command(Command.RESET if is_first else Command.STEP)

    def steps(self, behavior: str) -> tuple[DecisionSteps, TerminalSteps]:
        """Which agents need a decision and which ended in the last exchange."""
        exchange = self._connection.exchange
        if exchange is None:
            raise UsageError(f"{self.name}: call reset() before steps()")
        self._spec(behavior)
        return exchange[behavior]

    def take_statistics(self) -> EnvironmentStats:
        """What the game's StatsRecorder reported since the last call: the latest `MOST_STATISTICS`
        values, or with a `StatsSideChannel` of your own among `side_channels` all of them.
        """
        return self.stats.get_and_reset_stats()

    def close(self) -> None:
        """Let the player quit and release process and port. Idempotent."""
        # There is no connection now, or only the closed one of the process before.
        self._closed = True
        self._connection.close()

    def _actions_so_far(self, behavior: str) -> ActionTuple | None:
        return self._actions.get(behavior)

    def _port_of(
        self, is_editor: bool, worker_id: int | None, base_port: int | None
    ) -> int | None:
        """The port that these arguments mean; None for any free one."""
        if base_port is not None:
            # A base port of 0 is any free port, as for sockets.
            return base_port + (worker_id or 0) if base_port else None
        if is_editor:
            return self.DEFAULT_EDITOR_PORT
        return None if worker_id is None else self.BASE_ENVIRONMENT_PORT + worker_id

    def _channel(self, kind: type[Any], *arguments: Any) -> Any:
        """The user's channel of this kind, or else one of our own, made with these arguments."""
        channel = self._channels.find(kind)
        if channel is None:
            channel = kind(*arguments)
            self._channels.add(channel)
        return channel

    def _connect(self, seed: int, timeout_s: float) -> None:
        self._num_connections += 1
        self._actions = {}
        try:
            self._connection = PlayerConnection(
                self._launch,
                seed,
                timeout_s,
                record_wire=self._recording(),
                parameters=self._parameters.latest,
            )
        except BaseException:
            self._closed = True
            raise

    def _recording(self) -> Path | None:
        """A file for each connection: a restarted player's session goes to `name-2.wire.gz`."""
        path = self._record_wire
        if path is None or self._num_connections == 1:
            return path
        stem = path.name.removesuffix(SUFFIX)
        return path.with_name(f"{stem}-{self._num_connections}{SUFFIX}")

    def _restart(self, seed: int) -> None:
        before = self._connection
        if self._launch.path is None:
            raise UsageError(
                f"the Editor was given seed {before.seed} when it connected and cannot take "
                "another one; call reset() without a seed, or press Play again"
            )
        self._check_usable()
        # Before the old process is closed: a seed that is refused must not cost the running world.
        require_seed(self._launch, seed)
        before.close()
        self._waited_before_s += before.waited_s
        self._connect(seed, before.timeout_s)
        # The new process knows nothing of what was set; it gets it with its first reset.
        self._channels.player_restarted()
        self._parameters.send_again(seed)

    def _command(self, command: Command) -> None:
        self._check_usable()
        actions = self._pending_actions() if command is Command.STEP else {}
        self._actions = {}
        payload = self._connection.command(command, actions, self._channels.gather())
        try:
            self._channels.deliver(payload)
        except Exception as error:
            # The exchange has taken place, but its messages were delivered in part.
            self._connection.fail(error)
            raise

    def _pending_actions(self) -> dict[str, ActionTuple]:
        """The actions of all deciding agents; zeros where none were set."""
        exchange = self._connection.exchange or {}
        actions: dict[str, ActionTuple] = {}
        for name, (decisions, _) in exchange.items():
            if len(decisions):
                spec = self.behaviors[name].action_spec
                idle = spec.empty_action(len(decisions))
                actions[name] = self._actions.get(name) or idle
        return actions

    def _check_usable(self) -> None:
        if self._closed:
            raise UnityEnvironmentException(
                f"{self.name}: this environment is closed; make a new one"
            )
        self._connection.check_usable()

    def _spec(self, behavior: str) -> BehaviorSpec:
        session = self._connection.session
        if behavior in session.behaviors:
            return session.behaviors[behavior]
        if behavior in session.announced:
            raise BehaviorWithoutAgentsError(
                f"{self.name}: behavior {behavior!r} is announced, but no agent of it has come yet"
            )
        known = ", ".join(session.behaviors) or "none"
        raise UsageError(f"{self.name}: unknown behavior {behavior!r}; so far: {known}")
