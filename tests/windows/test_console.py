"""The keys of a Windows console, as real events: a run ends saved, and its players are gone."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

from touchline.operating_systems import SYSTEM
from touchline.player import build
from touchline.policies.files.checkpoints import read_checkpoint
from touchline.policies.files.run_layout import RunLayout

pytestmark = pytest.mark.skipif(
    SYSTEM != "win32", reason="these events are those of a Windows console"
)

TRAIN = """
import ctypes, sys
# Windows switches Ctrl-C off for a new group, and this test needs a group to send it to.
ctypes.windll.kernel32.SetConsoleCtrlHandler(None, False)
from touchline.cli import main
sys.argv = ["touchline", *sys.argv[1:]]
main()
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


@pytest.mark.parametrize("key", ["CTRL_C_EVENT", "CTRL_BREAK_EVENT"])
def test_ctrl_c_and_ctrl_break_end_a_run_saved_with_all_players_gone(tmp_path, key):
    player = build("Basic", tmp_path / "builds", 2)
    config = tmp_path / "basic.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    options = ["--env", str(player), "--num-envs", "2", "--results-dir", str(tmp_path)]
    run = subprocess.Popen(
        [
            sys.executable,
            "-c",
            TRAIN,
            "train",
            str(config),
            *options,
            "--run-id",
            "run",
        ],
        creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        layout = RunLayout(tmp_path / "run")
        _waits_for(lambda: run.poll() is not None or layout.resume_point.exists())
        time.sleep(2.0)  # some rounds
        players = psutil.Process(run.pid).children(recursive=True)
        assert len(players) >= 2
        run.send_signal(getattr(signal, key))
        printed, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    text = printed.decode(errors="replace")
    assert run.returncode == 130, text
    assert "Traceback" not in text
    read_checkpoint(layout.latest("Basic"))
    assert not any(process.is_running() for process in players), text
