"""A trainer's description of itself for Unity's statistics."""

from touchline.adapters.mlagents_envs.communicator_objects import *  # noqa: F403
from touchline.adapters.mlagents_envs.side_channel.side_channel import *  # noqa: F403
from touchline.protocol.side_channels import TrainingAnalyticsChannel


class DefaultTrainingAnalyticsSideChannel(TrainingAnalyticsChannel):
    """`TrainingAnalyticsChannel` with ML-Agents' names; nothing is sent unless you call it."""

    CHANNEL_ID = TrainingAnalyticsChannel.IDENTIFIER
