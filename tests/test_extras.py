"""Which library belongs to which extra, and what a user reads when one is not installed."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import touchline
from tests.stderr import without_progress
from touchline.envs.unity_env import UnityEnvironment
from touchline.errors import MissingError
from touchline.extras import EXTRA_OF_MODULE, explain_missing, missing_extra
from touchline.player import build

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "touchline"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]

MODULES_OF_BASE = {
    "hpack",
    "numpy",
    "google",
    "PIL",
    "pydantic",
    "pydantic_core",
    "yaml",
    "rich",
    "typer",
}
"""Top-level modules of the base dependencies."""


def run_without(modules, *arguments):
    """Run the command line in a process in which these modules cannot be imported."""
    # None in sys.modules makes an import fail as if nothing were installed, submodules included.
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({sorted(modules)!r}))\n"
        "from touchline.cli import run\n"
        f"sys.exit(run({[str(argument) for argument in arguments]!r}))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_every_extra_of_the_table_is_declared():
    assert set(EXTRA_OF_MODULE.values()) <= set(PROJECT["optional-dependencies"])


def test_all_holds_everything_but_microrts_and_ray():
    (requirement,) = PROJECT["optional-dependencies"]["all"]
    names = set(requirement.removeprefix("touchline[").removesuffix("]").split(","))
    assert names == set(PROJECT["optional-dependencies"]) - {
        "all",
        "dev",
        "microrts",
        "ray",
    }


def test_every_imported_library_is_a_base_dependency_or_belongs_to_an_extra():
    known = (
        MODULES_OF_BASE | set(EXTRA_OF_MODULE) | sys.stdlib_module_names | {"touchline"}
    )
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            else:
                continue
            unknown = {name.partition(".")[0] for name in names} - known
            assert not unknown, f"{path}: {unknown} is in no extra"


def test_a_module_of_no_extra_keeps_its_own_error():
    assert missing_extra(ModuleNotFoundError("gone", name="users_own_module")) is None
    with (
        pytest.raises(ModuleNotFoundError, match="users_own_module"),
        explain_missing("x"),
    ):
        import users_own_module  # noqa: F401


def test_a_missing_library_names_its_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    expected = pytest.raises(
        MissingError, match=r"a film needs imageio_ffmpeg.*touchline\[video\]"
    )
    with expected, explain_missing("a film"):
        import imageio_ffmpeg  # noqa: F401


@pytest.mark.parametrize(
    ("adapter", "missing"),
    [
        ("gymnasium", "gymnasium"),
        ("pettingzoo", "gymnasium"),
        ("sb3", "gymnasium"),
        ("torchrl", "torch"),
    ],
)
def test_an_adapter_names_the_extra_that_installs_all_of_its_libraries(
    adapter, missing, monkeypatch
):
    for module in [
        name for name in sys.modules if name.startswith("touchline.adapters")
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    name = f"make_{adapter}"
    with pytest.raises(
        MissingError, match=rf"{name} needs {missing}.*touchline\[{adapter}\]"
    ):
        getattr(touchline, name)


NEEDS_AN_EXTRA = {
    "Plan",
    "distill",
    "exploit",
    "export",
    "export_policy",
    "film_demonstration",
    "make_gymnasium",
    "make_pettingzoo",
    "make_sb3",
    "make_torchrl",
    "parity",
    "plan",
    "play",
    "plot",
    "tournament",
    "train",
    "tune",
    "view",
}
"""Names whose libraries do not belong to the base install; all others load without them."""
BASE_VERBS = """
import sys
sys.modules.update(dict.fromkeys({extras!r}))
import touchline
from touchline.cli import run
from touchline.errors import MissingError
missing = set()
for name in touchline.__all__:
    try:
        getattr(touchline, name)
    except MissingError as error:
        assert "pip install 'touchline[" in str(error)
        missing.add(name)
print(*sorted(missing), file=sys.stderr)
recording = sys.argv[1]
sys.exit(run(["inspect", recording]) or run(["doctor", recording]))
"""


def test_the_base_verbs_need_no_extra(tmp_path):
    """Recordings, slots, the client and the doctor, with every optional library out of reach."""
    recording = tmp_path / "basic.wire.gz"
    player = build("Basic", tmp_path)
    with UnityEnvironment(player, record_wire=recording) as env:
        for _ in range(25):  # the doctor takes 20
            env.step()
    program = BASE_VERBS.format(extras=sorted(EXTRA_OF_MODULE))
    done = subprocess.run(
        [sys.executable, "-c", program, recording],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stderr.split()) == NEEDS_AN_EXTRA


MISSING = [
    (["train", "Basic"], "torch", "train"),
    (["inspect", "Basic"], "numba", "scenes"),
    (["inspect", "3DBall"], "mujoco", "scenes"),
    (["eval", "Basic", "--policy", "some.onnx"], "onnxruntime", "onnx"),
    (
        ["play", "Basic", "--policy", "random", "--record", "x.mp4"],
        "imageio_ffmpeg",
        "video",
    ),
    (["build", "Basic", "-o", "builds"], "grpc", "scenes"),
    (["export", "some-run", "-o", "x.onnx"], "onnx", "onnx"),
]


@pytest.mark.parametrize(
    ("arguments", "module", "extra"), MISSING, ids=lambda x: str(x)
)
def test_a_command_without_its_extra_is_one_line_and_exit_code_2(
    arguments, module, extra, tmp_path
):
    (tmp_path / "some.onnx").write_bytes(b"not read before onnx is imported")
    done = run_without(
        {module}, *(str(tmp_path / a) if a.startswith("some") else a for a in arguments)
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = without_progress(done.stderr)
    assert line.startswith("touchline: ")
    assert line.endswith(
        f"needs {module}, which is not installed: pip install 'touchline[{extra}]'"
    )


ALL_AT_ONCE = [
    (["view", "3DBall"], ["viser", "mujoco"], "view,scenes"),
    (
        ["view", "Basic", "--policy=Basic=some.onnx"],
        ["viser", "numba", "onnxruntime", "torch"],
        "view,scenes,onnx",
    ),
    (["train", "3DBall_sac"], ["torch", "onnx", "mujoco"], "train,scenes"),
    (["train", "Basic", "--wandb"], ["wandb", "numba", "torch"], "train,scenes,wandb"),
    (
        ["play", "Basic", "--policy", "random", "--record", "x.mp4"],
        ["imageio_ffmpeg", "numba"],
        "video,scenes",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "modules", "extras"), ALL_AT_ONCE, ids=lambda x: str(x)
)
def test_all_that_a_command_lacks_is_named_at_once(
    arguments, modules, extras, tmp_path
):
    done = run_without(modules, *arguments)
    assert done.returncode == 2, done.stderr
    (line,) = without_progress(done.stderr)
    named = line.rpartition("touchline[")[2].removesuffix("]'")
    assert sorted(named.split(",")) == sorted(extras.split(","))


def test_an_onnx_file_plays_without_torch(tmp_path):
    """Its extra holds no torch, so a policy of Unity's can be watched for a tenth of the size."""
    brought = PROJECT["optional-dependencies"]["onnx"]
    assert not any("torch" in requirement for requirement in brought)
    without = [m for m, e in EXTRA_OF_MODULE.items() if e in ("train", "ray", "tune")]
    changes = {"behaviors.*.max_steps": 64, "evaluation.episodes": 0}
    settings = {"results_dir": str(tmp_path)}
    result = touchline.train(
        "Basic", changes=changes, settings=settings, log=lambda _: None
    )
    model = result.behaviors["Basic"].model
    without.remove("jaxtyping")  # `scenes` and `view` bring it, too
    for verb in (
        ["eval", "Basic", "--policy", model, "--episodes", "2"],
        ["view", "Basic", "--policy", model, "--seconds", "1"]
        + ["--save", tmp_path / "x.html"],
        ["play", "Basic", "--policy", model, "--seconds", "1"]
        + ["--record", tmp_path / "x.mp4"],
    ):
        done = run_without(without, *verb)
        assert done.returncode == 0, done.stderr


def test_every_locked_library_runs_on_the_oldest_python_that_is_promised():
    """Debian 12 has 3.11.2, where one that wants 3.11.5 ended the first `make train`."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    asks = {
        name: metadata.get("Requires-Python", "")
        for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)
        for metadata in [importlib.metadata.metadata(name)]
    }
    assert len(asks) > 100
    assert not {
        name: asked
        for name, asked in asks.items()
        if not SpecifierSet(asked).contains(oldest)
    }
