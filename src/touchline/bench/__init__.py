"""Speed, measured compared with a peer in the same run.

Such ratios hold on noisy machines; absolute times do not.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from touchline.errors import UsageError
from touchline.extras import explain_missing
from touchline.flag import Flag
from touchline.log import Log

BENCHES = ("scenes", "learn", "teams", "sac", "wire", "adapters")
"""What `touchline bench WHAT` measures; each is a module here with a function `bench_WHAT`."""
OFFICIAL = Path("bench", "official")
"""Scripts for the Python that has the official packages. Like that Python, they are in a clone, in
which benchmarks with official tools run."""


def official_trainer(log: Log) -> str | None:
    """The Python that has `mlagents`; None, and a line that says so, where there is none."""
    python = os.environ.get("OFFICIAL_LEARN_PYTHON", ".venv-official-learn/bin/python")
    if os.access(python, os.X_OK):
        return python
    log(
        "the official trainer is not here (make interop, or OFFICIAL_LEARN_PYTHON); "
        "measuring without it"
    )
    return None


def run_bench(
    what: Annotated[str, Flag("WHAT")] = "scenes",
    scenes: Annotated[Sequence[str], Flag("--scene")] = (),
    log: Log = print,
    policies: Annotated[Path | None, Flag(metavar="DIR")] = None,
) -> dict[str, Any]:
    """Measure speed compared with other libraries; print figures as JSON.

    Parameters
    ----------
    what
        scenes, learn, teams, sac, wire or adapters
    scenes
        Only these scenes.
    log
        Gets a line for each result as it comes.
    policies
        For scenes: act with DIR/BEHAVIOR.onnx where it exists.
    """
    if what not in BENCHES:
        raise UsageError(f"no benchmark {what!r}; benchmarks: {', '.join(BENCHES)}")
    with explain_missing(f"the benchmark {what}"):
        module = importlib.import_module(f"touchline.bench.{what}")
    options: dict[str, Any] = {}
    known = getattr(module, "SIZES", scenes)
    if scenes and what in ("wire", "teams"):
        raise UsageError(
            f"--scene is not for the benchmark {what}, which has one scene"
        )
    if unknown := [scene for scene in scenes if scene not in known]:
        raise UsageError(
            f"the benchmark {what} has no sizes of {unknown[0]}; known: {', '.join(known)}"
        )
    if policies is not None:
        if what != "scenes":
            raise UsageError(f"--policies is for the benchmark scenes, not for {what}")
        options["policies"] = {path.stem: path for path in policies.glob("*.onnx")}
        if not options["policies"]:
            raise UsageError(
                f"--policies {policies}: no *.onnx there; expected files such as PushBlock.onnx"
            )
    figures: dict[str, Any] = getattr(module, f"bench_{what}")(
        scenes or None, log, **options
    )
    return figures
