"""The space of a search: what its file may say, and each mistake with its place."""

import pytest

from touchline.errors import UsageError
from touchline.studies.space import read_space
from touchline.training.config.reading import read_config

optuna = pytest.importorskip("optuna", reason="needs touchline[tune]")
A = "behaviors.*."


def _read(tmp_path, text):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return read_space(path, lambda keys: read_config("3DBall", (), keys))


def test_a_key_has_choices_or_a_range_of_the_numbers_that_it_takes(tmp_path):
    found = _read(
        tmp_path,
        "behaviors.*.hyperparameters.learning_rate: {low: 1e-5, high: 1e-2, log: true}\n"
        "behaviors.*.network_settings.hidden_units: {low: 32, high: 256, step: 32}\n"
        "behaviors.*.reward_signals.extrinsic.gamma: {low: 0, high: 1}\n"
        "behaviors.3DBall.hyperparameters.beta: {choices: [1e-3, 0.1]}\n"
        "behaviors.*.hyperparameters.epsilon: {low: 0.1, high: 0.3, step: 0.1}\n",
    )
    assert list(found.values()) == [
        optuna.distributions.FloatDistribution(1e-5, 1e-2, log=True),
        optuna.distributions.IntDistribution(32, 256, step=32),
        # Whole ends, but the key takes fractions.
        optuna.distributions.FloatDistribution(0, 1),
        optuna.distributions.CategoricalDistribution([0.001, 0.1]),
        # Three values, although 0.1 + 2 × 0.1 is not 0.3 in binary.
        optuna.distributions.FloatDistribution(0.1, 0.3, step=0.1),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (A + "time_horizn: {low: 1, high: 5}", "1:1: behaviors.3DBall.time_horizn: unknown key; did you mean 'time_horizon'?"),
        (A + "network_setings.num_layers: {low: 1, high: 3}", "1:1: behaviors.3DBall.network_setings: unknown key; did you mean 'network_settings'?"),
        (A + "time_horizon: {low: 0, high: 5}", "1:1: behaviors.3DBall.time_horizon: expected greater than 0, got 0"),
        (A + "time_horizon:\n  low: 5\n  high: 5", "3:3: behaviors.*.time_horizon.high: expected more than low, 5, got 5"),
        (A + "time_horizon: {low: 5}", "1:1: behaviors.*.time_horizon.high: missing; expected low and high, or choices"),
        (A + "time_horizon: {low: 1, high: 5, logg: true}", "unknown key; did you mean 'log'?"),
        (A + "time_horizon: {choices: [1], low: 2}", "time_horizon.low: is of a range, and choices are given: take one"),
        (A + "time_horizon: {choices: []}", "time_horizon.choices: expected at least one, got []"),
        (A + "time_horizon: 5", "1:1: behaviors.*.time_horizon: expected keys and values, got 5"),
        (A + "hyperparameters.beta: {low: 0, high: 1, log: true}", "beta.low: expected more than 0 with log, got 0"),
        (A + "hyperparameters.beta: {low: .nan, high: 1}", "expected a finite number"),
        (A + "hyperparameters.num_epoch: {low: 1, high: 8, step: 4}", "num_epoch.high: expected low and whole steps, such as 5, got 8"),
        (A + "hyperparameters.beta: {low: 0.1, high: 0.2, step: 0.3}", "beta.high: expected low and whole steps, such as 0.4, got 0.2"),
        (A + "hyperparameters.num_epoch:\n  low: 1\n  high: 4\n  step: 0.5", "4:3: behaviors.*.hyperparameters.num_epoch.step: expected a whole number, as the key takes, got 0.5"),
        (A + "hyperparameters.num_epoch: {low: 1, high: 4, step: 1.5}", "num_epoch.step: expected a whole number, as the key takes, got 1.5"),
        ("checkpoint_settings.run_id: {choices: [a]}", "1:1: checkpoint_settings.run_id: the search sets this key itself"),
        ("", "space.yaml: expected a key with its values, got an empty file"),
        ("[1]", "1:1: expected keys and values"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(tmp_path, text, expected):
    with pytest.raises(UsageError) as error:
        _read(tmp_path, text)
    assert expected in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "space.yaml"))
    assert "\n" not in str(error.value)


def test_values_that_fit_only_together_are_not_refused(tmp_path):
    """A batch of 100,000 is larger than the buffer of 12,000, which is searched as well."""
    assert _read(
        tmp_path,
        "behaviors.*.hyperparameters.batch_size: {choices: [64, 100000]}\n"
        "behaviors.*.hyperparameters.buffer_size: {low: 10000, high: 200000}\n",
    )
