"""PNG observations as float32 in [0, 1].

An observation is one or more PNG files back to back, up to three channels each. A camera or grid
sensor with more than three channels sends several files; a channel mapping lists which of their
channels make up which channel of the observation (docs/protocol.md, "Images").
"""

import io
import struct

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from touchline.protocol.errors import UnityObservationException

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_IMAGE_VALUES = 1 << 26
"""The most floats that the images of one message may unpack to: 256 MiB, as much as a message
may be long."""


class ImageBudget:
    """What the images of one message, or of one file, may still unpack to.

    A PNG file of a kilobyte can hold a gigabyte of one color.
    """

    def __init__(self, most: int = MOST_IMAGE_VALUES, of: str = "message") -> None:
        self._most = self._left = most
        self._of = of

    def spend(self, values: int, what: str) -> None:
        self._left -= values
        if self._left < 0:
            raise UnityObservationException(
                f"{what}: the images of this {self._of} unpack to more than {self._most} values"
            )


def encode_png(picture: NDArray[np.float32]) -> bytes | None:
    """A picture or grid [C, H, W] of whole 255ths as PNG files, without loss; None for others."""
    # Each file holds three channels, which is what mlagents 1.1.0 reads; the last one is filled up
    # with zeros. One channel alone would be read as the mean of three, so it is not written.
    if len(picture) < 2:
        return None
    with np.errstate(invalid="ignore"):  # NaN becomes some byte, and differs below
        pixels = np.rint(picture * np.float32(255)).astype(np.uint8)
    if not np.array_equal(pixels / np.float32(255), picture):
        return None
    missing = -len(pixels) % 3
    pixels = np.pad(pixels, ((0, missing), (0, 0), (0, 0)))
    out = io.BytesIO()
    for first in range(0, len(pixels), 3):
        Image.fromarray(pixels[first : first + 3].transpose(1, 2, 0)).save(out, "PNG")
    return out.getvalue()


def decode_png(
    data: bytes,
    shape: tuple[int, ...],
    mapping: list[int],
    *,
    channels_first: bool,
    what: str,
) -> NDArray[np.float32]:
    """One observation of `shape`, [C, H, W] or [H, W, C], from its PNG files.

    `what` names it in errors.
    """
    if channels_first:
        channels, height, width = shape
    else:
        height, width, channels = shape
    files = _split(data, what)
    # Before anything is unpacked: each of many small files could hold a whole picture.
    if len(files) > max(channels, len(mapping)):
        raise UnityObservationException(
            f"{what}.compressed_data: {len(files)} PNG files for {channels} channels"
        )
    pixels = [_pixels(file, height, width, what) for file in files]
    planes = np.concatenate(pixels, axis=2)  # [H, W, channels of all files]
    if mapping:
        image = _mapped(planes, mapping, channels, what)
    elif channels == 1:
        # A grayscale sensor sends its one channel as all three of the first file.
        red_green_blue = planes[:, :, :3]
        image = red_green_blue.mean(axis=2, keepdims=True, dtype=np.float32)
    else:
        image = planes[:, :, :channels]
    if image.shape[2] != channels:
        raise UnityObservationException(
            f"{what}.compressed_data: expected {channels} channels for {shape}, "
            f"the PNG files hold {image.shape[2]}"
        )
    return image.transpose(2, 0, 1) if channels_first else image


def _mapped(
    planes: NDArray[np.float32], mapping: list[int], channels: int, what: str
) -> NDArray[np.float32]:
    """[H, W, channels]: each the mean of the planes that `mapping` assigns to it, -1 for none."""
    channel_of_plane = np.array(mapping)
    mapped = set(channel_of_plane[channel_of_plane >= 0])
    has_right_length = len(channel_of_plane) == planes.shape[2]
    # A channel without a plane would be the mean of nothing, which is NaN.
    fills_all = mapped == set(range(channels))
    if not has_right_length or not fills_all or channel_of_plane.min() < -1:
        raise UnityObservationException(
            f"{what}.compressed_channel_mapping: expected {planes.shape[2]} entries that are -1 or "
            f"name each of the channels 0 to {channels - 1}, got {str(mapping)[:80]}"
        )
    means = []
    for channel in range(channels):
        contributors = planes[:, :, channel_of_plane == channel]
        means.append(contributors.mean(axis=2, dtype=np.float32))
    return np.stack(means, axis=2)


def _split(data: bytes, what: str) -> list[bytes]:
    """The PNG files in `data`: each ends with its IEND chunk."""
    files = []
    start = 0
    while start < len(data):
        if data[start : start + 8] != PNG_SIGNATURE:
            raise UnityObservationException(
                f"{what}.compressed_data: no PNG file at byte {start} of {len(data)}"
            )
        at = start + 8
        kind = b""
        # Every PNG file ends with this chunk (PNG specification, section 5.6), and nothing else
        # separates the files.
        while kind != b"IEND":
            if at + 12 > len(data):
                raise UnityObservationException(
                    f"{what}.compressed_data: the PNG file at byte {start} is cut off"
                )
            length, kind = struct.unpack_from(">I4s", data, at)
            at += 12 + length  # length, kind, content, checksum
        files.append(data[start:at])
        start = at
    if not files:
        raise UnityObservationException(f"{what}.compressed_data: empty")
    return files


def _pixels(file: bytes, height: int, width: int, what: str) -> NDArray[np.float32]:
    """[H, W, 3 or fewer] of one PNG file. Its size is checked before anything is unpacked."""
    # Behind signature (8 bytes) and length (4) the first chunk must be IHDR: width and height.
    kind, *size = struct.unpack_from(">4sII", file.ljust(24, b"\0"), 12)
    if kind != b"IHDR" or size != [width, height]:
        raise UnityObservationException(
            f"{what}.compressed_data: expected images {width} wide and {height} high, the PNG file "
            f"is {size[0]} x {size[1]}. Packages before 3.0 send [H, W, C], later ones [C, H, W]; "
            "image_layout='HWC' or 'CHW' overrides the version"
        )
    try:
        with Image.open(io.BytesIO(file), formats=("PNG",)) as image:
            # Palettes, 16 bits and alpha, which no sensor of ML-Agents sends, are made into
            # what they show.
            converted = image if image.mode in ("RGB", "L") else image.convert("RGB")
            pixels = np.asarray(converted, np.float32)
    except Exception as error:  # Pillow raises many kinds on broken files
        raise UnityObservationException(
            f"{what}.compressed_data: not a readable PNG file: {error}"
        ) from error
    # Of a gray file Pillow gives two axes.
    return pixels.reshape(height, width, -1) / np.float32(255)
