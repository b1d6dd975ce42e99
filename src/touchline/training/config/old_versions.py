"""Whether a file is of ML-Agents before 0.18; `old_formats` rewrites such files."""

from collections.abc import Mapping
from typing import Any

from touchline.errors import UsageError
from touchline.training.algorithms.settings import DEFAULT_ALGORITHM
from touchline.training.config.settings import RunConfig
from touchline.training.config.yaml_tree import YamlTree

# Keys by which a flat block is recognized; today none of them stands directly in a behavior.
_FLAT = {"trainer", "use_recurrent", "batch_size", "hidden_units", "num_layers", "beta"}
# Keys that only today's blocks have.
_NESTED = {"trainer_type", "hyperparameters", "network_settings"}


def old_version(values: Mapping[str, Any]) -> str | None:
    """The versions of ML-Agents whose format these values have; None for today's."""
    if "curriculum" in values or "parameter_randomization" in values:
        return "0.17"
    # Without a trainer, today's keys may stand one block too high.
    if any("trainer" in block for block in flat_blocks(values.get("behaviors"))):
        return "0.16 to 0.17"
    if values.keys() & RunConfig.model_fields.keys():
        return None
    return "0.10 to 0.16" if flat_blocks(values) else None


def flat_blocks(around: object) -> list[Mapping[str, Any]]:
    """The blocks below this one that have settings themselves, as those of old files."""
    within = around.values() if isinstance(around, Mapping) else ()
    blocks = [block for block in within if isinstance(block, Mapping)]
    return [b for b in blocks if b.keys() & _FLAT and not b.keys() & _NESTED]


def refuse_old(tree: YamlTree) -> None:
    """Raise a UsageError for a file in an old format: what its keys are called today."""
    version = old_version(tree.values)
    if version is None:
        return
    first = next(iter(tree.values))
    today = (
        "curriculum and parameter_randomization are environment_parameters today"
        if version == "0.17"
        else "default is default_settings today, every other block stands below behaviors, and "
        f"trainer: {DEFAULT_ALGORITHM} with batch_size: 64 is trainer_type: {DEFAULT_ALGORITHM} "
        "with hyperparameters: {batch_size: 64}"
    )
    raise UsageError(
        f"{tree.place((first,))}: {first}: this file is for ML-Agents {version}; {today}; "
        f"`touchline convert {tree.shown} -o new.yaml` rewrites it"
    )
