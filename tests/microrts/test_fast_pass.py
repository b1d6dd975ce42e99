"""The fast pass over boards, held to the plain way and to autograd."""

import pytest
import torch
from tests.microrts.boards import a_choice

from touchline.microrts.rules import PLANES

SIZES = [(PLANES, 5, 6), (PLANES, 8, 8), (PLANES + 2, 9, 1), (PLANES, 3, 11)]
FORMS = [
    {"staged": True},
    {"staged": False},
    {"staged": False, "numbers": 3},
    {"staged": True, "numbers": 3},
]
every_form = pytest.mark.parametrize(
    "form", FORMS, ids=["unit", "grid", "grid and numbers", "unit and numbers"]
)


@pytest.fixture
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@every_form
@pytest.mark.parametrize("size", SIZES)
def test_the_fast_pass_gives_the_same_log_probabilities_entropies_and_values(
    size, form
):
    network, obs, _, discrete, mask = choice = a_choice(*size, **form)
    outcomes = []
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            distribution, value = network(obs, mask)
            log_prob = distribution.log_prob(*choice.actions)
            entropy = distribution.entropy(discrete)
            outcomes.append((log_prob, entropy, value, network.value(obs)))
    assert all(tensor.requires_grad for tensor in outcomes[0])
    assert not any(tensor.requires_grad for tensor in outcomes[1])
    for plain, fast in zip(*outcomes, strict=True):
        assert torch.allclose(plain, fast, rtol=1e-5, atol=1e-5)


@every_form
@pytest.mark.parametrize("size", SIZES)
def test_the_fast_pass_draws_the_same_actions(size, form):
    network, obs, _, _, _ = choice = a_choice(*size, **form)
    for seed in range(20):
        drawn = []
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                distribution = network.distribution(obs, *choice.acting)
                _, sampled = distribution.sample(torch.Generator().manual_seed(seed))
                _, most_likely = distribution.mode()
            drawn.append((sampled, most_likely))
        assert all(torch.equal(*pair) for pair in zip(*drawn, strict=True))


def errors_of_the_gradient(
    part: str, size: tuple[int, int, int], form: dict[str, int], num_signals: int = 1
):
    """For every parameter: its name, the largest error of the fast gradient, and the largest value
    of autograd's; then the largest value of all.
    """
    network, obs, _, discrete, mask = choice = a_choice(
        *size, num_signals=num_signals, **form
    )
    rows = torch.linspace(-1.0, 1.5, len(discrete))
    columns = torch.linspace(1.0, 2.0, num_signals)
    grad_log_prob = rows * (part in ("log_prob", "all"))
    grad_value = rows.flip(0)[:, None] * columns * (part in ("value", "all"))
    entropy_gradient = -0.7 * (part in ("entropy", "all"))
    distribution, value = network(obs, mask)
    outcome = (
        distribution.log_prob(*choice.actions),
        value,
        distribution.entropy(discrete),
    )
    parameters = list(network.parameters())
    expected = torch.autograd.grad(
        outcome, parameters, [grad_log_prob, grad_value, torch.tensor(entropy_gradient)]
    )
    written = [
        torch.full_like(parameter, 7.0) for parameter in parameters
    ]  # to be overwritten
    with torch.inference_mode():
        network.gradient(
            obs,
            mask,
            choice.actions,
            lambda log_prob, value: (grad_log_prob, grad_value),
            entropy_gradient,
            written,
        )
    names = [name for name, _ in network.named_parameters()]
    errors = [
        float((a - b).abs().max()) for a, b in zip(written, expected, strict=True)
    ]
    largest = [float(gradient.abs().max()) for gradient in expected]
    return list(zip(names, errors, largest, strict=True)), max(largest)


@every_form
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("part", ["log_prob", "value", "entropy", "all"])
def test_the_fast_gradient_is_that_of_autograd(size, part, form):
    of_parameters, largest = errors_of_the_gradient(part, size, form)
    for name, error, of_parameter in of_parameters:
        assert error <= 1e-5 * of_parameter + 1e-6 * largest, name


@every_form
@pytest.mark.parametrize("size", SIZES)
def test_in_double_precision_the_fast_gradient_is_that_of_autograd(
    double_precision, size, form
):
    of_parameters, largest = errors_of_the_gradient("all", size, form, num_signals=2)
    for name, error, _ in of_parameters:
        assert error <= 1e-13 * largest, name


@every_form
def test_no_rows_at_all_are_accepted(form):
    choice = a_choice(*SIZES[0], **form)
    network, (numbers, codes), _, discrete, mask = choice
    obs, discrete, mask = (numbers[:0], codes[:0]), discrete[:0], mask[:0]
    table = choice.table[:0] if form["staged"] else None
    written = [torch.full_like(parameter, 7.0) for parameter in network.parameters()]
    actions = discrete[:, :0], discrete
    with torch.inference_mode():
        assert network.value(obs).shape == (0, 1)
        assert network(obs, mask)[0].log_prob(*actions).shape == (0,)
        _, drawn = network.distribution(obs, mask, table).sample(torch.Generator())
        assert drawn.shape == discrete.shape
        network.gradient(obs, mask, actions, lambda *outputs: outputs, 1.0, written)
    assert not any(gradient.any() for gradient in written)


@every_form
def test_rows_without_any_unit_are_finite_and_do_not_change_others(form):
    """Slots that never held an agent have no masks."""
    choice = a_choice(*SIZES[0], **form)
    network, obs, table, _, mask = choice
    with torch.inference_mode():
        before = network(obs, mask)[0].log_prob(*choice.actions)
        mask[1] = False
        after = network(obs, mask)[0].log_prob(*choice.actions)
        nothing_allowed = torch.zeros_like(mask)
        second = table if form["staged"] else None
        distribution = network.distribution(obs, nothing_allowed, second)
        _, drawn = distribution.sample(torch.Generator())
        assert not (drawn[:, 0] if form["staged"] else drawn).any()
    others = torch.tensor([0, 2, 3, 4])
    assert torch.isfinite(after).all()
    assert torch.equal(before[others], after[others])


def test_a_grid_needs_no_choices_for_its_entropy():
    network, obs, _, discrete, mask = a_choice(*SIZES[0], staged=False)
    with torch.inference_mode():
        distribution, _ = network(obs, mask)
        assert torch.equal(distribution.entropy(), distribution.entropy(discrete))
