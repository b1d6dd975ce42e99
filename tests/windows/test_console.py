"""The keys of a Windows console, as real events: a run ends saved, and its players are gone."""

import ctypes
import signal
import subprocess
import sys
import time

import psutil
import pytest

from touchline.envs.env import EnvRecipe
from touchline.operating_systems import SYSTEM
from touchline.player import build
from touchline.policies.files.checkpoints import read_checkpoint
from touchline.policies.files.run_layout import RunLayout
from touchline.training.config.reading import read_config
from touchline.training.trainer import train

pytestmark = pytest.mark.skipif(
    SYSTEM != "win32", reason="these events are those of a Windows console"
)

PRESS = """
import ctypes, signal, sys
# As if the key was typed into the run's console: the event reaches all processes of it.
kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
kernel32.FreeConsole()
for key in (signal.SIGINT, signal.SIGBREAK):
    signal.signal(key, signal.SIG_IGN)
if not kernel32.AttachConsole(int(sys.argv[1])):
    raise ctypes.WinError(ctypes.get_last_error())
if not kernel32.GenerateConsoleCtrlEvent(int(sys.argv[2]), 0):
    raise ctypes.WinError(ctypes.get_last_error())
"""
CONFIG = """
behaviors:
  Basic:
    trainer_type: ppo
    max_steps: 10000000
    summary_freq: 256
    hyperparameters: {buffer_size: 256, batch_size: 32}
"""


def _waits_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


def _is_wine():
    return SYSTEM == "win32" and hasattr(ctypes.windll.ntdll, "wine_get_version")


CTRL_BREAK = pytest.param(
    1,
    marks=pytest.mark.skipif(
        _is_wine(), reason="Wine ends a process at Ctrl-Break and calls no handler"
    ),
)


@pytest.mark.parametrize("key", [0, CTRL_BREAK], ids=["ctrl-c", "ctrl-break"])
def test_ctrl_c_and_ctrl_break_end_a_run_saved_with_all_players_gone(tmp_path, key):
    player = build("Basic", tmp_path / "builds", 2)
    config = tmp_path / "basic.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    options = ["--env", str(player), "--num-envs", "2", "--results-dir", str(tmp_path)]
    options += ["--run-id", "run"]
    run = subprocess.Popen(
        [sys.executable, "-m", "touchline", "train", str(config), *options],
        creationflags=subprocess.CREATE_NEW_CONSOLE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        layout = RunLayout(tmp_path / "run")
        _waits_for(lambda: run.poll() is not None or layout.resume_point.exists())
        time.sleep(2.0)  # some rounds
        # Each is a launcher and its Python; the window of a console is no player.
        started = psutil.Process(run.pid).children(recursive=True)
        players = [p for p in started if p.name() in ("Basic.exe", "python.exe")]
        assert len(players) == 4
        press = [sys.executable, "-c", PRESS, str(run.pid), str(key)]
        subprocess.run(press, check=True)
        printed, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    text = printed.decode(errors="replace")
    assert run.returncode == 130, text
    assert "Traceback" not in text
    read_checkpoint(layout.latest("Basic"))
    assert psutil.wait_procs(players, 10)[1] == [], text


def test_the_signal_of_ctrl_break_stops_a_run_as_that_of_ctrl_c(tmp_path):
    changes = {
        "checkpoint_settings.results_dir": str(tmp_path),
        "behaviors.Basic.max_steps": 10_000_000,
    }
    config = read_config("Basic_official", (), changes)

    def press(progress):
        signal.raise_signal(signal.SIGBREAK)

    result = train(config, EnvRecipe("scene", "Basic"), watch=press)
    assert result.interrupted
    read_checkpoint(RunLayout(result.folder).latest("Basic"))
