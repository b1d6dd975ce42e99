"""All side channels of one connection."""

from touchline.adapters.mlagents_envs.side_channel.side_channel import *  # noqa: F403
from touchline.protocol.side_channels import SideChannel, SideChannels


class SideChannelManager(SideChannels):
    """`SideChannels` with ML-Agents' names."""

    def __init__(self, side_channels: list[SideChannel] | None = None) -> None:
        super().__init__(side_channels or ())

    def generate_side_channel_messages(self) -> bytearray:
        """Everything queued, as one run of bytes; the queues are empty afterwards."""
        return bytearray(self.gather())

    def process_side_channel_message(self, data: bytes) -> None:
        """Pass every message in `data` to its channel."""
        self.deliver(bytes(data))
