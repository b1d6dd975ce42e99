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
from collections.abc import Collection, Iterator
from importlib import resources
from types import SimpleNamespace
from typing import Any

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
# Comments and white space match without a group, and are skipped by that.
_TOKEN = re.compile(r"//[^\n]*|\s+|(\"[^\"]*\"|[\w.]+|[{}<>=;,])")


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
    words = _Words(_tokens(text))
    file = descriptor_pb2.FileDescriptorProto(
        name="touchline/messages.proto", syntax="proto3"
    )
    # Looked for ahead: a message may use an enum that is declared below it.
    enums = set(re.findall(r"enum (\w+)", text))
    while (word := words.next()) is not None:
        if word == "syntax":
            words.skip("=", '"proto3"', ";")
        elif word == "package":
            file.package = words.name()
            words.skip(";")
        elif word == "enum":
            _parse_enum(words, file.enum_type.add())
        else:
            assert word == "message", (
                f"expected message, enum, syntax or package, found {word!r}"
            )
            _parse_message(words, file.message_type.add(), "", _Types(enums, as_bytes))
    return file


class _Types:
    """Decides which type a field gets."""

    def __init__(self, enums: set[str], as_bytes: Collection[str]) -> None:
        self.enums = enums
        self.as_bytes = as_bytes

    def set(self, field: Any, type_name: str, path: str) -> None:
        """Give `field` the type of that name; protobuf finds other messages by its scope rules."""
        if path in self.as_bytes:
            field.type = _Field.TYPE_BYTES
        elif type_name in _SCALARS:
            field.type = _SCALARS[type_name]
        else:
            field.type = (
                _Field.TYPE_ENUM if type_name in self.enums else _Field.TYPE_MESSAGE
            )
            field.type_name = type_name


class _Words:
    """The tokens of a .proto text, one after the other."""

    def __init__(self, tokens: Iterator[str]) -> None:
        self._tokens = tokens

    def next(self) -> str | None:
        return next(self._tokens, None)

    def name(self) -> str:
        word = self.next()
        assert word is not None, "the .proto text ends in the middle of a declaration"
        return word

    def skip(self, *expected: str) -> None:
        for word in expected:
            found = self.next()
            assert found == word, (
                f"expected {word!r} in the .proto text, found {found!r}"
            )


def _tokens(text: str) -> Iterator[str]:
    return (match[1] for match in _TOKEN.finditer(text) if match[1])


def _parse_enum(words: _Words, enum: Any) -> None:
    enum.name = words.name()
    words.skip("{")
    while (name := words.name()) != "}":
        words.skip("=")
        enum.value.add(name=name, number=int(words.name()))
        words.skip(";")


def _parse_message(words: _Words, message: Any, scope: str, types: _Types) -> None:
    message.name = words.name()
    path = f"{scope}{message.name}."
    words.skip("{")
    while (word := words.name()) != "}":
        if word == "message":
            _parse_message(words, message.nested_type.add(), path, types)
        elif word == "oneof":
            message.oneof_decl.add(name=words.name())
            words.skip("{")
            oneof_index = len(message.oneof_decl) - 1
            while (word := words.name()) != "}":
                field = _parse_field(words, message, word, path, types)
                field.oneof_index = oneof_index
        else:
            _parse_field(words, message, word, path, types)


def _parse_field(
    words: _Words, message: Any, word: str, path: str, types: _Types
) -> Any:
    """Add the field that begins with `word` to `message`."""
    # In proto3 every field that is not repeated is optional.
    field = message.field.add(label=_Field.LABEL_OPTIONAL)
    value_type = ""
    # Protobuf's own spelling of a map: repeated entries of key and value.
    if word == "map":
        words.skip("<", "string", ",")
        value_type = words.name()
        words.skip(">")
    if word in ("map", "repeated"):
        field.label = _Field.LABEL_REPEATED
    type_name = words.name() if word == "repeated" else word
    field.name = words.name()
    words.skip("=")
    field.number = int(words.name())
    words.skip(";")
    if word == "map":
        entry = _add_map_entry(message, field.name)
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        types.set(value, value_type, path + field.name)
        field.type = _Field.TYPE_MESSAGE
        field.type_name = entry.name
    elif path + field.name in types.as_bytes:
        field.type = _Field.TYPE_BYTES
        field.label = _Field.LABEL_OPTIONAL
    else:
        types.set(field, type_name, path + field.name)
    return field


def _add_map_entry(message: Any, field_name: str) -> Any:
    """The nested message that protobuf makes for the entries of a map, with its key."""
    # Not `capitalize`, which would lower the rest: float_list → FloatList, myKey → MyKey.
    words = [word[:1].upper() + word[1:] for word in field_name.split("_")]
    name = "".join(words) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    entry.field.add(
        name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING
    )
    return entry


MESSAGES: Any = message_classes(proto_text(), AS_BYTES)
