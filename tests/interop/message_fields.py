"""The fields of a protobuf message, to compare with those of another protobuf version."""

from google.protobuf.descriptor_pb2 import DescriptorProto


def fields(message):
    """Field -> number, type, label, type by name and oneof; messages inside by their name."""
    proto = DescriptorProto()
    message.DESCRIPTOR.CopyToProto(proto)
    return _fields(proto)


def _fields(proto):
    oneofs = [one.name for one in proto.oneof_decl]
    found = {nested.name: _fields(nested) for nested in proto.nested_type}
    for f in proto.field:
        oneof = oneofs[f.oneof_index] if f.HasField("oneof_index") else None
        found[f.name] = [f.number, f.type, f.label, f.type_name, oneof]
    return found
