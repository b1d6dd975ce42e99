"""What official `mlagents_envs` offers, as JSON: module -> name -> members and their parameters.

Runs in the environment of the official package: `python official_signatures.py`.
"""

import importlib
import inspect
import json
import pkgutil

import mlagents_envs
from mlagents_envs.registry import default_registry

default_registry.clear()  # importing `mlagents_envs.envs` would download its manifest


def parameters(function):
    function = inspect.unwrap(getattr(function, "__func__", function))
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    return [
        [one.name, one.default is not one.empty]
        for one in found
        if one.name != "self" and one.kind is one.POSITIONAL_OR_KEYWORD
    ]


def described(thing):
    if not inspect.isclass(thing):
        return {"": parameters(thing) if callable(thing) else None}
    members = {"": parameters(thing.__init__) if "__init__" in vars(thing) else None}
    if issubclass(thing, tuple):
        members[""] = [[f, f in thing._field_defaults] for f in thing._fields]
    for name, member in vars(thing).items():
        if not name.startswith("_"):
            members[name] = (
                parameters(member) if callable(getattr(thing, name)) else None
            )
    return members


found = {}
for module in [
    "mlagents_envs",
    *(m.name for m in pkgutil.walk_packages(mlagents_envs.__path__, "mlagents_envs.")),
]:
    if "communicator_objects" in module:
        continue
    loaded = importlib.import_module(module)
    found[module.partition(".")[2]] = {
        name: described(thing)
        for name, thing in vars(loaded).items()
        if not name.startswith("_")
        and not inspect.ismodule(thing)
        and getattr(thing, "__module__", module) == module
        and type(thing).__module__ != "typing"
    }
print(json.dumps(found))
