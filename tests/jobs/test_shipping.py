"""Builds that travel: what is packed, and that it is unpacked once."""

import os
import stat
import sys

import pytest

from touchline.envs.env import EnvRecipe
from touchline.errors import RunError, UsageError
from touchline.jobs.shipping import pack_build, unpacked
from touchline.training.config.reading import read_config
from touchline.training.trainer import train


@pytest.fixture
def player(tmp_path):
    """A build as Unity writes it."""
    folder = tmp_path / "build"
    (folder / "Game_Data" / "Managed").mkdir(parents=True)
    (folder / "Game_Data" / "Managed" / "code.dll").write_bytes(b"code")
    (folder / "UnityPlayer.so").write_bytes(b"library")
    (folder / "notes.txt").write_text("not part of it")
    player = folder / "Game.x86_64"
    player.write_text("#!/bin/sh\n")
    player.chmod(0o755)
    return player


@pytest.fixture
def node(tmp_path, monkeypatch):
    """This process as one with another folder for temporary files."""
    folder = tmp_path / "node"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.usefixtures("node")
def test_a_build_arrives_with_its_data_and_libraries(player):
    build = pack_build(player)
    there = unpacked(build, lambda archive: archive)
    files = {p.relative_to(there.parent).as_posix() for p in there.parent.rglob("*.*")}
    assert files == {"Game.x86_64", "UnityPlayer.so", "Game_Data/Managed/code.dll"}
    assert there.read_bytes() == player.read_bytes()
    # Windows knows a program by its name.
    assert sys.platform == "win32" or there.stat().st_mode & stat.S_IXUSR


@pytest.mark.usefixtures("node")
def test_a_build_for_windows_brings_the_folders_of_its_libraries(player):
    runtimes = {"MonoBleedingEdge/EmbedRuntime/mono.dll", "D3D12/D3D12Core.dll"}
    others = {"Game_BurstDebugInformation_DoNotShip/Data/lib.txt"}
    for name in runtimes | others:
        file = player.parent / name
        file.parent.mkdir(parents=True)
        file.write_bytes(b"library")
    there = unpacked(pack_build(player), lambda archive: archive).parent
    assert all((there / name).is_file() for name in runtimes)
    assert not any((there / name).exists() for name in others)


@pytest.mark.usefixtures("node")
def test_a_build_is_fetched_and_unpacked_once(player):
    fetched = []

    def fetch(archive):
        fetched.append(archive)
        return archive

    places = {unpacked(pack_build(player), fetch) for _ in range(3)}
    assert len(places) == len(fetched) == 1


@pytest.mark.usefixtures("node")
def test_a_digest_says_what_is_in_a_build_and_not_when_it_was_built(player):
    first = pack_build(player)
    os.utime(player, (1, 1))
    assert pack_build(player).digest == first.digest
    (player.parent / "UnityPlayer.so").write_bytes(b"newer")
    second = pack_build(player)
    assert second.digest != first.digest
    assert unpacked(first, bytes) != unpacked(second, bytes)


def test_a_node_without_room_says_so_in_one_line(player, node):
    node.rmdir()
    with pytest.raises(RunError, match="--ship: cannot unpack the build") as caught:
        unpacked(pack_build(player), bytes)
    assert "\n" not in str(caught.value)


def test_shipping_needs_a_cluster_and_a_player(tmp_path):
    ship = {"cluster_settings.ship": True, "cluster_settings.collectors": 2}
    with pytest.raises(UsageError, match=r"ship: .*give --cluster"):
        read_config("3DBall", (), ship)
    ship |= {
        "cluster_settings.cluster": "local:2",
        "checkpoint_settings.results_dir": str(tmp_path),
    }
    pytest.importorskip("ray", reason="needs touchline[ray]")
    config = read_config("3DBall", (), ship)
    with pytest.raises(UsageError, match=r"--ship sends the build .* 3DBall is none"):
        train(config, EnvRecipe("scene", "3DBall"))
    assert not (tmp_path / "3DBall").exists()
