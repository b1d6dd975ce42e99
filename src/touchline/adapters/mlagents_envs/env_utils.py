"""Players as files and processes."""

import subprocess

from touchline.envs.player_process import find_player
from touchline.operating_systems import SYSTEM
from touchline.protocol.errors import UnityEnvironmentException


def get_platform() -> str:
    """`sys.platform`."""
    return SYSTEM


def validate_environment_path(env_path: str) -> str | None:
    """The executable that this path means, with or without its suffix; None where there is none."""
    try:
        return str(find_player(env_path))
    except UnityEnvironmentException:
        return None


def launch_executable(file_name: str, args: list[str]) -> subprocess.Popen[bytes]:
    """Start a player without showing what it prints. Raises a UnityEnvironmentException where it
    cannot be found or executed.
    """
    player = find_player(file_name)
    return subprocess.Popen(
        [str(player), *args],
        # As in ML-Agents: Ctrl-C is for Python alone, which lets the player quit by a message.
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
