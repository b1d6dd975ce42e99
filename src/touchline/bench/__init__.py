"""Speed, measured compared with a peer in the same run.

Such ratios hold on noisy machines; absolute times do not.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from touchline.errors import UsageError
from touchline.extras import explain_missing
from touchline.flag import Flag
from touchline.log import Log
from touchline.plugins import imported_from_here

BENCHES = {
    "scenes": "touchline.bench.scenes",
    "adapters": "touchline.bench.adapters",
    "learn": "bench.learn",
    "teams": "bench.teams",
    "sac": "bench.sac",
    "wire": "bench.wire",
}
"""What `touchline bench WHAT` measures -> the module with its function `bench_WHAT`. Those that
compare with the official packages need a clone of the repository, whose scripts and Python with
these packages they use."""


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
    if scenes and what in ("wire", "teams"):
        raise UsageError(
            f"--scene is not for the benchmark {what}, which has one scene"
        )
    if policies is not None and what != "scenes":
        raise UsageError(f"--policies is for the benchmark scenes, not for {what}")
    place = BENCHES[what]
    if place.startswith("bench.") and not Path("bench", f"{what}.py").is_file():
        raise UsageError(
            f"the benchmark {what} compares with other packages, which a clone of the repository "
            "sets up; run it there"
        )
    with explain_missing(f"the benchmark {what}"):
        bench = imported_from_here(f"{place}:bench_{what}")
    # A benchmark without SIZES takes any scene.
    known = getattr(sys.modules[place], "SIZES", scenes)
    if unknown := [scene for scene in scenes if scene not in known]:
        raise UsageError(
            f"the benchmark {what} has no sizes of {unknown[0]}; known: {', '.join(known)}"
        )
    options: dict[str, Any] = {}
    if policies is not None:
        options["policies"] = {path.stem: path for path in policies.glob("*.onnx")}
        if not options["policies"]:
            raise UsageError(
                f"--policies {policies}: no *.onnx there; expected files such as PushBlock.onnx"
            )
    figures: dict[str, Any] = bench(scenes or None, log, **options)
    return figures
