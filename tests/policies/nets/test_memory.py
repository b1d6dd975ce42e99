"""Sequences: what belongs to one episode stays in it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from touchline.errors import UsageError
from touchline.policies.memory import MEMORIES, make_memory
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.nets.memory import Sequences, cut_into_sequences
from touchline.policies.network import Architecture
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec.vector(3, "a"),), ActionSpec(1, (2,)))


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 12), st.integers(1, 4))
def test_sequences_are_the_actions_of_one_episode_in_order(
    seed, longest, num_steps, num_slots
):
    rng = np.random.default_rng(seed)
    valid, begins = (
        rng.random((num_steps, num_slots)) < 0.7,
        rng.random((num_steps, num_slots)) < 0.2,
    )
    step, slot, length = cut_into_sequences(valid, begins, longest)
    assert sorted(zip(step, slot, strict=True)) == sorted(
        zip(*np.nonzero(valid), strict=True)
    ), "each action once"
    assert length.sum() == len(step)
    assert not len(length) or (length.min() >= 1 and length.max() <= longest)
    ends = np.cumsum(length)
    episodes = np.cumsum(begins, axis=0)
    previous = None
    for first, end in zip(ends - length, ends, strict=True):
        owner = {(slot[i], episodes[step[i], slot[i]]) for i in range(first, end)}
        assert len(owner) == 1
        assert (np.diff(step[first:end]) > 0).all()
        if previous is not None and previous[0] == owner:
            assert previous[1] == longest, (
                "only full sequences are followed by more of the same episode"
            )
        previous = owner, end - first


KINDS = pytest.mark.parametrize("kind", MEMORIES)


@KINDS
@pytest.mark.parametrize("shared_critic", [False, True])
def test_a_sequence_at_once_is_the_same_as_step_by_step(shared_critic, kind):
    torch.manual_seed(0)
    architecture = Architecture(
        hidden_units=8, memory_size=6, memory_type=kind, shared_critic=shared_critic
    )
    network = ActorCritic(SPEC, architecture)
    length = torch.tensor([4, 1, 3])
    sequences = Sequences(length, torch.randn(3, *network.memory_shape))
    obs = torch.randn(8, 3)
    outputs, value = network.trunk((obs,), sequences)
    at = 0
    for number, size in enumerate(length.tolist()):
        memory = sequences.memory[number : number + 1]
        for row in range(at, at + size):
            one_outputs, one_value, memory = network.trunk.step(
                (obs[row : row + 1],), memory
            )
            torch.testing.assert_close(outputs[row], one_outputs[0])
            torch.testing.assert_close(value[row], one_value[0])
        at += size


@KINDS
def test_gradients_flow_back_through_a_sequence_and_not_beyond(kind):
    architecture = Architecture(hidden_units=8, memory_size=6, memory_type=kind)
    network = ActorCritic(SPEC, architecture)
    obs = torch.randn(5, 3, requires_grad=True)
    outputs, _ = network.trunk(
        (obs,), Sequences(torch.tensor([3, 2]), torch.zeros(2, 2, 6))
    )
    (gradient,) = torch.autograd.grad(outputs[2].sum(), obs)
    assert (gradient[:3].abs().sum(dim=1) > 0).all()
    assert (gradient[3:] == 0).all()


def test_some_sequences_come_with_their_rows():
    sequences = Sequences(torch.tensor([2, 3, 1]), torch.arange(3.0).view(3, 1, 1))
    rows, picked = sequences.at(torch.tensor([2, 0]))
    assert rows.tolist() == [5, 0, 1]
    assert picked.length.tolist() == [1, 2]
    assert picked.memory.flatten().tolist() == [2, 0]


@KINDS
def test_a_memory_of_nothing_gives_nothing(kind):
    memory = make_memory(kind, 3, 6)
    nothing = Sequences(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 1, 6))
    assert memory.run(torch.zeros(0, 3), nothing).shape == (0, memory.width)


@KINDS
def test_orthogonal_first_weights_are_orthogonal(kind):
    architecture = Architecture(
        hidden_units=8, memory_size=8, memory_type=kind, orthogonal_init=True
    )
    actor = ActorCritic(SPEC, architecture).trunk.actor
    matrices = [p for p in actor.memory.parameters() if p.ndim == 2]
    assert len(matrices) == 2
    for matrix in matrices:
        torch.testing.assert_close(matrix.T @ matrix, torch.eye(matrix.shape[1]))


def test_the_cells_of_an_lstm_begin_to_forget_at_different_rates():
    """The first weights that `docs/lab_log/2026-11-learning.md` measured."""
    memory = make_memory("lstm", 3, 10)
    _, _, input_bias, hidden_bias = memory.lstm.all_weights[0]
    others_and_forget = torch.zeros(4, 5)
    others_and_forget[1] = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0])
    torch.testing.assert_close(input_bias.detach().view(4, 5), others_and_forget)
    assert not hidden_bias.any()


def test_an_unknown_memory_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="no memory is called 'lstn'; there are: gru"):
        make_memory("lstn", 3, 6)
