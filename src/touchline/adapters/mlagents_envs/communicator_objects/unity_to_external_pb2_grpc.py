"""The protocol's one gRPC method, which takes a message and returns one, for users of grpcio.

Touchline's own connections do without grpcio; calls of what is here import it.
"""

from typing import Any

from touchline.adapters.mlagents_envs.communicator_objects import UnityMessageProto
from touchline.envs.wire_server import METHOD, PATH, SERVICE
from touchline.extras import explain_missing

_CALLING = {
    "request_serializer": UnityMessageProto.SerializeToString,
    "response_deserializer": UnityMessageProto.FromString,
}


class UnityToExternalProtoStub:
    """A player's end: `Exchange(message)` over a channel."""

    def __init__(self, channel: Any) -> None:
        self.Exchange = channel.unary_unary(PATH, **_CALLING)


class UnityToExternalProtoServicer:
    """Python's end. Derive from it and answer `Exchange`."""

    @explain_missing("UnityToExternalProtoServicer")
    def Exchange(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Refuse the call."""
        import grpc

        text = f"{type(self).__name__} does not answer {METHOD}"
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details(text)
        # What servicers of grpcio raise for a method that their subclass does not answer.
        raise NotImplementedError(text)


@explain_missing("add_UnityToExternalProtoServicer_to_server")
def add_UnityToExternalProtoServicer_to_server(servicer: Any, server: Any) -> None:  # noqa: N802
    """Let a server of grpcio pass calls to a servicer."""
    import grpc

    handler = grpc.unary_unary_rpc_method_handler(
        servicer.Exchange,
        request_deserializer=UnityMessageProto.FromString,
        response_serializer=UnityMessageProto.SerializeToString,
    )
    handlers = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
    server.add_generic_rpc_handlers((handlers,))


class UnityToExternalProto:
    """A player's end without a channel of its own."""

    @staticmethod
    @explain_missing("UnityToExternalProto")
    def Exchange(  # noqa: N802
        request: Any,
        target: str,
        options: Any = (),
        channel_credentials: Any = None,
        call_credentials: Any = None,
        insecure: bool = False,
        compression: Any = None,
        wait_for_ready: bool | None = None,
        timeout: float | None = None,
        metadata: Any = None,
    ) -> Any:
        """The answer of the server at `target`."""
        # grpcio has the same names in another order.
        given = dict(locals())
        import grpc.experimental

        return grpc.experimental.unary_unary(method=PATH, **_CALLING, **given)
