"""What `touchline view` costs and brings, counted in a real page: 16 SoccerTwos fields.

    python bench/view.py --policy SoccerTwos.onnx [--minutes 30] [--browsers 10] [--only memory]

Needs Chromium and its driver, as `tests/viewer` does. Simulation, policy and server are this
process, which is bound to one core; the browser has the others. Figures, one line each:

- updates: pose updates per second that arrive in the page, of the moving mesh that gets the most,
  counted in the page; drawn: frames per second with a WebGL draw call, and what draws them;
- first: seconds from opening the address to the first such frame;
- closed: speed of the simulation without an open page beside slots and policies alone, in turns;
- memory: of this process while a page is open, each minute, time machine included;
- browsers: N pages at once, updates per second in each, and the simulation's speed.
"""

# ruff: noqa: E402 - threads are set before NumPy loads, and the browser's helpers are in tests
from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.viewer.browser import open_browser

from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.policies.loading import load_policies
from touchline.viewer.opening import ViewOptions, opened
from touchline.viewer.scene_simulation import SceneSimulation

RECIPE = EnvRecipe("scene", "SoccerTwos", num_areas=16, options={"num_threads": 1})
TURN_S = 1.0
"""Of processor time, which other jobs change little."""
COUNTER = """
(() => {
  const counts = window.touchlineCounts = {
    updates: {}, drawn: 0, first: null, renderer: ''};
  const Plain = window.Worker;
  window.Worker = class extends Plain {
    constructor(...given) {
      super(...given);
      this.addEventListener('message', ({data}) => {
        for (const message of data.messages ?? []) {
          const name = message.name ?? '';
          if (!name.startsWith('/areas/moving') || !message.updates?.batched_positions) continue;
          counts.updates[name] = (counts.updates[name] ?? 0) + 1;
        }
      });
    }
  };
  let isDrawing = false;
  const gl = WebGL2RenderingContext.prototype;
  for (const name of ['drawElements', 'drawElementsInstanced', 'drawArrays',
                      'drawArraysInstanced']) {
    const plain = gl[name];
    gl[name] = function (...given) {
      isDrawing = true;
      if (!counts.renderer) {
        const about = this.getExtension('WEBGL_debug_renderer_info');
        counts.renderer = this.getParameter(about?.UNMASKED_RENDERER_WEBGL ?? this.RENDERER);
      }
      return plain.apply(this, given);
    };
  }
  const tick = () => {
    if (isDrawing) {
      counts.drawn += 1;
      if (counts.first === null && Object.keys(counts.updates).length)
        counts.first = performance.now() / 1000;
    }
    isDrawing = false;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
})()
"""
"""Counts in the page: viser's socket is in a worker, whose messages the page gets."""


def main() -> None:
    """Measure what was chosen, and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--policy", default="random")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each count")
    parser.add_argument(
        "--turns", type=int, default=20, help="of each side of `closed`"
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="of `memory`")
    parser.add_argument("--browsers", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    for name in given.only:
        PARTS[name](given)


def page_figures(given: argparse.Namespace) -> None:
    """Updates, drawn frames, first picture."""
    with open_browser((1280, 800)) as browser, _all_areas(given.policy) as page:
        _prepare(browser)
        browser.get(f"http://127.0.0.1:{page.port}")
        _wait(lambda: _counts(browser)["first"] is not None)
        before, begin = _counts(browser), time.monotonic()
        played = page.simulation.time_s()
        time.sleep(given.seconds)
        after, seconds = _counts(browser), time.monotonic() - begin
        speed = (page.simulation.time_s() - played) / seconds
    drawn = (after["drawn"] - before["drawn"]) / seconds
    print(f"updates: {_most(before, after) / seconds:.1f} a second in the page")
    print(f"         at {speed:.2f} times natural speed")
    print(f"drawn:   {drawn:.1f} frames a second by {after['renderer']}")
    print(f"first:   {after['first']:.1f} s after the address was opened")


def closed_figures(given: argparse.Namespace) -> None:
    """The simulation without a page beside no viewer, in turns."""
    with make(RECIPE) as env, _all_areas(given.policy) as page:
        slots = Slots(env)
        rows = slots.reset(0)
        actors = load_policies([given.policy], slots.behaviors)
        simulation: SceneSimulation = page.simulation
        simulation.order("speed", lambda: simulation.set_speed(float("inf")))
        _pause(simulation)
        ratios, speeds = [], []
        for turn in range(given.turns + 2):
            clock, begin = env.scene.academy.clock, time.process_time()
            while time.process_time() - begin < TURN_S:
                rows = slots.step(
                    {name: actors[name].act(row) for name, row in rows.items()}
                )
            plain = (env.scene.academy.clock - clock) / (time.process_time() - begin)
            viewed = _turn(simulation)
            if turn >= 2:  # the first compile and fill caches
                ratios.append(viewed / plain)
                speeds.append(plain)
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"closed:  {middle:.3f} of the speed without a viewer (quartiles {low:.3f} to {high:.3f} "
        f"of {len(ratios)} pairs, processor time; {statistics.median(speeds):,.0f} steps a second)"
    )


def memory_figures(given: argparse.Namespace) -> None:
    """Memory of this process with an open page."""
    with open_browser((400, 300)) as browser, _all_areas(given.policy) as page:
        browser.get(f"http://127.0.0.1:{page.port}")
        _wait(lambda: page.simulation.is_watched)
        end = time.monotonic() + 60.0 * given.minutes
        begin = time.monotonic()
        while time.monotonic() < end:
            kept = page.simulation.history.num_bytes / 2**20
            minutes = (time.monotonic() - begin) / 60.0
            print(
                f"memory:  {_resident_mib():.0f} MiB after {minutes:.1f} min, of which "
                f"{kept:.0f} MiB time machine",
                flush=True,
            )
            time.sleep(min(60.0, 12.0 * given.minutes))
        print(f"memory:  {_resident_mib():.0f} MiB at the end")


def browser_figures(given: argparse.Namespace) -> None:
    """Several pages at once, each a window of a browser of its own profile."""
    with open_browser((400, 300)) as browser, _all_areas(given.policy) as page:
        # Ten renderers in software would measure themselves: all is sent, little is drawn.
        page.server.scene.set_global_visibility(False)
        _prepare(browser)
        for number in range(given.browsers):
            if number:
                browser.switch_to.new_window("window")
                _prepare(browser)
            browser.get(f"http://127.0.0.1:{page.port}")
        handles = browser.window_handles
        _wait(lambda: len(page.server.get_clients()) == len(handles))
        before, begin = (
            [_counts_in(browser, handle) for handle in handles],
            time.monotonic(),
        )
        played = page.simulation.time_s()
        time.sleep(given.seconds)
        seconds = time.monotonic() - begin
        after = [_counts_in(browser, handle) for handle in handles]
        speed = (page.simulation.time_s() - played) / (time.monotonic() - begin)
    rates = [_most(b, a) / seconds for b, a in zip(before, after, strict=True)]
    print(
        f"browsers: {len(rates)} pages, {min(rates):.1f} to {max(rates):.1f} updates a second in "
        f"each, at {speed:.2f} times natural speed"
    )


@contextmanager
def _all_areas(policy: str) -> Iterator[Any]:
    """The page of all 16 fields, its process bound to one core."""
    cores = os.sched_getaffinity(0)
    with opened(RECIPE, [policy], ViewOptions(port=0)) as page:
        simulation = page.simulation
        simulation.order("areas", lambda: simulation.show_areas(tuple(range(16))))
        os.sched_setaffinity(0, {min(cores)})
        try:
            yield page
        finally:
            os.sched_setaffinity(0, cores)


def _prepare(browser: Any) -> None:
    """Let pages of this window count."""
    browser.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": COUNTER}
    )


def _counts(browser: Any) -> dict[str, Any]:
    counts: dict[str, Any] = browser.execute_script("return window.touchlineCounts")
    return counts


def _counts_in(browser: Any, handle: str) -> dict[str, Any]:
    browser.switch_to.window(handle)
    return _counts(browser)


def _most(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Updates between two counts, of the mesh that got the most."""
    return max(
        count - before["updates"].get(name, 0)
        for name, count in after["updates"].items()
    )


def _pause(simulation: SceneSimulation) -> None:
    simulation.order("play", simulation.pause)
    _wait(lambda: simulation.is_paused)


def _turn(simulation: SceneSimulation) -> float:
    """Steps per second of processor time of one turn, without the pauses at its ends."""
    academy = simulation.env.scene.academy
    clock = academy.clock
    simulation.order("play", simulation.resume)
    _wait(lambda: academy.clock > clock)
    clock, begin = academy.clock, time.process_time()
    _wait(lambda: time.process_time() - begin >= TURN_S, pause_s=0.05)
    speed = (academy.clock - clock) / (time.process_time() - begin)
    _pause(simulation)
    return speed


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _wait(
    condition: Callable[[], bool], timeout_s: float = 300.0, pause_s: float = 0.02
) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("the page did not come to that")
        time.sleep(pause_s)


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "page": page_figures,
    "closed": closed_figures,
    "memory": memory_figures,
    "browsers": browser_figures,
}
if __name__ == "__main__":
    main()
