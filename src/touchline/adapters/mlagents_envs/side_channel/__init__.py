"""Messages in addition to observations and actions."""

from touchline.adapters.mlagents_envs.side_channel.default_training_analytics_side_channel import (
    DefaultTrainingAnalyticsSideChannel as DefaultTrainingAnalyticsSideChannel,
)
from touchline.protocol.side_channels import IncomingMessage as IncomingMessage
from touchline.protocol.side_channels import OutgoingMessage as OutgoingMessage
from touchline.protocol.side_channels import SideChannel as SideChannel

__all__ = [
    "DefaultTrainingAnalyticsSideChannel",
    "IncomingMessage",
    "OutgoingMessage",
    "SideChannel",
]
