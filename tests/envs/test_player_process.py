"""Where a build keeps its executable, on each system."""

import sys
from pathlib import Path

import pytest

from touchline.envs.player_process import PlayerProcess, check_executable, find_player
from touchline.protocol.errors import PlayerNotFoundError, WrongPlatformError


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def placed(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
        return tmp_path

    return placed


@pytest.mark.parametrize(
    "asked", ["game", "game.x86_64", " game ", "./game", "game.exe", "game.app"]
)
def test_linux_finds_a_player_with_or_without_suffix(place, asked):
    root = place("game.x86_64")
    assert find_player(asked, "linux").resolve() == root / "game.x86_64"


def test_linux_prefers_64_bits_then_32_then_the_bare_file(place):
    place("game", "game.x86", "game.x86_64")
    assert find_player("game", "linux").name == "game.x86_64"
    place("other", "other.x86")
    assert find_player("other", "linux").name == "other.x86"
    place("bare")
    assert find_player("bare", "linux").name == "bare"


def test_names_that_contain_a_suffix_in_the_middle_are_kept(place):
    """Official Python deletes `.app` and the like anywhere in a path."""
    root = place("my.apps/game.x86_64")
    assert (
        find_player("my.apps/game", "linux").resolve()
        == root / "my.apps" / "game.x86_64"
    )


def test_a_folder_of_one_player_is_that_player(place):
    place("build/game.x86_64", "build/UnityPlayer.so")
    assert find_player("build", "linux").name == "game.x86_64"
    place("build/other.x86_64")
    with pytest.raises(
        PlayerNotFoundError, match=r"one player in it, found game.x86_64, other.x86_64"
    ):
        find_player("build", "linux")


def test_windows_finds_an_exe_and_skips_the_crash_handler(place):
    place("build/Game.exe", "build/UnityCrashHandler64.exe", "solo.exe")
    assert find_player("solo", "win32").name == "solo.exe"
    assert find_player("build", "win32").name == "Game.exe"


def test_macos_looks_into_the_bundle(place):
    place("Game.app/Contents/MacOS/Game", "Odd.app/Contents/MacOS/Name With Spaces")
    assert find_player("Game", "darwin").name == "Game"
    assert find_player("Odd.app", "darwin").name == "Name With Spaces"


def test_macos_programs_do_not_run_on_linux(place):
    root = place("game")
    (root / "game").write_bytes(b"\xcf\xfa\xed\xfe")
    with pytest.raises(WrongPlatformError, match="is a macOS program, this is Linux"):
        check_executable(root / "game", "linux")


@pytest.mark.skipif(sys.platform == "win32", reason="the player is a shell script")
def test_arguments_come_in_the_order_of_the_official_client(tmp_path):
    path = tmp_path / "game"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    process = PlayerProcess(
        path,
        5005,
        no_graphics=True,
        log_file=tmp_path / "logs" / "log",
        additional_args=["--speed", "9"],
    )
    process.stop()
    process.stop()
    assert process.command[1:] == [
        *("-nographics", "-batchmode", "--mlagents-port", "5005"),
        *("-logFile", str(tmp_path / "logs" / "log"), "--speed", "9"),
    ]
    # A game cannot say where its log is missing.
    assert (tmp_path / "logs").is_dir()
    own_log = PlayerProcess(path, 5005, additional_args=["-LOGFILE", "mine"])
    own_log.stop()
    assert own_log.command[1:] == ["--mlagents-port", "5005", "-LOGFILE", "mine"]


UNITY_LOG = """\
[UnityMemory] Configuration Parameters - Can be set up in boot.config
    "memorysetup-bucket-allocator-granularity=16"
Mono path[0] = '/games/Ball_Data/Managed'
Initialize engine version: 2022.3.44f1 (c3ae09b9f03c)
Forcing GfxDevice: Null
NullGfxDevice:
    Version:  NULL 1.0 [1.0]
    Renderer: Null Device
Begin MonoManager ReloadAssembly
- Loaded All Assemblies, in  0.125 seconds
ERROR: Shader Sprites/Default shader is not supported on this GPU (none of subshaders/fallbacks)
UnloadTime: 0.800700 ms
NullReferenceException: Object reference not set to an instance of an object
  at BallAgent.OnEpisodeBegin () [0x00012] in <8ce0bd04a7a04b4b>:0

(Filename: ./Runtime/Export/Debug/Debug.bindings.h Line: 39)
"""
"""As Unity 2022.3 writes it."""


def process_with_log(tmp_path, log):
    path, written = tmp_path / "game", tmp_path / "Player.log"
    path.write_text(f"#!/bin/sh\ncp '{written}.given' \"$4\"\nexit 3\n")
    path.chmod(0o755)
    Path(f"{written}.given").write_text(log)
    process = PlayerProcess(path, 1, log_file=written)
    assert process.has_ended(5)
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="the player is a shell script")
def test_a_log_keeps_its_lines_and_leaves_the_engines_own_out(tmp_path):
    process = process_with_log(tmp_path, UNITY_LOG)
    assert process.log_tail() == (
        "; its log ends with:\n"
        "    NullReferenceException: Object reference not set to an instance of an object\n"
        "      at BallAgent.OnEpisodeBegin () [0x00012] in <8ce0bd04a7a04b4b>:0"
    )
    process.stop(0)


@pytest.mark.skipif(sys.platform == "win32", reason="the player is a shell script")
def test_a_log_of_the_engines_lines_alone_names_no_reason(tmp_path):
    process = process_with_log(tmp_path, "\n".join(UNITY_LOG.splitlines()[:12]))
    assert process.log_tail() == "; its log names no reason"
    process.stop(0)
