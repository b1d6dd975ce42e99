"""The arrows of docs/architecture.md: a layer imports only lower layers, and modules form no cycle."""

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "touchline"
LAYERS = [
    {"errors", "log"},
    {"specs", "steps", "parameters", "statistics", "extras", "cores"},
    {"physics"},
    {"sensors", "drawing"},
    {"protocol", "scenes"},
    {"envs"},
    {"adapters", "policies"},
    {"training"},
    {"studies"},
    {"player", "doctor", "film", "viewer", "testing", "hub"},
    {"bench"},
    {"api"},
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


def _names(path, nodes):
    """Full names of the modules of this package that these import statements load."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & set(
                MODULES
            )
            found |= submodules or {node.module}
    return {name for name in found if name.startswith("touchline.")}


@cache
def _imports(path):
    """Everything that a module imports, also inside functions and under TYPE_CHECKING."""
    return _names(path, ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def _imports_at_once(path):
    """What is imported when the module is, or under TYPE_CHECKING; not what functions import."""

    def statements(node):
        for child in ast.iter_child_nodes(node):
            if not isinstance(
                child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
            ):
                yield child
                yield from statements(child)

    return _names(path, statements(ast.parse(path.read_text(encoding="utf-8"))))


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
    for module in _imports(path):
        other = _part(module)
        assert RANK[other] <= RANK[own], (
            f"{own} imports {module}, which is of a higher layer"
        )
        assert frozenset({own, other}) not in LEAVES, f"{own} and {other} never meet"
        assert other != WING or own == WING, (
            f"{own} imports {module}; the wing is named as a string"
        )


def test_no_module_imports_itself_by_way_of_others():
    done, path = set(), []

    def visit(module):
        assert module not in path, (
            f"import cycle: {' -> '.join([*path[path.index(module) :], module])}"
        )
        if module in done or module not in MODULES:
            return
        path.append(module)
        for other in sorted(_imports_at_once(MODULES[module])):
            if other != module:
                visit(other)
        done.add(path.pop())

    for module in MODULES:
        visit(module)
