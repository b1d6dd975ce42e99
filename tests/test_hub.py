"""Policies go to a hub and come back; the hub is a real server, the library is the real one."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import touchline
from tests.hub_server import TOKEN, running_hub
from tests.test_extras import run_without
from touchline.cli import run
from touchline.errors import RunError, UsageError

# huggingface_hub 2.4 sends LFS objects in a way that its HTTP library deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

REPO = "ada/ppo-Basic"
SETTINGS = [
    "behaviors.*.max_steps=256",
    "behaviors.*.hyperparameters.buffer_size=128",
    "behaviors.*.hyperparameters.batch_size=64",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run folder, with a film in it."""
    results = tmp_path_factory.mktemp("trained")
    changes = [*SETTINGS, f"checkpoint_settings.results_dir={results}"]
    result = touchline.train("Basic", changes=changes, log=lambda _: None)
    (result.folder / "old.mp4").write_bytes(b"an older film")
    os.utime(result.folder / "old.mp4", (0, 0))
    (result.folder / "new.mp4").write_bytes(b"the newest film")
    return result.folder


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that this process uses, logged in; the working folder is empty."""
    constants = pytest.importorskip(
        "huggingface_hub.constants", reason="push and pull use the hub's own library"
    )
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none/token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "none/cache"))
    # Xet is a binary protocol of its own; without it the library sends plain LFS objects.
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with running_hub() as server:
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server


@pytest.fixture
def refused(capsys):
    """Runs a command that fails, and gives its exit code and its one line."""

    def line_of(*arguments):
        code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert printed.out == ""
        lines = [
            line
            for line in printed.err.splitlines()
            if not line.startswith(("looking for", "uploading", "downloading"))
        ]
        assert len(lines) == 1, lines
        return code, lines[0]

    return line_of


def test_a_pushed_policy_comes_back_as_a_run_that_plays_and_starts_another(
    hub, trained
):
    pushed = touchline.push(trained, REPO)
    assert pushed.url == f"{hub.url}/{REPO}"
    folder = touchline.pull(REPO)
    assert folder.as_posix() == "results/ppo-Basic"
    for name in ("Basic.onnx", "Basic/checkpoint.safetensors", "configuration.yaml"):
        assert (folder / name).read_bytes() == (trained / name).read_bytes()
    there = touchline.evaluate("Basic", folder, episodes=4)
    here = touchline.evaluate("Basic", trained, episodes=4)
    assert there["mean_return"] == here["mean_return"]
    start = "checkpoint_settings.initialize_from=ppo-Basic"
    lines = []
    touchline.train("Basic", changes=[*SETTINGS, start], log=lines.append)
    start_file = str(Path("ppo-Basic", "Basic", "checkpoint.safetensors"))
    assert any(start_file in line for line in lines)


def test_everything_arrives_in_one_commit_with_the_newest_film(hub, trained):
    pushed = touchline.push(trained, REPO)
    files = hub.repos[REPO]
    assert hub.commits == 1
    assert set(pushed.files) == set(files) - {".gitattributes"}
    assert {name: len(files[name]) for name in pushed.files} == pushed.files
    assert files["replay.mp4"] == b"the newest film"
    assert {"run_logs/training_status.json", "Basic/metrics.csv"} <= set(files)
    assert "resume.safetensors" not in files


def test_the_card_has_the_tags_that_leaderboards_look_for(trained):
    card = touchline.push(trained, REPO, dry_run=True).card
    header = yaml.safe_load(card.split("---\n")[1])
    assert header == {
        "library_name": "ml-agents",
        "tags": [
            "Basic",
            "deep-reinforcement-learning",
            "reinforcement-learning",
            "ML-Agents-Basic",
        ],
    }
    status = json.loads(
        (trained / "run_logs/training_status.json").read_text(encoding="utf-8")
    )
    latest = status["Basic"]["checkpoints"][-1]
    assert f"| Basic | ppo | {latest['steps']:,} |" in card
    assert "touchline eval Basic --policy results/ppo-Basic" in card
    assert "Watch it play" not in card


def test_the_card_links_the_newest_replay(trained):
    (trained / "mine.html").write_text("<html></html>")
    try:
        pushed = touchline.push(trained, REPO, dry_run=True)
    finally:
        (trained / "mine.html").unlink()
    assert pushed.files["replay.html"] == len("<html></html>")
    link = f"https://huggingface.co/{REPO}/resolve/main/replay.html?download=true"
    assert f"[Watch it play]({link})" in pushed.card


def test_a_dry_run_lists_sizes_and_the_card_without_a_request(hub, trained, capsys):
    assert run(["push", str(trained), "--repo", REPO, "--dry-run"]) == 0
    out = capsys.readouterr().out
    size = (trained / "Basic.onnx").stat().st_size
    assert re.search(rf"^ *{size:,}  Basic\.onnx$", out, re.M)
    assert "library_name: ml-agents" in out
    assert hub.requests == []


def test_the_command_line_uses_the_endpoint_of_the_environment(hub, trained, tmp_path):
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1",
    }

    def touch(*arguments):
        command = [sys.executable, "-m", "touchline", *map(str, arguments)]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )

    pushed = touch("push", trained, "--repo", REPO)
    assert (pushed.returncode, pushed.stdout) == (0, f"{hub.url}/{REPO}\n")
    pulled = touch("pull", REPO, "-o", "mine")
    assert (pulled.returncode, pulled.stdout) == (0, "mine\n"), pulled.stderr
    assert not list(tmp_path.glob("work/.mine*"))
    names = {path.name for path in (tmp_path / "work/mine").iterdir()}
    assert {"Basic", "Basic.onnx", "README.md", "replay.mp4"} <= names
    assert ".cache" not in names


def test_a_second_push_replaces_the_first(hub, trained, tmp_path):
    touchline.push(trained, REPO)
    again = shutil.copytree(trained, tmp_path / "again")
    (again / "Basic.onnx").write_bytes(b"better")
    touchline.push(again, REPO)
    assert hub.repos[REPO]["Basic.onnx"] == b"better"


def test_only_plain_data_is_pulled(hub):
    hub.repos[REPO] = {
        "Basic.onnx": b"model",
        "Basic/checkpoint.pt": b"a pickle",
        "Basic/checkpoint.safetensors": b"weights",
        "install.py": b"code",
        "setup.sh": b"code",
        ".cache/huggingface/trap.json": b"{}",
        ".gitattributes": b"",
    }
    lines = []
    folder = touchline.pull(REPO, "mine", log=lines.append)
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert found == {"Basic.onnx", "Basic/checkpoint.safetensors"}
    assert lines[0] == f"looking for {REPO} on {hub.url}"
    assert "Basic/checkpoint.pt" in lines[1]


@pytest.mark.parametrize(
    "path",
    ["../x.onnx", "a/../../x.json", "/etc/x.json", "..\\x.json", "C:x.md", "a\nb.md"],
)
def test_a_path_out_of_the_folder_refuses_the_whole_repository(hub, refused, path):
    hub.repos[REPO] = {"Basic.onnx": b"model", path: b"x"}
    code, line = refused("pull", REPO, "-o", "deep/mine")
    assert code == 2
    assert "leads out of the folder" in line
    assert not list(Path().iterdir())


def test_more_files_than_a_run_has_are_refused_before_they_are_downloaded(hub, refused):
    hub.repos[REPO] = {"Basic.onnx": b"model"} | {f"{n}.json": b"" for n in range(2000)}
    code, line = refused("pull", REPO)
    assert code == 2
    assert "refused: 2,001 files of 0.0 MB; a run has at most 2,000 files" in line
    assert not [request for request in hub.requests if "resolve" in request]
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("announced", "expected"),
    [(10**18, "a run has at most"), (2 * 10**9, "has room for 1000.0 MB")],
)
def test_an_announced_size_without_room_for_it_is_refused(
    hub, refused, monkeypatch, announced, expected
):
    hub.repos[REPO] = {"Basic.onnx": b"model"}
    hub.announced["Basic.onnx"] = announced
    usage = shutil.disk_usage(".")._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    code, line = refused("pull", REPO)
    assert code == 2
    assert expected in line
    assert not [request for request in hub.requests if "resolve" in request]


def test_many_files_are_downloaded_at_a_time(hub, monkeypatch):
    hub.repos[REPO] = {"Basic.onnx": b"model"} | {f"{n}.json": b"" for n in range(40)}
    resolve, running, most = hub.RequestHandlerClass.resolve, set(), []

    def slow(handler, *arguments):
        running.add(handler)
        most.append(len(running))
        time.sleep(0.1)
        resolve(handler, *arguments)
        running.discard(handler)

    monkeypatch.setattr(hub.RequestHandlerClass, "resolve", slow)
    folder = touchline.pull(REPO)
    assert len(list(folder.iterdir())) == 41
    assert max(most) > 3


def test_a_repository_without_a_policy_is_refused(hub, refused):
    hub.repos[REPO] = {"model.bin": b"", "deep/down/Basic.onnx": b""}
    code, line = refused("pull", REPO)
    assert code == 2
    assert "no policy in it: expected NAME.onnx or NAME/checkpoint.safetensors" in line
    assert "model.bin" in line


def test_a_repository_that_is_not_there_is_refused(hub, refused):
    code, line = refused("pull", REPO)
    assert (code, line) == (
        2,
        f"touchline: {REPO}: no such model repository, or it is private and the token may not "
        "read it",
    )


def test_a_folder_with_files_is_not_overwritten(hub, refused, trained):
    code, line = refused("pull", REPO, "-o", trained)
    assert code == 2
    assert line.endswith("already there; name another folder with -o")
    assert hub.requests == []


def test_a_download_that_breaks_off_leaves_nothing(hub, monkeypatch):
    hub.repos[REPO] = {"Basic.onnx": b"model", "README.md": b"card"}
    resolve = hub.RequestHandlerClass.resolve

    def vanish(handler, body, repo, revision, path):
        files = hub.repos[repo]
        if path == "README.md" and handler.command == "GET":
            hub.repos[repo] = {}
        resolve(handler, body, repo, revision, path)
        hub.repos[repo] = files

    monkeypatch.setattr(hub.RequestHandlerClass, "resolve", vanish)
    with pytest.raises(RunError, match="404"):
        touchline.pull(REPO)
    assert not list(Path("results").iterdir())


@pytest.mark.parametrize(
    "name",
    [
        "Basic",
        "ada/",
        "/Basic",
        "ada/a/b",
        "ada/a b",
        "ada/..",
        "ada/a--b",
        "ada/x.git",
    ],
)
def test_a_malformed_name_is_refused_before_any_request(hub, refused, trained, name):
    for command in (("push", trained, "--repo", name), ("pull", name)):
        code, line = refused(*command)
        assert code == 2
        assert f"repository {name!r}: expected USER/NAME" in line
    assert hub.requests == []


def test_a_folder_that_is_no_run_is_refused(hub, refused, tmp_path):
    code, line = refused("push", tmp_path, "--repo", REPO)
    assert (code, line) == (
        2,
        f"touchline: {tmp_path}: not a run folder: it has no configuration.yaml",
    )


def test_a_run_without_a_model_is_refused(hub, refused, trained, tmp_path):
    shutil.copy(trained / "configuration.yaml", tmp_path)
    code, line = refused("push", tmp_path, "--repo", REPO)
    assert code == 2
    assert "no model yet" in line


@pytest.mark.parametrize("text", ["behaviors: [", "- a", "behaviors: 3"])
def test_a_broken_configuration_is_refused(trained, tmp_path, text):
    folder = shutil.copytree(trained, tmp_path / "run")
    (folder / "configuration.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"configuration\.yaml: "):
        touchline.push(folder, REPO, dry_run=True)


def test_no_token_is_one_line_before_any_request(hub, refused, trained, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    code, line = refused("push", trained, "--repo", REPO)
    assert code == 2
    assert "no token for the hub: log in with `hf auth login`" in line
    assert hub.requests == []


def test_a_refused_token_is_one_line(hub, refused, trained, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    for command in (("push", trained, "--repo", REPO), ("pull", REPO)):
        code, line = refused(*command)
        assert code == 2
        assert "the hub refused the token (401)" in line


def test_a_name_of_another_user_is_one_line(hub, refused, trained):
    code, line = refused("push", trained, "--repo", "others/ppo-Basic")
    assert code == 2
    assert "the hub refused the token (403)" in line


def test_a_hub_that_fails_is_one_line_and_exit_code_1(hub, refused, trained):
    hub.is_broken = True
    code, line = refused("push", trained, "--repo", REPO)
    assert code == 1
    assert "the hub answered 500" in line


def test_no_network_is_one_line_and_exit_code_1(hub, refused, trained, monkeypatch):
    # Port 1 of loopback refuses connections.
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    for command in (("push", trained, "--repo", REPO), ("pull", REPO)):
        code, line = refused(*command)
        assert code == 1
        assert f"{REPO}: cannot reach http://127.0.0.1:1: " in line


def test_without_the_extra_one_line_names_it(trained):
    for command in (("push", trained, "--repo", REPO), ("pull", REPO)):
        done = run_without({"huggingface_hub"}, *command)
        assert done.returncode == 2
        assert done.stderr.endswith("pip install 'touchline[hub]'\n")
    dry = run_without({"huggingface_hub"}, "push", trained, "--repo", REPO, "--dry-run")
    assert dry.returncode == 0, dry.stderr
