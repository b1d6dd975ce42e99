"""The arrows of docs/architecture.md: a layer imports only lower layers, and modules form no cycle.

An import inside a function is an arrow like any other.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "touchline"
LAYERS = [
    {"errors", "flag", "interrupts", "log", "whole", "operating_systems", "version"},
    {
        "bounded",
        "known_files",
        "specs",
        "steps",
        "parameters",
        "statistics",
        "extras",
        "plugins",
    },
    {"jobs"},
    {"physics"},
    {"sensors", "drawing"},
    {"protocol", "scenes"},
    {"envs"},
    {"adapters", "policies"},
    {"training"},
    {"studies"},
    {"player", "doctor", "film", "viewer", "testing", "hub", "to_unity"},
    {"bench"},
    {"microrts"},
    {"cli", "__main__"},
]
"""From the base up."""
LEAVES = {frozenset({"protocol", "scenes"}), frozenset({"adapters", "policies"})}
"""Parts of one layer that never meet."""
WING = "microrts"
"""Named outside only as strings, in dictionaries whose entries are imported when they are used."""
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(SOURCE.rglob("*.py"))


def _module(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_module(path): path for path in FILES}


@cache
def _imports(path):
    """Modules of this package that a module imports, also inside functions and for type checkers."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: name the module in full"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in MODULES else node.module)
    return {name for name in found if name.split(".")[0] == "touchline"}


def _part(module):
    return module.split(".")[1]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_layer_imports_only_lower_layers(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own == "__init__":
        return  # its names are loaded when first used
    assert own in RANK, (
        f"{own} is in no layer: add it to the list and to docs/architecture.md"
    )
    for module in _imports(path) - {"touchline"}:
        other = _part(module)
        assert RANK[other] <= RANK[own], (
            f"{own} imports {module}, which is of a higher layer"
        )
        assert frozenset({own, other}) not in LEAVES, f"{own} and {other} never meet"
        assert other != WING or own == WING, (
            f"{own} imports {module}; the wing is named as a string"
        )


def test_no_module_below_the_commands_imports_the_whole_package():
    """`touchline` itself names every layer: whoever imports it points upward."""
    importing = {
        module
        for module, path in MODULES.items()
        if "touchline" in _imports(path) and module.split(".")[1:2] != ["cli"]
    }
    assert not importing


def test_no_module_imports_itself_by_way_of_others():
    done, path = set(), []

    def visit(module):
        assert module not in path, (
            f"import cycle: {' -> '.join([*path[path.index(module) :], module])}"
        )
        if module in done or module not in MODULES:
            return
        path.append(module)
        for other in sorted(_imports(MODULES[module])):
            visit(other)
        done.add(path.pop())

    for module in MODULES:
        visit(module)
