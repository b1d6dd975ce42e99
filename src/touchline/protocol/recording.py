"""A session with a player in a file, byte for byte, to replay without Unity and to test against.

The format, `wire-1`: gzip of a 4-byte little-endian length and a JSON header of that length, then
frames to the end. A frame is 1 byte, `Q` for a request (player -> Python) or `R` for the reply, a
4-byte little-endian length, and the UnityMessageProto as it crossed the wire. The header's keys:
`format`, `player`, `package`, `communicator`, `client`, `seed`, `environment_parameters`, `frames`
(how many), `behaviors` (full name -> `observations` [{`name`, `shape`}], `continuous`, `branches`).
"""

import gzip
import json
import os
import shutil
import struct
import zlib
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from touchline.errors import UsageError
from touchline.operating_systems import remove_file, replace_file
from touchline.specs import BehaviorSpec

REQUEST, REPLY = b"Q", b"R"
SUFFIX = ".wire.gz"
FORMAT = "wire-1"
LONGEST_HEADER = 1 << 24
LONGEST_MESSAGE = 1 << 28
"""The numbers of the largest images that a message may hold. A recording is compressed, so the
length of its file bounds nothing.
"""


def describe_behaviors(behaviors: Mapping[str, BehaviorSpec]) -> dict[str, Any]:
    """Behaviors as the header has them."""
    return {
        name: {
            "observations": [
                {"name": o.name, "shape": list(o.shape)} for o in spec.observation_specs
            ],
            "continuous": spec.action_spec.continuous_size,
            "branches": list(spec.action_spec.discrete_branches),
        }
        for name, spec in behaviors.items()
    }


class Recorder:
    """Writes a session: `request` and `reply` as they come, then `close` with the header.

    Frames go to FILE.part meanwhile: the header comes first, and it describes the whole session.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._part = self.path.with_name(self.path.name + ".part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: gzip.GzipFile | None = gzip.GzipFile(
                # A session is recorded while a player waits, so speed counts for more than the
                # last few percent.
                self._part,
                "wb",
                compresslevel=4,
            )
        except OSError as error:
            raise UsageError(f"cannot record to {self.path}: {error}") from error
        self._frames = 0

    def request(self, data: bytes) -> None:
        self._write(REQUEST, data)

    def reply(self, data: bytes) -> None:
        self._write(REPLY, data)

    def close(self, header: Mapping[str, Any]) -> None:
        """Finish the file: header first, then the frames. Idempotent."""
        if self._file is None:
            return
        self._file.close()
        self._file = None
        content = {"format": FORMAT, **header, "frames": self._frames}
        text = json.dumps(content).encode()
        # gzip files may be joined end to end, so the frames need not be compressed again.
        whole = self.path.with_name(f"{self.path.name}.whole.part")
        with whole.open("wb") as out:
            out.write(gzip.compress(struct.pack("<I", len(text)) + text))
            with self._part.open("rb") as frames:
                shutil.copyfileobj(frames, out)
        # Renaming is atomic, so a file of the final name is always complete.
        replace_file(whole, self.path)
        remove_file(self._part)

    def _write(self, kind: bytes, data: bytes) -> None:
        if self._file is not None:
            self._file.write(kind + struct.pack("<I", len(data)) + data)
            self._frames += 1


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of a recording."""
    with _opened(path) as file:
        return _header(file, path)


def read_frames(
    path: str | os.PathLike[str],
) -> Generator[tuple[bytes, bytes], None, None]:
    """The frames of a recording, one by one: (REQUEST or REPLY, message)."""
    with _opened(path) as file:
        _header(file, path)
        count = 0
        # One byte of kind and four of length.
        while head := _read(file, 5, path, count, at_end=True):
            kind = head[:1]
            (length,) = struct.unpack_from("<I", head, 1)
            if kind not in (REQUEST, REPLY) or length > LONGEST_MESSAGE:
                raise UsageError(
                    f"{path}: expected frame {count} to begin with Q or R and its length, "
                    f"got {head!r}"
                )
            yield kind, _read(file, length, path, count)
            count += 1


def _opened(path: str | os.PathLike[str]) -> gzip.GzipFile:
    try:
        return gzip.GzipFile(path, "rb")
    except OSError as error:
        raise UsageError(
            f"cannot open the recording {path}: {error.strerror or error}"
        ) from error


def _header(file: gzip.GzipFile, path: str | os.PathLike[str]) -> dict[str, Any]:
    (length,) = struct.unpack("<I", _read(file, 4, path, 0))
    if length > LONGEST_HEADER:
        raise UsageError(f"{path}: not a recording (a header of {length} bytes)")
    try:
        header = json.loads(_read(file, length, path, 0))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}: not a recording (its header is not JSON: {error})"
        ) from error
    if not isinstance(header, dict) or header.get("format", FORMAT) != FORMAT:
        raise UsageError(
            f"{path}: expected a recording of format {FORMAT}, got {str(header)[:80]}"
        )
    return header


def _read(
    file: gzip.GzipFile,
    size: int,
    path: str | os.PathLike[str],
    frame: int,
    *,
    at_end: bool = False,
) -> bytes:
    """The next `size` bytes; none at the end of the file, if `at_end` allows that."""
    try:
        data = file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(
            f"{path}: not a complete recording, broken at frame {frame}: {error}"
        ) from error
    if len(data) != size and not (at_end and not data):
        raise UsageError(f"{path}: cut off in frame {frame}")
    return data
