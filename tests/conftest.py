"""Fixtures that every test may use."""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

# Before torch is loaded: spinning threads cost 5-50x.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from tests.shapes import check_shapes

check_shapes()  # before any module is imported whose shapes are checked

import hypothesis
import pytest

# For all folders.
from tests.physics.unity_logs import push_block_log as push_block_log
from tests.shapes import unchecked_shapes as unchecked_shapes
from touchline.operating_systems import STOP_SIGNALS

if find_spec("torch") is not None:  # `.ci/run` also tests without
    import torch

    torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell sets it for what runs in the background; tests of Ctrl-C need Python's own.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine an example may take longer than Hypothesis's 200 ms.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """No lines about progress: on a busy machine any command may take longer than a second."""
    monkeypatch.setattr("touchline.cli.progress.FIRST_AFTER_S", 60.0)


@pytest.fixture(autouse=True)
def own_ctrl_c():
    """Commands that run in this process leave a handler for the end of theirs."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of truth recorded from Unity; it is not part of the project, so its tests skip
    without it.
    """
    folder = Path(os.environ.get("TOUCHLINE_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(
            "the recordings from Unity are not here (set TOUCHLINE_SHARED to their folder)"
        )
    return folder
