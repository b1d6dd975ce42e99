"""Attention over lists of entities, whatever their order and however many there are.

Sizes follow ML-Agents 1.1.0 (`torch_entities/attention.py`).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from touchline.policies.nets.dense import layer_norm, linear

ATTENTION_SIZE, ATTENTION_HEADS = 128, 4
HEAD_SIZE = ATTENTION_SIZE // ATTENTION_HEADS
ABSENT = 1e6
"""Subtracted from the scores of entities that are not there: their share becomes 0."""


class EntityAttention(nn.Module):
    """Lists of entities [B, K, F] to [B, 128].

    Each entity is embedded together with what the agent knows of itself. Entities then attend to
    each other and are averaged. A row of zeros is no entity.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2; Baker et al. 2019, arXiv:1909.07528,
    for the use.
    """

    def __init__(self, self_size: int, entity_shapes: Sequence[Sequence[int]]) -> None:
        """`entity_shapes` are (K, F) of each list; `self_size` may be 0."""
        super().__init__()
        size = ATTENTION_SIZE
        # An entity's embedding is the sum of two: each gets half of the variance.
        gain = 0.5**0.5
        self.counts = [count for count, _ in entity_shapes]
        self.embed = nn.ModuleList(
            linear(features, size, gain) for _, features in entity_shapes
        )
        self.embed_self = linear(self_size, size, gain) if self_size else None
        self.query = linear(size, size)
        self.key = linear(size, size)
        self.value = linear(size, size)
        self.out = linear(size, size)

    def forward(
        self, own: Float[Tensor, "B S"], lists: Sequence[Float[Tensor, "B _ _"]]
    ) -> Float[Tensor, "B E"]:
        """`own` is what the agent knows of itself; the K of all lists add up."""
        # [B, K]
        present = torch.cat([self.is_present(entities) for entities in lists], dim=1)
        x = self._embedded(own, lists)  # [B, K, E]
        query = self._heads(self.query(x))  # [B, heads, K, D]
        key = self._heads(self.key(x))
        value = self._heads(self.value(x))
        scores = query @ key.transpose(2, 3) * HEAD_SIZE**-0.5  # [B, heads, K, K]
        # 0, or -1 where there is no entity.
        missing = present[:, None, None].to(x.dtype) - 1.0
        scores = scores + missing * ABSENT
        attended = torch.softmax(scores, dim=3) @ value  # [B, heads, K, D]
        attended = attended.transpose(1, 2).reshape(x.shape)  # [B, K, E]
        x = layer_norm(x + self.out(attended))
        weight = present[:, :, None].to(x.dtype)
        count = weight.sum(dim=1).clamp(min=1.0)  # an empty list has the mean 0
        total = (x * weight).sum(dim=1)
        return torch.div(total, count)

    @staticmethod
    def is_present(entities: Float[Tensor, "B K F"]) -> Bool[Tensor, "B K"]:
        """Which rows are entities."""
        return (entities != 0).any(dim=2)

    def _embedded(
        self, own: Float[Tensor, "B S"], lists: Sequence[Float[Tensor, "B _ _"]]
    ) -> Float[Tensor, "B K E"]:
        pairs = zip(self.embed, lists, strict=True)
        parts = [embed(entities) for embed, entities in pairs]
        x = torch.cat(parts, dim=1)
        if self.embed_self is not None:
            x = x + self.embed_self(own)[:, None]
        return functional.silu(x)

    def _heads(self, x: Float[Tensor, "B K E"]) -> Float[Tensor, "B heads K D"]:
        parted = x.view(*x.shape[:2], ATTENTION_HEADS, HEAD_SIZE)
        return parted.transpose(1, 2)
