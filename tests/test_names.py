"""What one algorithm or reward signal knows, it says itself: nothing above its room names it.

The registries (`ALGORITHMS`, `REWARD_SIGNALS`) are plain dictionaries in these rooms. Presets and
docstrings may name what they describe. The benchmarks measure particular algorithms, so they name
them; nothing imports the benchmarks. What reads policies of Stable-Baselines3 names that library's.
"""

import ast
import re
from pathlib import Path

import pytest

from touchline.training.algorithms.settings import ALGORITHMS
from touchline.training.config.cloning_settings import CloningSettings
from touchline.training.rewards.settings import REWARD_SIGNALS

SOURCE = Path(__file__).parents[1] / "src" / "touchline"
ROOMS = {
    "training/algorithms": set(ALGORITHMS),
    "training/rewards": set(REWARD_SIGNALS),
}
"""Folder -> what is named only there."""
CLONING = {
    SOURCE / "training" / "cloning.py",
    SOURCE / "training" / "config" / "cloning_settings.py",
}
EXEMPT = {SOURCE / "bench", SOURCE / "to_unity" / "from_sb3.py"}
WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")
"""Of an identifier in either style, and of a text."""


def _documentation(tree):
    """The texts that document a module, class, function or attribute."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def _texts(tree):
    """Every identifier, path of a module and text of a module's code, with its line."""
    documentation = _documentation(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
                yield node.lineno, text
            case ast.FunctionDef(name=text) | ast.ClassDef(name=text):
                yield node.lineno, text
            case ast.keyword(arg=str(text)):
                yield node.lineno, text
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names):
                yield node.lineno, str(module)
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.Constant(value=str(text)) if id(node) not in documentation:
                yield node.lineno, text


def named(source, names):
    """Line and word of each use of one of the names, whatever its case."""
    found = []
    for line, text in _texts(ast.parse(source)):
        words = {word.lower() for word in WORD.findall(text)}
        # SACSettings and KLPPO: capitals run on into the next word.
        words |= {
            name
            for name in names
            if re.search(rf"(?<![A-Za-z]){name.upper()}[A-Z][a-z]", text)
        }
        found += [(line, word) for word in sorted(words & names)]
    return found


def _files_outside(folder):
    return [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if not {SOURCE / folder, *EXEMPT} & {path, *path.parents}
    ]


@pytest.mark.parametrize("folder", ROOMS)
def test_nothing_outside_its_room_names_an_algorithm_or_a_reward_signal(folder):
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {word}"
        for path in _files_outside(folder)
        for line, word in named(path.read_text(encoding="utf-8"), ROOMS[folder])
    ]
    assert not found, "\n".join(found)


def test_only_cloning_knows_its_keys():
    # The others are keys of other blocks, too.
    own = {"clone_kl", "first_passes", "samples_per_update"}
    assert own <= set(CloningSettings.model_fields)
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {text}"
        for path in sorted(set(SOURCE.rglob("*.py")) - CLONING)
        for line, text in _texts(ast.parse(path.read_text(encoding="utf-8")))
        if any(re.search(rf"(?<![a-z_]){key}(?![a-z_])", text) for key in own)
    ]
    assert not found, "\n".join(found)


def test_what_algorithms_share_names_none_of_them_beside_the_registry():
    shared = sorted((SOURCE / "training" / "algorithms").glob("*.py"))
    assert "on_policy.py" in [path.name for path in shared]
    found = [
        f"{path.name}:{line}: {word}"
        for path in shared
        if path.name != "settings.py"
        for line, word in named(path.read_text(encoding="utf-8"), set(ALGORITHMS))
    ]
    assert not found, "\n".join(found)


def test_names_are_found_in_code_and_not_in_documentation():
    source = '''
"""PPO and SAC."""
from touchline.training.algorithms.sac.learner import SAC
sac_faults = {"trainer_type": "ppo"}
isinstance(hyper, SACSettings)
"""Attributes of ppo."""
message = f"take ppo, {trainer}"
sachet = "supposed"
# rnd
'''
    found = named(source, {"ppo", "sac", "rnd"})
    assert found == [
        (3, "sac"),
        (3, "sac"),
        (4, "sac"),
        (4, "ppo"),
        (5, "sac"),
        (7, "ppo"),
    ]
