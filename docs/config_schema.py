"""The JSON Schema of the configuration, for editors."""

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from touchline.training.algorithms.settings import (
    ALGORITHMS,
    HyperparameterSettings,
    algorithm_settings,
)
from touchline.training.config.settings import BehaviorConfig, RunConfig
from touchline.training.config.values import Part, meanings
from touchline.training.rewards.settings import (
    REWARD_SIGNALS,
    SignalSettings,
    signal_settings,
)


def json_schema() -> dict[str, Any]:
    """The JSON Schema that editors check and complete a YAML with.

    It holds the algorithms and reward signals that come with Touchline.
    """
    algorithms = {name: algorithm_settings(name) for name in ALGORITHMS}
    signals = {name: signal_settings(name) for name in REWARD_SIGNALS}
    models: list[type[Part]] = [RunConfig, *algorithms.values(), *signals.values()]
    _, schema = models_json_schema([(model, "validation") for model in models])
    blocks: dict[str, Any] = schema["$defs"]

    # The settings of algorithms and signals are looked up when a file is read, so the schema of the
    # model names their empty bases instead.
    for base in (HyperparameterSettings, SignalSettings):
        blocks.pop(base.__name__, None)
    keys = blocks[BehaviorConfig.__name__]["properties"]
    keys["trainer_type"]["enum"] = list(algorithms)
    keys["hyperparameters"] = {
        "anyOf": [_reference(model) for model in algorithms.values()]
    }
    keys["reward_signals"] = {
        "type": "object",
        "properties": {name: _reference(model) for name, model in signals.items()},
        "additionalProperties": False,
        "minProperties": 1,
    }

    for part in _parts_below(Part):
        if part.__name__ not in blocks:
            continue
        for key, meaning in meanings(part).items():
            blocks[part.__name__]["properties"][key]["description"] = meaning
    whole: dict[str, Any] = blocks.pop(RunConfig.__name__)
    return {"$defs": blocks} | whole | {"title": "Touchline training configuration"}


def _reference(model: type[Part]) -> dict[str, str]:
    return {"$ref": f"#/$defs/{model.__name__}"}


def _parts_below(part: type[Part]) -> list[type[Part]]:
    below = []
    for subclass in part.__subclasses__():
        below += [subclass, *_parts_below(subclass)]
    return below


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2))
