"""The messages, as protobuf classes made at run time from `messages.proto`.

No generated code: a generated file is tied to the protobuf version that made it, and that is what
broke the official client on newer Pythons. Protobuf ships no parser for its own language in Python.
The one below reads exactly the part of proto3 that `messages.proto` uses.

`MESSAGES` declares the fields in `AS_BYTES` as `bytes`. A nested message and a packed list have the
same form on the wire as bytes (wire type LEN), so the traffic is the same. Protobuf then returns
one slice for each behavior, or list of floats, which become arrays without a Python object per
float.
"""

import re
from collections.abc import Collection
from importlib import resources
from types import SimpleNamespace
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

AS_BYTES = frozenset(
    {
        "UnityRLOutputProto.agentInfos",  # map<string, bytes>: one slice per behavior
        "UnityRLInputProto.agent_actions",
        "ObservationProto.FloatData.data",
        "AgentActionProto.continuous_actions",
    }
)

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int32": _Field.TYPE_INT32,
    "float": _Field.TYPE_FLOAT,
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
}
_STATEMENT = re.compile(
    r"""
    (?P<end>})
    | (?P<kind>message|enum|oneof) \s+ (?P<title>\w+) \s* {
    | (?: (?P<repeated>repeated) \s+ | (?P<map>map<string,) \s* )?
      (?: (?P<type>\w+) >? \s+ )?       # an enum's values have none
      (?P<name>\w+) \s* = \s* (?P<number>\d+) \s* ;
    """,
    re.VERBOSE,
)


def message_classes(text: str, as_bytes: Collection[str] = ()) -> SimpleNamespace:
    """The message classes of a .proto text, by name, nested ones too.

    Fields in `as_bytes` are declared as bytes.
    """
    file = parse(text, as_bytes)
    # A pool of our own, so that the messages of an installed mlagents_envs do not collide.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    outer = [
        pool.FindMessageTypeByName(f"{file.package}.{message.name}")
        for message in file.message_type
    ]
    # Not all of protobuf's implementations have nested messages as attributes of the class around
    # them.
    found = [*outer, *(nested for message in outer for nested in message.nested_types)]
    return SimpleNamespace(
        **{message.name: message_factory.GetMessageClass(message) for message in found}
    )


def proto_text() -> str:
    """The text of `messages.proto`."""
    return (
        resources.files(__package__)
        .joinpath("messages.proto")
        .read_text(encoding="utf-8")
    )


def parse(
    text: str, as_bytes: Collection[str] = ()
) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of a .proto text.

    Understood are messages, nested messages, enums, oneofs, maps, repeated and plain fields.
    """
    text = re.sub(r"//[^\n]*", "", text)
    package = re.search(r"package\s+([\w.]+);", text)
    file = descriptor_pb2.FileDescriptorProto(
        name="touchline/messages.proto",
        package=package and package[1],
        syntax="proto3",
    )
    # Looked for ahead: a message may use an enum that is declared below it.
    enums = set(re.findall(r"enum (\w+)", text))
    left = re.sub(r"(syntax|package)\b[^;]*;", "", text).strip()
    blocks = [_Block(file, "", None)]
    while left:
        found = _STATEMENT.match(left)
        assert found is not None, (
            f"expected a declaration in the .proto text, found {left[:40]!r}"
        )
        left = left[found.end() :].lstrip()
        if found["end"]:
            blocks.pop()
        elif found["kind"]:
            blocks.append(_opened(blocks[-1], found["kind"], found["title"]))
        elif isinstance(blocks[-1].inner, descriptor_pb2.EnumDescriptorProto):
            number = int(found["number"])
            blocks[-1].inner.value.add(name=found["name"], number=number)
        else:
            _add_field(blocks[-1], found, enums, as_bytes)
    assert len(blocks) == 1, "the .proto text ends in the middle of a declaration"
    return file


class _Block(NamedTuple):
    """What stands around a declaration."""

    inner: Any
    """The descriptor of the file, the message or the enum."""
    path: str
    """Names of the messages around it, each with a dot behind it."""
    oneof: int | None


def _opened(around: _Block, kind: str, title: str) -> _Block:
    if kind == "oneof":
        around.inner.oneof_decl.add(name=title)
        return around._replace(oneof=len(around.inner.oneof_decl) - 1)
    if kind == "enum":
        return _Block(around.inner.enum_type.add(name=title), "", None)
    is_outer = isinstance(around.inner, descriptor_pb2.FileDescriptorProto)
    messages = around.inner.message_type if is_outer else around.inner.nested_type
    return _Block(messages.add(name=title), f"{around.path}{title}.", None)


def _add_field(
    block: _Block, found: re.Match[str], enums: set[str], as_bytes: Collection[str]
) -> None:
    name, type_name = found["name"], found["type"]
    is_bytes = block.path + name in as_bytes
    # In proto3 every field that is not repeated is optional.
    field = block.inner.field.add(
        name=name, number=int(found["number"]), label=_Field.LABEL_OPTIONAL
    )
    if block.oneof is not None:
        field.oneof_index = block.oneof
    if found["map"]:
        # Protobuf's own spelling of a map: repeated entries of key and value.
        entry = _add_map_entry(block.inner, name)
        field.label = _Field.LABEL_REPEATED
        field.type = _Field.TYPE_MESSAGE
        field.type_name = entry.name
        field = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
    # A packed list is a single field on the wire, so as bytes it is not repeated.
    elif found["repeated"] and not is_bytes:
        field.label = _Field.LABEL_REPEATED
    if is_bytes:
        field.type = _Field.TYPE_BYTES
    elif type_name in _SCALARS:
        field.type = _SCALARS[type_name]
    else:
        # Protobuf finds other messages by its scope rules.
        is_enum = type_name in enums
        field.type = _Field.TYPE_ENUM if is_enum else _Field.TYPE_MESSAGE
        field.type_name = type_name


def _add_map_entry(message: Any, field_name: str) -> Any:
    # Not `capitalize`, which would lower the rest: float_list → FloatList, myKey → MyKey.
    words = [word[:1].upper() + word[1:] for word in field_name.split("_")]
    entry = message.nested_type.add(name="".join(words) + "Entry")
    entry.options.map_entry = True
    entry.field.add(
        name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING
    )
    return entry


MESSAGES: Any = message_classes(proto_text(), AS_BYTES)
