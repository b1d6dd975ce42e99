"""Which device a run's networks are on, and which of PyTorch's two libraries multiplies there.

On AMD's processors MKL leaves more than half of what AVX-512 offers unused. oneDNN is twice as
fast, but each of its calls costs some 10 µs more (`docs/benchmarks.md`, "oneDNN and MKL"). Both
compute in float32.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from touchline.errors import UsageError
from touchline.training.config.settings import BehaviorConfig, RunConfig


def device_of(config: RunConfig) -> torch.device:
    """The configured device, else a GPU if there is one, else the CPU."""
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    name = config.torch_settings.device or automatic
    device = torch.device(name)
    # Counted here, because `torch.device("cuda:7")` raises nothing until it is used.
    available = {"cpu": 1, "cuda": torch.cuda.device_count()}
    if (device.index or 0) >= available[device.type]:
        raise UsageError(
            f"torch_settings.device: {name} is not there: this PyTorch sees "
            f"{torch.cuda.device_count()} CUDA devices; take cpu, or leave it out"
        )
    return device


def describe_device(device: torch.device) -> str:
    """Where a run computes, for its first lines."""
    if device.type == "cpu":
        count = torch.get_num_threads()
        return f"on the CPU with {count} thread{'' if count == 1 else 's'}"
    return f"on {device} ({torch.cuda.get_device_name(device)})"


WORTHWHILE = 2**15
"""Rows times hidden units of a gradient step's product from which oneDNN saves time: PushBlock's
128 x 256 gain, 3DBall's 64 x 128 lose."""


def is_onednn_worthwhile(config: RunConfig) -> bool:
    """Whether the matrices of every behavior are large enough."""
    blocks = [config.default_settings, *config.behaviors.values()]
    return all(_size(block) >= WORTHWHILE for block in blocks if block)


def _size(behavior: BehaviorConfig) -> int:
    """Rows times hidden units; a memory takes the rows of its sequences step by step."""
    network = behavior.network_settings
    steps = 1 if network.memory is None else network.memory.sequence_length
    # As many decisions as a gradient step takes. Algorithms of others need not say.
    rows = behavior.hyperparameters.longest_sequence or 0
    return rows // steps * network.hidden_units


def is_onednn_faster() -> bool:
    """Whether this is an AMD processor with AVX-512, and no GPU is there."""
    processor = torch.cpu.get_capabilities()
    is_amd = "AMD" in str(processor.get("cpu_name"))
    # The switch below has another meaning for GPUs. With AMX, oneDNN would round to bfloat16.
    has_others = torch.cuda.is_available() or processor.get("amx_bf16", False)
    return is_amd and bool(processor.get("avx512_f")) and not has_others


@contextmanager
def matrices_for(config: RunConfig) -> Iterator[None]:
    """Matrices are multiplied the faster way while this run trains."""
    before = torch.get_float32_matmul_precision()
    if is_onednn_worthwhile(config):
        prefer_onednn()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def prefer_onednn() -> None:
    """Multiply with oneDNN in this process from now on, where that is faster."""
    if is_onednn_faster():
        # PyTorch's switch is meant for speed against precision, and this is the one position that
        # reaches oneDNN. Without AMX it computes in float32 all the same; a test measures it.
        torch.set_float32_matmul_precision("medium")
