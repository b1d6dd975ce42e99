"""Two trainings side by side: probabilities worked by hand and held to scipy's own test."""

import json

import numpy as np
import pytest
from scipy import stats
from tests.studies.written_runs import write_run

import touchline
from touchline.cli import run
from touchline.studies.compare import probability_of_improvement


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(4):
        write_run(tmp_path / f"a/seed-{seed}", [1.0], scores=[seed + 1.0, seed + 3.0])
        write_run(tmp_path / f"b/seed-{seed}", [1.0], scores=[seed + 0.5])
    return tmp_path


def test_the_probability_is_the_share_of_pairs_that_a_wins():
    a, b = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0])
    # 1 beats 0; 2 ties with 2 and beats 0; 3 beats both.
    assert probability_of_improvement(a, b) == (1 + 0.5 + 1 + 2) / 6
    assert probability_of_improvement(b, a) == 1 - (1 + 0.5 + 1 + 2) / 6


def test_the_probability_is_that_of_scipys_rank_test_along_any_axis():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (5, 30)), rng.integers(2, 9, (5, 20))
    expected = stats.mannwhitneyu(a, b, axis=1).statistic / 600
    np.testing.assert_allclose(probability_of_improvement(a, b, axis=1), expected)
    np.testing.assert_allclose(probability_of_improvement(a.T, b.T, axis=0), expected)


def test_seeds_and_episodes_are_compared(results, capsys):
    found = touchline.compare("a", "b")
    seeds = found["behaviors"]["Basic"]["seeds"]
    # Scores 2, 3, 4, 5 against 0.5, 1.5, 2.5, 3.5: 13 of 16 pairs.
    assert seeds["probability"] == 13 / 16
    assert seeds["a"] == {"count": 4, "mean": 3.5, "interquartile_mean": 3.5}
    low, high = seeds["ci95"]
    assert 0 <= low < 13 / 16 < high <= 1
    episodes = found["behaviors"]["Basic"]["episodes"]
    assert (episodes["a"]["count"], episodes["b"]["count"]) == (8, 4)
    assert run(["compare", "a", "b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert run(["compare", "a", "b"]) == 0
    printed = capsys.readouterr().out
    assert "| Basic | 4 and 4 seeds | 3.500 (3.500) | 2.000 (2.000) | 0.81, " in printed
    assert "| Basic | 8 and 4 episodes | " in printed


def test_one_run_has_no_interval_over_seeds(results, capsys):
    assert run(["compare", "a/seed-3", "b/seed-0"]) == 0
    assert "| 1.00, one seed has no interval |" in capsys.readouterr().out


def test_a_training_is_as_good_as_itself(results):
    own = touchline.compare("a", "a")["behaviors"]["Basic"]
    assert own["seeds"]["probability"] == own["episodes"]["probability"] == 0.5


def test_runs_without_episodes_are_compared_by_their_scores_alone(results, capsys):
    for folder in ("c", "d"):
        write_run(results / folder, [1.0], scores=[1.0])
        status = results / folder / "run_logs/training_status.json"
        content = json.loads(status.read_text(encoding="utf-8"))
        del content["Basic"]["evaluations"][0]["scores"]
        status.write_text(json.dumps(content))
    assert run(["compare", "c", "d"]) == 0
    assert "no episodes: " in capsys.readouterr().out


def test_what_does_not_compare_is_one_line(results, capsys):
    write_run(results / "rated", [1.0], scores=[1200.0], rating=True)
    write_run(results / "other", [1.0], scores=[1.0], behavior="Walker")
    write_run(results / "young", [1.0])
    for name, expected in [
        ("rated", "ratings of different runs do not compare"),
        ("other", "none in common"),
        ("young", "young: no evaluation yet"),
        ("nowhere", "nowhere: no run folder"),
    ]:
        assert run(["compare", "a", name]) == 2
        printed = capsys.readouterr().err
        assert expected in printed
        assert printed.count("\n") == 1


def test_a_run_keeps_the_episodes_of_its_last_evaluation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = {
        "behaviors.*.max_steps": 400,
        "behaviors.*.checkpoint_interval": 200,
        "evaluation.episodes": 10,
    }
    touchline.train("Basic", run_id="x", changes=changes, log=lambda _: None)
    status = json.loads(
        (tmp_path / "results/x/run_logs/training_status.json").read_text(
            encoding="utf-8"
        )
    )
    *earlier, last = status["Basic"]["evaluations"]
    assert len(last["scores"]) == last["episodes"]
    assert np.mean(last["scores"]) == pytest.approx(last["score"], abs=1e-9)
    assert all("scores" not in one for one in earlier)
    own = touchline.compare("results/x", "results/x")["behaviors"]["Basic"]
    assert own["episodes"]["a"]["count"] == last["episodes"]
