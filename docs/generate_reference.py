"""Pages of the site that are made when it is built: mkdocs calls `on_files`.

The settings, the command line, the public names and every message that is raised on purpose are
written once, in the source, and notebooks in examples/; these pages show them.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from config_schema import json_schema
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

import touchline
from touchline.cli.app import COMMANDS, app
from touchline.training.algorithms.settings import ALGORITHMS, algorithm_settings
from touchline.training.config.flags import setting_flags
from touchline.training.rewards.settings import REWARD_SIGNALS, signal_settings

SOURCE = Path(touchline.__file__).parent
NOTEBOOKS = Path(__file__).parents[1] / "examples"
INLINE_CODE = re.compile(r"<code>([^<\n]+)</code>")
SHELL = re.compile(r"^ *```sh[^\n]*\n(.*?)^ *```", re.M | re.S)
TABLE = re.compile(r"<table>.*?</table>", re.S)
HEAD = re.compile(r"<th[^>]*>(.*?)</th>", re.S)
CELL = re.compile(r"<td([^>]*)>")
FLAG = re.compile(r"(?<![^ ])--?\w[\w-]*")
KEEP = r'<span style="white-space: nowrap">\g<0></span>'
LONGEST = 30
"""Characters that fit into a line of a table on a phone."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those that lie in docs/."""
    pages = {
        "reference/python.md": python_page(),
        "reference/plug-ins.md": plug_ins_page(),
        "reference/settings.md": settings_page(),
        "reference/command-line.md": command_line_page(),
        "reference/messages.md": messages_page(),
    }
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        content = notebook.read_text()
        pages[f"notebooks/{notebook.name}"] = content
        pages[f"notebooks/{notebook.stem}.md"] = notebook_page(notebook.name, content)
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Make tables and names fit.

    Flags and short names stay in one line: browsers break a line after each hyphen. Cells name
    their columns, which on a phone stand beside them (`stylesheets/site.css`).
    """

    def kept(match: re.Match[str]) -> str:
        code = match[1]
        if " " in code:
            return f"<code>{FLAG.sub(KEEP, code)}</code>"
        return KEEP.replace(r"\g<0>", match[0]) if len(code) <= LONGEST else match[0]

    return TABLE.sub(_labeled, INLINE_CODE.sub(kept, html))


def _labeled(table: re.Match[str]) -> str:
    """A table whose cells hold the names of their columns."""
    names = [re.sub(r"<[^>]*>", "", head) for head in HEAD.findall(table[0])]
    count = itertools.count()

    def cell(match: re.Match[str]) -> str:
        name = names[next(count) % len(names)].strip().replace('"', "&quot;")
        return f'<td data-label="{name}"{match[1]}>'

    return CELL.sub(cell, table[0]) if names else table[0]


# ----------------------------------------------------------------------------------------------
# Notebooks


def notebook_page(name: str, notebook: str) -> str:
    """A notebook's text and code, without outputs; the link to it stands below the title."""
    cells = json.loads(notebook)["cells"]
    title, _, about = "".join(cells[0]["source"]).partition("\n")
    parts = [title, f"This page is a notebook: [{name}]({name}).", about.strip()]
    for cell in cells[1:]:
        source = "".join(cell["source"])
        is_code = cell["cell_type"] == "code"
        parts.append(f"```python\n{source}\n```" if is_code else source)
    return "\n\n".join(parts) + "\n"


# ----------------------------------------------------------------------------------------------
# Public names


def python_page() -> str:
    """Every public name, by the module that defines it."""
    names_of = defaultdict(list)
    for name in touchline.__all__:
        module = touchline._HOME.get(name)
        if module is not None:
            names_of[module].append(name)
    lines = [
        "# Python",
        "",
        "Everything that `import touchline` offers, by module.",
        "",
    ]
    for module in sorted(names_of):
        lines += [f"## {module}", ""]
        # Functions before the classes of what they return.
        for name in sorted(names_of[module], key=lambda name: name[0].isupper()):
            lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines)


PLUG_INS = {
    "An algorithm": (
        "training.algorithms.learner.Learner",
        "training.algorithms.learner.LearnerSetup",
        "training.algorithms.settings.HyperparameterSettings",
        "training.experience.trajectories.Trajectories",
    ),
    "A reward signal": (
        "training.rewards.signal.RewardSignal",
        "training.rewards.signal.SignalSetup",
        "training.rewards.signal.PaysGroups",
        "training.rewards.signal.Rejudging",
        "training.rewards.settings.SignalSettings",
    ),
    "A network": (
        "policies.network.Network",
        "policies.network.Architecture",
        "policies.network.Distribution",
        "policies.network_policy.NetworkPolicy",
    ),
    "A memory": ("policies.memory.MemoryCell",),
}
"""What other packages add -> the public names that it touches."""


def plug_ins_page() -> str:
    """Everything that an algorithm, a signal, a network or a memory of another package touches."""
    lines = [
        "# Plug-ins",
        "",
        "What a package of yours touches when it adds an [algorithm](../tutorials/your_algorithm.md),",
        "a [reward signal](../tutorials/your_reward_signal.md), a network or a memory;",
        "[how they are found](../algorithms.md#algorithms-reward-signals-networks-and-memories-of-other-packages).",
        "",
    ]
    for heading, names in PLUG_INS.items():
        lines += [f"## {heading}", ""]
        for name in names:
            lines += [f"::: touchline.{name}", ""]
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------
# Settings


def settings_page() -> str:
    """Every key of a configuration: its default, its flag and its meaning."""
    schema = json_schema()
    flags = {flag.key.replace("*", "NAME"): flag.name for flag in setting_flags()}
    lines = [
        "# Settings",
        "",
        "Every key of a training configuration, block by block. `NAME` stands for a behavior,",
        "`PARAMETER` for an environment parameter.",
        "",
    ]
    places = _places(schema)
    blocks = [("The file", "", schema)]
    for model, place in places.items():
        is_choice = list(places.values()).count(place) > 1
        heading = f"{place}: {model}" if is_choice else place
        blocks.append((heading, place, schema["$defs"][model]))
    for heading, place, block in blocks:
        lines += [f"## {heading}", ""]
        about = " ".join(block.get("description", "").split())
        lines += [about, ""] if about else []
        lines += ["| key | default | meaning |", "| --- | --- | --- |"]
        for key, value in block["properties"].items():
            flag = flags.get(f"{place}.{key}".removeprefix("."))
            name = f"`{key}` (`{flag}`)" if flag else f"`{key}`"
            meaning = _cell(value.get("description", ""))
            lines.append(f"| {name} | {_default(value)} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def _places(schema: dict[str, Any]) -> dict[str, str]:
    """Model -> where its block stands in a file, in the order in which they are shown."""
    behavior = "behaviors.NAME"
    places = {"BehaviorConfig": behavior}
    for name in ALGORITHMS:
        model = algorithm_settings(name).__name__
        places[model] = f"{behavior}.hyperparameters, trainer_type: {name}"
    for name in REWARD_SIGNALS:
        model = signal_settings(name).__name__
        places[model] = f"{behavior}.reward_signals.{name}"
    # Breadth first, so that a block follows the one that holds it.
    waiting = [
        ("", schema),
        *((place, schema["$defs"][m]) for m, place in places.items()),
    ]
    while waiting:
        place, block = waiting.pop(0)
        for key, value in block["properties"].items():
            inner = f"{place}.{key}".removeprefix(".")
            if key == "environment_parameters":
                inner += ".PARAMETER"
            for model in _references(value):
                found = schema["$defs"].get(model, {})
                if model not in places and found.get("properties"):
                    places[model] = inner
                    waiting.append((inner, found))
    return dict(sorted(places.items(), key=lambda item: item[1].startswith(behavior)))


def _references(value: dict[str, Any]) -> list[str]:
    """The models that may stand here."""
    inner = value.get("additionalProperties")
    more = [inner] if isinstance(inner, dict) else []
    choices = [value, *value.get("anyOf", []), *value.get("oneOf", []), *more]
    models = [
        choice["$ref"].rpartition("/")[2] for choice in choices if "$ref" in choice
    ]
    for nested in more:
        models += [model for model in _references(nested) if model not in models]
    return models


def _default(value: dict[str, Any]) -> str:
    if "default" not in value or isinstance(value["default"], (dict, list)):
        return ""
    default = value["default"]
    return (
        "none"
        if default is None
        else f"`{str(default).lower()}`"
        if isinstance(default, bool)
        else f"`{default}`"
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# ----------------------------------------------------------------------------------------------
# Command line


def command_line_page() -> str:
    """What `--help` shows for every verb."""
    lines = [
        "# Command line",
        "",
        "```text",
        _help(get_command(app), "touchline"),
        "```",
        "",
    ]
    group = get_command(app)
    context = click.Context(group, info_name="touchline")
    examples = _examples()
    for verb in COMMANDS:
        command = group.get_command(context, verb)
        lines += [
            f"## touchline {verb}",
            "",
            '```text title="Examples"',
            *examples.get(verb, [f"touchline {verb}"]),
            "```",
            "",
            "```text",
            _help(command, f"touchline {verb}"),
        ]
        lines += ["```", ""]
    return "\n".join(lines)


def _examples() -> dict[str, list[str]]:
    """The first three different commands of each verb in the pages, which tests run."""
    found: dict[str, list[str]] = defaultdict(list)
    folder = Path(__file__).parent
    for page in (folder / "start.md", *sorted(folder.rglob("*.md"))):
        for body in SHELL.findall(page.read_text(encoding="utf-8")):
            for line in body.replace("\\\n", " ").splitlines():
                command = " ".join(line.split("#")[0].split())
                match = re.match(r"touchline ([a-z]+)", command)
                if match and command not in found[match[1]]:
                    found[match[1]].append(command)
    return {verb: commands[:3] for verb, commands in found.items()}


def _help(command: click.Command, name: str) -> str:
    context = click.Context(
        command, info_name=name, max_content_width=88, terminal_width=88
    )
    return command.get_help(context)


# ----------------------------------------------------------------------------------------------
# Messages


def messages_page() -> str:
    """Every message that the source raises on purpose, for the site's search to find."""
    lines = [
        "# All messages",
        "",
        "Every error that is raised on purpose, by the part that raises it; `…` stands for what",
        "is filled in. Search for a few words of yours. [Troubleshooting](../troubleshooting.md)",
        "explains the most frequent ones.",
        "",
    ]
    for source in sorted(SOURCE.rglob("*.py")):
        messages = sorted(set(_messages_of(ast.parse(source.read_text()))))
        if messages:
            module = source.relative_to(SOURCE.parent).with_suffix("").as_posix()
            lines += [f"## {module.replace('/', '.')}", ""]
            lines += [f"- {message}" for message in messages] + [""]
    return "\n".join(lines)


def _messages_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        name = ast.unparse(node.exc.func)
        if not name.endswith(("Error", "Exception")) or not node.exc.args:
            continue
        message = _template(node.exc.args[0])
        if len(message.replace("…", "").split()) > 2:
            yield message.replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*")


def _template(node: ast.expr) -> str:
    """A string expression with `…` for what is filled in; empty for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_template(part) or "…" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (_template(left) or "…") + (_template(right) or "…")
        case _:
            return ""
