"""The protocol's messages exactly as `messages.proto` has them, to compare ours with."""

from functools import cache
from typing import Any

from touchline.protocol.schema import message_classes, proto_text


@cache
def plain_messages() -> Any:
    """Their classes."""
    return message_classes(proto_text())
