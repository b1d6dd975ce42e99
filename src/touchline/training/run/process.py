"""Settings of the whole process while a run trains: device, signals, threads, the allocator.

The contexts put back what they found, for a program that trains again; `prefer_onednn` stays.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from touchline.errors import UsageError
from touchline.interrupts import end_at_another, handled, raise_once
from touchline.operating_systems import (
    STOP_SIGNALS,
    glibc_mallopt,
    leave_closed_terminal,
)
from touchline.training.config.settings import BehaviorConfig, RunConfig

# Parameters of glibc's `mallopt`, from its malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# What both thresholds are when a program starts (mallopt(3)), bytes.
_GLIBC_DEFAULT = 128 * 1024


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Ctrl-C and other requests to end set an event, so no step is cut in two; a second one ends
    at once.
    """
    stop = threading.Event()
    asked = False

    def request_stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:  # the event may not be set yet, and its lock is held
            end_at_another(number, frame)
            return
        asked = True
        leave_closed_terminal()
        stop.set()

    with handled(request_stop, *STOP_SIGNALS):
        yield stop


@contextmanager
def interruptible() -> Iterator[None]:
    """Within `stop_on_signals`: the first signal already raises, where there is nothing to save."""
    with handled(raise_once, *STOP_SIGNALS):
        yield


@contextmanager
def tuned_process(config: RunConfig) -> Iterator[None]:
    """One torch thread, fast matrices, freed memory is kept, and threads take turns often."""
    threads, switch_s = torch.get_num_threads(), sys.getswitchinterval()
    precision = torch.get_float32_matmul_precision()
    # Networks of this size get slower with more threads (`docs/benchmarks.md`).
    torch.set_num_threads(1)
    # Instead of 5 ms, which are several decisions: a world's thread waits for its turn after each
    # answer of a player, while another one learns (`threaded: true`).
    sys.setswitchinterval(0.0001)
    if is_onednn_worthwhile(config):
        prefer_onednn()
    try:
        with kept_memory():
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        sys.setswitchinterval(switch_s)
        torch.set_num_threads(threads)


@contextmanager
def kept_memory() -> Iterator[None]:
    """Large freed blocks stay with the process for the next update."""
    # glibc returns them to the system, and getting them again took up to a third of the time of
    # learning (`docs/lab_log.md`).
    mallopt = glibc_mallopt()
    if mallopt is None:
        yield
        return
    # The largest int: the top of the heap is never returned.
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    # Blocks below 64 MiB come from the heap, which keeps them, and not from mmap, which never
    # does. Larger ones, of which each update needs a few, would leave holes between them in which
    # the next ones, a little larger, find no place: hundreds of megabytes in every hour.
    mallopt(_MMAP_THRESHOLD, 2**26)
    try:
        yield
    finally:
        mallopt(_TRIM_THRESHOLD, _GLIBC_DEFAULT)
        mallopt(_MMAP_THRESHOLD, _GLIBC_DEFAULT)


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


# On AMD's processors MKL leaves more than half of what AVX-512 offers unused. oneDNN is twice as
# fast, but each of its calls costs some 10 µs more (`docs/benchmarks.md`, "oneDNN and MKL"). Both
# compute in float32.
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


def prefer_onednn() -> None:
    """Multiply with oneDNN in this process from now on, where that is faster."""
    if is_onednn_faster():
        # PyTorch's switch is meant for speed against precision, and this is the one position that
        # reaches oneDNN. Without AMX it computes in float32 all the same; a test measures it.
        torch.set_float32_matmul_precision("medium")
