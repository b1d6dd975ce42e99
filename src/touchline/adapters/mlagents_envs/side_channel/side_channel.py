"""The base of every side channel."""

# Official modules have the names that they import; so have the channels', by this one.
from touchline.adapters.mlagents_envs.exception import *  # noqa: F403
from touchline.protocol.side_channels import IncomingMessage as IncomingMessage
from touchline.protocol.side_channels import OutgoingMessage as OutgoingMessage
from touchline.protocol.side_channels import SideChannel as SideChannel
