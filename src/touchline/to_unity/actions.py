"""What the numbers of a policy mean, as results of `Acting.act`."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from touchline.adapters.layout import Layout
from touchline.policies.files.onnx_policy import (
    CONTINUOUS,
    DETERMINISTIC,
    FORBIDDEN,
    LOGITS,
)

Actions = dict[str, Tensor]


def drawn(mean: Tensor, std: Tensor, limit: Callable[[Tensor], Tensor]) -> Actions:
    """Continuous actions from a normal distribution, and their mode."""
    # Becomes RandomNormalLike, by which ML-Agents' own models draw, too.
    noise = torch.randn_like(mean)
    return {CONTINUOUS: limit(mean + noise * std), DETERMINISTIC: limit(mean)}


def clipped(action: Tensor) -> Tensor:
    """In [-1, 1], as worlds take it."""
    return action.clamp(-1.0, 1.0)


def certain(action: Tensor) -> Actions:
    """Continuous actions that are not drawn."""
    return {CONTINUOUS: action, DETERMINISTIC: action}


def greedy(values: Tensor, masks: Tensor | None) -> Actions:
    """The choice of the highest value among those allowed, of one branch."""
    # Of large values, rounding alone would show behind them; by the best one's size, because the
    # policy itself may forbid choices by values far below.
    values = values / (1.0 + values.amax(dim=1, keepdim=True).abs())
    if masks is not None:
        values = values - (1.0 - masks) * FORBIDDEN
    # The best one has the logit 0, so that drawing finds nothing else.
    behind = values - values.amax(dim=1, keepdim=True)
    return {LOGITS: behind * FORBIDDEN}


def lstm_step(lstm: nn.LSTM, features: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """One step of a layered LSTM whose states are one vector [B, M] for each agent."""
    parts = memory.view(-1, 2, lstm.num_layers, lstm.hidden_size)
    # Each [layers, B, H], which is how torch's LSTM takes its states.
    hidden, cell = parts.permute(1, 2, 0, 3)
    axis = 1 if lstm.batch_first else 0
    before = hidden.contiguous(), cell.contiguous()
    latent, after = lstm(features.unsqueeze(axis), before)
    flat = torch.stack(after).permute(2, 0, 1, 3).flatten(1)
    return latent.squeeze(axis), flat


def arranged(layout: Layout, obs: Sequence[Tensor]) -> list[Tensor]:
    """The observations [B, *shape] of all sensors as an adapter arranged them for its learner."""
    views = []
    for view in layout.views:
        parts = [obs[i] for i in view.sensors]
        x = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if view.is_image and layout.channels_last:
            x = x.permute(0, 2, 3, 1)
        if view.is_image and layout.uint8_images:
            # Rounded as the adapter does; opset 9 has no operator that rounds.
            x = torch.floor(x.clamp(0.0, 1.0) * 255.0 + 0.5)
        views.append(x)
    return views
