"""Policies over boards: laws of their distributions, and that a learner can use them."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.microrts.boards import (
    CELLS,
    GRID,
    HEIGHT,
    UNIT,
    WIDTH,
    boards,
    first_mask,
    mask_of_choice,
    observed,
    some_masks,
)
from tests.slot_rows import slot_rows
from torch import Tensor

from touchline.envs.actions import random_allowed
from touchline.errors import UsageError
from touchline.microrts.action_forms import are_valid
from touchline.microrts.board_network import BoardActorCritic
from touchline.microrts.rules import PARTS, PLANES, READ_PARTS
from touchline.policies.files.checkpoints import (
    load_network,
    spec_from_json,
    spec_to_json,
)
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.network import Architecture, make_network
from touchline.policies.policy import ChosenActions
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec
from touchline.training.algorithms.learner import LearnerSetup
from touchline.training.algorithms.poca.learner import POCA
from touchline.training.config.settings import BehaviorConfig
from touchline.training.experience.rollout import Rollout


@pytest.fixture
def network() -> Callable[[BehaviorSpec], BoardActorCritic]:
    torch.manual_seed(0)

    def make(spec: BehaviorSpec, num_signals: int = 1) -> BoardActorCritic:
        made = make_network(spec, Architecture(hidden_units=32), num_signals)
        assert isinstance(made, BoardActorCritic)
        for parameter in made.parameters():
            # Away from the tiny first weights, so that probabilities are uneven.
            parameter.data += 0.05 * torch.randn_like(parameter)
        return made

    return make


def orders_that_differ() -> list[list[int]]:
    """Every order in which something differs that the engine reads."""
    orders = []
    for order_type in range(PARTS[0]):
        choices = [
            range(size) if READ_PARTS[order_type, 1 + i] else [0]
            for i, size in enumerate(PARTS[1:])
        ]
        orders += [[order_type, *others] for others in itertools.product(*choices)]
    return orders


def test_a_behavior_gets_the_network_that_its_spec_names():
    for spec in (UNIT, GRID):
        assert isinstance(
            make_network(spec, Architecture(hidden_units=32)), BoardActorCritic
        )
    vector = BehaviorSpec((ObservationSpec((8,)),), ActionSpec.create_continuous(2))
    assert isinstance(make_network(vector, Architecture(hidden_units=8)), ActorCritic)


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        (Architecture(normalize=True), "one-hot already; set it to false"),
        (Architecture(memory_size=8), "have none; leave it out"),
        (Architecture(squashed=True), "no squashed actions; change trainer_type"),
    ],
)
def test_settings_that_a_board_network_does_not_have_are_refused(architecture, message):
    with pytest.raises(UsageError, match=message):
        make_network(UNIT, architecture)


@pytest.mark.parametrize("algorithm", ["poca", "mappo"])
def test_the_critic_of_groups_refuses_boards(algorithm):
    config = BehaviorConfig(trainer_type=algorithm)
    with pytest.raises(UsageError, match=r"network 'board'; use trainer_type: ppo"):
        POCA(LearnerSetup("Board", GRID, config, 0, torch.device("cpu")))


@pytest.mark.parametrize("spec", [UNIT, GRID], ids=["unit", "grid"])
def test_there_is_a_value_for_each_reward_signal(network, spec):
    cells, table = some_masks()
    mask = first_mask(cells, table) if spec is UNIT else table.flatten(1)
    made, obs = network(spec, 3), observed(boards())
    for grad in (True, False):  # both ways of the unit form
        with torch.set_grad_enabled(grad):
            _, value = made(obs, mask)
            assert value.shape == (4, 3)
            assert torch.equal(made.value(obs), value)


def test_a_drawn_unit_and_its_order_are_always_allowed(network):
    cells, table = some_masks()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        mask = first_mask(cells, table)
        distribution = network(UNIT).distribution(observed(boards()), mask, table)
        draws = [distribution.mode()] + [
            distribution.sample(generator) for _ in range(50)
        ]
    for _, chosen in draws:
        rows = torch.arange(4)
        assert cells[rows, chosen[:, 0]].all()
        allowed = table[rows, chosen[:, 0]].numpy().astype(np.int32)
        assert are_valid(chosen[:, 1:].numpy(), allowed).all()


def test_the_probabilities_of_all_first_choices_and_orders_that_differ_sum_to_one(
    network,
):
    cells, table = some_masks(count=1, units=2)
    made, board = network(UNIT), boards(1)
    total = 0.0
    with torch.no_grad():
        for cell in torch.nonzero(cells[0])[:, 0].tolist():
            actions = torch.tensor([[cell, *order] for order in orders_that_differ()])
            count = len(actions)
            mask = mask_of_choice(
                cells.expand(count, -1), table.expand(count, -1, -1), actions
            )
            distribution, _ = made(observed(board.expand(count, -1, -1, -1)), mask)
            log_prob = distribution.log_prob(actions[:, :0].float(), actions)
            total += float(log_prob.exp().sum())
    assert total == pytest.approx(1.0, abs=1e-5)


def test_parts_that_a_type_does_not_read_change_nothing(network):
    cells, table = some_masks()
    made, obs = network(UNIT), observed(boards())
    with torch.no_grad():
        distribution = made.distribution(obs, first_mask(cells, table), table)
        _, chosen = distribution.sample(torch.Generator())
        distribution, _ = made(obs, mask_of_choice(cells, table, chosen))
        other = chosen.clone()
        for row, order_type in enumerate(chosen[:, 1].tolist()):
            for part in range(1, len(PARTS)):
                if not READ_PARTS[order_type, part]:
                    other[row, 1 + part] = PARTS[part] - 1
        none = torch.zeros(4, 0)
        assert torch.equal(
            distribution.log_prob(none, chosen), distribution.log_prob(none, other)
        )


def test_grid_orders_are_drawn_for_idle_units_only_and_add_up(network):
    cells, table = some_masks()
    made, mask = network(GRID), table.flatten(1)
    board = boards()
    with torch.no_grad():
        distribution, _ = made(observed(board), mask)
        _, chosen = distribution.sample(torch.Generator().manual_seed(0))
        parts = chosen.view(4, CELLS, len(PARTS))
        assert not parts[~cells].any()
        assert are_valid(
            parts[cells].numpy(), table[cells].numpy().astype(np.int32)
        ).all()
        together = distribution.log_prob(torch.zeros(4, 0), chosen)
        alone = []
        for row in range(4):
            one = slice(row, row + 1)
            distribution_of_one, _ = made(observed(board[one]), mask[one])
            alone.append(distribution_of_one.log_prob(torch.zeros(1, 0), chosen[one]))
        assert torch.allclose(together, torch.cat(alone), atol=1e-5)
        assert float(distribution.entropy()) > 0


def test_the_entropy_of_an_order_is_that_of_its_distribution(network):
    """Against −Σ p log p over every order of one unit that differs in what is read."""
    cells, table = some_masks(count=1, units=1)
    made, mask = network(GRID), table.flatten(1)
    cell = int(torch.nonzero(cells[0])[0])
    orders = orders_that_differ()
    actions = torch.zeros((len(orders), CELLS, len(PARTS)), dtype=torch.int64)
    actions[:, cell] = torch.tensor(orders)
    with torch.no_grad():
        many = boards(1).expand(len(orders), -1, -1, -1)
        distribution, _ = made(observed(many), mask.expand(len(orders), -1))
        none = torch.zeros(len(orders), 0)
        log_prob = distribution.log_prob(none, actions.flatten(1)).double()
        assert float(log_prob.exp().sum()) == pytest.approx(1.0, abs=1e-5)
        entropy = float(-(log_prob.exp() * log_prob).sum())
        distribution, _ = made(observed(boards(1)), mask)
        assert float(distribution.entropy()) == pytest.approx(entropy, abs=1e-4)


def loss_of(made: BoardActorCritic, mask: Tensor, chosen: Tensor) -> Tensor:
    """Something that depends on every output."""
    distribution, value = made(observed(boards()), mask)
    log_prob = distribution.log_prob(torch.zeros(4, 0), chosen)
    return log_prob.sum() + value.sum() + distribution.entropy(chosen)


@pytest.mark.parametrize("spec", [UNIT, GRID], ids=["unit", "grid"])
def test_every_weight_learns(network, spec):
    cells, table = some_masks()
    made, obs = network(spec), observed(boards())
    with torch.no_grad():
        if spec is UNIT:
            distribution = made.distribution(obs, first_mask(cells, table), table)
        else:
            distribution = made.distribution(obs, table.flatten(1))
        _, chosen = distribution.sample(torch.Generator())
    mask = mask_of_choice(cells, table, chosen) if spec is UNIT else table.flatten(1)
    # It raises the scores of all cells alike, which no choice among them feels.
    weights = [p for name, p in made.named_parameters() if name != "point.bias"]
    gradients = torch.autograd.grad(loss_of(made, mask, chosen), weights)
    assert all(torch.isfinite(g).all() and g.abs().sum() > 0 for g in gradients)


def test_a_rollout_keeps_the_mask_that_held_after_the_first_choice():
    cells, table = some_masks()
    mask = first_mask(cells, table).numpy()
    rows = slot_rows(
        [boards().numpy()], begins=True, action_mask=mask, second_mask=table.numpy()
    )
    actions = random_allowed(
        UNIT.action_spec, mask, table.numpy(), 4, np.random.default_rng(0)
    )
    rollout = Rollout()
    rollout.begin(rows)
    rollout.chosen = ChosenActions(
        actions.continuous, actions.discrete.astype(np.int64)
    )
    rollout.add(rows)
    kept = rollout.trajectories().action_mask[0]
    assert np.array_equal(kept[:, :CELLS], cells.numpy())
    assert np.array_equal(
        kept[:, CELLS:], table.numpy()[np.arange(4), actions.discrete[:, 0]]
    )


def test_a_staged_spec_survives_a_checkpoint():
    assert spec_from_json(spec_to_json(UNIT)) == UNIT


def test_a_network_takes_boards_of_any_leading_axes_and_as_rollouts_keep_them(network):
    made = network(UNIT)
    steps = boards(6).view(3, 2, PLANES, HEIGHT, WIDTH)
    vectors, codes = made.normalized((torch.zeros(3, 2, 0), steps))
    assert vectors.shape == (3, 2, 0)
    assert codes.dtype == torch.int16
    assert torch.equal(codes.flatten(0, 1), observed(boards(6))[1])
    (kept,) = made.compact((steps.numpy(),))
    _, again = made.normalized((vectors, torch.from_numpy(kept)))
    assert torch.equal(again, codes)


def test_the_policy_in_the_repository_is_loaded_in_a_process_that_knows_no_boards():
    path = Path(__file__).parents[2] / "models" / "microrts-8x8.safetensors"
    program = (
        "from pathlib import Path\n"
        "from touchline.policies.files.checkpoints import load_network\n"
        f"load_network(Path({str(path)!r}))\n"
        "from touchline.microrts import board_network\n"
        "assert board_network._DX.device.type == 'cpu'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_policy_kept_in_16_bits_acts_in_32():
    path = Path(__file__).parents[2] / "models" / "microrts-16x16.safetensors"
    network = load_network(path)
    assert {part.dtype for part in network.state_dict().values()} == {torch.float32}
    assert network.place.abs().sum() > 0


def board_network(height: int, width: int, *, staged: bool) -> BoardActorCritic:
    cells = height * width
    unit = ActionSpec(0, (cells, *PARTS), staged=True)
    grid = ActionSpec.create_discrete(PARTS * cells)
    board = ObservationSpec((PLANES, height, width), name="board")
    spec = BehaviorSpec((board,), unit if staged else grid, "board")
    return BoardActorCritic(spec, Architecture(hidden_units=32))


@pytest.mark.parametrize("staged", [True, False], ids=["unit", "grid"])
def test_a_policy_of_a_small_board_begins_on_one_of_twice_its_sides(staged):
    small = board_network(8, 12, staged=staged)
    large = board_network(16, 24, staged=staged)
    torch.nn.init.normal_(small.place)
    large.load_state_dict(large.resized(small.spec, small.state_dict()))
    place = large.place.view(8, 2, 12, 2, -1)
    assert torch.equal(place, small.place.view(8, 1, 12, 1, -1).expand_as(place))
    # Four places in place of one, a quarter each.
    weight = large.overview.weight.view(32, -1, 2, 2, 3, 2)
    quarter = small.overview.weight.view(32, -1, 2, 1, 3, 1) / 4
    assert torch.allclose(weight, quarter.expand_as(weight), atol=1e-6)


@pytest.mark.parametrize(
    "sizes", [((8, 8), (9, 12)), ((12, 9), (8, 16)), ((4, 4), (1, 24))]
)
def test_boards_whose_places_look_alike_have_one_overview_in_every_size(sizes):
    one, other = (board_network(*size, staged=False) for size in sizes)
    other.load_state_dict(other.resized(one.spec, one.state_dict()))
    sums = [
        network.overview.weight.view(32, network.deeper.out_channels, -1).sum(2)
        for network in (one, other)
    ]
    assert torch.allclose(*sums, atol=1e-5)


def test_another_game_is_no_other_size():
    network, other = (
        board_network(8, 8, staged=False),
        board_network(9, 9, staged=False),
    )
    weights, spec = other.state_dict(), other.spec
    assert network.resized(spec, weights) is not None
    assert other.resized(spec, weights) is None
    (board,) = spec.observation_specs
    more_planes = replace(board, shape=(PLANES + 2, 9, 9))
    numbers = ObservationSpec((3,), name="economy")
    unit = board_network(9, 9, staged=True).spec.action_spec
    for change in [
        {"observation_specs": (more_planes,)},
        {"observation_specs": (board, numbers)},
        {"action_spec": unit},
    ]:
        assert network.resized(replace(spec, **change), weights) is None
