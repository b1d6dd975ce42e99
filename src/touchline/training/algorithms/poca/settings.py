"""Settings of MA-POCA and MAPPO: the `hyperparameters` block with `trainer_type: poca` or `mappo`.

Keys, meanings and defaults are those of `mlagents-learn` 1.1.0, except where a key says otherwise.
"""

from collections.abc import Mapping
from typing import ClassVar

from touchline.training.algorithms.settings import OnPolicySettings


class POCASettings(OnPolicySettings):
    """How MA-POCA learns."""

    learner: ClassVar[str] = "touchline.training.algorithms.poca.learner:POCA"
    metric_tags: ClassVar[Mapping[str, str]] = {
        **OnPolicySettings.metric_tags,
        "baseline_loss": "Losses/Baseline Loss",
        "{signal}_baseline_estimate": "Policy/{Signal} Baseline Estimate",
    }
    clones: ClassVar[bool] = True
    takes_delay: ClassVar[bool] = True
    credits_groups: ClassVar[bool] = True
    counterfactual: ClassVar[bool] = True
    """Advantages over what the group expects without knowing the agent's action, and own rewards
    shared with the group. False: MAPPO."""

    @property
    def width_multiple(self) -> int:
        return 4  # the critic's attention heads


class MAPPOSettings(POCASettings):
    """How MAPPO learns: advantages over the group's value, own rewards not shared."""

    counterfactual: ClassVar[bool] = False
