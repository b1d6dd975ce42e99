"""The import paths of ML-Agents' Python package `mlagents_envs`, version 1.1.0.

Code that was written for it runs after one replacement, `mlagents_envs` ->
`touchline.adapters.mlagents_envs`:

    from touchline.adapters.mlagents_envs.environment import UnityEnvironment
    from touchline.adapters.mlagents_envs.base_env import ActionTuple

Programs that cannot be edited, and libraries that import `mlagents_envs` themselves, get it after
`take_the_name()`, or with `python -m touchline.adapters.mlagents_envs script.py`.

What differs from the original on purpose is in `docs/unity.md`.
"""

import contextlib
import pkgutil
import sys
from importlib import import_module

__version__ = "1.1.0"
"""The version of `mlagents_envs` whose names these are."""


def take_the_name() -> None:
    """From now on, `import mlagents_envs` in this process means this package.

    Modules whose libraries (Gymnasium, PettingZoo) are not installed are left out.
    """
    sys.modules["mlagents_envs"] = sys.modules[__name__]
    for found in pkgutil.walk_packages(__path__, f"{__name__}."):
        # Importing that one would run it.
        if found.name.endswith("__main__"):
            continue
        with contextlib.suppress(ImportError):
            import_module(found.name)
    # Not from the walk above: some modules have no file.
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{__name__}."):
            sys.modules["mlagents_envs" + name.removeprefix(__name__)] = module
