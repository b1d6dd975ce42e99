"""Other libraries' views of one environment; the scenes by name, as in
`from mlagents_envs.envs import StrikersVsGoalie` (3DBall is `ThreeDBall`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from touchline.adapters.mlagents_envs.registry import default_registry

if TYPE_CHECKING:
    from touchline.adapters.mlagents_envs.envs.pettingzoo_env_factory import (
        PettingZooEnvFactory,
    )


def __getattr__(name: str) -> PettingZooEnvFactory:
    # A name in Python cannot begin with a digit.
    env_id = name.replace("Three", "3") if name.startswith("Three") else name
    if env_id not in default_registry:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Here, so that the wrapper for Gym does not need PettingZoo.
    from touchline.adapters.mlagents_envs.envs.pettingzoo_env_factory import (
        PettingZooEnvFactory,
    )

    return PettingZooEnvFactory(env_id)
