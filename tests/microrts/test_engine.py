"""Finding and fetching the engine: three places, pip's own index, a hash that is checked."""

import hashlib
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from touchline.errors import MissingError, RunError, UsageError
from touchline.microrts import download as download_module
from touchline.microrts import engine as engine_module
from touchline.microrts.download import PipSettings, download, fetch
from touchline.microrts.engine import (
    JAR_SHA256,
    Engine,
    EngineError,
    GameMap,
    check_hash,
    find_engine,
    unpack,
)


@pytest.fixture
def sdist(tmp_path) -> Path:
    """A file laid out like gym-microrts' sdist, with nothing of it inside."""
    root = tmp_path / "made" / "gym-microrts-0.6.0" / "gym_microrts"
    for name in (
        "microrts/microrts.jar",
        "microrts/maps/8x8/m.xml",
        "microrts/LICENSE",
        "microrts/lib/bots/B.jar",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "envs.py").write_text("never unpacked")
    file = tmp_path / "gym-microrts-0.6.0.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        archive.add(root.parent, root.parent.name)
    return file


@pytest.fixture
def index(tmp_path, sdist, monkeypatch) -> Path:
    """A package index in a folder that pip is set to use, serving that file."""
    page = tmp_path / "index" / "gym-microrts"
    page.mkdir(parents=True)
    sdist.rename(page / sdist.name)
    (page / "index.html").write_text(
        f'<a href="{sdist.name}#sha256=0">{sdist.name}</a>'
    )
    settings = PipSettings((page.parent.as_uri(),), (), None, None)
    monkeypatch.setattr(PipSettings, "read", staticmethod(lambda: settings))
    return page / sdist.name


def test_several_addresses_of_pips_settings_are_read(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://a.org/simple")
    monkeypatch.setenv(
        "PIP_EXTRA_INDEX_URL", "https://b.org/simple https://c.org/simple"
    )
    expected = ("https://a.org/simple", "https://b.org/simple", "https://c.org/simple")
    assert PipSettings.read().indexes == expected
    settings = tuple(f"{n}.org" for n in "bc")
    config = f"[global]\nextra-index-url =\n    {settings[0]}\n    {settings[1]}\n"
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL")
    with TemporaryDirectory() as folder:
        file = Path(folder, "pip.conf")
        file.write_text(config)
        monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
        assert PipSettings.read().indexes == (expected[0], *settings)


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_the_real_engine_has_the_published_jar_and_144_maps(engine):
    check_hash(engine.jar, JAR_SHA256)
    assert len(engine.maps) == 144
    assert (engine.folder / "LICENSE").is_file()


def test_fetch_reads_pips_index_checks_the_hash_and_unpacks_only_what_it_needs(
    tmp_path, index, monkeypatch
):
    monkeypatch.setattr(download_module, "SDIST_SHA256", sha256(index))
    monkeypatch.setattr(
        download_module,
        "JAR_SHA256",
        hashlib.sha256(b"microrts/microrts.jar").hexdigest(),
    )
    folder = tmp_path / "cache" / "microrts"
    found = fetch(folder)
    files = {f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file()}
    assert files == {"microrts.jar", "LICENSE", "maps/8x8/m.xml"}
    assert fetch(folder, bots=True).bot_jars == [folder / "lib" / "bots" / "B.jar"]
    assert list(found.maps) == ["8x8/m"]


def test_another_hash_is_refused_and_nothing_is_unpacked(tmp_path, index):
    folder = tmp_path / "cache" / "microrts"
    with pytest.raises(EngineError, match="expected SHA-256"):
        fetch(folder)
    assert not folder.exists()


def test_an_index_without_the_file_is_named_without_its_password(tmp_path, monkeypatch):
    settings = PipSettings((f"file://me:secret@{tmp_path}",), (), None, None)
    monkeypatch.setattr(PipSettings, "read", staticmethod(lambda: settings))
    with pytest.raises(RunError, match="could not download") as caught:
        download("gym-microrts-0.6.0.tar.gz", "0", tmp_path / "x")
    assert "secret" not in str(caught.value)


def test_pips_settings_come_from_pip_environment_last(monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://example.org/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://a.example https://b.example")
    assert PipSettings.read().indexes == (
        "https://example.org/simple",
        "https://a.example",
        "https://b.example",
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert PipSettings.read().indexes == ()


def test_pips_environment_wins_in_whatever_order_pip_lists(monkeypatch):
    lines = [
        "global.index-url='https://file.example'",
        ":env:.index-url='https://env.example'",
    ]
    for listed in (lines, lines[::-1]):  # pip 26 and pip 24
        answer = SimpleNamespace(stdout="\n".join(listed))
        monkeypatch.setattr(
            download_module.subprocess, "run", lambda *_, answer=answer, **__: answer
        )
        assert PipSettings.read().indexes == ("https://env.example",)


def test_a_missing_engine_names_the_three_ways_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHLINE_CACHE", str(tmp_path))
    monkeypatch.setattr(engine_module, "_installed", lambda: None)
    with pytest.raises(MissingError) as caught:
        find_engine()
    for way in ("touchline microrts fetch", "pip install", "engine=PATH"):
        assert way in str(caught.value)


def test_the_engine_is_found_by_path_by_package_and_in_the_cache(
    tmp_path, sdist, monkeypatch
):
    folder = tmp_path / "cache" / "microrts-0.6.0"
    unpack(sdist, folder, bots=False)
    assert (
        find_engine(folder).jar
        == find_engine(folder / "microrts.jar").jar
        == folder / "microrts.jar"
    )
    monkeypatch.setenv("TOUCHLINE_CACHE", str(folder.parent))
    monkeypatch.setattr(engine_module, "_installed", lambda: None)
    assert find_engine().folder == folder
    monkeypatch.setattr(
        engine_module,
        "_installed",
        lambda: tmp_path / "made/gym-microrts-0.6.0/gym_microrts/microrts",
    )
    assert find_engine().folder != folder
    with pytest.raises(MissingError, match="does not exist"):
        find_engine(tmp_path / "nowhere")
    with pytest.raises(EngineError, match="expected SHA-256"):
        find_engine(sdist)


def test_maps_are_found_by_short_and_long_names_and_unknown_ones_list_the_nearest(
    engine,
):
    file = engine.maps["8x8/basesWorkers8x8"]
    for name in (
        "basesWorkers8x8",
        "8x8/basesWorkers8x8",
        "maps/8x8/basesWorkers8x8.xml",
    ):
        assert engine.map_file(name) == file
    with pytest.raises(UsageError, match=r"nearest names: .*8x8/basesWorkers8x8"):
        engine.map_file("baseWorkers8x8")


def test_a_map_tells_its_shape_and_its_walls(engine):
    game_map = GameMap.read(engine, "NoWhereToRun9x8")
    assert (game_map.height, game_map.width) == (8, 9)
    assert GameMap.read(engine, "DoubleGame24x24").walls.any()
    assert not GameMap.read(engine, "basesWorkers8x8").walls.any()


def test_every_map_of_the_engine_can_be_read(engine):
    for name in engine.maps:
        assert GameMap.read(engine, name).walls.shape > (0, 0)


def test_a_folder_without_a_jar_is_refused(tmp_path):
    with pytest.raises(MissingError, match=r"no microrts\.jar"):
        find_engine(tmp_path)
    assert Engine(tmp_path).maps == {}
