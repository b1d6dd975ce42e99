"""Games on film."""

from touchline.envs.env import make
from touchline.film import film


def test_a_game_is_filmed_without_a_display(engine, tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    with make(f"microrts:basesWorkers8x8?engine={engine.folder}") as env:
        film(env, ["random"], tmp_path / "game.mp4", seconds=1.0, size=(160, 120))
    assert (tmp_path / "game.mp4").stat().st_size > 1000
