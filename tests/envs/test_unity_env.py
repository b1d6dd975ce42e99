"""UnityEnvironment against real processes: what works, and one clear exception for everything that
does not.
"""

import contextlib
import gc
import os
import socket
import struct
import sys
import threading
import time
from functools import partial
from importlib.util import find_spec

import numpy as np
import psutil
import pytest
from tests.envs.scripted_player import written
from tests.test_extras import NEEDS_AN_EXTRA

from touchline.envs import player_connection
from touchline.envs.actions import ActionError
from touchline.envs.env import EnvRecipe, make
from touchline.envs.player_process import QUIT_S
from touchline.envs.unity_env import (
    MOST_STATISTICS,
    UnityEnvironment,
)
from touchline.envs.wire_server import WireServer
from touchline.errors import MissingError, NonFiniteError, UsageError
from touchline.parameters import Uniform
from touchline.player import build
from touchline.protocol.errors import (
    MalformedMessageError,
    MessageTooLargeError,
    NeverConnectedError,
    NoAnswerError,
    OutOfTurnError,
    PlayerExitedError,
    PlayerNotExecutableError,
    PlayerNotFoundError,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
    UnityException,
    UnityTimeOutException,
    UnityWorkerInUseException,
    VersionRefusedError,
    WrongPlatformError,
)
from touchline.protocol.recording import REPLY, read_frames
from touchline.protocol.side_channels import (
    EngineConfigurationChannel,
    EnvironmentParametersChannel,
    FloatPropertiesChannel,
    RawBytesChannel,
    StatsSideChannel,
)
from touchline.specs import ActionTuple
from touchline.statistics import StatsAggregationMethod

PUPPET = "Puppet?team=0"

shell_scripts = pytest.mark.skipif(
    sys.platform == "win32", reason="the player is a shell script"
)


@pytest.fixture
def puppet(tmp_path):
    """A player that performs one act: see `scripted_player`."""

    return partial(written, tmp_path)


@pytest.fixture(scope="module")
def basic(tmp_path_factory):
    return build("Basic", tmp_path_factory.mktemp("builds"))


def shell(tmp_path, text, name="game.x86_64", mode=0o755):
    path = tmp_path / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return path


def two_steps(env):
    env.reset()
    env.step()


def test_a_player_is_reset_stepped_and_closed(puppet):
    with UnityEnvironment(puppet("nothing")) as env:
        assert dict(env.behavior_specs) == {}
        env.reset()
        assert list(env.behavior_specs) == [PUPPET]
        decisions, terminals = env.get_steps(PUPPET)
        assert (list(decisions), len(terminals)) == ([0, 1], 0)
        env.step()
        assert env.get_steps(PUPPET)[0].obs[0].tolist() == [[1, 0], [1, 1]]
        process = psutil.Process(env.pid)
    assert not process.is_running()
    env.close()


def test_the_names_that_users_of_mlagents_envs_import_are_here():
    import touchline

    for name in (n for n in touchline.__all__ if "make_" not in n):
        try:
            assert getattr(touchline, name) is not None
        except MissingError:
            # Of names that need an extra, which test_extras.py lists, and where it is missing.
            assert find_spec("torch") is None
            assert name in NEEDS_AN_EXTRA
    assert touchline.UnityEnvironment is UnityEnvironment
    assert issubclass(touchline.UnityTimeOutException, touchline.UnityException)


def test_the_first_step_is_a_reset(puppet):
    with UnityEnvironment(puppet("nothing")) as env:
        env.step()
        assert env.get_steps(PUPPET)[0].obs[0][0].tolist() == [0, 0]


def test_a_player_is_answered_before_anything_is_compiled(puppet, monkeypatch):
    """gRPC gives up on a server that does not answer within 20 s; compiling can take longer."""
    received = []
    receive = WireServer.receive
    monkeypatch.setattr(
        WireServer,
        "receive",
        lambda *given: received.append(receive(*given)) or received[-1],
    )
    monkeypatch.setattr(
        player_connection, "warm_up", lambda: received.append("compiled")
    )
    with UnityEnvironment(puppet("nothing")) as env:
        two_steps(env)
    introduction, compiled = received[:2]
    assert isinstance(introduction, bytes)
    assert compiled == "compiled"


@pytest.mark.slow
def test_a_player_connects_although_compiling_takes_22_s(basic, monkeypatch):
    monkeypatch.setattr(player_connection, "warm_up", lambda: time.sleep(22))
    with UnityEnvironment(basic) as env:
        two_steps(env)
        assert env.behavior_specs


def test_several_environments_at_once_find_ports_of_their_own(puppet):
    path = puppet("nothing")
    with UnityEnvironment(path) as one, UnityEnvironment(path) as two:
        two_steps(one)
        two_steps(two)
        assert one.port != two.port


@pytest.mark.parametrize("port", [-5, 70000])
def test_a_port_that_cannot_be_is_one_line(port):
    with pytest.raises(UsageError, match=f"port {port}: expected a number from 0 to"):
        UnityEnvironment(None, base_port=port)


def test_a_given_port_is_used_or_refused(puppet):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UnityWorkerInUseException, match=f"port {port} is in use"):
            UnityEnvironment(puppet("nothing"), base_port=port - 2, worker_id=2)
    with UnityEnvironment(puppet("nothing"), base_port=port - 2, worker_id=2) as env:
        assert env.port == port


def test_actions_are_checked_before_they_are_sent(puppet):
    with UnityEnvironment(puppet("nothing")) as env:
        with pytest.raises(UsageError, match=r"call reset\(\)"):
            env.get_steps(PUPPET)
        env.reset()
        with pytest.raises(
            ActionError, match=r"expected continuous \(2, 1\) and discrete \(2, 1\)"
        ):
            env.set_actions(PUPPET, ActionTuple(continuous=np.zeros((1, 1))))
        with pytest.raises(ActionError, match="choice 2 is masked"):
            env.set_actions(PUPPET, ActionTuple(np.zeros((2, 1)), np.full((2, 1), 2)))
        with pytest.raises(
            UsageError, match=r"unknown behavior 'X'; so far: Puppet\?team=0"
        ):
            env.set_actions("X", ActionTuple())
        with pytest.raises(ActionError, match="agent 9 needs no decision"):
            env.set_action_for_agent(
                PUPPET, 9, ActionTuple(np.zeros((1, 1)), np.zeros((1, 1)))
            )
        env.set_action_for_agent(
            PUPPET, 1, ActionTuple(np.ones((1, 1)), np.ones((1, 1)))
        )
        env.step()


FAILURES = {
    "exit-3": (
        PlayerExitedError,
        r"exited with code 3 before it connected; its log ends with:\n    puppet: my act",
    ),
    "version-2": (
        VersionRefusedError,
        r"speaks communication version 2\.0\.0, Touchline speaks 1\.5\.0",
    ),
    "kill-itself": (
        PlayerExitedError,
        "(was ended by signal SIGKILL|exited with code 9) in a step",
    ),
    "exit-0": (PlayerExitedError, "exited with code 0 in a step"),
    "farewell": (UnityCommunicatorStoppedException, "said goodbye in a step"),
    "farewell-and-fail": (
        PlayerExitedError,
        r"exited with code 3 in a step; its log ends with:\n    puppet: my act",
    ),
    "garbage": (MalformedMessageError, "no such message"),
    "nan": (NonFiniteError, "agent 0 sent a NaN or an infinity in observation 0"),
    "too-large": (
        MessageTooLargeError,
        r"a message of 4\.0 MiB came, and at most 1 MiB are accepted",
    ),
    "out-of-turn": (OutOfTurnError, "expected exchange or farewell, got ready"),
}


@pytest.mark.parametrize("act", FAILURES)
def test_each_failure_is_its_own_exception_and_leaves_nothing(puppet, act):
    kind, text = FAILURES[act]
    # Other tests may have left Python's own helpers running.
    before = psutil.Process().children(recursive=True)
    with (
        pytest.raises(kind, match=text) as failed,
        UnityEnvironment(puppet(act), max_message_mib=1) as env,
    ):
        two_steps(env)
    assert type(failed.value) is kind
    assert psutil.Process().children(recursive=True) == before


def test_silence_before_and_after_the_connection_are_told_apart(puppet):
    with pytest.raises(
        NeverConnectedError, match=r"did not connect to port .* within 1 s"
    ):
        UnityEnvironment(puppet("never-connect"), timeout_wait=1)
    with UnityEnvironment(puppet("fall-silent")) as env:
        env.reset()
        env.timeout_wait = 0.5
        with pytest.raises(
            NoAnswerError, match=r"connected, but sent nothing for 0\.5 s in a step"
        ):
            env.step()
        with pytest.raises(UnityException, match="the connection failed before"):
            env.step()
        psutil.Process(env.pid).kill()
    with pytest.raises(UnityEnvironmentException, match="is closed"):
        env.reset()


def test_the_editor_is_waited_for_with_advice():
    with pytest.raises(
        UnityTimeOutException,
        match=r"the Editor did not connect to port \d+ within 0\.3 s: press Play",
    ):
        UnityEnvironment(base_port=6111, timeout_wait=0.3)


@pytest.mark.skipif(sys.platform == "win32", reason="the paths are those of Linux")
def test_paths_that_are_no_player_say_what_is_wrong(tmp_path):
    with pytest.raises(
        PlayerNotFoundError, match=r"no player at .*none; looked for .*none\.x86_64"
    ):
        UnityEnvironment(tmp_path / "none")
    with pytest.raises(
        PlayerNotExecutableError, match=r"not executable; run: chmod \+x"
    ):
        UnityEnvironment(shell(tmp_path, "", mode=0o644))
    (tmp_path / "other.exe").write_bytes(b"MZ\x90\x00")
    with pytest.raises(WrongPlatformError, match="is a Windows program, this is Linux"):
        UnityEnvironment(tmp_path / "other.exe")
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF\x00\x00")
    broken.chmod(0o755)
    with pytest.raises(WrongPlatformError, match="does not run on this machine"):
        UnityEnvironment(broken)


@pytest.mark.parametrize("act", ["fall-silent", "call-and-hang"])
def test_a_hanging_player_is_gone_after_five_seconds_in_all(puppet, act, monkeypatch):
    """It got five to read the goodbye, and five more to quit."""
    monkeypatch.setattr(player_connection, "QUIT_S", 1.0)
    with UnityEnvironment(puppet(act)) as env:
        env.reset()
        env.timeout_wait = 0.3
        with contextlib.suppress(NoAnswerError):
            env.step()
        start = time.monotonic()
        env.close()
        assert 0.9 < time.monotonic() - start < 1.6


def test_a_dead_player_is_noticed_within_a_second(puppet):
    with UnityEnvironment(puppet("fall-silent"), timeout_wait=30) as env:
        env.reset()
        threading.Timer(0.3, psutil.Process(env.pid).kill).start()
        start = time.monotonic()
        with pytest.raises(PlayerExitedError, match=r"SIGKILL|with code"):
            env.step()
        assert time.monotonic() - start < 1.3


@shell_scripts
def test_a_players_children_end_with_it(tmp_path):
    seconds = f"98.{os.getpid()}"  # no other process sleeps so long
    path = shell(tmp_path, f"sleep {seconds} &\nexit 1")
    with pytest.raises(PlayerExitedError):
        UnityEnvironment(path)
    left = [
        p
        for p in psutil.process_iter(["cmdline"])
        if p.info["cmdline"] == ["sleep", seconds]
    ]
    assert not psutil.wait_procs(left, timeout=10)[
        1
    ]  # a killed process may take a moment to go


def test_a_seed_that_no_message_has_room_for_is_refused_before_a_player_starts(basic):
    with pytest.raises(UsageError, match=r"seed: a player takes -\d+ to \d+, got 3000"):
        UnityEnvironment(basic, seed=3_000_000_000)


def test_a_seed_that_differs_starts_the_player_anew(basic):
    with UnityEnvironment(basic, seed=1) as env:
        env.reset(seed=1)
        first = env.pid
        env.reset(seed=1)  # nothing has happened since
        env.reset()
        assert env.pid == first
        env.reset(seed=1)
        assert env.pid != first


def test_a_player_that_is_started_anew_gets_all_that_was_set_again(basic, tmp_path):
    recording = tmp_path / "session.wire.gz"
    properties = FloatPropertiesChannel()
    engine = EngineConfigurationChannel()
    engine.set_configuration_parameters(time_scale=5.0)
    parameters = EnvironmentParametersChannel()
    channels = [engine, properties, parameters]
    options = {"seed": 1, "side_channels": channels, "record_wire": recording}
    with UnityEnvironment(basic, **options) as env:
        env.reset(seed=1)
        engine.set_configuration_parameters(time_scale=7.0, quality_level=2)
        properties.set_property("wind", 3.0)
        parameters.set_float_parameter("rain", 4.0)
        parameters.set_uniform_sampler_parameters("snow", 6.0, 8.0, 11)
        env.set_parameters({"hail": 9.0})
        env.step()
        parameters.set_float_parameter("hail", 10.0)
        env.reset(seed=2)
        env.step()
    frames = [
        message
        for kind, message in read_frames(tmp_path / "session-2.wire.gz")
        if kind == REPLY
    ]
    # Kinds 1 and 2 of `EngineConfigurationChannel`, and its latest values alone.
    settings = [struct.pack("<ii", 1, 2), struct.pack("<if", 2, 7.0)]
    set_by_name = [
        b"wind" + struct.pack("<f", 3.0),
        b"rain" + struct.pack("<if", 0, 4.0),
        b"snow" + struct.pack("<iiiff", 1, 11, 0, 6.0, 8.0),
        b"hail" + struct.pack("<if", 0, 10.0),
    ]
    for payload in (*settings, *set_by_name):
        assert sum(payload in frame for frame in frames) == 1
    for old in (struct.pack("<if", 2, 5.0), b"hail" + struct.pack("<if", 0, 9.0)):
        assert not any(old in frame for frame in frames)


def test_a_reset_to_the_seed_of_the_start_sends_what_was_set_since(basic, tmp_path):
    recording = tmp_path / "session.wire.gz"
    channel = EnvironmentParametersChannel()
    with UnityEnvironment(
        basic, seed=3, side_channels=[channel], record_wire=recording
    ) as env:
        env.reset()
        process = env.pid
        channel.set_float_parameter("rain", 4.0)
        assert env.has_settings_to_come
        env.reset(seed=3)
        assert env.pid != process
        assert not env.has_settings_to_come
    frames = read_frames(tmp_path / "session-2.wire.gz")
    assert sum(b"rain" in message for kind, message in frames if kind == REPLY) == 1


def test_a_seed_that_a_running_player_cannot_take_leaves_it_running(basic):
    with UnityEnvironment(basic, seed=1) as env:
        env.reset()
        with pytest.raises(UsageError, match="seed: a player takes"):
            env.reset(seed=2**31)
        env.step()


@shell_scripts
def test_a_restart_that_fails_closes_the_environment(puppet):
    path = puppet("nothing")
    with UnityEnvironment(path, seed=1) as env:
        env.reset()
        path.write_text("#!/bin/sh\nexit 4\n")
        with pytest.raises(
            PlayerExitedError, match="exited with code 4 before it connected"
        ):
            env.reset(seed=2)
        with pytest.raises(UnityEnvironmentException, match="is closed"):
            env.step()


def test_an_unknown_keyword_argument_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'timeout'"):
        UnityEnvironment(timeout=3)


def test_parameters_and_statistics_have_channels_of_their_own(basic):
    own = RawBytesChannel(__import__("uuid").uuid4())
    with UnityEnvironment(basic, side_channels=[own]) as env:
        env.reset(parameters={"gravity": 3.0, "wind": Uniform(0, 1)})
        own.send_raw_data(b"hello")
        env.step()
        assert env.stats.get_and_reset_stats() == {}


def test_statistics_that_nobody_takes_do_not_fill_the_memory(puppet, caplog):
    own = StatsSideChannel()
    player = puppet("100,003-statistics")
    with (
        UnityEnvironment(player) as env,
        UnityEnvironment(player, side_channels=[own]) as keeping,
    ):
        for each in (env, keeping):
            each.reset()
            each.step()
        latest, everything = env.take_statistics(), own.get_and_reset_stats()
        assert env.take_statistics() == {}
    average = StatsAggregationMethod.AVERAGE
    assert latest["Score"] == [(value, average) for value in range(3, 100_003, 2)]
    assert sum(map(len, latest.values())) == MOST_STATISTICS
    assert sum(map(len, everything.values())) == 100_003
    (warning,) = caplog.messages
    assert "only the latest 100000 were kept; 3 before them are lost" in warning


def test_a_recorded_session_replays_step_for_step(basic, tmp_path):
    path = tmp_path / "basic.wire.gz"
    recipe = EnvRecipe(
        "unity",
        str(basic),
        seed=4,
        options={"record_wire": str(path), "timeout_wait": 20},
    )
    rng = np.random.default_rng(0)
    seen, sent = [], []
    with make(recipe) as env:
        for command in [env.reset, *[env.step] * 30, env.reset, *[env.step] * 5]:
            command()
            (name,) = env.behaviors
            decisions, terminals = env.steps(name)
            seen.append(
                (
                    decisions.obs[0].copy(),
                    decisions.agent_id.tolist(),
                    terminals.reward.tolist(),
                )
            )
            sent.append(
                env.behaviors[name].action_spec.random_action(len(decisions), rng)
            )
            if len(decisions):
                env.set_actions(name, sent[-1])
    with make(str(path)) as again:
        for number, exchange in enumerate(again.replay()):
            decisions, terminals = exchange[name]
            np.testing.assert_array_equal(decisions.obs[0], seen[number][0])
            assert (decisions.agent_id.tolist(), terminals.reward.tolist()) == seen[
                number
            ][1:]
            if again.next_command == 0:
                assert (
                    again.recorded_actions(name).discrete.tolist()
                    == sent[number].discrete.tolist()
                )
        assert number == len(seen) - 1
        assert again.header["client"].startswith("touchline")


def resources():
    gc.collect()
    me = psutil.Process()
    ports = {
        c.laddr.port for c in me.net_connections() if c.status == psutil.CONN_LISTEN
    }
    return (
        me.num_handles() if sys.platform == "win32" else me.num_fds(),
        me.num_threads(),
        ports,
        {c.pid for c in me.children(recursive=True)},
    )


CLOSES_WITHIN_S = QUIT_S + 2 if sys.platform == "win32" else 5
"""There the test kills a launcher, before or after it has started the player that is asked to quit.
"""


def cycles(path, count, seed=0):
    """Start, kill -9 at a random instant, close; what was left open before and after."""
    rng = np.random.default_rng(seed)
    before = None
    for cycle in range(count + 3):
        # gRPC and numba keep some threads and files of their own from their first use on.
        if cycle == 3:
            before = resources()
        killer = None
        try:
            env = None
            env = UnityEnvironment(path, timeout_wait=10)
            killer = threading.Timer(rng.uniform(0, 0.05), psutil.Process(env.pid).kill)
            killer.start()
            env.reset()
            for _ in range(10**6):
                env.step()
        except UnityException:
            pass
        finally:
            if killer is not None:
                killer.join()
            if env is not None:
                start = time.monotonic()
                env.close()
                assert time.monotonic() - start < CLOSES_WITHIN_S
    return before, resources()


def assert_nothing_leaked(before, after):
    assert after[2] == before[2], "ports"
    assert after[3] <= before[3], "processes"
    # gRPC's own pool grows and shrinks.
    assert after[1] <= before[1] + 2, (
        "threads",
        before[1],
        after[1],
    )
    assert after[0] <= before[0] + 2, ("files", before[0], after[0])


def test_nothing_is_left_behind_when_players_are_killed(puppet):
    assert_nothing_leaked(*cycles(puppet("nothing"), 5))


@pytest.mark.slow
def test_two_hundred_killed_players_leave_nothing_behind(puppet):
    before, after = cycles(puppet("nothing"), 200)
    print("files, threads, ports, processes: before", before, "after", after)
    assert_nothing_leaked(before, after)
