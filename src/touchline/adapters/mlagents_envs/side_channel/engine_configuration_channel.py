"""How the engine runs."""

from touchline.adapters.mlagents_envs.side_channel.side_channel import *  # noqa: F403
from touchline.protocol.side_channels import EngineConfig as EngineConfig
from touchline.protocol.side_channels import (
    EngineConfigurationChannel as EngineConfigurationChannel,
)
