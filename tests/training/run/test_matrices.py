"""Which library multiplies matrices."""

import pytest
import torch
from bench.sac import SIZES, Ours

from touchline.envs.env import EnvRecipe
from touchline.jobs.job import RestartLimits
from touchline.training.collect.worker import Worker, WorkerSetup
from touchline.training.config.reading import read_config
from touchline.training.run import process
from touchline.training.run.process import (
    is_onednn_faster,
    is_onednn_worthwhile,
    tuned_process,
)


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("PushBlock", True),
        ("SoccerTwos", True),
        # 64 rows and 128 units: a call's overhead is more than it saves.
        ("3DBall_official", False),
        # A memory takes two rows at a time.
        ("Hallway", False),
    ],
)
def test_large_matrices_are_worth_a_call_of_onednn(preset, expected):
    assert is_onednn_worthwhile(read_config(preset)) is expected


def test_one_small_behavior_is_enough_for_mkl():
    changes = {"behaviors.BigWallJump.hyperparameters.batch_size": 32}
    assert is_onednn_worthwhile(read_config("WallJump"))
    assert not is_onednn_worthwhile(read_config("WallJump", (), changes))


@pytest.mark.skipif(
    not is_onednn_faster(), reason="only for AMD processors with AVX-512"
)
@pytest.mark.parametrize(
    "shape", [(64, 128, 128), (1024, 336, 256), (256, 2000, 1024), (1024, 256, 9)]
)
def test_onednn_multiplies_in_float32(shape):
    rows, inputs, outputs = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, rows, inputs, generator=generator)
    weight = torch.randn(2, inputs, outputs, generator=generator)
    bias = torch.randn(2, 1, outputs, generator=generator)
    exact = torch.baddbmm(bias.double(), x.double(), weight.double())
    with tuned_process(read_config("SoccerTwos")):
        product = torch.baddbmm(bias, x, weight)
        one_by_one = torch.stack(
            [torch.addmm(*three) for three in zip(bias, x, weight, strict=True)]
        )
    error = (product - exact).std() / exact.std()
    # bfloat16 would give 2e-3, TF32 3e-4.
    assert error < 2e-6
    assert torch.allclose(one_by_one, product, rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(
    not is_onednn_faster(), reason="only for AMD processors with AVX-512"
)
@pytest.mark.parametrize(
    "actions", [(0, [7]), (20, [])], ids=["discrete", "continuous"]
)
def test_no_product_of_sac_is_written_the_slow_way_round(actions, monkeypatch):
    continuous, branches = actions
    own = {"continuous": continuous, "branches": branches, "steps_per_turn": 4}
    ours = Ours(SIZES["PushBlock"] | own)

    def fastest():
        return min(ours.turn()["gradient_steps"] for _ in range(3))

    with_onednn = fastest()
    monkeypatch.setattr(process, "is_onednn_faster", lambda: False)
    # It was 65 times as long with one product written column by column; otherwise it is shorter.
    assert with_onednn < 5 * fastest()


@pytest.mark.parametrize("is_worthwhile", [False, True])
def test_collectors_multiply_as_the_process_that_learns(is_worthwhile):
    before = torch.get_float32_matmul_precision()
    recipe = EnvRecipe("scene", "Basic", 1)
    setup = WorkerSetup(0, (recipe,), RestartLimits(), 3, 0, 1, onednn=is_worthwhile)
    worker = Worker(setup)
    try:
        assert not worker.run([("open", ())]).outcome.failure
        is_switched = torch.get_float32_matmul_precision() != before
        assert is_switched == (is_worthwhile and is_onednn_faster())
    finally:
        torch.set_float32_matmul_precision(before)
        worker.run([("close", ())])


def test_a_run_leaves_the_switch_as_it_was():
    before = torch.get_float32_matmul_precision()
    with tuned_process(read_config("SoccerTwos")):
        is_switched = torch.get_float32_matmul_precision() != before
        assert is_switched == is_onednn_faster()
    assert torch.get_float32_matmul_precision() == before
