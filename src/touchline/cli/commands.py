"""The commands: which function of the house each one is, and how its result is shown."""

from importlib.util import find_spec

from touchline.cli.generate import Verb

COMMANDS: dict[str, Verb | str] = {
    "train": Verb("touchline.training.start:train", "touchline.cli.train:train"),
    "tune": Verb("touchline.studies.tune:tune", "touchline.cli.results:tune"),
    "plan": Verb("touchline.studies.plan:plan", "touchline.cli.results:plan"),
    "eval": Verb(
        "touchline.training.evaluation:evaluate",
        "touchline.cli.results:evaluate",
        unit="episodes",
    ),
    "tournament": Verb(
        "touchline.studies.tournament:tournament",
        lines="touchline.studies.tournament:tournament_lines",
        unit="games",
    ),
    "exploit": Verb(
        "touchline.studies.exploit:exploit", "touchline.cli.results:exploit"
    ),
    "plot": Verb("touchline.studies.plot:plot", "touchline.cli.results:export"),
    "compare": Verb(
        "touchline.studies.compare:compare",
        lines="touchline.studies.compare:comparison_lines",
    ),
    "parity": Verb(
        "touchline.studies.parity:parity",
        "touchline.cli.results:parity",
        unit="episodes",
        made=("reference",),
    ),
    "play": Verb(
        "touchline.film:play",
        "touchline.cli.results:play",
        unit="pictures",
        made=("size",),
    ),
    "view": Verb(
        "touchline.viewer.opening:view", "touchline.cli.results:view", unit="pictures"
    ),
    "record": Verb(
        "touchline.training.recording:record",
        "touchline.cli.results:record",
        unit="episodes",
    ),
    "inspect": Verb(
        "touchline.envs.inspection:describe", "touchline.cli.results:inspect"
    ),
    "doctor": Verb("touchline.doctor:examine", "touchline.cli.results:doctor"),
    "build": Verb("touchline.player:build", "touchline.cli.results:build"),
    "convert": Verb(
        "touchline.training.config.old_formats:convert", "touchline.cli.results:export"
    ),
    "export": Verb(
        "touchline.policies.files.onnx_out:export", "touchline.cli.results:export"
    ),
    "distill": Verb(
        "touchline.studies.distill:distill",
        lines="touchline.studies.distill:distill_lines",
        unit="decisions",
    ),
    "push": Verb("touchline.hub:push", "touchline.cli.results:push"),
    "pull": Verb("touchline.hub:pull", "touchline.cli.results:pull"),
    "scenes": Verb("touchline.scenes:list_scenes", "touchline.cli.results:scenes"),
    "bench": Verb("touchline.bench:run_bench", "touchline.cli.results:bench"),
}
"""Command -> its verb, or "module:app" with commands of its own; imported when used."""

if find_spec("touchline.microrts") is not None:
    COMMANDS["microrts"] = "touchline.microrts.commands:app"
