"""Kill players in the middle of training again and again: no optimizer step may be lost.

    python -m tests.training.run.killed_players --kills 1000

PPO learns from several players at a time. Whenever they all run, one of them is killed with SIGKILL
at a random moment. Training must go on in the same process, replace each killed player once, and
make every optimizer step that the experience of its updates is good for.
"""

import argparse
import csv
import random
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml
from tests.envs import scripted_player

from touchline.operating_systems import send_to_self
from touchline.policies.files.checkpoints import read_arrays
from touchline.training.config.reading import read_config
from touchline.training.trainer import train
from touchline.training.world import recipe_of

ID, BEHAVIOR = "killed", "Puppet"
EPOCHS, BUFFER = 3, 64
LAST_UPDATES = 5
LONGEST_WAIT_S = 0.5
"""Until a kill, after all players run."""


@dataclass
class Outcome:
    """What killing players led to."""

    kills: int
    restarts: int
    updates: int
    optimizer_steps: int
    expected_steps: int
    """Of the optimizer: those that the updates had experience for."""

    @property
    def lost(self) -> int:
        return self.expected_steps - self.optimizer_steps


class Killer(threading.Thread):
    """Kills running players, then ends the training as a user would, with SIGTERM."""

    def __init__(self, kills, num_players, seed):
        super().__init__(daemon=True)
        self.kills = self.restarts = 0
        self._most, self._num_players = kills, num_players
        self._chance = random.Random(seed)
        self._killed = set()
        self._lines_since_restart = 0
        self._has_begun, self._is_over = threading.Event(), threading.Event()

    def log(self, line):
        """Takes the lines of the training, the first when all players have connected."""
        self._has_begun.set()
        is_restart = "failed and is restarted" in line
        self.restarts += is_restart
        self._lines_since_restart = 0 if is_restart else self._lines_since_restart + 1

    def stop(self):
        self._is_over.set()
        self._has_begun.set()

    def run(self):
        # A player that cannot be started at first is an error; later ones are replaced.
        self._has_begun.wait()
        while self.kills < self._most and not self._is_over.is_set():
            players = self._players()
            if len(players) < self._num_players:
                time.sleep(0.01)
                continue
            time.sleep(self._chance.uniform(0.0, LONGEST_WAIT_S))
            victim = self._chance.choice(players)
            self._killed.add(victim.pid)
            # Where it is ending anyway, Windows refuses.
            try:
                victim.kill()
            except psutil.Error:
                continue
            self.kills += 1
        # Training goes on after the last restart: each update logs a line.
        while self.restarts < self.kills or self._lines_since_restart < LAST_UPDATES:
            if self._is_over.wait(0.05):
                return
        send_to_self(signal.SIGTERM)

    def _players(self):
        """The processes of players that were not killed."""
        found = []
        for child in psutil.Process().children():
            try:
                is_player = any(
                    "scripted_player" in part or part.endswith("nothing.exe")
                    for part in child.cmdline()
                )
                if is_player and child.pid not in self._killed:
                    found.append(child)
            # Windows says OSError where the process has just ended.
            except (psutil.Error, OSError):
                continue
        return found


def write_player(folder):
    """The scripted player that does nothing wrong, as an executable."""
    return scripted_player.written(folder, "nothing")


def config_of(folder, num_players):
    """PPO with one minibatch an epoch, so that each update has `EPOCHS` optimizer steps."""
    path = folder / "config.yaml"
    behavior = {
        "trainer_type": "ppo",
        "max_steps": 10**9,
        "summary_freq": 1,  # a row of metrics for each update
        "checkpoint_interval": 10**9,
        "hyperparameters": {
            "buffer_size": BUFFER,
            "batch_size": BUFFER,
            "num_epoch": EPOCHS,
        },
        "network_settings": {"hidden_units": 8, "num_layers": 1},
    }
    env_settings = {
        "env_path": str(write_player(folder)),
        "num_envs": num_players,
        "seed": 1,
        "max_lifetime_restarts": -1,
        "restarts_rate_limit_n": -1,
    }
    settings = {"results_dir": str(folder / "results"), "run_id": ID}
    blocks = {
        "behaviors": {BEHAVIOR: behavior},
        "env_settings": env_settings,
        "checkpoint_settings": settings,
    }
    path.write_text(yaml.safe_dump(blocks))
    return read_config(str(path))


def kill_players(kills, num_players=2, seed=1):
    """Train until so many players were killed and replaced."""
    with tempfile.TemporaryDirectory(prefix="touchline-killed-") as name:
        folder = Path(name)
        config = config_of(folder, num_players)
        killer = Killer(kills, num_players, seed)
        killer.start()
        try:
            train(config, recipe_of(config), killer.log)
        finally:
            killer.stop()
            killer.join()
        run = folder / "results" / ID
        arrays, _ = read_arrays(run / "resume.safetensors")
        with (run / BEHAVIOR / "metrics.csv").open(newline="") as file:
            updates = len(list(csv.DictReader(file)))
    return Outcome(
        killer.kills,
        killer.restarts,
        updates,
        int(arrays[f"learners/{BEHAVIOR}/optimizer.step"]),
        EPOCHS * updates,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--players", type=int, default=4, help="at a time")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    given = parser.parse_args()
    outcome = kill_players(given.kills, given.players, given.seed)
    print(
        f"{outcome.kills} players killed, {outcome.restarts} restarts, "
        f"{outcome.updates} updates, {outcome.optimizer_steps} optimizer steps, "
        f"{outcome.lost} lost"
    )
    return 1 if outcome.lost or outcome.restarts != outcome.kills else 0


if __name__ == "__main__":
    sys.exit(main())
