"""Java in our process keeps its manners: one machine, workers, signals, exits, memory."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from touchline.envs.env import EnvRecipe, make
from touchline.errors import MissingError
from touchline.microrts.java import find_libjvm

US = "MicroRTS?team=0"
PLAY = """
import signal, sys, time
import numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
from touchline.envs.env import EnvRecipe, make
env = make(EnvRecipe("microrts", "basesWorkers8x8", 2, options={"engine": sys.argv[1], "opponent": "randombiased"}))
env.reset(0)
rng = np.random.default_rng(0)
def play():
    env.set_actions("MicroRTS?team=0", env.behaviors["MicroRTS?team=0"].action_spec.random_action(2, rng))
    env.step()
"""

WORKERS = """
import multiprocessing, sys
import numpy as np
from touchline.envs.env import EnvRecipe, make

def boards(recipe):
    with make(recipe) as env:
        env.reset(5)
        seen, rng = [], np.random.default_rng(3)
        for _ in range(20):
            env.set_actions("MicroRTS?team=0", env.behaviors["MicroRTS?team=0"].action_spec.random_action(2, rng))
            env.step()
            seen.append(env.steps("MicroRTS?team=0")[0].obs[0])
        return seen

if __name__ == "__main__":
    recipe = EnvRecipe("microrts", "basesWorkers8x8", 2, options={"engine": sys.argv[1]})
    mine = boards(recipe)
    with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
        theirs = pool.map(boards, [recipe, recipe])
    print("equal" if all(np.array_equal(mine, other) for other in theirs) else "different")
"""


@contextmanager
def started(engine, script: str, tmp_path: Path) -> Iterator[subprocess.Popen]:
    """A process that runs `PLAY` and then `script`; it does not outlive the block."""
    with subprocess.Popen(
        [sys.executable, "-c", PLAY + script, str(engine.folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def recipe(engine, **options) -> EnvRecipe:
    return EnvRecipe(
        "microrts",
        "basesWorkers8x8",
        2,
        options={"engine": str(engine.folder), **options},
    )


def test_closing_an_env_twice_leaves_java_to_the_next_one(engine):
    given = recipe(engine)
    one = make(given)
    one.reset(0)
    one.close()
    one.close()
    with make(given) as two, make(given) as three:
        two.reset(0)
        three.reset(0)
        two.step()
        three.step()


def test_what_bots_print_does_not_reach_the_terminal(engine, tmp_path):
    """The engine prints a stack to standard error for orders of a bot that contradict each other."""
    script = """
import jpype
for stream in (jpype.java.lang.System.out, jpype.java.lang.System.err):
    stream.println("Inconsistent actions were executed!")
    stream.flush()
"""
    with started(engine, script, tmp_path) as process:
        assert process.communicate(timeout=60) == ("", "")


def test_what_the_docs_say_lets_a_bot_print(engine, tmp_path):
    docs = Path(__file__).parents[2] / "docs" / "microrts.md"
    (code,) = re.findall(r" *```python\n(.*?)```", docs.read_text("utf-8"), re.S)
    script = f"""
import jpype
{textwrap.dedent(code)}
jpype.java.lang.System.err.println("from a bot")
jpype.java.lang.System.err.flush()
"""
    with started(engine, script, tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert (out, err.strip()) == ("", "from a bot")


posix = pytest.mark.skipif(
    sys.platform == "win32",
    reason="Windows has no fork, and its signals go to consoles",
)


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=posix)])
def test_worker_processes_play_the_same_games(engine, method, tmp_path):
    """In a process of their own, because a fork server stays until its parent ends."""
    (tmp_path / "workers.py").write_text(WORKERS)
    process = subprocess.run(
        [sys.executable, "workers.py", str(engine.folder), method],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (process.returncode, process.stdout) == (0, "equal\n"), process.stderr


@posix
def test_a_forked_child_gets_an_error_and_does_not_hang(engine, tmp_path):
    script = """
import gc, os
from touchline.errors import UsageError
for _ in range(50):
    play()
child = os.fork()
if child == 0:
    gc.collect()
    try:
        make(EnvRecipe("microrts", "basesWorkers8x8", 1, options={"engine": sys.argv[1]}))
    except UsageError as error:
        os._exit(7 if "spawn" in str(error) else 8)
    os._exit(9)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    with started(engine, script, tmp_path) as process:
        process.communicate(timeout=60)
    assert process.returncode == 7


@posix
def test_ctrl_c_reaches_python_as_keyboard_interrupt(engine, tmp_path):
    # Python drops a KeyboardInterrupt that comes in a `__del__`. The first step compiles, and
    # what llvmlite made for that is freed in such methods: all of it before Ctrl-C.
    script = """
import gc
try:
    play()
    gc.collect()
    print("ready", flush=True)
    while True:
        play()
except KeyboardInterrupt:
    env.close()
    sys.exit(130)
"""
    with started(engine, script, tmp_path) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130


@posix
def test_sigterm_ends_the_process_without_a_java_crash(engine, tmp_path):
    script = "play()\nprint('ready', flush=True)\nwhile True:\n    play()\n"
    with started(engine, script, tmp_path) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert not list(tmp_path.glob("hs_err*"))


def test_random_invalid_orders_do_not_end_the_process_and_print_nothing(
    engine, tmp_path
):
    """The engine's `issueSafe` calls System.exit on an order for a unit that does not exist."""
    script = """
for _ in range(1500):
    play()
print(sum(r.invalid_orders for r in env.pop_records()) > 100 or env._num_invalid.sum() > 100)
"""
    with started(engine, script, tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "True\n"), err


def test_memory_stays_bounded(engine):
    process = psutil.Process()
    with make(recipe(engine, max_ticks=200)) as env:
        env.reset(0)
        rng = np.random.default_rng(0)
        spec = env.behaviors[US].action_spec
        used = []
        for step in range(2401):
            env.set_actions(US, spec.random_action(2, rng))
            env.step()
            if step in (1200, 2400):
                used.append(process.memory_info().rss / 2**20)
    assert used[1] - used[0] < 60, f"grew by {used[1] - used[0]:.0f} MB in 1200 steps"


def test_a_java_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingError, match="no Java runtime at"):
        find_libjvm(str(tmp_path))
