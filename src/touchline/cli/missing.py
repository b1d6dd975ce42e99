"""All that a command lacks in one line, where the first missing import names one extra."""

import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from touchline.extras import EXTRA_OF_MODULE
from touchline.operating_systems import SYSTEM
from touchline.policies.files.run_layout import CHECKPOINT, MODEL, has_runs
from touchline.scenes import SCENES

EXTRAS_OF_VERB = {
    "build": ("scenes",),
    "compare": ("compare",),
    "exploit": ("train",),
    "export": ("train",),
    "plan": ("train",),
    "plot": ("train",),
    "pull": ("hub",),
    "push": ("hub",),
    "train": ("train",),
    "tune": ("train", "tune"),
    "view": ("view",),
}
"""Command -> what it needs whatever its arguments are."""
EXTRAS_OF_FLAG = {"--cluster": "ray", "--picture": "train", "--wandb": "wandb"}
EXTRAS_OF_ENDING = {".mp4": "video", MODEL: "onnx", CHECKPOINT: "train"}


def with_all_extras(text: str, arguments: Sequence[str]) -> str:
    """A line that says which extra to install, with all others that the command will miss."""
    found = re.search(r"touchline\[(\w+)\]", text)
    if found is None:
        return text
    wanted = [found[1], *_extras_of(arguments)]
    missing = [extra for extra in dict.fromkeys(wanted) if not _is_installed(extra)]
    # `train` brings `onnx`.
    missing = [e for e in missing if e != "onnx" or "train" not in missing]
    return text.replace(found[0], f"touchline[{','.join(missing or [found[1]])}]")


def _extras_of(arguments: Sequence[str]) -> Iterator[str]:
    """What a command with these arguments needs, as far as they say it."""
    yield from EXTRAS_OF_VERB.get(arguments[0], ())
    for argument in arguments[1:]:
        # As in --env=3DBall and in --policy 3DBall=results/first.
        for part in argument.split("="):
            # A preset such as 3DBall_sac has its own scene.
            if part.partition("_")[0] in SCENES:
                yield "scenes"
            if part.startswith("microrts:"):
                yield "microrts"
            if part in EXTRAS_OF_FLAG:
                yield EXTRAS_OF_FLAG[part]
            if (ending := Path(part).suffix) in EXTRAS_OF_ENDING:
                yield EXTRAS_OF_ENDING[ending]
            if has_runs(part):
                yield "onnx"


def _is_installed(extra: str) -> bool:
    modules = [module for module, own in EXTRA_OF_MODULE.items() if own == extra]
    if SYSTEM != "win32" and "distlib" in modules:
        modules.remove("distlib")  # for Windows alone
    return all(find_spec(module) is not None for module in modules)
