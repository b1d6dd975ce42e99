"""Official ML-Agents 1.1.0 against our players. Needs its own Pythons: `make interop` makes them.

The official client keeps group ids and images as it got them, so every array must agree in every
bit with the scene stepped in process under the same seed and actions, masked ones included.
"""

import importlib
import inspect
import json
import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from tests.adapters.test_mlagents_envs import HERE, TUTORIAL, ported
from tests.adapters.test_mlagents_envs import played as played_tutorial
from tests.adapters.test_mlagents_wire import free_port
from tests.conftest import ROOT
from tests.interop.message_fields import fields

import touchline
from touchline.cli import run
from touchline.envs.env import EnvRecipe
from touchline.envs.scene_env import open_scene
from touchline.player import build
from touchline.protocol.demonstrations import read_demo
from touchline.scenes import SCENES
from touchline.specs import ActionTuple

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="make_official.sh needs POSIX"
    ),
]


def official(variable, folder, what):
    python = os.environ.get(variable, str(ROOT / folder / "bin" / "python"))
    if not os.access(python, os.X_OK):
        pytest.skip(
            f"official {what} is not here: run `make interop`, or name its Python in {variable}"
        )
    return python


def played(python, player, seed, steps, areas, out):
    script = ROOT / "tests" / "interop" / "official_client.py"
    arguments = [python, script, player, str(seed), str(steps), str(areas), out]
    subprocess.run(arguments, check=True, timeout=300, stdin=subprocess.DEVNULL)
    return pickle.loads(out.read_bytes())


@pytest.mark.parametrize("scene", SCENES)
def test_the_official_client_sees_the_scene_as_it_is(scene, tmp_path):
    python = official("OFFICIAL_CLIENT_PYTHON", ".venv-official", "mlagents_envs")
    session = played(
        python, build(scene, tmp_path), 3, 500, 1, tmp_path / "session.pickle"
    )
    with open_scene(EnvRecipe("scene", scene, seed=3)) as env:
        env.reset()
        for number, exchange in enumerate(session["exchanges"]):
            for name, spec in env.behaviors.items():
                if name not in exchange:  # unknown on the wire until its first agent
                    assert not any(map(len, env.steps(name)))
                    continue
                decisions, terminals, continuous, discrete = exchange[name]
                assert_agrees(
                    env.steps(name), (decisions, terminals), (scene, number, name)
                )
                count, action = len(env.steps(name)[0]), spec.action_spec
                if count:
                    env.execute(
                        name,
                        ActionTuple(
                            np.frombuffer(continuous, np.float32).reshape(
                                count, action.continuous_size
                            ),
                            np.frombuffer(discrete, np.int32).reshape(
                                count, action.discrete_size
                            ),
                        ),
                    )
            if number < 500:
                env.step()
        for name, shown in session["specs"].items():
            spec = env.behaviors[name]
            assert shown["observations"] == [
                (
                    list(o.shape),
                    [int(p) for p in o.dimension_property],
                    int(o.observation_type),
                    o.name,
                )
                for o in spec.observation_specs
            ]
            assert shown["continuous"] == spec.action_spec.continuous_size
            assert shown["branches"] == list(spec.action_spec.discrete_branches)


def assert_agrees(here, there, where):
    for steps, listed in zip(here, there, strict=True):
        assert steps.agent_id.tolist() == listed["ids"], where
        assert steps.reward.tobytes() == listed["rewards"], where
        assert steps.group_id.tolist() == listed["groups"], where
        assert steps.group_reward.tobytes() == listed["group_rewards"], where
        assert [bool(i) for i in getattr(steps, "interrupted", ())] == listed[
            "interrupted"
        ], where
        assert [np.ascontiguousarray(o).tobytes() for o in steps.obs] == listed[
            "obs"
        ], where


@pytest.mark.parametrize("scene", ["3DBall", "Basic", "SoccerTwos"])
def test_a_tutorial_prints_the_same_with_the_official_package_and_with_ours(
    scene, tmp_path
):
    python = official("OFFICIAL_CLIENT_PYTHON", ".venv-official", "mlagents_envs")
    player = str(build(scene, tmp_path))
    theirs = played_tutorial(python, TUTORIAL, player, 75)
    assert theirs == played_tutorial(sys.executable, ported(TUTORIAL), player, 76)


@pytest.mark.parametrize("scene", ["3DBall", "GridWorld", "SoccerTwos"])
def test_a_program_without_an_environment_prints_the_same_with_both_packages(
    scene, tmp_path
):
    python = official("OFFICIAL_CLIENT_PYTHON", ".venv-official", "mlagents_envs")
    script = ROOT / "tests" / "interop" / "below_the_environment.py"
    call = [script, build(scene, tmp_path), str(free_port())]
    theirs, ours = (
        subprocess.run(
            [*program, *call],
            check=True,
            timeout=200,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        for program in ([python], [sys.executable, "-m", HERE])
    )
    assert theirs == ours
    assert len(theirs.splitlines()) > 700


INNER = {
    *("logger", "platform", "FuncT", "DEBUG"),
    *("COMPRESSION_TYPE_NONE", "COMPRESSION_TYPE_PNG"),
}
"""Names that modules define for themselves."""
HELPERS = {"get_logger", "timed", "hierarchical_timer"}
"""Functions that modules import for themselves: from `logging_util` and `timers`."""
ASIDE = ("envs", "registry")
"""Modules that need not have the names that the official ones import."""
DIFFERENT = {
    # Ours talks to the player over Touchline's own server, without a servicer of grpcio.
    "rpc_communicator.RpcCommunicator unity_to_external is missing",
}
UNUSED = {"count", "index", "stats"}
"""Methods of every tuple, and an attribute that `get_and_reset_stats` returns: not required."""
BASES = {"gym.core.Env": "gymnasium.Env", "gym.error.Error": "gymnasium.error.Error"}
"""Where the classes of other packages are today."""
NOT_BASES = {"builtins.tuple", "typing.Generic", "enum.Enum", "abc.ABC"}
"""A named tuple is a dataclass here with the same methods; `abstract` compares what ABC means."""


def positional(thing):
    found = inspect.signature(thing).parameters.values()
    return [
        (one.name, one.default is not one.empty)
        for one in found
        if one.name != "self" and one.kind is one.POSITIONAL_OR_KEYWORD
    ]


def accepts(ours, theirs):
    """Whether every call that the official parameters allow is possible, by position and name."""
    own = positional(ours)
    return (
        [name for name, _ in own[: len(theirs)]] == [name for name, _ in theirs]
        and all(
            has or not is_optional
            for (_, has), (_, is_optional) in zip(own, theirs, strict=False)
        )
        and all(has_default for _, has_default in own[len(theirs) :])
    )


def has_attribute(kind, name):
    """Whether instances have it: many set it when they are made."""
    if hasattr(kind, name) or name in getattr(kind, "__dataclass_fields__", ()):
        return True
    return any(
        re.search(rf"self\.{name}\b[^=\n]* = ", inspect.getsource(base))
        for base in kind.__mro__
        if base.__module__.startswith("touchline")
    )


def base_faults(thing, bases):
    """Official base classes that ours does not derive from."""
    for base in bases:
        module, _, name = BASES.get(base, base).rpartition(".")
        if base not in NOT_BASES and not name.startswith("_"):
            ours = importlib.import_module(module.replace("mlagents_envs", HERE))
            if not issubclass(thing, getattr(ours, name)):
                yield f"is no {base}"


def member_faults(thing, members):
    """What the members of an official class have and ours do not."""
    for member, parameters in members.items():
        own = getattr(thing, member, None) if member else thing
        if member in UNUSED:
            continue
        if member and not has_attribute(thing, member):
            yield f"{member} is missing"
        elif parameters is None or not (
            inspect.isfunction(own) or (inspect.isclass(own) and not member)
        ):
            continue
        elif not accepts(own, parameters):
            yield f"{member}: {positional(own)}, officially {parameters}"


def faults(module, name, official):
    """Whatever of one official name is not here, one text each."""
    ours = importlib.import_module(f"{HERE}.{module}".rstrip("."))
    if not hasattr(ours, name):
        yield "is missing"
        return
    thing, members = getattr(ours, name), dict(official)
    if home := members.pop("imported", None):
        original = importlib.import_module(f"{HERE}.{home}")
        if thing is not getattr(original, name):
            yield f"is not that of {home}"
        return
    if "fields" in members:
        if fields(thing) != members["fields"]:
            yield f"has {fields(thing)}, officially {members['fields']}"
        return
    if values := members.get("values"):
        if dict(thing.items()) != values:
            yield f"has {thing.items()}, officially {values}"
        for value, number in values.items():
            if getattr(ours, value) != number:
                yield f"{value} is {getattr(ours, value)}, officially {number}"
        return
    bases, is_abstract = members.pop("bases", ()), members.pop("abstract", False)
    yield from base_faults(thing, bases)
    if is_abstract != inspect.isabstract(thing):
        yield f"abstract: {not is_abstract}, officially {is_abstract}"
    # Scripts catch exceptions; only the package makes them.
    if not (inspect.isclass(thing) and issubclass(thing, Exception)):
        yield from member_faults(thing, members)


def is_left_out(module, name, home):
    """Whether a name that a module imports from `home` is none to look for there."""
    return home is not None and (module.startswith(ASIDE) or name in HELPERS)


def test_every_public_name_and_signature_of_the_official_package_is_here():
    python = official("OFFICIAL_CLIENT_PYTHON", ".venv-official", "mlagents_envs")
    script = ROOT / "tests" / "interop" / "official_signatures.py"
    printed = subprocess.run(
        [python, "-W", "ignore", script], check=True, timeout=60, capture_output=True
    )
    modules = json.loads(printed.stdout)
    for module in modules:
        importlib.import_module(f"{HERE}.{module}".rstrip("."))
    compared = {
        (module, name): entry
        for module, names in modules.items()
        for name, entry in names.items()
        if name not in INNER and not is_left_out(module, name, entry.get("imported"))
    }
    assert sum(map(len, compared.values())) > 600
    found = {
        f"{module}.{name} {fault}"
        for (module, name), entry in compared.items()
        for fault in faults(module, name, entry)
    }
    assert found == DIFFERENT, "\n".join(found ^ DIFFERENT)


def assert_a_run_of_ours_starts_with(results):
    said = []
    touchline.train(
        "3DBall",
        run_id="ours",
        changes={
            "checkpoint_settings.results_dir": str(results.parent),
            "checkpoint_settings.initialize_from": results.name,
            "behaviors.3DBall.max_steps": 1000,
            "behaviors.3DBall.network_settings.hidden_units": 128,
            "behaviors.3DBall.network_settings.normalize": True,
        },
        log=said.append,
    )
    assert f"3DBall starts with {results / '3DBall' / 'checkpoint.pt'}" in said


CONFIG = """
behaviors:
  3DBall:
    trainer_type: ppo
    hyperparameters: {batch_size: 64, buffer_size: 12000, learning_rate: 0.0003, num_epoch: 3}
    network_settings: {normalize: true, hidden_units: 128, num_layers: 2}
    reward_signals: {extrinsic: {gamma: 0.99, strength: 1.0}}
    max_steps: 20000
    time_horizon: 1000
    summary_freq: 12000
"""


def test_the_official_trainer_learns_from_a_player_and_writes_its_onnx(tmp_path):
    python = official("OFFICIAL_LEARN_PYTHON", ".venv-official-learn", "mlagents-learn")
    (tmp_path / "config.yaml").write_text(CONFIG)
    subprocess.run(
        [
            *(
                python,
                ROOT / "bench" / "official" / "learn.py",
                tmp_path / "config.yaml",
            ),
            *(
                "--env",
                build("3DBall", tmp_path),
                "--run-id",
                "official",
                "--results-dir",
                tmp_path / "results",
            ),
            *(
                "--base-port",
                "6205",
                "--seed",
                "1",
                "--no-graphics",
                "--torch-device",
                "cpu",
            ),
        ],
        check=True,
        timeout=900,
        stdin=subprocess.DEVNULL,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
    )
    results = tmp_path / "results" / "official"
    assert_a_run_of_ours_starts_with(results)
    # It leaves a model and no error code also when it gives up on its player.
    assert (
        max(
            int(path.stem.partition("-")[2])
            for path in (results / "3DBall").glob("3DBall-*.onnx")
        )
        >= 20_000
    )
    assert (
        run(
            [
                "eval",
                "3DBall",
                "--policy",
                str(results / "3DBall.onnx"),
                "--episodes",
                "12",
            ]
        )
        == 0
    )


@pytest.mark.parametrize(
    "scene", ["3DBall", "GridWorld", "Hallway", "CooperativePushBlock"]
)
def test_the_official_trainer_loads_our_demonstrations(scene, tmp_path):
    python = official("OFFICIAL_LEARN_PYTHON", ".venv-official-learn", "mlagents-learn")
    (path,) = touchline.record(scene, "random", tmp_path / "ours.demo", episodes=2)
    script = ROOT / "tests" / "interop" / "official_demo.py"
    loaded = subprocess.run(
        [python, script, path],
        check=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
    )
    there, here = json.loads(loaded.stdout), read_demo(path)
    sensors = here.spec.observation_specs
    assert there["shapes"] == [list(sensor.shape) for sensor in sensors]
    assert there["names"] == [sensor.name for sensor in sensors]
    action = here.spec.action_spec
    assert there["continuous"] == action.continuous_size
    assert there["branches"] == list(action.discrete_branches)
    assert there["records"] == there["expected"] == len(here)
    assert there["done"] == here.done.tolist()
    assert there["reward"] == here.reward.tolist()
    # It pairs each observation with the action of its own record, and leaves the last record out.
    values = (
        here.actions.continuous if action.continuous_size else here.actions.discrete
    )
    assert there["actions"] == values[:-1].tolist()
    first = here.obs[0].reshape(len(here), -1)[:-1, 0]
    assert there["first_obs"] == first.tolist()
    assert there["last_obs"] == here.obs[0][-2].ravel().tolist()
