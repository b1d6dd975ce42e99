"""Payloads with your own content."""

from touchline.adapters.mlagents_envs.side_channel.side_channel import *  # noqa: F403
from touchline.protocol.side_channels import RawBytesChannel as RawBytesChannel
