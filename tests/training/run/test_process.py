"""Training leaves the program that called it as it found it."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from touchline.envs.env import EnvRecipe
from touchline.training.config.reading import read_config
from touchline.training.run.process import tuned_process
from touchline.training.trainer import train


def _process():
    import matplotlib

    return {
        "threads of torch": torch.get_num_threads(),
        "random state of torch": torch.random.get_rng_state().tolist(),
        "random state of NumPy": repr(np.random.get_state()),  # noqa: NPY002 - the global one
        "random state of Python": random.getstate(),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "backend of matplotlib": matplotlib.rcParams._get("backend"),
        "threads": {t.name for t in threading.enumerate()},
        "gradients": torch.is_grad_enabled(),
        "turns of threads": sys.getswitchinterval(),
        "matrices": torch.get_float32_matmul_precision(),
    }


# Beartype draws from Python's random state which items of a list to check.
@pytest.mark.usefixtures("unchecked_shapes")
def test_training_twice_in_one_process_works_and_changes_nothing_around_it(tmp_path):
    torch.set_num_threads(2)
    before = _process()
    for run in ("a", "b"):
        changes = {
            "behaviors.Basic.max_steps": 300,
            "checkpoint_settings.results_dir": str(tmp_path),
            "checkpoint_settings.run_id": run,
            "env_settings.seed": 1,
        }
        train(read_config("Basic_official", (), changes), EnvRecipe("scene", "Basic"))
        assert _process() == before
    weights = [(tmp_path / run / "Basic.onnx").read_bytes() for run in ("a", "b")]
    assert weights[0] == weights[1]
    torch.set_num_threads(1)


def test_threads_are_put_back_after_a_failure_too():
    torch.set_num_threads(2)
    try:
        with tuned_process(read_config("PushBlock")):
            assert torch.get_num_threads() == 1
            raise RuntimeError("a run that fails")
    except RuntimeError:
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


HOLES = """
import numpy as np, psutil
from touchline.training.run.process import kept_memory

before = psutil.Process().memory_info().rss
with kept_memory():
    large, small = [], []
    for _ in range(5):
        large.append(np.ones(80 * 2**17))  # 80 MiB
        small.append(np.ones(2**12))  # 32 KiB, for as long as a run
    large.clear()
    print((psutil.Process().memory_info().rss - before) >> 20)
"""


def test_what_is_large_leaves_no_holes_in_memory():
    # In a process of its own: other tests leave free blocks, and large arrays would lie in them.
    grown = subprocess.run(
        [sys.executable, "-c", HOLES], capture_output=True, check=True
    ).stdout
    assert int(grown) < 80, f"{int(grown)} MiB are kept for nothing"
