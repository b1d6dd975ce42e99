"""Named numbers from the game."""

from touchline.adapters.mlagents_envs.side_channel.side_channel import *  # noqa: F403
from touchline.protocol.side_channels import StatsSideChannel as StatsSideChannel
from touchline.statistics import EnvironmentStats as EnvironmentStats
from touchline.statistics import StatsAggregationMethod as StatsAggregationMethod
