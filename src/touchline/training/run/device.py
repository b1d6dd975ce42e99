"""Which device a run's networks are on."""

import torch

from touchline.errors import UsageError
from touchline.training.config.settings import RunConfig


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
