"""MuJoCo, imported in one place, so that a broken OpenGL set-up is one clear line.

MuJoCo loads the OpenGL library that the variable MUJOCO_GL names as soon as it is imported, even
where nothing is drawn. A library that is missing then shows as an AttributeError from the depths of
PyOpenGL.
"""

import os

from touchline.errors import MissingError

try:
    import mujoco
    import mujoco.batch
except ModuleNotFoundError:
    raise  # `extras` names the command that installs it
except Exception as error:  # MuJoCo's OpenGL layers raise whatever their library raised
    chosen = os.environ.get("MUJOCO_GL", "")
    if not chosen:
        raise
    raise MissingError(
        f"MUJOCO_GL={chosen}: MuJoCo cannot load that OpenGL library; install it (on Debian or "
        "Ubuntu libosmesa6 for osmesa, libegl1 for egl), name another one, or unset MUJOCO_GL"
    ) from error

__all__ = ["mujoco"]
