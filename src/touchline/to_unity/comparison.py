"""A written model next to its policy, in ONNX Runtime: both must do the same."""

from pathlib import Path

import numpy as np
import onnx
import torch

from touchline.errors import UsageError
from touchline.policies.files.onnx_in import draw_choices_outside, open_session
from touchline.policies.files.onnx_policy import (
    CONTINUOUS,
    DETERMINISTIC,
    LOGITS,
    MEMORY,
    Acting,
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
    inputs = {}
    buffers = {name: buffer.clone() for name, buffer in policy.named_buffers()}
    with unchanged(policy), torch.no_grad():
        for given in session.get_inputs():
            shape = (HALF, *given.shape[1:])
            # Some are positive, for policies that take roots; some have all signs.
            drawn = torch.randn(shape) if len(shape) == 2 else torch.rand(shape)
            inputs[given.name] = torch.cat([torch.rand(shape), drawn])
        if "action_masks" in inputs:
            # Random numbers are no masks.
            inputs["action_masks"].fill_(1.0)
        names = [o.name for o in session.get_outputs()]
        values = session.run(names, {name: x.numpy() for name, x in inputs.items()})
        found = dict(zip(names, values, strict=True))
        # Unity's memory has an axis of length 1, which policies do not see.
        tensors = [x[:, 0] if n == "recurrent_in" else x for n, x in inputs.items()]
        results = policy(*tensors)
        for name in changed(policy, buffers):
            raise UsageError(
                f"the policy changes its buffer {name} while it acts, a file cannot; expected one "
                "that stays as it is in eval mode, or a `memory`"
            )
    if choices:
        found[LOGITS] = np.concatenate([found[name] for name in choices], axis=1)
    outputs = {MEMORY: "recurrent_out", CONTINUOUS: "continuous_actions"}
    outputs[DETERMINISTIC] = "deterministic_continuous_actions"
    is_drawn = any(node.op_type == "RandomNormalLike" for node in own.graph.node)
    # What is drawn differs each time; its mode is compared.
    for name in results.keys() - ({CONTINUOUS} if is_drawn else set()):
        expected = results[name].numpy(force=True)
        if name in (CONTINUOUS, DETERMINISTIC):
            expected = expected.clip(-1.0, 1.0)
        if np.isnan(expected).any(axis=1).all():
            raise UsageError(f"the policy's {name} are not numbers (NaN)")
        size = np.median(np.abs(expected), axis=1, keepdims=True)
        # `fmax` passes over the NaN that a row of NaN has as its size.
        most = TOLERANCE * np.fmax(size, 1.0)
        value = found[outputs.get(name, name)].reshape(expected.shape)
        # NaN equals NaN: a root of what is negative in half of the rows is alike in both.
        if not np.isclose(value, expected, TOLERANCE, most, equal_nan=True).all():
            raise UsageError(
                f"{name} of the file and of the policy differ; expected a policy that depends on "
                "nothing but its inputs, not on the number of agents, and on chance only in "
                f"`{CONTINUOUS}` beside `{DETERMINISTIC}`"
            )
