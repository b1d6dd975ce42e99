"""How large an installation is: all files of an extra's libraries, and of what these need.

    python bench/install_sizes.py

It adds up what is installed here, so it runs where `make setup` has installed everything.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = tomllib.loads(
    (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
)["project"]
INSTALLATIONS = ("", "scenes", "scenes,onnx,view", "scenes,train", "all")


def main() -> None:
    for extras in INSTALLATIONS:
        sizes: dict[str, int] = {}
        _add(PROJECT["dependencies"], sizes)
        for extra in filter(None, extras.split(",")):
            _add(PROJECT["optional-dependencies"][extra], sizes)
        largest = sorted(sizes, key=lambda name: -sizes[name])[:4]
        print(
            f"touchline[{extras}]: {sum(sizes.values()) / 1e6:,.0f} MB, {len(sizes)} packages"
        )
        print("  " + ", ".join(f"{name} {sizes[name] / 1e6:.0f}" for name in largest))


def _add(
    requirements: Iterable[str], sizes: dict[str, int], extras: Iterable[str] = ("",)
) -> None:
    """Add the sizes of these packages, and of all that they need."""
    for text in requirements:
        wanted = Requirement(text)
        if wanted.marker and not any(
            wanted.marker.evaluate({"extra": e}) for e in extras
        ):
            continue
        if wanted.name == "touchline":
            for extra in wanted.extras:
                _add(PROJECT["optional-dependencies"][extra], sizes)
            continue
        name = wanted.name.lower().replace("_", "-")
        if name in sizes and not wanted.extras:
            continue
        try:
            package = distribution(wanted.name)
        except PackageNotFoundError:
            continue  # for another system
        sizes[name] = _size(package)
        _add(package.requires or (), sizes, wanted.extras or ("",))


def _size(package: Distribution) -> int:
    paths = [Path(str(file.locate())) for file in package.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file())


if __name__ == "__main__":
    main()
