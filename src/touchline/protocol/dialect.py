"""What a player speaks: versions and capabilities, as it announces them in its introduction.

Which version brought which field: `messages.proto` and docs/protocol.md.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from touchline.errors import UsageError
from touchline.protocol.errors import MalformedMessageError

API_VERSION = "1.5.0"
"""The communication version of com.unity.ml-agents 2.x and 3.x, and ours."""

CAPABILITIES = (
    "baseRLCapabilities",
    "concatenatedPngObservations",
    "compressedChannelMapping",
    "hybridActions",
    "trainingAnalytics",
    "variableLengthObservation",
    "multiAgentGroups",
)
"""Fields of UnityRLCapabilitiesProto."""


@dataclass(frozen=True)
class Dialect:
    """Versions and capabilities of one player; they decide how its messages are understood.

    `image_layout` overrides the package version, as "HWC" or "CHW".
    """

    communication_version: str = API_VERSION
    package_version: str = "3.0.0"
    capabilities: frozenset[str] = frozenset(CAPABILITIES)
    image_layout: str | None = None

    def __post_init__(self) -> None:
        if self.image_layout not in (None, "HWC", "CHW"):
            raise UsageError(
                f"image_layout must be 'HWC', 'CHW' or None, got {self.image_layout!r}"
            )
        version_numbers(self.communication_version)  # raises if these are no numbers

    @property
    def channels_first(self) -> bool:
        """Whether images are [C, H, W], as since package 3.0.0-exp.1, and not [H, W, C]."""
        # The communication version did not change with the layout, so the package's decides.
        if self.image_layout is not None:
            return self.image_layout == "CHW"
        major = re.match(r"\d{1,9}", self.package_version)
        # A version that cannot be read is taken for one of today's.
        return major is None or int(major[0]) >= 3

    @cached_property  # read once for each message
    def reads_deprecated_actions(self) -> bool:
        """Whether the player reads `vector_actions_deprecated` only."""
        # It does before API 1.3, and never afterwards.
        # Packages from API 1.3 on read both kinds of new fields, with or without the
        # capability.
        return version_numbers(self.communication_version) < (1, 3, 0)


def version_numbers(version: str) -> tuple[int, int, int]:
    """The numbers of `N.N` or `N.N.N`; raises a MalformedMessageError for anything else."""
    # Nine digits at most: Python refuses to convert thousands of them, and takes its time over
    # hundreds.
    found = re.fullmatch(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", version)
    if found is None:
        raise MalformedMessageError(
            f"communication_version: expected numbers like 1.5.0, got {version[:40]!r}"
        )
    return int(found[1]), int(found[2]), int(found[3] or 0)
