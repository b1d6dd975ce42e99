"""The protocol's messages as protobuf classes, in modules of the official names:

    from touchline.adapters.mlagents_envs.communicator_objects.header_pb2 import HeaderProto

No file is generated: this package makes the classes from `protocol/messages.proto` when it is
imported, and a module `*_pb2` for each line of `NAMES`. All have the same `DESCRIPTOR`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from touchline.protocol.schema import message_classes, proto_text

NAMES = {
    "agent_action": "AgentActionProto",
    "agent_info_action_pair": "AgentInfoActionPairProto",
    "agent_info": "AgentInfoProto",
    "brain_parameters": "BrainParametersProto ActionSpecProto",
    "capabilities": "UnityRLCapabilitiesProto",
    "command": "CommandProto",
    "custom_reset_parameters": "CustomResetParametersProto",
    "demonstration_meta": "DemonstrationMetaProto",
    "engine_configuration": "EngineConfigurationProto",
    "header": "HeaderProto",
    "observation": "ObservationProto CompressionTypeProto ObservationTypeProto",
    "space_type": "SpaceTypeProto",
    "training_analytics": "TrainingEnvironmentInitialized TrainingBehaviorInitialized",
    "unity_input": "UnityInputProto",
    "unity_message": "UnityMessageProto",
    "unity_output": "UnityOutputProto",
    "unity_rl_initialization_input": "UnityRLInitializationInputProto",
    "unity_rl_initialization_output": "UnityRLInitializationOutputProto",
    "unity_rl_input": "UnityRLInputProto",
    "unity_rl_output": "UnityRLOutputProto",
    "unity_to_external": "",
}
"""Module, without `_pb2` -> its messages and enums."""

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


def _make_modules() -> None:
    messages = vars(message_classes(proto_text()))
    file = messages["UnityMessageProto"].DESCRIPTOR.file
    for title, names in NAMES.items():
        module = ModuleType(f"{__name__}.{title}_pb2", f"Messages of {title}.proto.")
        content: dict[str, Any] = {}
        for name in names.split():
            if name in messages:
                # Pickle looks for a class by its module.
                messages[name].__module__ = module.__name__
                content[name] = messages[name]
            else:
                enum = file.enum_types_by_name[name]
                content[name] = EnumTypeWrapper(enum)
                content |= {value.name: value.number for value in enum.values}
        vars(module).update(content, DESCRIPTOR=file)
        globals().update(content)
        globals()[f"{title}_pb2"] = module
        # An import of the module finds it there, after that of this package.
        sys.modules[module.__name__] = module
    for name, message in messages.items():
        around = message.DESCRIPTOR.containing_type
        if around is not None:
            message.__module__ = messages[around.name].__module__
            # Protobuf's implementation in Python does not do that.
            setattr(messages[around.name], name, message)


_make_modules()
