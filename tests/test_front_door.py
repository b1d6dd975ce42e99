"""What `import touchline` offers: typed for users, nothing heavy, and the same errors as the verbs."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import touchline

PACKAGE = Path(touchline.__file__).parent
CACHE = Path(__file__).parents[1] / ".mypy_cache" / "front_door"

RIGHT = """
from pathlib import Path

import numpy as np

import touchline
from touchline import ActionTuple, Env, EnvRecipe, Slots, UnityEnvironment, UsageError

result: touchline.TrainingResult = touchline.train(
    "3DBall", run_id="first", resume=False, changes={"behaviors.*.max_steps": 1000}, log=print
)
folder: Path = result.folder
steps: int = result.behaviors["3DBall"].steps
touchline.train(Path("my.yaml"), env="game.x86_64", changes=["debug=true"])

figures = touchline.evaluate("3DBall", "results/first", episodes=10, deterministic=True)
mean: float = figures["mean_return"]
games = figures["behaviors"]["3DBall"]["games"]
if games is not None:
    won: int = games["won"]
recipe = EnvRecipe.parse("SoccerTwos", num_areas=4)
touchline.evaluate(recipe, ["SoccerTwos=a.onnx"], versus=Path("b.onnx"))

path: Path = touchline.export("results/first", "model.onnx", behavior="3DBall")
touchline.play("3DBall", path, record="film.mp4", size=(320, 240))
actor: touchline.SlotActor = touchline.load_policy(path, deterministic=True)

env: Env = touchline.make(recipe)
with env:
    slots = Slots(env)
    rows: dict[str, touchline.SlotRows] = slots.reset(0)
    actions: dict[str, ActionTuple] = {name: actor.act(row) for name, row in rows.items()}
    rows = slots.step(actions)
    decisions, terminals = env.steps("3DBall?team=0")
    ids: np.ndarray = decisions.agent_id
with touchline.make("Basic") as familiar:
    familiar.reset()
    behavior_name = list(familiar.behavior_specs)[0]
    decisions, terminals = familiar.get_steps(behavior_name)
    familiar.set_actions(behavior_name, np.zeros((len(decisions), 1), np.int32))
    familiar.set_action_for_agent(behavior_name, 0, ActionTuple(discrete=[[1]]))
touchline.make_sb3("SoccerTwos", group_by="base").close()
unity = UnityEnvironment("game.x86_64", worker_id=1)
try:
    print(touchline.describe("3DBall"), touchline.inspect("3DBall"), touchline.__version__)
except UsageError as error:
    print(error)
"""

WRONG = {
    'touchline.train("3DBall", run_name="x")': "call-arg",
    'touchline.train("3DBall", changes=5)': "arg-type",
    'touchline.train("3DBall").nothing': "attr-defined",
    'touchline.evaluate("3DBall")': "call-arg",
    'touchline.evaluate(3, "random")': "arg-type",
    'touchline.evaluate("3DBall", "random", episodes="10")': "arg-type",
    'touchline.evaluate("3DBall", "random")["mean_retrun"]': "typeddict-item",
    'touchline.play("3DBall", "random", size=640)': "arg-type",
    'touchline.export("results/first")': "call-arg",
    "touchline.load_policy()": "call-arg",
    "touchline.make(3)": "arg-type",
    'touchline.make_sb3("3DBall", allow_idle=True)': "call-arg",
    'touchline.make("3DBall").stepp()': "attr-defined",
    "touchline.nothing": "attr-defined",
    "touchline.UnityEnvironment(worker=3)": "call-arg",
}
"""Line of a user's script -> the code of mypy's error."""


def _mypy(folder, text):
    (folder / "script.py").write_text(text)
    # No call of the front door shows a type of torch, which takes mypy longer than all the rest.
    heavy = "torch.*,onnx.*,matplotlib.*,stable_baselines3.*"
    skipped = f"[mypy-{heavy}]\nfollow_imports = skip\n"
    cache = f"cache_dir = {CACHE}\n"  # from the second run on, a tenth of the time
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = True\n{cache}{skipped}")
    # The installed package, wherever it is; errors inside it are its own business.
    environment = {**os.environ, "MYPYPATH": str(PACKAGE.parent)}
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports", "silent", "script.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_right_calls_of_a_user_pass_mypy_in_strict_mode_and_wrong_ones_fail(tmp_path):
    wrong = "".join(
        f"\ndef wrong_{n}() -> None:\n    {line}\n" for n, line in enumerate(WRONG)
    )
    done = _mypy(tmp_path, RIGHT + wrong)
    text = (RIGHT + wrong).splitlines()
    found = {}
    for line in done.stdout.splitlines():
        if ": error: " in line:
            number = int(line.split(":")[1])
            found[text[number - 1].strip()] = line.rpartition("[")[2].rstrip("]")
    assert found == WRONG, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(touchline._HOME))
def test_every_name_is_there(name):
    found = getattr(touchline, name)
    module = importlib.import_module(touchline._HOME[name])
    assert found is getattr(module, name)
    assert name in dir(touchline)


def test_importing_touchline_loads_nothing_heavy():
    code = (
        "import sys, touchline; heavy = {'numpy', 'torch', 'mujoco', 'grpc', 'numba', 'pydantic',"
        "'typer'} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()
