"""PNG observations: channels, mappings, layouts, and files that are not what they claim."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from tests.protocol.wires import plain_message, png, png_file

from touchline.protocol.dialect import Dialect
from touchline.protocol.errors import MalformedMessageError, UnityObservationException
from touchline.protocol.images import MOST_IMAGE_VALUES, decode_png

RNG = np.random.default_rng(3)
HEIGHT, WIDTH = 4, 6
FIRST, SECOND = (RNG.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8) for _ in range(2))


def decode(files, channels, mapping=(), channels_first=True):
    shape = (channels, HEIGHT, WIDTH) if channels_first else (HEIGHT, WIDTH, channels)
    data = b"".join(png_file(f) for f in files)
    return decode_png(
        data, shape, list(mapping), channels_first=channels_first, what="camera"
    )


def test_colors_become_floats_from_0_to_1_in_either_layout():
    expected = FIRST.astype(np.float32) / 255
    np.testing.assert_array_equal(decode([FIRST], 3, channels_first=False), expected)
    np.testing.assert_array_equal(decode([FIRST], 3), expected.transpose(2, 0, 1))


def test_one_channel_without_mapping_is_the_mean_of_the_first_image():
    np.testing.assert_allclose(
        decode([FIRST], 1)[0], FIRST.mean(axis=2) / 255, rtol=1e-6
    )


def test_several_files_are_concatenated_and_padding_is_dropped():
    expected = np.concatenate([FIRST, SECOND], axis=2)[..., :5].transpose(
        2, 0, 1
    ) / np.float32(255)
    np.testing.assert_array_equal(decode([FIRST, SECOND], 5), expected)


def test_a_mapping_averages_its_contributors_and_drops_minus_one():
    """Two stacked grayscale frames: [0, 0, 0, 1, 1, 1]; a padded one: [0, 1, -1]."""
    gray = decode([FIRST, SECOND], 2, [0, 0, 0, 1, 1, 1])
    np.testing.assert_allclose(gray[1], SECOND.mean(axis=2) / 255, rtol=1e-6)
    two = decode([FIRST], 2, [1, 0, -1])
    np.testing.assert_array_equal(
        two, FIRST[..., [1, 0]].transpose(2, 0, 1) / np.float32(255)
    )


@pytest.mark.parametrize("mapping", [[0, 1], [0, 2, 2], [0, 1, -2], [0, 1, 3]])
def test_a_mapping_that_fits_nothing_is_refused(mapping):
    with pytest.raises(UnityObservationException, match="compressed_channel_mapping"):
        decode([FIRST], 2, mapping)


def test_the_package_version_decides_the_layout_and_an_option_overrides_it():
    for package, layout, shape in (
        ("2.3.0-exp.3", None, (HEIGHT, WIDTH, 3)),
        ("3.0.0-exp.1", None, (3, HEIGHT, WIDTH)),
        ("2.3.0-exp.3", "CHW", (3, HEIGHT, WIDTH)),
    ):
        dialect = Dialect(package_version=package, image_layout=layout)
        decoder, output = plain_message(
            {"observations": [png([FIRST], shape)]}, dialect=dialect
        )
        assert decoder.decode(output)["A?team=0"][0].obs[0].shape == (1, *shape)


def test_an_image_of_the_other_layout_is_refused_with_the_remedy():
    decoder, output = plain_message(
        {"observations": [png([FIRST], (HEIGHT, WIDTH, 3))]}
    )
    with pytest.raises(UnityObservationException, match="image_layout='HWC'"):
        decoder.decode(output)


def test_grayscale_and_palette_files_are_read_like_any_other():
    for mode in ("L", "P", "RGBA"):
        file = io.BytesIO()
        Image.fromarray(FIRST).convert(mode).save(file, "PNG")
        image = decode_png(
            file.getvalue(), (1, HEIGHT, WIDTH), [], channels_first=True, what="camera"
        )
        assert image.shape == (1, HEIGHT, WIDTH)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda data: b"", "empty"),
        (lambda data: b"GIF89a" + data, "no PNG file at byte 0"),
        (lambda data: data[:-5], "cut off"),
        (lambda data: data[:8] + b"\0\0\0\0IEND" + b"\0" * 4, "the PNG file is 0 x 0"),
        (lambda data: data + b"\x89PNG\r\n\x1a\n", "cut off"),
        (lambda data: data * 9, "9 PNG files for 3 channels"),
        (lambda data: data[:45] + b"\x00" * 8 + data[53:], "not a readable PNG"),
    ],
)
def test_broken_files_are_one_error(spoil, what):
    with pytest.raises(UnityObservationException, match=what):
        decode_png(
            spoil(png_file(FIRST)),
            (3, HEIGHT, WIDTH),
            [],
            channels_first=True,
            what="camera",
        )


def bomb(width, height):
    """A PNG of a few kilobytes that claims, and holds, a huge image of one color."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0" * 99))
        + chunk(b"IEND", b"")
    )


def test_a_bomb_is_recognized_by_its_header():
    with pytest.raises(
        UnityObservationException, match="the PNG file is 50000 x 50000"
    ):
        decode_png(
            bomb(50_000, 50_000),
            (3, HEIGHT, WIDTH),
            [],
            channels_first=True,
            what="camera",
        )


def test_images_that_truly_hold_too_much_are_refused():
    shape = (3, 5000, 5000)
    image = png([], shape)
    image.compressed_data = bomb(5000, 5000)
    decoder, output = plain_message({"observations": [image]})
    with pytest.raises(MalformedMessageError, match=str(MOST_IMAGE_VALUES)):
        decoder.decode(output)
