"""The command line: figures, errors, exit codes, and what it must not load."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import yaml

import touchline
from touchline.cli import main, run
from touchline.cli.app import COMMANDS
from touchline.cli.generate import command_of
from touchline.cli.train import _suggest, _summarize
from touchline.errors import UsageError
from touchline.interrupts import handled, held_back
from touchline.operating_systems import STOP_SIGNALS, quoted
from touchline.policies.files.run_layout import RunLayout
from touchline.policies.loading import sources_in
from touchline.training.config.flags import setting_flags
from touchline.training.config.reading import preset_names
from touchline.training.config.request import read_run
from touchline.training.run.result import BehaviorResult, TrainingResult


def _touchline(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", "from touchline.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


@pytest.mark.parametrize(
    "arguments",
    [[], ["--help"], ["--version"], ["train", "--help"], ["train", "3Dball"], ["eval"]],
)
def test_help_and_wrong_calls_load_nothing_heavy(arguments):
    code = (
        "import sys; from touchline.cli import run; code = run(sys.argv[1:]);"
        "heavy = {'torch', 'mujoco', 'grpc', 'numba', 'onnxruntime', 'numpy', 'matplotlib'};"
        "heavy &= set(sys.modules);"
        "sys.exit(99 if heavy else 0)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, check=False
        ).returncode
        == 0
    )


def test_without_arguments_three_commands_to_try_that_all_parse(capsys):
    assert run([]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "touchline --help" in shown.out
    commands = re.findall(r"^  touchline (.*)", shown.out, re.M)
    assert [command.split()[0] for command in commands] == ["train", "view", "doctor"]
    for command in commands:
        verb, *arguments = command.split()
        command_of(COMMANDS[verb], verb).make_context(verb, arguments)


def test_a_verb_with_verbs_of_its_own_lists_them(capsys):
    assert run(["microrts"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^ +fetch +Download the engine", shown, re.M)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "3Dball"], "no preset '3Dball'; did you mean '3DBall'?"),
        (["train", "nowhere.yaml"], "nowhere.yaml: no such file"),
        (
            ["eval", "3DBal", "--policy", "random"],
            "unknown scene '3DBal'; did you mean '3DBall'?",
        ),
        (
            ["train", "3DBall", "--set", "behaviors.3DBall.hyperparameters.lamdb=1"],
            "unknown key; did you mean 'lambd'?",
        ),
        (
            ["train", "3DBall", "--set", "behaviors.3DBall.max_steps=-5"],
            "greater than 0, got -5",
        ),
        (["train", "3DBall", "--set", "nonsense"], "expected a.b.c=value"),
        (
            ["eval", "3DBall", "--policy", "nowhere.onnx"],
            "nowhere.onnx: no such policy file",
        ),
        (["eval", "3DBall", "--policy", "Bal=random"], "no behavior 'Bal'"),
        (
            ["eval", "3DBall", "--policy", "random", "--parameter", "mass=0"],
            "takes 0.001 to 1000, got 0",
        ),
        (
            ["eval", "3DBall", "--policy", "random", "--versus", "random"],
            "has only one team",
        ),
        (
            ["play", "3DBall", "--policy", "random", "--record", "film.gif"],
            "ends in .mp4",
        ),
        (
            ["train", "3DBall", "--resume", "--run-id", "none-such"],
            "there is no run to resume",
        ),
        (["play", "3DBall", "--policy", "random"], "say where to film it, --record"),
        (
            ["play", "./game.x86_64", "--policy", "random", "--record", "a.mp4"],
            "cannot be recorded from here",
        ),
        (["eval", "./game.x86_64", "--policy", "random"], "no player at game.x86_64"),
        (
            ["eval", "3DBall", "--policy", "random", "--record-wire", "a.wire.gz"],
            "3DBall has no wire",
        ),
        (
            ["eval", "./game", "--policy", "random", "--record-wire", "a.gz"],
            "expected a name that ends with .wire.gz",
        ),
        (
            ["eval", "none.wire.gz", "--policy", "random"],
            "cannot open the recording none.wire.gz",
        ),
        (["build", "3DBal", "-o", "."], "did you mean '3DBall'?"),
        (["bench", "everything"], "no benchmark 'everything'"),
        (["bench", "scenes", "--policies", "nowhere"], "no *.onnx there"),
        (
            ["bench", "wire", "--policies", "nowhere"],
            "--policies is for the benchmark scenes",
        ),
        (
            ["bench", "wire", "--scene", "Basic"],
            "--scene is not for the benchmark wire",
        ),
        (["bench", "sac"], "a clone of the repository sets up; run it there"),
        (["eval", "3DBall"], "--policy"),
        (["eval", "", "--policy", "random"], "or a player's path, got an empty text"),
        (["eval", "3DBall", "--policy", ""], "random or zero, got an empty text"),
        (["fly"], "fly"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    arguments, expected, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.err.startswith("touchline: ")
    assert captured.err.count("\n") == 1, "one line"
    assert captured.out == ""


@pytest.mark.skipif(sys.platform == "win32", reason="the player is a shell script")
def test_a_players_log_keeps_its_lines_below_the_one_that_says_what_failed(
    capsys, tmp_path
):
    path = tmp_path / "game.x86_64"
    path.write_text("#!/bin/sh\necho first\necho second\nexit 3\n")
    path.chmod(0o755)
    assert run(["inspect", str(path)]) == 1
    assert capsys.readouterr().err.endswith(
        "exited with code 3 before it connected; its log ends with:\n    first\n    second\n"
    )


def test_figures_are_one_json_object_on_standard_output(capsys):
    assert (
        run(
            [
                "eval",
                "Basic",
                "--policy",
                "random",
                "--episodes",
                "5",
                "--seed",
                "3",
                "--json",
            ]
        )
        == 0
    )
    captured = capsys.readouterr()
    figures = json.loads(captured.out)
    assert figures["episodes"] == 5
    assert set(figures) == {
        "scene", "policy", "seed", "episodes", "mean_return", "std_return", "ci95", "mean_length",
        "mean_group_return", "group_ci95", "games", "agent_steps_per_s", "behaviors",
    }  # fmt: skip
    assert (
        run(
            [
                "eval",
                "Basic",
                "--policy",
                "random",
                "--episodes",
                "5",
                "--seed",
                "3",
                "--json",
            ]
        )
        == 0
    )
    again = json.loads(capsys.readouterr().out)
    assert again | {"agent_steps_per_s": 0} == figures | {"agent_steps_per_s": 0}, (
        "the same seed, the same figures"
    )


REFERENCE = "reference/mlagents-config.md"
"""Sections 8 to 11 hold every flag of mlagents-learn 1.1.0."""


def test_every_flag_of_mlagents_learn_is_taken(shared):
    text = (shared / REFERENCE).read_text(encoding="utf-8")
    sections = text[text.index("## 8. ") : text.index("## 12. ")]
    flags = set(re.findall(r"`(--[a-z][a-z-]*)", sections)) - SETTINGS_OF_OTHER_TOOLS
    assert len(flags) > 25
    options = {
        name
        for option in command_of(COMMANDS["train"], "train").params
        for name in option.opts
    }
    assert flags <= options


SETTINGS_OF_OTHER_TOOLS = {
    "--local-dir", "--repo-id", "--commit-message", "--configfile-name",
}  # fmt: skip
"""Of `mlagents-push-to-hf`, which section 11 mentions."""


def test_the_help_of_a_flag_is_the_text_under_its_key_in_the_settings():
    options = {
        option.opts[0]: option
        for option in command_of(COMMANDS["train"], "train").params
    }
    for flag in setting_flags():
        assert options[flag.name].help == flag.help
    assert options["--num-envs"].help == "Environments to run in parallel."


def test_help_lists_every_verb_with_the_first_paragraph_of_its_own_help(
    capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")

    def shown_by(*arguments):
        assert run([*arguments, "--help"]) == 0
        return capsys.readouterr().out

    shown = " ".join(shown_by().split())
    for verb in COMMANDS:
        about = shown_by(verb).partition("\n\n")[2].partition("\n\n")[0]
        assert f"{verb} {' '.join(about.split())}" in shown


def test_a_misspelled_verb_is_named_with_the_verb_meant(capsys):
    assert run(["trian", "3DBall"]) == 2
    assert "Did you mean 'train'?" in capsys.readouterr().err


def test_python_runs_the_package_as_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "touchline", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"touchline {touchline.__version__}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("touchline tr", "train"), ("touchline train 3DBallH", "3DBallHard"), ("touchline eval Bas", "Basic"),
     ("touchline train --num-e", "--num-envs")],
)  # fmt: skip
def test_the_shell_completes_verbs_flags_presets_and_scenes(words, expected):
    request = {"_TOUCHLINE_COMPLETE": "complete_bash", "COMP_WORDS": words}
    request["COMP_CWORD"] = str(len(words.split()) - 1)
    program = (
        "import sys; sys.argv[0] = 'touchline'; from touchline.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, env={**os.environ, **request}, check=False,
    )  # fmt: skip
    assert expected in done.stdout.split(), done.stderr


@pytest.mark.parametrize(
    "name", ["../../evil", "..", ".", "a/b", "a\\b", "", "/etc", "nul\0byte"], ids=repr
)
def test_a_run_id_that_leads_out_of_the_results_is_refused(
    name, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run(["train", "Basic", "--run-id", name, "--force"]) == 2
    assert "--run-id: checkpoint_settings.run_id: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_flags_of_older_versions_are_taken_with_a_line_each(capsys):
    assert run(["train", "3DBall", "--load", "--tensorflow", "--print-config"]) == 0
    captured = capsys.readouterr()
    assert yaml.safe_load(captured.out)["checkpoint_settings"]["resume"] is True
    assert captured.err.splitlines()[:2] == [
        "--load is no longer needed: use --resume",
        "--tensorflow is no longer needed: PyTorch is the only framework",
    ]


def test_what_follows_env_args_goes_to_the_player_and_numbers_are_read_as_in_a_yaml(
    capsys,
):
    flags = ["--max-steps", "5e5", "--seed", "12345678901234567", "--deterministic"]
    flags += ["--env-args", "--set", "-x", "--max-steps"]
    assert run(["train", "3DBall", "--print-config", *flags]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["env_settings"]["env_args"] == ["--set", "-x", "--max-steps"]
    assert config["env_settings"]["seed"] == 12345678901234567
    assert config["behaviors"]["3DBall"]["max_steps"] == 500_000
    assert config["behaviors"]["3DBall"]["network_settings"]["deterministic"] is True
    assert config["checkpoint_settings"]["run_id"] == "3DBall"


def test_results_go_to_standard_output_and_nothing_else_does(capsys):
    for arguments, expected in [
        (["scenes"], "3DBallHard: "),
        (["inspect", "Basic"], "Basic?team=0: branches [3]"),
        (["doctor", "Basic"], "everything works"),
        (["eval", "Basic", "--policy", "random", "--episodes", "2"], "Basic: return "),
    ]:
        assert run(arguments) == 0
        captured = capsys.readouterr()
        assert expected in captured.out
        assert captured.err == ""


def test_scenes_and_inspect_show_what_there_is(capsys):
    assert run(["scenes", "--json"]) == 0
    listed = {s["scene"]: s for s in json.loads(capsys.readouterr().out)}
    assert {"3DBall", "3DBallHard", "Basic"} <= set(listed)
    assert listed["3DBall"]["presets"] == [
        name for name in preset_names() if name.split("_")[0] == "3DBall"
    ]
    assert run(["scenes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("3DBall: 12 areas in Unity. ") for line in lines)
    assert (
        "  SoccerTwos?team=1: 2 agents per area, observes 264 + 72; actions: branches [3, 3, 3]"
    ) in lines
    assert any(line.startswith("  touchline train 3DBall") for line in lines)
    assert set(preset_names()) <= set(" ".join(lines).split())
    assert run(["inspect", "3DBallHard", "--json"]) == 0
    behavior = json.loads(capsys.readouterr().out)["behaviors"]["3DBallHard?team=0"]
    assert [o["shape"] for o in behavior["observations"]] == [[27], [18]]
    assert behavior["continuous"] == 2
    assert behavior["branches"] == []


def test_a_curve_is_named_only_where_one_was_drawn(capsys, tmp_path):
    model = tmp_path / "Basic.onnx"
    for curve in (None, tmp_path / "Basic.png"):
        figures = BehaviorResult(steps=9, mean_return=None, model=model, curve=curve)
        _summarize(TrainingResult(tmp_path, False, {"Basic": figures}))
        shown = capsys.readouterr().err
        assert str(model) in shown
        assert ("curve: " in shown) == (curve is not None)


def test_train_takes_environment_parameters_as_other_commands_do(capsys):
    assert run(["train", "3DBall", "--parameter", "gravity=-5", "--print-config"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["environment_parameters"] == {"gravity": -5.0}


def test_policies_of_several_behaviors_may_have_commas_between(capsys, tmp_path):
    both = "SmallWallJump=random,BigWallJump=zero"
    assert run(["eval", "WallJump", "--policy", both, "--episodes", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["policy"] == "SmallWallJump=random, BigWallJump=zero"
    odd = tmp_path / "a,b.onnx"
    odd.write_bytes(b"")
    assert sources_in(odd) == [str(odd)]


def test_a_model_for_unity_has_its_ending(capsys, tmp_path):
    assert run(["export", "results/x", "-o", str(tmp_path / "x.pt")]) == 2
    assert "x.pt: expected a file name that ends in .onnx" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["view", "Basic", "--policy", "none", "--save", "file/x.html"],
        ["export", "none", "-o", "file/x.onnx"],
        ["distill", "none", "-o", "file/x.onnx"],
        ["plot", "none", "-o", "file/x.svg"],
        ["plot", "none", "-o", "folder.png"],
        ["tournament", "NoScene", "--policy", "a", "--picture", "folder.png"],
        ["parity", "NoScene", "--policy", "a", "--picture", "folder.png"],
        ["parity", "Basic", "--policy", "a", "--env", "./x", "--save", "file/x.json"],
        ["record", "NoScene", "--policy", "a", "-o", "file/x.demo"],
        ["convert", "none", "-o", "file/x.yaml"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_written_is_refused_before_anything_else(
    arguments, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder.png").mkdir()
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"touchline: {Path(arguments[-1])}: cannot be written: ")
    assert error.count("\n") == 1


def test_a_measurement_of_no_episode_and_a_step_after_the_end_are_refused():
    with pytest.raises(UsageError, match="episodes: expected at least 1, got 0"):
        touchline.evaluate("Basic", "random", episodes=0)
    with pytest.raises(UsageError, match="episodes: expected at least 1, got 0"):
        touchline.record("Basic", "random", "a.demo", episodes=0)
    env = touchline.make("Basic")
    env.reset()
    env.close()
    env.close()
    for call in (env.step, env.reset):
        with pytest.raises(UsageError, match="Basic: this environment is closed"):
            call()


def test_a_training_ends_with_a_table_of_what_was_reached(capsys, tmp_path):
    done = {
        "Striker": BehaviorResult(
            20_480, 0.25, tmp_path / "Striker.onnx", None, 0.5, 0.75, 10_240
        ),
        "Goalie": BehaviorResult(9, None, tmp_path / "Goalie.onnx", None),
        "Keeper": BehaviorResult(9, 1.0, tmp_path / "K.onnx", None, 0.5, 0.5, 9),
    }
    _summarize(TrainingResult(tmp_path, False, done))
    folder = f"{tmp_path}{os.sep}"
    assert capsys.readouterr().err.splitlines() == [
        "behavior   steps  last 100 episodes  evaluation             best  model",
        f"Striker   20,480              0.250       0.500  0.750 at 10,240  {folder}Striker.onnx",
        f"Goalie         9                  –           –                –  {folder}Goalie.onnx",
        f"Keeper         9              1.000       0.500         the last  {folder}K.onnx",
    ]


@pytest.mark.parametrize(
    ("env", "watch"),
    [
        ("3DBall", "view 3DBall --policy {run}"),
        ("./game.x86_64", "play ./game.x86_64 --policy {run}"),
        (
            "microrts:basesWorkers8x8?opponent=coac",
            "play {quoted_env} --policy {run} --record film.mp4",
        ),
    ],
)
def test_a_training_ends_with_a_command_that_shows_its_world(
    env, watch, capsys, tmp_path
):
    figures = BehaviorResult(9, None, tmp_path / "Basic.onnx", None)
    RunLayout(tmp_path).report.touch()
    request = read_run(None, settings={"env": env})
    _suggest(request, TrainingResult(tmp_path, False, {"Basic": figures}))
    command = watch.format(run=tmp_path, quoted_env=quoted(env))
    assert f"watch: touchline {command}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (
            "3DBall",
            [
                "VectorSensor_size8 [8] float32 (none): first values [",
                "action masks: none, everything is allowed",
                "a random action: continuous [",
                "rewards after random actions: own 0.1 to 0.1, group 0 to 0 (float32), 0 ended",
            ],
        ),
        (
            "GridWorld",
            [
                "action masks [9, 5] bool, True = forbidden: ",
                "a random action: discrete [",
            ],
        ),
    ],
)
def test_inspect_shows_masks_types_a_random_action_and_rewards(scene, expected, capsys):
    assert run(["inspect", scene]) == 0
    shown = capsys.readouterr().out
    for text in expected:
        assert text in shown


def test_inspect_shows_the_recording_of_a_session(capsys, shared):
    path = sorted((shared / "wire-recordings").glob("*.wire.gz"))[0]
    assert run(["inspect", str(path)]) == 0
    assert "rewards in the first exchange: own 0 to 0" in capsys.readouterr().out


@pytest.mark.usefixtures("unchecked_shapes")
def test_train_resume_force_export_eval_play(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = ["train", "Basic", "--run-id", "x", "--seed", "1"]
    assert run([*base, "--max-steps", "600"]) == 0
    run_folder = tmp_path / "results" / "x"
    kept = {p.name for p in run_folder.rglob("*") if p.is_file()}
    assert {
        "configuration.yaml",
        "Basic.onnx",
        "Basic.png",
        "checkpoint.safetensors",
        "metrics.csv",
    } <= kept
    assert run(base) == 2, "an existing run is not overwritten"
    assert "--resume continues it, --force overwrites it" in capsys.readouterr().err
    assert run([*base, "--resume", "--max-steps", "1200"]) == 0
    steps = [
        int(line.split(",")[0])
        for line in (run_folder / "Basic" / "metrics.csv")
        .read_text(encoding="utf-8")
        .splitlines()[1:]
    ]
    assert steps == sorted(steps)
    assert steps[-1] >= 1200
    assert run([*base, "--force", "--max-steps", "300"]) == 0
    assert run(["export", "results/x", "-o", "model.onnx"]) == 0
    assert (tmp_path / "model.onnx").stat().st_size > 1000
    for policy in ("results/x", "model.onnx", "results/x/Basic/checkpoint.safetensors"):
        assert run(["eval", "Basic", "--policy", policy, "--episodes", "2"]) == 0
    assert (
        run(
            [
                "play",
                "Basic",
                "--policy",
                "model.onnx",
                "--record",
                "film.mp4",
                "--seconds",
                "1",
            ]
        )
        == 0
    )
    assert (tmp_path / "film.mp4").stat().st_size > 1000


@pytest.mark.skipif(sys.platform == "win32", reason="signals work otherwise there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_everything_and_exits_with_130(tmp_path, number):
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from touchline.cli import main; main()",
            "train",
            "Basic",
            "--run-id",
            "stop",
            "--set=behaviors.*.summary_freq=256",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "step" in line and "%" in line:
            break
    process.send_signal(number)
    printed = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 130
    assert "everything is saved" in printed or "all is saved" in printed
    assert "Traceback" not in printed
    run_folder = str(tmp_path / "results" / "stop")
    assert run(["eval", "Basic", "--policy", run_folder, "--episodes", "1"]) == 0


@pytest.mark.skipif(
    sys.platform == "win32",
    reason="Windows sends other processes no SIGTERM and no SIGHUP",
)
@pytest.mark.parametrize(
    ("verb", "name"), [("eval", "SIGTERM"), ("view", "SIGHUP"), ("train", "SIGHUP")]
)
def test_a_request_to_end_leaves_no_player_and_no_folder(tmp_path, verb, name):
    player = tmp_path / "sleeper.x86_64"
    player.write_text("#!/bin/sh\nexec sleep 77\n")
    player.chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    flags = {
        "eval": [player, "--policy", "random"],
        "view": [player, "--port", "0"],
        "train": ["--env", player, "--run-id", "x"],
    }
    command = [sys.executable, "-c", NOT_IGNORED, verb, *map(str, flags[verb])]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"TMPDIR": str(temporary)}
    )
    this = psutil.Process(process.pid)
    while not (players := [p for p in this.children() if "77" in p.cmdline()]):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(getattr(signal, name))
    assert process.wait(timeout=60) == 130
    assert not psutil.wait_procs(players, timeout=10)[1]
    assert not list(temporary.glob("touchline-*"))


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_request_to_end_waits_until_a_process_has_started(number):
    arrived, started = [], False
    with handled(lambda number, _: arrived.append((number, started)), number):
        with held_back():
            signal.raise_signal(number)
            started = True
        assert arrived == [(number, True)]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
def test_what_is_started_ignores_a_hang_up_that_is_ignored_here():
    child = "import signal; print(signal.getsignal(signal.SIGHUP))"
    ignored = []
    with handled(signal.SIG_IGN, signal.SIGHUP), held_back():
        done = subprocess.run(
            [sys.executable, "-c", child], capture_output=True, text=True, check=True
        )
        ignored.append(done.stdout)
    assert ignored == ["1\n"], "SIG_IGN"


NOT_IGNORED = """
import signal
# Tests that `nohup` started would pass it on.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from touchline.cli import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP")
def test_a_hang_up_that_is_ignored_stays_ignored():
    program = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "from touchline.interrupts import raise_on_ctrl_c; raise_on_ctrl_c();"
        "signal.raise_signal(signal.SIGHUP); print('still here')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "still here\n"


def test_every_command_takes_one_torch_thread_that_does_not_spin(monkeypatch):
    """Beside other jobs an evaluation with more took a hundred times as long."""
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setattr("threading.excepthook", threading.excepthook)
    monkeypatch.setattr("sys.argv", ["touchline", "scenes"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert (os.environ["OMP_NUM_THREADS"], os.environ["OMP_WAIT_POLICY"]) == (
        "1",
        "PASSIVE",
    )


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs a device that is always full"
)
def test_a_full_disk_is_one_line_and_exit_code_1(tmp_path, monkeypatch, capsys):
    import touchline.policies.files.checkpoints as checkpoints

    def full(path, content):
        with open("/dev/full", "wb") as file:  # noqa: PTH123
            file.write(content)

    monkeypatch.setattr("touchline.training.run.folder.write_whole", full)
    monkeypatch.chdir(tmp_path)
    assert checkpoints is not None
    assert run(["train", "Basic", "--run-id", "full"]) == 1
    printed = capsys.readouterr().err
    assert "No space left" in printed
    assert printed.endswith("free some space, then --resume continues\n")


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs a device that is always full"
)
def test_a_disk_too_full_for_tensorboard_is_one_line_too(tmp_path):
    program = (
        "from touchline.cli import main; import tensorboard.summary.writer.event_file_writer as writer;"
        "writer.tf.io.gfile.GFile = lambda name, mode: open('/dev/full', 'wb', buffering=0); main()"
    )
    flags = ["train", "Basic", "--run-id", "full", "--max-steps", "2048"]
    flags += ["--set=behaviors.*.summary_freq=256"]
    done = subprocess.run(
        [sys.executable, "-c", program, *flags],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left" in done.stderr.splitlines()[-1]


def test_help_answers_at_once():
    spent = []
    for _ in range(5):
        before = psutil.Process().cpu_times()
        assert _touchline("--help").returncode == 0
        after = psutil.Process().cpu_times()
        spent.append(after.children_user - before.children_user)
    # Processor time, which a busy machine does not stretch.
    assert sorted(spent)[2] < 1.0, "about a quarter of a second on an idle machine"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no sh to close streams")
def test_a_command_runs_with_its_streams_closed():
    program = f"exec {quoted(sys.executable)} -m touchline eval NoScene 2>&- >&-"
    ended = subprocess.run(["sh", "-c", f"{program} --policy random"], check=False)
    assert ended.returncode == 2
