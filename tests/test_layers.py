"""The arrows of docs/architecture.md: a layer imports what stands above it, never below; two leaves never meet."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "touchline"
LAYERS = [
    {"errors"},
    {"specs", "steps", "parameters", "statistics"},
    {"protocol", "scenes"},
    {"envs"},
    {"adapters", "policies"},
    {"training"},
    {"player", "bench", "doctor", "testing", "film"},
    {"cli"},
]
LEAVES = {frozenset({"protocol", "scenes"}), frozenset({"adapters", "policies"})}
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def _part(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return {_part(name) for name in found if name.startswith("touchline.")} - {""}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_upward(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if own == "__init__":
        return  # its names are loaded when first used
    assert own in RANK, f"{own} is in no layer: add it to the list and to docs/architecture.md"
    for other in _imports(path):
        assert RANK[other] <= RANK[own], f"{own} imports {other}, which stands below it"
        assert frozenset({own, other}) not in LEAVES, f"{own} and {other} are leaves that never meet"
