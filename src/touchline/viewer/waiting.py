"""A page that says that a run is still starting, until it has something to show."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from touchline.errors import UsageError
from touchline.log import Log
from touchline.viewer.server import address_of, close_server, open_server
from touchline.viewer.sheet import text_html

LOOK_S = 1.0
"""Between two looks whether the run has started."""

Found = TypeVar("Found")


class StillStartingError(UsageError):
    """A run that has nothing to show yet."""


def until_started(
    look: Callable[[], Found], host: str, port: int, log: Log
) -> tuple[Found, int]:
    """What `look` finds as soon as it raises no StillStartingError, and the port to use then.

    Until then, a page on this address says why there is nothing to see; it goes on as the page of
    the run, because browsers connect again.
    """
    try:
        return look(), port
    except StillStartingError as error:
        reason = str(error)
    server = open_server(host, port, "Touchline · waiting")
    # Of port 0, the one that was found: the run's page must be where browsers connect again.
    port = int(server.get_port())
    try:
        server.gui.add_html(text_html(f"{reason}. The page begins by itself then."))
        log(f"{reason}; waiting for it on {address_of(host, port)}, Ctrl-C ends")
        while True:
            time.sleep(LOOK_S)
            try:
                return look(), port
            except StillStartingError:
                continue
    finally:
        close_server(server)
