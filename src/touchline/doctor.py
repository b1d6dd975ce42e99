"""Why does it not connect, why does it not learn?

Opens a world step by step and reports what each step found; or reads a run's folder and reports
what is likely wrong with it.
"""

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np

from touchline.envs.actions import allowed_actions
from touchline.envs.env import Env, EnvRecipe, make
from touchline.envs.player_process import check_executable, find_player
from touchline.envs.recorded_env import RecordingEndedError, SessionResetError
from touchline.envs.unity_env import UnityEnvironment
from touchline.envs.wire_server import WireServer
from touchline.errors import TouchlineError, UsageError
from touchline.extras import explain_missing
from touchline.flag import Flag
from touchline.log import Log
from touchline.policies.files.run_layout import has_runs, is_search, run_of, runs_in
from touchline.specs import BehaviorSpec

STEPS = 20
PROBE_MESSAGE_BYTES = 1 << 20
"""The server that tries out the port receives nothing, so any limit would do."""
PROXY_VARIABLES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy")
EXPECTED_CAPABILITIES = frozenset(
    {"baseRLCapabilities", "hybridActions", "multiAgentGroups"}
)
"""A package without one of them works, but is worth a remark."""


class _StepFailedError(Exception):
    """A step failed and has been reported; later steps cannot work."""


def examine(
    target: str | Path | EnvRecipe,
    log: Log = print,
    *,
    base_port: Annotated[int | None, Flag(min=1, max=65535)] = None,
    timeout_wait: float = 30.0,
) -> bool:
    """Find out why an environment does not connect or a run does not learn, and what to try.

    Parameters
    ----------
    target
        A scene's name (3DBall), a Unity player's path, `editor`, a recording (*.wire.gz),
        microrts:MAP, or the folder of a run, of several seeds or of a search (results/first).
    log
        Gets every line of the report. About a world, it begins with "ok", "FAIL" or "note"; about a
        run, it is a finding.

    Returns
    -------
    bool
        Whether the world opened, answered a reset, stepped and closed; of a run, whether there is
        no finding.

    Raises
    ------
    UsageError
        The path is no run, its files are damaged, or `timeout_wait` is no time.
    """
    if not 0.0 < timeout_wait < math.inf:
        raise UsageError(
            f"--timeout-wait: expected seconds, more than 0, got {timeout_wait:g}"
        )
    if isinstance(target, Path) or (isinstance(target, str) and has_runs(target)):
        return _examine_run(Path(target), log)
    recipe = EnvRecipe.parse(target)
    if recipe.kind.is_player and isinstance(target, str):
        port = {} if base_port is None else {"base_port": base_port}
        recipe = replace(recipe, options={"timeout_wait": timeout_wait, **port})
    return _examine_world(recipe, log)


@explain_missing("diagnosing a run")
def findings(run: str | Path) -> list[dict[str, str]]:
    """What is likely wrong with a training run: `behavior`, `name`, `figure` and `advice` of each.

    Of several seeds all are examined, and each `behavior` begins with its seed; of a search the
    best trial is. Raises a UsageError for a folder that is no run, or whose files are damaged.
    """
    from touchline.studies.learning_faults import diagnose

    folder = Path(run)
    found = []
    for one in _examined(folder):
        seed = "" if one == folder else f"{one.name} "
        found += [{**f, "behavior": seed + f["behavior"]} for f in diagnose(one)]
    return found


def _examined(folder: Path) -> list[Path]:
    """All seeds of a folder, the best trial of a search, or the run that it is."""
    return [run_of(folder)] if is_search(folder) else runs_in(folder) or [folder]


def _examine_run(run: Path, log: Log) -> bool:
    found = findings(run)
    for finding in found:
        log("{behavior}  {name}: {figure}; {advice}".format_map(finding))
    if not found:
        names = ", ".join(one.name for one in _examined(run))
        log(f"nothing is conspicuous in the figures of {names}")
    return not found


def _examine_world(recipe: EnvRecipe, log: Log) -> bool:
    try:
        if recipe.kind.is_player:
            _examine_player(recipe, log)
        else:
            with _step("it opens", log) as found:
                env = make(recipe)
                found.append(f"a {recipe.world}")
            with env:
                _examine_exchanges(env, log)
    except _StepFailedError:
        return False
    log("everything works")
    return True


@contextmanager
def _step(what: str, log: Log) -> Iterator[list[str]]:
    """Report one step with its duration. The block appends what it found to the list."""
    found: list[str] = []
    started = time.perf_counter()
    try:
        yield found
    except (TouchlineError, OSError) as error:
        log(f"FAIL  {what}: {error}")
        raise _StepFailedError from error
    seconds = time.perf_counter() - started
    log(f"ok    {what}: {', '.join(found)} ({seconds:.2f} s)")


def _examine_player(recipe: EnvRecipe, log: Log) -> None:
    if not recipe.is_editor:
        with _step("the player exists", log) as found:
            path = find_player(recipe.target)
            found.append(str(path))
        with _step("it can be executed here", log) as found:
            check_executable(path)
            found.append("executable, and not built for another system")
    _examine_port(recipe, log)
    if recipe.is_editor:
        _log_advice_for_the_editor(log)
    connects = "the Editor connects" if recipe.is_editor else "it starts and connects"
    with _step(connects, log) as found:
        env = make(recipe)
        assert isinstance(env, UnityEnvironment)
        found.append(f"com.unity.ml-agents {env.package_version}")
        found.append(f"communication version {env.communication_version}")
        missing = EXPECTED_CAPABILITIES - env.capabilities
        if missing:
            found.append(f"an older package, without {', '.join(sorted(missing))}")
    try:
        _examine_exchanges(env, log)
        with _step("it quits on request", log) as found:
            env.close()
            found.append("process, port and threads are gone")
    finally:
        env.close()


def _examine_port(recipe: EnvRecipe, log: Log) -> None:
    with _step("a port is free, on this machine only", log) as found:
        base_port = recipe.options.get("base_port")
        worker_id = recipe.options.get("worker_id") or 0
        if base_port is None and recipe.is_editor:
            base_port = UnityEnvironment.DEFAULT_EDITOR_PORT
        wanted = None if base_port is None else int(base_port) + int(worker_id)
        server = WireServer(wanted, PROBE_MESSAGE_BYTES)
        found.append(f"{server.port} on 127.0.0.1 and ::1")
        server.close()


def _log_advice_for_the_editor(log: Log) -> None:
    proxies = [name for name in PROXY_VARIABLES if os.environ.get(name)]
    if proxies:
        # gRPC inside Unity would send even local calls to the proxy.
        log(
            f"note  {proxies[0]} is set here; if it is also set for Unity, "
            "set NO_PROXY=localhost there"
        )
    log(
        "note  press Play in the Editor now; "
        "the scene needs an agent whose Behavior Type is Default"
    )


def _examine_exchanges(env: Env, log: Log) -> None:
    with _step("it answers a reset", log) as found:
        env.reset()
        for name, spec in env.behaviors.items():
            decisions, _ = env.steps(name)
            found.append(f"{name}: {len(decisions)} agents observe {_sizes(spec)}")
        if not found:
            found.append("no agents so far")
    with _step(f"it steps {STEPS} times with random actions", log) as found:
        rng = np.random.default_rng(0)
        started = time.perf_counter()
        for step in range(STEPS):
            for name, spec in env.behaviors.items():
                decisions, _ = env.steps(name)
                if len(decisions):
                    env.set_actions(
                        name, allowed_actions(spec.action_spec, decisions, rng)
                    )
            try:
                env.step()
            except SessionResetError:
                env.reset()
            except RecordingEndedError:
                found.append(f"the recording ends after {step}")
                break
        speed = (step + 1) / (time.perf_counter() - started)
        found.append(f"{speed:.0f} exchanges/s")


def _sizes(spec: BehaviorSpec) -> str:
    """The shapes of all sensors, as in "84x84x3 + 8"."""
    shapes = ["x".join(map(str, sensor.shape)) for sensor in spec.observation_specs]
    return " + ".join(shapes) or "nothing"
