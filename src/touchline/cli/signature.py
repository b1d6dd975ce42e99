"""Reads a verb's function from the source of its module, without importing it.

What a room imports may take seconds. Help, and the errors of a wrong call, do not wait for that.
"""

import ast
import inspect
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from touchline.flag import Flag

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function."""

    name: str
    kind: str
    """Source of its type, without `Annotated`."""
    default: Any
    """`REQUIRED` where there is none."""
    help: str
    """Its text in the docstring, as one line."""
    flag: Flag
    """The `Flag` of its annotation; an empty one where there is none."""


@dataclass(frozen=True)
class Signature:
    """What a function takes, and what its docstring says before the sections."""

    about: str
    parameters: Mapping[str, Parameter]

    @property
    def takes_settings(self) -> bool:
        """Whether a parameter stands for all flags of the settings."""
        return "settings" in self.parameters


@cache
def signature_of(place: str) -> Signature:
    """The signature of "module:function"."""
    module, _, name = place.partition(":")
    # The last of several: those before it are overloads.
    function = [
        node
        for node in _tree(module).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ][-1]
    text = ast.get_docstring(function) or ""
    helps = dict(_helps(text))
    found = {}
    for argument, default in _arguments(function.args):
        kind, flag = _kind(argument.annotation)
        found[argument.arg] = Parameter(
            argument.arg, kind, default, helps.get(argument.arg, ""), flag
        )
    about = re.split(r"\n\n\w+\n-{3,}", text)[0]
    return Signature(about, found)


@cache
def _tree(module: str) -> ast.Module:
    spec = find_spec(module)
    assert spec is not None, module
    assert spec.loader is not None, module
    source = spec.loader.get_source(module)  # type: ignore[attr-defined]
    module_tree: ast.Module = ast.parse(source)
    return module_tree


def _arguments(arguments: ast.arguments) -> Iterator[tuple[ast.arg, Any]]:
    padding = [None] * (len(arguments.args) - len(arguments.defaults))
    defaults = [*padding, *arguments.defaults]
    yield from (
        (argument, _value(default))
        for argument, default in zip(arguments.args, defaults, strict=True)
    )
    for argument, default in zip(
        arguments.kwonlyargs, arguments.kw_defaults, strict=True
    ):
        yield argument, _value(default)


def _value(default: ast.expr | None) -> Any:
    if default is None:
        return REQUIRED
    if isinstance(default, ast.Name):
        return None  # a function such as `print`, which no flag can name
    # The only default that is an expression is -math.inf.
    return eval(ast.unparse(default), {"math": math})


def _kind(annotation: ast.expr | None) -> tuple[str, Flag]:
    """The type of a parameter, and the flag that it is annotated with."""
    assert annotation is not None
    match annotation:
        case ast.Subscript(
            value=ast.Name("Annotated"), slice=ast.Tuple([kind, ast.Call() as flag])
        ):
            arguments = map(ast.literal_eval, flag.args)
            keywords = {
                word.arg: ast.literal_eval(word.value)
                for word in flag.keywords
                if word.arg is not None
            }
            return ast.unparse(kind), Flag(*arguments, **keywords)
    return ast.unparse(annotation), Flag()


def _helps(docstring: str) -> Iterator[tuple[str, str]]:
    """Name -> text, from the section of parameters."""
    _, _, section = docstring.partition("\nParameters\n----------\n")
    section = re.split(r"\n\n\w+\n-{3,}", section)[0]
    for names, text in re.findall(r"^(\w.*)\n((?:(?: .*)?\n?)*)", section, re.M):
        for name in names.split(", "):
            yield name, " ".join(text.split())
