"""A written model next to its policy, in ONNX Runtime: both must do the same."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime import InferenceSession
from torch import Tensor

from touchline.errors import UsageError, shortened
from touchline.policies.files.onnx_in import draw_choices_outside, open_session
from touchline.policies.files.onnx_policy import (
    CHOICES,
    CONTINUOUS,
    DETERMINISTIC,
    LOGITS,
    MEMORY,
    Acting,
    Results,
    changed,
    unchanged,
)

HALF = 4
"""Half of the rows are of each kind; models are traced with another number."""
TOLERANCE = 1e-4
"""The share of a row's usual size that may differ; float32 in another order is off by 1e-6."""


def require_alike(policy: Acting, model: onnx.ModelProto, path: Path) -> None:
    """Raises a UsageError where random observations give other results."""
    # A copy: `draw_choices_outside` changes the graph, which is still to be written.
    own = onnx.load_model_from_string(model.SerializeToString())
    choices = draw_choices_outside(own.graph)
    session = open_session(path, own)
    names = [o.name for o in session.get_outputs()]
    buffers = {name: buffer.clone() for name, buffer in policy.named_buffers()}
    with unchanged(policy), torch.no_grad():
        inputs, values, results = _both(policy, session, has_signs=True)
        again = policy(*inputs)
        for name in changed(policy, buffers):
            raise UsageError(
                f"the policy changes its buffer {name} while it acts, a file cannot; expected one "
                "that stays as it is in eval mode, or a `memory`"
            )
        original = _original(policy, inputs)
    found: dict[str, Any] = dict(zip(names, values, strict=True))
    if choices:
        found[LOGITS] = np.concatenate([found[name] for name in choices], axis=1)
    outputs = {MEMORY: "recurrent_out", CONTINUOUS: "continuous_actions"}
    outputs[DETERMINISTIC] = "deterministic_continuous_actions"
    is_drawn = any(node.op_type == "RandomNormalLike" for node in own.graph.node)
    # What is drawn differs each time; its mode is compared.
    for name in results.keys() - ({CONTINUOUS} if is_drawn else set()):
        expected = results[name].numpy(force=True)
        if not torch.equal(results[name].nan_to_num(), again[name].nan_to_num()):
            raise UsageError(
                f"the policy gives other {name} for the same observations; expected one that "
                f"depends on them alone, and on chance only in `{CONTINUOUS}` next to "
                f"`{DETERMINISTIC}`"
            )
        # Sharpened ones are compared as they were before, with differences as they were.
        sharpness = policy.sharpness if name == LOGITS else 1.0
        expected = expected / sharpness
        if name in (CONTINUOUS, DETERMINISTIC):
            expected = expected.clip(-1.0, 1.0)
        if np.isnan(expected).any(axis=1).all():
            raise UsageError(f"the policy's {name} are not numbers (NaN)")
        size = np.median(np.abs(expected), axis=1, keepdims=True)
        # `fmax` passes over the NaN that a row of NaN has as its size.
        most = TOLERANCE * np.fmax(size, 1.0)
        value = found[outputs.get(name, name)].reshape(expected.shape) / sharpness
        # NaN equals NaN: a root of what is negative in half of the rows is alike in both.
        if not np.isclose(value, expected, TOLERANCE, most, equal_nan=True).all():
            raise UsageError(
                f"{name} of the file and of the policy differ; expected a policy that depends on "
                "nothing but its inputs, not on the number of agents"
            )
        found[name] = value
    _require_original(policy, original, found)


def _both(
    policy: Acting, session: InferenceSession, *, has_signs: bool
) -> tuple[list[Tensor], list[Any], Results]:
    """Random inputs as policies take them, what the session makes of them, and the policy."""
    inputs = {}
    for given in session.get_inputs():
        shape = (HALF, *given.shape[1:])
        # Some are positive, for policies that take roots; some have all signs.
        is_free = len(shape) == 2 and has_signs
        drawn = torch.randn(shape) if is_free else torch.rand(shape)
        inputs[given.name] = torch.cat([torch.rand(shape), drawn])
    if "action_masks" in inputs:
        # Random numbers are no masks.
        inputs["action_masks"].fill_(1.0)
    # Unity's memory has an axis of length 1, which policies do not see.
    tensors = [x[:, 0] if n == "recurrent_in" else x for n, x in inputs.items()]
    feeds = {name: x.numpy() for name, x in inputs.items()}
    try:
        values = session.run(None, feeds)
        return tensors, values, policy(*tensors)
    except Exception as error:  # whatever the policy, or the session, raises
        # One that looks its observations up in a table takes no negative ones.
        if has_signs:
            return _both(policy, session, has_signs=False)
        reason = shortened(f"{type(error).__name__}: {error}")
        raise UsageError(
            f"the policy fails for random observations from 0 to 1: {reason}"
        ) from error


def _original(policy: Acting, inputs: Sequence[Tensor]) -> Results:
    try:
        return policy.original(*inputs)
    # Some modules may need more than an observation, such as a count of steps. What the file does
    # was compared with `policy` already, so it is written.
    except Exception as error:
        reason = shortened(f"{type(error).__name__}: {error}")
        warnings.warn(
            f"the file was not compared with what the policy's own library does: {reason}",
            # The line that called `export_policy`.
            stacklevel=4,
        )
        return {}


def _require_original(policy: Acting, original: Results, found: dict[str, Any]) -> None:
    """Raises a UsageError where the file acts otherwise than the policy's own library."""
    differs = False
    if DETERMINISTIC in original:
        own = original[DETERMINISTIC].numpy(force=True).clip(-1.0, 1.0)
        differs = not np.allclose(
            found[DETERMINISTIC], own, atol=TOLERANCE, equal_nan=True
        )
    if CHOICES in original:
        sizes = list(policy.spec.action_spec.discrete_branches)
        branches = torch.split(torch.from_numpy(found[LOGITS]), sizes, dim=1)
        taken = torch.split(original[CHOICES].long(), 1, dim=1)
        for logits, choice in zip(branches, taken, strict=True):
            # Of two that are equally likely, either may be taken.
            behind = logits.amax(dim=1, keepdim=True) - logits.gather(1, choice)
            differs |= bool((behind > TOLERANCE).any())
    if differs:
        raise UsageError(
            "the file acts otherwise than the policy does in its own library; expected modules "
            "that do nothing but what their parts in `to_unity` are read for"
        )
