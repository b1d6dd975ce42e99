"""What a file or folder is, for the error where another kind was expected."""

from pathlib import Path

from touchline.errors import UsageError

_FOR_EVAL = "for `touchline eval ENV --policy PATH`"
# What the suffix of a file says about it, and which command takes it.
_SUFFIXES = {
    **dict.fromkeys((".onnx", ".safetensors", ".pt"), f"a policy, {_FOR_EVAL}"),
    **dict.fromkeys((".yaml", ".yml"), "settings, for `touchline train FILE`"),
    ".demo": "a demonstration, for `touchline inspect FILE`",
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".svg"), "a picture"),
    **dict.fromkeys((".mp4", ".webm"), "a film"),
}


def known_as(path: Path) -> str | None:
    """What a file or folder is, and which command takes it; None where nothing tells."""
    if path.is_file():
        return _SUFFIXES.get(path.suffix.lower())
    if path.suffix == ".app" or not path.is_dir():
        return None
    if (path / "seeds.json").is_file() or any(path.glob("seed-*/configuration.yaml")):
        return f"a folder of runs with several seeds, {_FOR_EVAL}, which takes the best"
    if (path / "trials.journal").is_file():
        return f"a folder of a search, {_FOR_EVAL}, which takes the best trial"
    if (path / "configuration.yaml").is_file():
        return f"a run, {_FOR_EVAL} or `touchline view RUN`"
    return None


def refuse_other_kinds(path: Path, expected: str, *suffixes: str) -> None:
    """Raise a UsageError for what is known to be no file of these suffixes."""
    what = known_as(path)
    if what is not None and path.suffix not in suffixes:
        raise UsageError(f"{path} is {what}; expected {expected}")
