"""Files that a configuration names are checked before anything heavy starts."""

from collections.abc import Iterator

from touchline.errors import UsageError
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.demonstrations import read_demonstration
from touchline.training.warm_start import check_first_checkpoints


def check_files(config: RunConfig) -> None:
    """Raise a UsageError for a first checkpoint that is missing, or, with its place, for a
    `demo_path` that cannot be read.

    Whether a demonstration fits its behavior shows once the world does.
    """
    check_first_checkpoints(config)
    for name, behavior in config.behaviors.items():
        for key, path in _demo_paths(behavior):
            try:
                read_demonstration(path)
            except UsageError as error:
                raise UsageError(f"{config.place(name, key)}: {error}") from None


def _demo_paths(behavior: BehaviorConfig) -> Iterator[tuple[str, str]]:
    """Dotted key within the block, and the path there."""
    if behavior.behavioral_cloning is not None:
        yield "behavioral_cloning.demo_path", behavior.behavioral_cloning.demo_path
    for name, signal in behavior.reward_signals.items():
        path = getattr(signal, "demo_path", None)
        if path is not None:
            yield f"reward_signals.{name}.demo_path", path
