"""The laws of the action distribution."""

import pytest
import torch

from touchline.errors import NonFiniteError
from touchline.policies.distributions import (
    ActionDistribution,
    masked_log_probs,
    to_environment,
)


def _hybrid(batch=5, seed=0, std_shape=(2,)):
    torch.manual_seed(seed)
    logits = [torch.randn(batch, n) for n in (3, 2)]
    return ActionDistribution(
        torch.randn(batch, 2),
        torch.randn(std_shape) / 2,
        [masked_log_probs(x, None) for x in logits],
    )


SPREADS = pytest.mark.parametrize("std_shape", [(2,), (5, 2)])
"""Of log σ: the same for all agents, or one for each."""


@SPREADS
def test_a_hybrid_log_probability_is_the_sum_of_its_parts(std_shape):
    d = _hybrid(std_shape=std_shape)
    continuous, discrete = d.sample(torch.Generator().manual_seed(1))
    normal = (
        torch.distributions.Normal(d.mean, d.log_std.exp()).log_prob(continuous).sum(1)
    )
    parts = [
        torch.distributions.Categorical(logits=p).log_prob(discrete[:, i])
        for i, p in enumerate(d.log_probs)
    ]
    torch.testing.assert_close(d.log_prob(continuous, discrete), normal + sum(parts))


@SPREADS
def test_entropy_is_the_mean_of_torchs_own(std_shape):
    d = _hybrid(std_shape=std_shape)
    normal = torch.distributions.Normal(d.mean, d.log_std.exp()).entropy().sum(1)
    parts = [torch.distributions.Categorical(logits=p).entropy() for p in d.log_probs]
    torch.testing.assert_close(d.entropy(), (normal + sum(parts)).mean())


def test_a_masked_choice_has_probability_zero_and_is_never_drawn():
    allowed = torch.tensor([[True, False, True, False]]).expand(2000, 4)
    log_probs = masked_log_probs(
        torch.tensor([[0.0, 50.0, 1.0, 2.0]]).expand(2000, 4), allowed
    )
    d = ActionDistribution(torch.zeros(2000, 0), torch.zeros(0), [log_probs])
    _, drawn = d.sample(torch.Generator().manual_seed(0))
    assert torch.exp(log_probs)[:, [1, 3]].max() == 0
    assert set(drawn[:, 0].tolist()) == {0, 2}
    assert d.mode()[1][0, 0] == 2
    assert torch.isfinite(d.entropy())


def test_draws_follow_the_probabilities():
    p = torch.tensor([0.2, 0.5, 0.3])
    d = ActionDistribution(
        torch.zeros(20000, 0), torch.zeros(0), [p.log().expand(20000, 3)]
    )
    _, drawn = d.sample(torch.Generator().manual_seed(3))
    torch.testing.assert_close(
        torch.bincount(drawn[:, 0]) / 20000, p, atol=0.015, rtol=0
    )


def test_draws_are_those_of_torch():
    d = _hybrid(batch=300)
    _, drawn = d.sample(torch.Generator().manual_seed(3))
    same = torch.Generator().manual_seed(3)
    torch.randn(d.mean.shape, generator=same)
    for branch, log_probs in enumerate(d.log_probs):
        expected = torch.multinomial(log_probs.exp(), 1, generator=same)[:, 0]
        assert torch.equal(drawn[:, branch], expected)


def test_probabilities_that_are_not_numbers_are_refused():
    log_probs = torch.zeros(4, 2)
    log_probs[2, 1] = torch.nan
    d = ActionDistribution(torch.zeros(4, 0), torch.zeros(0), [log_probs])
    with pytest.raises(NonFiniteError, match="not numbers"):
        d.sample(torch.Generator())


@pytest.mark.parametrize(
    ("raw", "limited"), [(0.0, 0.0), (1.5, 0.5), (3.0, 1.0), (9.0, 1.0), (-4.0, -1.0)]
)
def test_worlds_get_clipped_thirds(raw, limited):
    assert to_environment(torch.tensor([[raw]])).item() == pytest.approx(limited)
