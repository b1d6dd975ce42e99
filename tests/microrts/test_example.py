"""The example of PPO from scratch runs from start to end."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_learns_evaluates_and_films_in_its_short_mode(engine, tmp_path):
    command = [
        sys.executable,
        ROOT / "examples" / "ppo_multidiscrete_microrts.py",
        "--quick",
        "--rollout",
        "32",
    ]
    run = subprocess.run(
        [*map(str, command), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1",
        },
    )
    assert run.returncode == 0, run.stderr
    lines = [
        json.loads(line)
        for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [line["steps"] for line in lines] == [256, 512, 768, 1024]
    assert lines[-1]["episodes"] == 8
    assert "greedy:" in run.stdout.splitlines()[-1]
    assert (tmp_path / "game.mp4").stat().st_size > 1000
    assert (tmp_path / "agent.pt").is_file()
