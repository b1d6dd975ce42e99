"""Header fields of gRPC calls: what a request must say, and the blocks that answer it.

Decompression is left to the `hpack` package. Answers are written without compression; there are
few of them, and all but the texts of refusals are constants.

Source: RFC 9113, sections 8.1 to 8.3 (what makes a request malformed); RFC 7541 (HPACK), appendix
A for the static table; "gRPC over HTTP2" and "Status codes and their use in gRPC" in the gRPC
repository.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from hpack import Decoder, HPACKError

PROTOCOL_ERROR, COMPRESSION_ERROR = 1, 9
"""Error codes of HTTP/2 (RFC 9113, section 7) that header fields can cause."""
OK, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 8, 12, 13
"""gRPC's statuses, as far as they are sent."""

LONGEST_LIST = 16_384
"""Bytes of all fields of a request, C-core's own limit; ML-Agents' players send about 300."""
LONGEST_TEXT = 126
"""The length of a string of at most this many bytes takes one byte in HPACK."""
# They would speak about the connection, which HTTP/2 does not allow (section 8.2.2).
_CONNECTION_FIELDS = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)  # fmt: skip
_REQUIRED = b":method", b":scheme", b":path"
_PSEUDO_FIELDS = frozenset((*_REQUIRED, b":authority"))

_AS_THEY_ARE = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
"""What `grpc-message` holds without an escape, besides letters and digits: all but "%"."""

# `:status: 200` is entry 8 of HPACK's static table, `content-type` the name of entry 31.
_STATUS_200 = b"\x88"
_CONTENT_TYPE = b"\x0f\x10\x10application/grpc"
RESPONSE = _STATUS_200 + _CONTENT_TYPE
"""What comes before the message of a reply."""


class BrokenBlockError(Exception):
    """A block of header fields that cannot be decompressed; ends the connection."""


@dataclass(frozen=True)
class Refusal:
    """Why a request is no call of the one method, and how it ends."""

    reason: str
    block: bytes = b""
    """A complete answer; without one HTTP/2 itself refuses, with PROTOCOL_ERROR."""


def trailers(status: int, message: str = "") -> bytes:
    """What comes after the message of a reply: gRPC's status, and the reason if it is not OK."""
    block = _literal(b"grpc-status", b"%d" % status)
    if message:
        # Percent-encoded as gRPC requires it, and cut in front of an escape, not inside.
        text = quote(message, safe=_AS_THEY_ARE)[:LONGEST_TEXT]
        if "%" in text[-2:]:
            text = text[: text.rindex("%")]
        block += _literal(b"grpc-message", text.encode())
    return block


def refusal(status: int, message: str) -> bytes:
    """A whole answer without a message: gRPC calls it "trailers only"."""
    return RESPONSE + trailers(status, message)


def _literal(name: bytes, value: bytes) -> bytes:
    """A field as a literal that is not added to the table (RFC 7541, section 6.2.2)."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


class RequestReader:
    """Reads the header blocks of one connection, which share HPACK's table."""

    def __init__(self, path: str) -> None:
        self._path = path.encode()
        self._decoder = Decoder(max_header_list_size=LONGEST_LIST)
        self._known_block = b""
        self._known: Refusal | None = None

    def request(self, block: bytes) -> Refusal | None:
        """None if the block is a call of the one method, else why it is not.

        Raises a BrokenBlockError for a block that cannot be decompressed.
        """
        # Decoding takes 20 us, a third of an exchange, and a player's calls are all alike.
        if block and block == self._known_block:
            return self._known
        self._known = self._refusal_of(self._fields(block))
        self._known_block = block if _leaves_the_table(block) else b""
        return self._known

    def skip(self, block: bytes) -> None:
        """Read a block whose fields do not matter: it may still change the table."""
        # The table may be another afterwards, and then the same bytes mean other fields.
        self._known_block = b""
        self._fields(block)

    def _fields(self, block: bytes) -> list[tuple[bytes, bytes]]:
        try:
            decoded = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            raise BrokenBlockError(
                f"header fields that cannot be decompressed ({type(error).__name__})"
            ) from error
        return [(bytes(name), bytes(value)) for name, value in decoded]

    def _refusal_of(self, fields: list[tuple[bytes, bytes]]) -> Refusal | None:
        fault = _fault_in(fields)
        if fault:
            return Refusal(f"a malformed request: {fault}")
        said = dict(fields)
        kind = said.get(b"content-type", b"")
        if said[b":method"] != b"POST" or not kind.startswith(b"application/grpc"):
            # "If Content-Type does not begin with application/grpc, gRPC servers SHOULD respond
            # with HTTP status of 415."
            # A literal with the name of entry 8, `:status`, and a value of three bytes.
            return Refusal("a request over HTTP/2 that is no gRPC call", b"\x08\x03415")
        if said[b":path"] != self._path:
            called = said[b":path"].decode("ascii", "replace")[:60]
            text = f"only {self._path.decode()} is served here"
            answer = refusal(UNIMPLEMENTED, text)
            return Refusal(f"{called} was called; {text}", answer)
        return None


def _leaves_the_table(block: bytes) -> bool:
    """Whether the block consists of indexed fields alone, of one byte each."""
    # An indexed field begins with the bit 1, and 0xFF needs further bytes (RFC 7541, section 6.1).
    return min(block, default=0) >= 0x80 and max(block) < 0xFF


def _fault_in(fields: Iterable[tuple[bytes, bytes]]) -> str:
    """What makes a request malformed (RFC 9113, section 8), or nothing."""
    seen: set[bytes] = set()
    is_regular = False
    for name, value in fields:
        shown = name.decode("ascii", "replace")[:40]
        if name.startswith(b":"):
            if is_regular or name in seen or name not in _PSEUDO_FIELDS:
                return f"{shown} is unknown, twice there or too late"
            seen.add(name)
        else:
            is_regular = True
        if name != name.lower() or not name:
            return f"field name {shown!r} is not in lower case"
        if name in _CONNECTION_FIELDS or (name == b"te" and value != b"trailers"):
            return f"{shown} is not allowed in HTTP/2"
    missing = [name.decode() for name in _REQUIRED if name not in seen]
    return f"{missing[0]} is missing" if missing else ""
