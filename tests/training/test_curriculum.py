"""Lessons: when they end, what they set in the world, and that a run takes them along."""

import json
from collections import Counter

import numpy as np
import pytest
import yaml

from touchline.envs.env import EnvRecipe, make
from touchline.envs.scene_env import SceneEnv
from touchline.envs.slots import Slots
from touchline.parameters import Uniform
from touchline.policies.files.checkpoints import read_arrays
from touchline.training import trainer
from touchline.training.config.reading import read_config
from touchline.training.curriculum import Curriculum
from touchline.training.evaluator import Evaluator
from touchline.training.trainer import train
from touchline.training.world import recipe_of

# They repeat calls whose shapes shorter tests check.
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def _config(tmp_path, parameters, behavior="A", **settings):
    path = tmp_path / "config.yaml"
    tree = {"behaviors": {behavior: settings}, "environment_parameters": parameters}
    path.write_text(yaml.safe_dump(tree))
    overrides = {
        "checkpoint_settings.results_dir": str(tmp_path),
        "env_settings.seed": 1,
    }
    return read_config(str(path), (), overrides)


def _lessons(*lessons, behavior="A", **criteria):
    """(value, threshold) pairs; the last has no threshold."""
    blocks = [{"name": f"L{i}", "value": value} for i, (value, _) in enumerate(lessons)]
    for lesson, (_, threshold) in zip(blocks, lessons, strict=True):
        if threshold is not None:
            lesson["completion_criteria"] = {
                "behavior": behavior,
                "threshold": threshold,
                **criteria,
            }
    return {"curriculum": blocks}


def _curriculum(tmp_path, **parameters):
    return Curriculum(_config(tmp_path, parameters))


def test_a_lesson_of_progress_ends_above_its_threshold(tmp_path):
    curriculum = _curriculum(
        tmp_path, wall=_lessons((1, 0.1), (2, 0.3), (3, None), measure="progress")
    )
    assert curriculum.values == {"wall": 1.0}
    assert curriculum.advance({"A": 0.1}) is None, "at the threshold, not above it"
    new = curriculum.advance({"A": 0.11})
    assert (new.values, new.needs_reset, new.lines) == (
        {"wall": 2.0},
        False,
        ("wall: lesson 2 of 3, 'L1': 2.0",),
    )
    assert curriculum.advance({"A": 0.2}) is None
    assert curriculum.advance({"A": 0.9}).values == {"wall": 3.0}
    assert curriculum.advance({"A": 1.0}) is None, "the last lesson stays"
    assert curriculum.numbers == {"wall": 2}


def test_lessons_that_are_over_at_once_are_passed_at_once(tmp_path):
    lessons = _lessons((1, 0.1), (2, 0.3), (3, 0.9), (4, None), measure="progress")
    curriculum = _curriculum(tmp_path, wall=lessons)
    new = curriculum.advance({"A": 0.5})
    assert new.values == {"wall": 3.0}
    assert [line.partition(",")[0] for line in new.lines] == [
        "wall: lesson 2 of 4",
        "wall: lesson 3 of 4",
    ]
    assert curriculum.advance({"A": 0.5}) is None


def test_a_lesson_of_reward_waits_for_its_episodes_and_looks_at_the_latest(tmp_path):
    curriculum = _curriculum(
        tmp_path,
        wall=_lessons((1, 5), (2, None), min_lesson_length=3, signal_smoothing=False),
    )
    curriculum.record_returns("A", [100.0, 100.0])
    assert curriculum.advance({"A": 0.0}) is None, "two of three episodes"
    curriculum.record_returns("A", [-200.0])
    assert curriculum.advance({"A": 0.0}) is None, "a mean of 0"
    curriculum.record_returns("A", [6.0, 6.0])
    assert curriculum.advance({"A": 0.0}) is None, "the latest three: -200, 6, 6"
    curriculum.record_returns("A", [6.0])
    assert curriculum.advance({"A": 0.0}).values == {"wall": 2.0}


def test_a_smoothed_reward_is_a_quarter_of_the_last_and_three_quarters_of_the_new(
    tmp_path,
):
    curriculum = _curriculum(tmp_path, wall=_lessons((1, 9.9), (2, None)))
    for expected in (7.5, 9.375, 9.84375):
        curriculum.record_returns("A", [10.0])
        assert curriculum.advance({"A": 0.0}) is None
        assert curriculum.state()["smoothed"]["wall"] == pytest.approx(expected)
        assert curriculum.advance({"A": 0.0}) is None, (
            "no episode has ended since, so nothing changes"
        )
    curriculum.record_returns("A", [10.0])
    assert curriculum.advance({"A": 0.0}) is not None


def test_a_new_lesson_forgets_the_episodes_of_the_last_one(tmp_path):
    curriculum = _curriculum(
        tmp_path,
        wall=_lessons(
            (1, 0), (2, 0), (3, None), min_lesson_length=2, signal_smoothing=False
        ),
    )
    curriculum.record_returns("A", [1.0, 1.0])
    assert curriculum.advance({"A": 0.0}).values == {"wall": 2.0}
    curriculum.record_returns("A", [1.0])
    assert curriculum.advance({"A": 0.0}) is None
    curriculum.record_returns("A", [1.0])
    assert curriculum.advance({"A": 0.0}).values == {"wall": 3.0}


def test_progress_waits_for_min_lesson_length_too(tmp_path):
    curriculum = _curriculum(
        tmp_path,
        wall=_lessons((1, 0.5), (2, None), min_lesson_length=2, measure="progress"),
    )
    assert curriculum.advance({"A": 1.0}) is None
    curriculum.record_returns("A", [0.0, 0.0])
    assert curriculum.advance({"A": 1.0}) is not None


def test_behaviors_that_have_not_come_yet_hold_nothing_up(tmp_path):
    curriculum = _curriculum(
        tmp_path, wall=_lessons((1, 0.5), (2, None), measure="progress"), mass=3
    )
    assert curriculum.advance({}) is None
    assert curriculum.advance({"B": 1.0}) is None
    assert curriculum.values == {"wall": 1.0, "mass": 3.0}


def test_state_carries_lessons_smoothing_and_episodes(tmp_path):
    def made():
        return _curriculum(
            tmp_path, wall=_lessons((1, 5), (2, 9), (3, None), min_lesson_length=2)
        )

    first = made()
    first.record_returns("A", [10.0, 10.0])
    assert first.advance({"A": 0.0})
    first.record_returns("A", [10.0])
    again = made()
    again.load_state(json.loads(json.dumps(first.state())))
    assert again.state() == first.state()
    for curriculum in (first, again):
        curriculum.record_returns("A", [10.0])
        assert curriculum.advance({"A": 0.0}).values == {"wall": 3.0}
    assert again.state() == first.state()


def _ball(tmp_path, parameters, **settings):
    hyper = {"batch_size": 64, "buffer_size": 1000}
    return _config(
        tmp_path,
        parameters,
        "3DBall",
        trainer_type="ppo",
        hyperparameters=hyper,
        summary_freq=1000,
        **settings,
    )


def _lesson_numbers(folder, parameter):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "3DBall"))
    events.Reload()
    return [
        event.value
        for event in events.Scalars(f"Environment/Lesson Number/{parameter}")
    ]


@pytest.mark.parametrize("resets", [False, True])
def test_a_run_teaches_lesson_after_lesson_and_reports_them(
    tmp_path, monkeypatch, resets
):
    given_values, lines, commands = [], [], Counter()
    set_parameters = SceneEnv.set_parameters
    reset = SceneEnv.reset
    monkeypatch.setattr(
        SceneEnv,
        "set_parameters",
        lambda env, given: (
            given_values.append(dict(given)),
            set_parameters(env, given),
        )[1],
    )
    monkeypatch.setattr(SceneEnv, "reset", lambda env, seed=None, parameters=None: (commands.update(n=1), reset(env, seed, parameters))[1])  # fmt: skip
    # Which opens and resets a world of its own.
    monkeypatch.setattr(Evaluator, "start", lambda *_: None)
    uniform = {
        "sampler_type": "uniform",
        "sampler_parameters": {"min_value": 2, "max_value": 3},
    }
    lessons = _lessons(
        (0.5, 0.2),
        (uniform, 0.6),
        (4, None),
        behavior="3DBall",
        measure="progress",
        require_reset=resets,
    )
    config = _ball(tmp_path, {"mass": lessons, "scale": 0.9}, max_steps=5000)
    folder = train(config, recipe_of(config, "3DBall"), lines.append).folder
    changes = [given["mass"] for given in given_values if "mass" in given]
    assert changes == [0.5, Uniform(2.0, 3.0), 4.0]
    assert given_values[0] == {"mass": 0.5, "scale": 0.9}
    assert commands["n"] == (3 if resets else 1)
    assert [line for line in lines if line.startswith("mass: ")] == [
        "mass: lesson 2 of 3, 'L1': Uniform(low=2.0, high=3.0)",
        "mass: lesson 3 of 3, 'L2': 4.0",
    ]
    numbers = _lesson_numbers(folder, "mass")
    assert numbers == sorted(numbers)
    assert numbers[-1] == 2.0
    assert set(_lesson_numbers(folder, "scale")) == {0.0}
    assert json.loads(
        (folder / "run_logs" / "training_status.json").read_text(encoding="utf-8")
    )["lessons"] == {
        "mass": 2,
        "scale": 0,
    }


def test_a_resumed_run_goes_on_in_its_lesson(tmp_path):
    parameters = {
        "mass": _lessons(
            (1, 0.3), (2, 1.0), (3, None), behavior="3DBall", measure="progress"
        )
    }
    config = _ball(tmp_path, parameters, max_steps=2000)
    folder = train(config, recipe_of(config, "3DBall")).folder
    assert read_arrays(folder / "resume.safetensors")[1]["curriculum"]["lessons"] == {
        "mass": 1
    }
    changed = {"checkpoint_settings.resume": True, "behaviors.*.max_steps": 3000}
    overrides = {
        "checkpoint_settings.results_dir": str(tmp_path),
        "env_settings.seed": 1,
    }
    config = read_config(str(tmp_path / "config.yaml"), (), overrides | changed)
    lines = []
    train(config, recipe_of(config, "3DBall"), lines.append)
    assert not [line for line in lines if line.startswith("mass: lesson 2")], (
        "that one is over"
    )


def test_samplers_draw_anew_for_every_area_and_episode():
    config = read_config("3DBall_randomize", ["env_settings.num_areas=200"])
    with make(recipe_of(config)) as env:
        slots = Slots(env)
        rows = slots.reset(0)
        first = {name: env.scene.state()[name].copy() for name in ("mass", "scale")}
        name = "3DBall?team=0"
        action = slots.behaviors[name].action_spec.empty_action(200)
        ended = np.zeros(200, np.bool_)
        for _ in range(100):
            rows = slots.step({name: action})
            ended |= rows[name].terminated
        second = env.scene.state()
    for parameter, (low, high) in {"mass": (0.5, 10.0), "scale": (0.75, 3.0)}.items():
        assert ended.any()
        assert first[parameter].min() >= low
        assert first[parameter].max() <= high
        assert abs(first[parameter].mean() - (low + high) / 2) < 4 * (
            high - low
        ) / np.sqrt(12 * 200)
        assert np.all(first[parameter][ended] != second[parameter][ended])
        assert np.all(first[parameter][~ended] == second[parameter][~ended])


def test_one_lesson_for_every_world(tmp_path):
    lessons = _lessons((1, 0.4), (5, None), behavior="3DBall", measure="progress")
    config = _ball(tmp_path, {"mass": lessons}, max_steps=3000)
    config = config.model_copy(
        update={
            "env_settings": config.env_settings.model_copy(
                update={"num_envs": 2, "num_areas": 3}
            )
        }
    )
    recipe = EnvRecipe.parse(recipe_of(config, "3DBall"), options={"num_threads": 1})
    folder = train(config, recipe).folder
    arrays, metadata = read_arrays(folder / "resume.safetensors")
    assert metadata["curriculum"]["lessons"] == {"mass": 1}
    masses = [value for key, value in arrays.items() if key.endswith("scene/mass")]
    assert len(masses) == 2
    assert all((mass == 5.0).any() for mass in masses)


class _Killed(BaseException):
    """The run ends here without saving anything, as by kill -9."""


@pytest.mark.parametrize("resets", [False, True])
def test_a_run_killed_at_a_lessons_end_resumes_bit_for_bit(
    tmp_path, monkeypatch, resets
):
    monkeypatch.setattr(trainer, "RESUME_EVERY_S", 0.1)
    uniform = {
        "sampler_type": "uniform",
        "sampler_parameters": {"min_value": 2, "max_value": 3},
    }
    lessons = _lessons(
        (0.5, 0.5),
        (uniform, 0.9),
        (4, None),
        behavior="3DBall",
        min_lesson_length=20,
        require_reset=resets,
    )
    lines = []

    def run(name, *, resume=False, dies_at="never"):
        def say(line):
            if line.startswith(dies_at):
                raise _Killed
            lines.append(line)

        (tmp_path / name).mkdir(exist_ok=True)
        config = _ball(
            tmp_path / name, {"mass": lessons, "scale": uniform}, max_steps=4000
        )
        settings = config.checkpoint_settings.model_copy(update={"resume": resume})
        config = config.model_copy(update={"checkpoint_settings": settings})
        return train(config, recipe_of(config, "3DBall"), say).folder

    whole, whole_metadata = read_arrays(run("whole") / "resume.safetensors")
    assert whole_metadata["curriculum"]["lessons"]["mass"] == 2, (
        "both lessons end within the run"
    )
    for lesson in (2, 3):
        with pytest.raises(_Killed):
            run("killed", resume=lesson == 3, dies_at=f"mass: lesson {lesson}")
    resumed, resumed_metadata = read_arrays(
        run("killed", resume=True) / "resume.safetensors"
    )
    for part in (whole_metadata, resumed_metadata):
        del part["seconds"]  # of wall clock
    assert resumed_metadata == whole_metadata
    assert resumed.keys() == whole.keys()
    for key, array in whole.items():
        np.testing.assert_array_equal(array, resumed[key], key)


@pytest.mark.parametrize("preset", ["Sorter", "Sorter_imitation"])
def test_every_lesson_of_sorter_can_be_passed(preset):
    """Each episode has 1 to N tiles, and a point for each: (N + 1) / 2 on average."""
    *lessons, last = read_config(preset).environment_parameters["num_tiles"].curriculum
    for lesson in lessons:
        assert lesson.completion_criteria.threshold < 0.9 * (lesson.value + 1) / 2
    assert last.value == 20
