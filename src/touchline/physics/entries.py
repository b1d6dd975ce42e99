"""Kernels that are called again and again with arguments of the same types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher


def entry_of(kernel: Callable[..., object], *examples: Any) -> Callable[..., object]:
    """A kernel's machine code for arguments of the types of these examples, and no others.

    numba looks at the types of all arguments at every call: with the 40 arrays of a ragdoll scene
    that takes 8 µs, and 50 µs after work that has emptied the caches, longer than the call itself
    (1 and 10 µs). Nothing notices arguments of other types here, so this is for a scene's own
    arrays, which keep their types.
    """
    # Not compiled: with NUMBA_DISABLE_JIT, or a plain function in a test.
    if not isinstance(kernel, Dispatcher):
        return kernel
    types = tuple(numba.typeof(example) for example in examples)
    kernel.compile(types)
    entry: Callable[..., object] = kernel.overloads[types].entry_point
    return entry
