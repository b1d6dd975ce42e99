"""What a file or folder is, for the error where another kind was expected."""

from pathlib import Path

from touchline.errors import UsageError

# What the suffix of a file says about it, and which command takes it.
_SUFFIXES = {
    **dict.fromkeys(
        (".onnx", ".safetensors", ".pt"), "a policy: give it with --policy"
    ),
    **dict.fromkeys((".yaml", ".yml"), "settings: `touchline train FILE` takes them"),
    ".demo": "a demonstration: `touchline inspect FILE` takes it",
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
        return "a folder of runs with several seeds: give one of them with --policy"
    if (path / "trials.journal").is_file():
        return "a folder of a search: give one of its trials with --policy"
    if (path / "configuration.yaml").is_file():
        return "a run: give it with --policy, or `touchline view RUN` and `touchline doctor RUN`"
    return None


def refuse_other_kinds(path: Path, expected: str, *suffixes: str) -> None:
    """Raise a UsageError for what is known to be no file of these suffixes."""
    what = known_as(path)
    if what is not None and path.suffix not in suffixes:
        raise UsageError(f"{path} is {what}; expected {expected}")
