"""Time spent in nested blocks of code, and gauges, per thread; a tree as ML-Agents writes it.

with hierarchical_timer("collect"):
    ...
print(get_timer_tree())
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

TIMER_FORMAT_VERSION = "0.1.0"

FuncT = TypeVar("FuncT", bound=Callable[..., Any])


class TimerNode:
    """One block: seconds in total, how often it ran, and the blocks inside it."""

    __slots__ = ("children", "count", "is_parallel", "total")

    def __init__(self) -> None:
        self.children: dict[str, TimerNode] = {}
        self.total = 0.0
        self.count = 0
        self.is_parallel = False

    def get_child(self, name: str) -> TimerNode:
        """The block of this name inside; a new one if there is none."""
        return self.children.setdefault(name, TimerNode())

    def add_time(self, elapsed: float) -> None:
        self.count += 1
        self.total += elapsed

    def merge(
        self, other: TimerNode, root_name: str | None = None, is_parallel: bool = True
    ) -> None:
        """Add another tree to this one, or to its child `root_name`."""
        own = self.get_child(root_name) if root_name else self
        own.is_parallel = own.is_parallel or is_parallel
        own.count += other.count
        own.total += other.total
        for name, child in other.children.items():
            own.get_child(name).merge(child, is_parallel=is_parallel)


class GaugeNode:
    """The latest value of a metric, its extremes, and how often it was set."""

    __slots__ = ("_set_at", "count", "max_value", "min_value", "value")

    def __init__(self, value: float) -> None:
        self.value = self.min_value = self.max_value = value
        self.count = 1
        self._set_at = time.time()

    def update(self, new_value: float) -> None:
        self.merge(GaugeNode(new_value))

    def merge(self, other: GaugeNode) -> None:
        """Combine both: the value that was set later counts."""
        if other._set_at >= self._set_at:
            self.value, self._set_at = other.value, other._set_at
        self.min_value = min(self.min_value, other.min_value)
        self.max_value = max(self.max_value, other.max_value)
        self.count += other.count

    def as_dict(self) -> dict[str, float]:
        return {
            "value": self.value,
            "min": self.min_value,
            "max": self.max_value,
            "count": self.count,
        }


class TimerStack:
    """The open blocks of one thread, and its gauges."""

    __slots__ = ("gauges", "metadata", "root", "stack", "start_time")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.root = TimerNode()
        self.stack = [self.root]
        self.start_time = time.perf_counter()
        self.gauges: dict[str, GaugeNode] = {}
        self.metadata: dict[str, str] = {
            "timer_format_version": TIMER_FORMAT_VERSION,
            "start_time_seconds": str(int(time.time())),
            "python_version": sys.version,
            "command_line_arguments": " ".join(sys.argv),
        }

    def push(self, name: str) -> TimerNode:
        self.stack.append(self.stack[-1].get_child(name))
        return self.stack[-1]

    def pop(self) -> None:
        self.stack.pop()

    def get_root(self) -> TimerNode:
        """The whole time since the start."""
        # The root never ends, so its time is counted at each call of this.
        self.root.total = time.perf_counter() - self.start_time
        self.root.count = 1
        return self.root

    def get_timing_tree(self, node: TimerNode | None = None) -> dict[str, Any]:
        """A block as a dictionary; the root also has gauges and metadata."""
        tree: dict[str, Any] = {}
        if node is None:
            node = self.get_root()
            tree["name"] = "root"
            if self.gauges:
                tree["gauges"] = {name: g.as_dict() for name, g in self.gauges.items()}
            self.metadata["end_time_seconds"] = str(int(time.time()))
            tree["metadata"] = self.metadata
        tree |= {"total": node.total, "count": node.count}
        if node.is_parallel:
            tree["is_parallel"] = True
        children = {
            n: self.get_timing_tree(child) for n, child in node.children.items()
        }
        # Blocks that ran in parallel may add up to more than the block around them.
        inside = sum(child["total"] for child in children.values())
        tree["self"] = max(0.0, node.total - inside)
        if children:
            tree["children"] = children
        return tree

    def set_gauge(self, name: str, value: float) -> None:
        """Set a gauge; NaN is ignored."""
        if math.isnan(value):
            return
        if name in self.gauges:
            self.gauges[name].update(value)
        else:
            self.gauges[name] = GaugeNode(value)

    def add_metadata(self, key: str, value: str) -> None:
        self.metadata[key] = value


_of_threads: dict[int, TimerStack] = {}


def _own(timer_stack: TimerStack | None) -> TimerStack:
    """The stack that was passed, or that of this thread."""
    return timer_stack or _of_threads.setdefault(threading.get_ident(), TimerStack())


def get_timer_stack_for_thread(t: threading.Thread) -> TimerStack | None:
    """The stack of a thread that has used a timer."""
    return None if t.ident is None else _of_threads.get(t.ident)


@contextmanager
def hierarchical_timer(
    name: str, timer_stack: TimerStack | None = None
) -> Iterator[TimerNode]:
    """Measure a block inside the block that is open."""
    stack = _own(timer_stack)
    node = stack.push(name)
    start = time.perf_counter()
    try:
        yield node
    finally:
        node.add_time(time.perf_counter() - start)
        stack.pop()


def timed(func: FuncT) -> FuncT:
    """Measure every call of a function, under its qualified name."""

    @functools.wraps(func)
    def measured(*args: Any, **kwargs: Any) -> Any:
        with hierarchical_timer(func.__qualname__):
            return func(*args, **kwargs)

    return measured  # type: ignore[return-value]


def set_gauge(name: str, value: float, timer_stack: TimerStack | None = None) -> None:
    _own(timer_stack).set_gauge(name, value)


def merge_gauges(
    gauges: dict[str, GaugeNode], timer_stack: TimerStack | None = None
) -> None:
    """Combine gauges with those of a stack."""
    own = _own(timer_stack).gauges
    for name, gauge in gauges.items():
        if name in own:
            own[name].merge(gauge)
        else:
            own[name] = gauge


def add_metadata(key: str, value: str, timer_stack: TimerStack | None = None) -> None:
    _own(timer_stack).add_metadata(key, value)


def get_timer_tree(timer_stack: TimerStack | None = None) -> dict[str, Any]:
    """The whole tree as a dictionary."""
    return _own(timer_stack).get_timing_tree()


def get_timer_root(timer_stack: TimerStack | None = None) -> TimerNode:
    """The whole tree."""
    return _own(timer_stack).get_root()


def reset_timers(timer_stack: TimerStack | None = None) -> None:
    _own(timer_stack).reset()
