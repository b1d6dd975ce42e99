"""Any policy as the ONNX file that Unity loads: the front door, which finds out whose policy it is.

No library is imported for this: whoever hands over a policy has imported its library.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from touchline.errors import UsageError, shortened
from touchline.policies.files.onnx_out import build_onnx
from touchline.policies.files.onnx_policy import Acting, NetworkActor, build_policy
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.network import Network
from touchline.policies.policy import require_fit
from touchline.specs import BehaviorSpec
from touchline.to_unity.comparison import require_alike
from touchline.whole import require_writable, write_whole


def export_policy(
    policy: Any, behavior_spec: BehaviorSpec, path: str | os.PathLike[str]
) -> Path:
    """Write any policy as the ONNX file that Unity loads.

    Parameters
    ----------
    policy
        A model of Stable-Baselines3 or sb3-contrib, an actor of TorchRL, an agent in the manner of
        CleanRL, a network of Touchline, or any torch module; see `docs/any_policy.md`.
    behavior_spec
        What the agents observe and do, such as `touchline.make("3DBall").behaviors[...]`.
    path
        The ONNX file to write.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    UsageError
        The policy does not fit the behavior, or has an operator that Unity's importer does not
        know: the line names the operator and its layer. Or the file would do something else.
    """
    target = Path(path) if isinstance(path, str | os.PathLike) else Path(str(path))
    if target.suffix != ".onnx" or target.is_dir():
        raise UsageError(f"{target}: expected a file NAME.onnx")
    if not isinstance(behavior_spec, BehaviorSpec):
        raise UsageError(
            "behavior_spec: expected a BehaviorSpec, one of touchline.make(...).behaviors; "
            f"got {behavior_spec!r}"
        )
    if behavior_spec.action_spec.staged:
        raise UsageError(
            "Unity has no actions whose later branches depend on the first"
        )
    require_writable(target)
    if isinstance(policy, Network):
        require_fit("the network", policy.spec, "the behavior", behavior_spec)
        model = build_onnx(policy)
        # The graph of the standard network is written node by node, and held to it by tests.
        if type(policy) is not ActorCritic:
            require_alike(NetworkActor(policy), model, target)
    else:
        acting = _acting(policy, behavior_spec.observed)
        model = build_policy(acting)
        require_alike(acting, model, target)
    try:
        write_whole(target, model.SerializeToString())
    except OSError as error:
        raise UsageError(f"{target}: {error.strerror}") from error
    return target


def _acting(policy: Any, spec: BehaviorSpec) -> Acting:
    """The policy as a module of one form."""
    # All base classes, because users derive their own from those of a library.
    libraries = {kind.__module__.partition(".")[0] for kind in type(policy).__mro__}
    if "stable_baselines3" in libraries:
        from touchline.to_unity.from_sb3 import from_sb3

        return from_sb3(policy, spec)
    # TorchRL's modules are those of tensordict.
    if "tensordict" in libraries:
        from touchline.to_unity.from_torchrl import FromTorchRL

        return FromTorchRL(policy, spec)
    if isinstance(policy, nn.Module):
        if any(isinstance(part, torch.jit.ScriptModule) for part in policy.modules()):
            raise UsageError("torch.jit: expected the module before it was compiled")
        from touchline.to_unity.from_module import from_module

        return from_module(policy, spec)
    raise UsageError(
        "expected a torch module, or a policy of SB3, TorchRL or CleanRL; got "
        f"{shortened(repr(policy))}"
    )
