"""Kill a run at any instant: the resumed run is bitwise the uninterrupted one."""

import shutil
from types import SimpleNamespace

import pytest
from tests.training.run.kills import RUNS, Run, try_run

from touchline.envs.env import EnvRecipe
from touchline.envs.scene_env import SceneEnv
from touchline.errors import UsageError
from touchline.policies.files.checkpoints import read_arrays
from touchline.training.config.reading import read_config
from touchline.training.run import resume
from touchline.training.trainer import train

# They repeat calls whose shapes shorter tests check.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def test_a_killed_and_resumed_run_ends_bit_for_bit_like_a_whole_one():
    outcome = try_run(Run(["train", "Basic", "--max-steps", "6000"], kills=2))
    assert outcome.kills > 0
    assert outcome.differences == []


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_two_hundred_and_fifty_kills_lose_nothing(name):
    outcome = try_run(RUNS[name])
    print(f"{name}: {outcome.kills} kills")
    assert outcome.kills == RUNS[name].kills
    assert outcome.differences == []
    if "self_play" in outcome.state:
        # Games were played and rated between the kills.
        games = outcome.state["self_play"]["ratings"]["games"]
        assert sum(map(sum, games[2:3])) > 0


def _config(tmp_path, **changes):
    overrides = {
        "checkpoint_settings.results_dir": str(tmp_path),
        "env_settings.seed": 1,
    } | changes
    return read_config("Basic_official", (), overrides)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The results of a short run that no test changes."""
    folder = tmp_path_factory.mktemp("finished")
    config = _config(folder, **{"behaviors.Basic.max_steps": 300})
    train(config, EnvRecipe("scene", "Basic"))
    return folder


@pytest.fixture
def results(finished, tmp_path):
    """The same for the test's own use."""
    return shutil.copytree(finished, tmp_path / "results")


def test_a_finished_run_goes_on_to_more_steps(results):
    more = _config(
        results,
        **{"behaviors.Basic.max_steps": 1000, "checkpoint_settings.resume": True},
    )
    result = train(more, EnvRecipe("scene", "Basic"))
    assert result.behaviors["Basic"].steps >= 1000


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b"nothing", lambda b: b""]
)
def test_a_broken_resume_point_is_reported_and_left_alone(results, damage):
    path = results / "ppo" / "resume.safetensors"
    broken = damage(path.read_bytes())
    path.write_bytes(broken)
    (results / "ppo" / "resume-before.safetensors").unlink()
    with pytest.raises(
        UsageError, match=r"resume\.safetensors: not a checkpoint, or cut short"
    ):
        train(
            _config(results, **{"checkpoint_settings.resume": True}),
            EnvRecipe("scene", "Basic"),
        )
    assert path.read_bytes() == broken


def test_with_one_flipped_bit_a_run_continues_from_the_resume_point_before(results):
    path = results / "ppo" / "resume.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        UsageError, match="damaged: its content does not have the check"
    ):
        read_arrays(path)
    changes = {
        "behaviors.Basic.max_steps": 1000,
        "checkpoint_settings.resume": True,
    }
    lines = []
    config = _config(results, **changes)
    result = train(config, EnvRecipe("scene", "Basic"), lines.append)
    assert result.behaviors["Basic"].steps >= 1000
    (line,) = (line for line in lines if "damaged" in line)
    assert "the run continues from the resume point before it" in line


@pytest.mark.parametrize("collectors", [None, 2])
def test_a_run_is_not_resumed_in_a_world_with_other_options(
    tmp_path, monkeypatch, collectors
):
    """What a world with such options, as MicroRTS has them, adds to a scene."""
    options = {"form": "grid", "turned": "1"}
    monkeypatch.setattr(SceneEnv, "interface_options", options, raising=False)
    short = {"behaviors.Basic.max_steps": 300}
    short["cluster_settings.collectors"] = collectors
    train(_config(tmp_path, **short), EnvRecipe("scene", "Basic"))
    again = _config(tmp_path, **short, **{"checkpoint_settings.resume": True})
    train(again, EnvRecipe("scene", "Basic"))
    options["turned"] = "0"
    with pytest.raises(UsageError, match="options turned=1, not turned=0; resume it"):
        train(again, EnvRecipe("scene", "Basic"))


def test_saving_takes_at_most_a_tenth_of_the_time(monkeypatch):
    """Points that take 4 s to save are 36 s apart. A call without `every_s` saves at once."""
    saved_at, clock = [], SimpleNamespace(now=0.0)

    def save(points):
        saved_at.append(clock.now)
        clock.now += 4.0

    timer = SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr(resume, "time", timer)
    monkeypatch.setattr(resume.ResumePoints, "_save", save)
    points = resume.ResumePoints(*[None] * 5)
    for at in (100.0, 139.0, 140.0, 150.0):
        clock.now = at
        points.save(every_s=20.0)
    clock.now = 160.0
    points.save()
    assert saved_at == [100.0, 140.0, 160.0]
