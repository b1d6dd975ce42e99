"""Collectors on a Ray cluster of three nodes: the same run as in process, whatever dies."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

import touchline
from touchline.envs.env import EnvRecipe
from touchline.errors import RunError, UsageError
from touchline.jobs.job import RestartLimits
from touchline.player import build
from touchline.policies.files.checkpoints import read_arrays
from touchline.training.collect.opening import RAY
from touchline.training.collect.worker import WorkerSetup
from touchline.training.config.reading import read_config
from touchline.training.trainer import train
from touchline.training.world import recipe_of

os.environ.update(RAY)  # some of it is read when Ray is imported
pytest.importorskip("ray", reason="needs touchline[ray]")

pytestmark = [
    pytest.mark.slow,  # a cluster takes half a minute to start
    pytest.mark.skipif(
        sys.platform == "win32", reason="Ray's clusters of several nodes need POSIX"
    ),
    # Ray leaves sockets and pipes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

RECIPE = EnvRecipe("scene", "3DBall", num_areas=4)
STORE_BYTES = 100 * 2**20
BUFFER = 240


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    cluster = Cluster(
        initialize_head=True, head_node_args={**node, "include_dashboard": False}
    )
    for _ in range(2):
        cluster.add_node(**node)
    yield cluster
    cluster.shutdown()


def config_of(folder, run_id, cluster=None, updates=4, preset="3DBall", **changes):
    scene = preset.partition("_")[0]
    overrides = {
        "checkpoint_settings.results_dir": str(folder),
        "checkpoint_settings.run_id": run_id,
        "env_settings.seed": 3,
        "env_settings.max_lifetime_restarts": -1,
        "env_settings.restarts_rate_limit_n": -1,
        "cluster_settings.collectors": 3,
        f"behaviors.{scene}.hyperparameters.buffer_size": BUFFER,
        f"behaviors.{scene}.hyperparameters.batch_size": BUFFER // 4,
        f"behaviors.{scene}.max_steps": BUFFER * updates,
        f"behaviors.{scene}.summary_freq": BUFFER,
    }
    if cluster is not None:
        overrides["cluster_settings.cluster"] = cluster.address
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    return read_config(preset, (), overrides | changes)


def checkpoint(folder, run_id, cluster=None, log=print, **changes):
    """The bytes of what a run has learned."""
    result = train(config_of(folder, run_id, cluster, **changes), RECIPE, log)
    return (result.folder / "3DBall" / "checkpoint.safetensors").read_bytes()


def actors():
    """The processes of collectors."""
    return titled("ray::Actor")


def titled(title):
    """The processes of this test's cluster with such a title."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith(title):
                found.append(process)
    return found


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def gone_within(find, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not find():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("updates", [4, 50])
def test_collectors_on_a_cluster_train_the_weights_of_collectors_in_process(
    cluster, tmp_path, updates
):
    here = checkpoint(tmp_path, "here", updates=updates)
    there = checkpoint(tmp_path, "there", cluster, updates=updates)
    assert here == there


def test_self_play_on_a_cluster_is_that_of_collectors_in_process(cluster, tmp_path):
    recipe = EnvRecipe("scene", "SoccerTwos", num_areas=1)
    block = "behaviors__SoccerTwos__"
    changes = {
        f"{block}network_settings__hidden_units": 16,
        f"{block}self_play__save_steps": BUFFER,
        f"{block}self_play__swap_steps": 100,
        f"{block}self_play__play_against_latest_model_ratio": 0.0,
        f"{block}self_play__versus": ["random"],
    }
    found = []
    for run_id, where in (("here", None), ("there", cluster)):
        config = config_of(tmp_path, run_id, where, 8, "SoccerTwos", **changes)
        folder = train(config, recipe, print).folder
        found.append(read_arrays(folder / "resume.safetensors"))
    (here, about_here), (there, about_there) = found
    assert here.keys() == there.keys()
    for name, array in here.items():
        assert np.array_equal(array, there[name]), name
    assert about_here["self_play"] == about_there["self_play"]
    assert about_here["self_play"]["pools"]["SoccerTwos"]["opponent_steps"] > BUFFER


def test_checkpoints_are_evaluated_on_the_nodes_as_in_process(cluster, tmp_path):
    """Even if one that plays is killed: Ray plays again."""
    found = {}
    killed = []
    killer = threading.Thread(target=kill_one, args=("ray::evaluation", killed))
    killer.start()
    for run_id, where in (("here", None), ("there", cluster)):
        config = config_of(
            tmp_path,
            run_id,
            where,
            updates=6,
            behaviors__3DBall__checkpoint_interval=2 * BUFFER,
        )
        folder = train(config, RECIPE, print).folder
        status = json.loads(
            (folder / "run_logs/training_status.json").read_text(encoding="utf-8")
        )
        best = (folder / "3DBall" / "best.safetensors").read_bytes()
        found[run_id] = status["3DBall"]["evaluations"], best
    killer.join()
    assert killed
    assert found["here"] == found["there"]
    assert [e["steps"] for e in found["here"][0]] == [480, 960, 1440]
    assert {e["episodes"] for e in found["here"][0]} == {5}


class Killer(threading.Thread):
    """Kills collectors at random moments of a run; takes the run's lines."""

    def __init__(self, kills):
        super().__init__(daemon=True)
        self.killed, self.lines = 0, []
        self._kills = kills
        self._chance = random.Random(1)
        self._has_begun, self._is_over = threading.Event(), threading.Event()

    def log(self, line):
        self.lines.append(line)
        if "  step" in line:
            self._has_begun.set()

    @property
    def replaced(self):
        return sum("died and is replaced" in line for line in self.lines)

    def stop(self):
        self._is_over.set()
        self._has_begun.set()
        self.join()

    def run(self):
        self._has_begun.wait()
        while self.killed < self._kills and not self._is_over.is_set():
            found = actors()
            if self.replaced < self.killed or not found:
                time.sleep(0.01)
                continue
            time.sleep(self._chance.uniform(0.0, 0.3))
            self._chance.choice(found).send_signal(signal.SIGKILL)
            self.killed += 1


@pytest.mark.parametrize("kills", [3, 20])
def test_killed_collectors_cost_a_run_nothing(cluster, tmp_path, kills):
    updates = 10 + 5 * kills
    calm = checkpoint(tmp_path, "calm", updates=updates)
    killer = Killer(kills)
    killer.start()
    try:
        killed = checkpoint(tmp_path, "killed", cluster, killer.log, updates=updates)
    finally:
        killer.stop()
    assert killer.killed == killer.replaced == kills
    assert killed == calm
    assert gone_within(actors, 5.0)


def test_sac_on_a_cluster_goes_on_when_a_collector_dies(cluster, tmp_path):
    block = "behaviors__Basic__"
    changes = {
        f"{block}hyperparameters__buffer_size": 2000,
        f"{block}hyperparameters__buffer_init_steps": 200,
        f"{block}hyperparameters__steps_per_update": 20,
        f"{block}max_steps": 4000,
    }
    config = config_of(tmp_path, "run", cluster, 1, "Basic_sac", **changes)
    killer = Killer(1)
    killer.start()
    try:
        result = train(config, EnvRecipe("scene", "Basic", num_areas=4), killer.log)
    finally:
        killer.stop()
    assert killer.killed == killer.replaced == 1
    assert result.behaviors["Basic"].steps >= 4000
    arrays, _ = read_arrays(result.folder / "resume.safetensors")
    assert {name.split("/")[1] for name in arrays if name.startswith("collector/")} == {
        "0",
        "1",
        "2",
    }
    assert gone_within(actors, 5.0)


def test_a_node_that_dies_takes_nothing_from_the_run(cluster, tmp_path):
    node = cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
    lines = []

    def log(line):
        print(line)
        lines.append(line)
        if (
            sum("3DBall  step" in known for known in lines) == 5
            and node in cluster.worker_nodes
        ):
            cluster.remove_node(node, allow_graceful=False)

    # Four of four nodes have a collector.
    more = {"cluster_settings__collectors": 4, "updates": 12}
    calm = checkpoint(tmp_path, "calm4", **more)
    shaken = checkpoint(tmp_path, "shaken", cluster, log, **more)
    assert sum("died and is replaced" in line for line in lines) == 1
    assert shaken == calm


def test_a_collector_that_dies_too_often_ends_the_run_which_is_saved(cluster, tmp_path):
    killer = Killer(1)
    killer.start()
    config = config_of(
        tmp_path, "run", cluster, 400, env_settings__max_lifetime_restarts=0
    )
    try:
        with pytest.raises(
            RunError, match=r"collector \d failed again after 0 restarts"
        ):
            train(config, RECIPE, killer.log)
    finally:
        killer.stop()
    assert (tmp_path / "run" / "resume.safetensors").exists()
    assert gone_within(actors, 5.0)


def test_players_run_on_the_nodes_and_their_logs_arrive(cluster, tmp_path):
    player = build("Basic", tmp_path / "build", num_areas=2)
    config = config_of(
        tmp_path,
        "run",
        cluster,
        preset="Basic",
        env_settings__env_path=str(player),
        cluster_settings__collectors=2,
    )
    result = train(config, recipe_of(config), print)
    assert result.behaviors["Basic"].steps >= 4 * BUFFER
    assert gone_within(players, 5.0)


def shipping_config(folder, cluster, collectors):
    """Of collectors that find room on new nodes of two processors only."""
    player = build("Basic", folder / "build", num_areas=2)
    return config_of(
        folder,
        "run",
        cluster,
        preset="Basic",
        env_settings__env_path=str(player),
        cluster_settings__collectors=collectors,
        cluster_settings__cpus_per_collector=2,
        cluster_settings__ship=True,
    )


def test_a_shipped_player_is_unpacked_once_on_every_node(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.delenv("TMPDIR", raising=False)
    nodes, folders = [], [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        monkeypatch.setenv("TEMP", str(folder))  # as if it were another machine
        nodes.append(cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES))
    config = shipping_config(tmp_path, cluster, collectors=2)
    result = train(config, recipe_of(config), print)
    for node in nodes:
        cluster.remove_node(node)
    assert result.behaviors["Basic"].steps >= 4 * BUFFER
    unpacked = [path for f in folders for path in f.glob("touchline-builds-*/*/*")]
    assert [path.name for path in unpacked] == ["Basic.x86_64"] * 2
    assert len({path.parent.name for path in unpacked}) == 1
    assert gone_within(players, 5.0)


def test_a_killed_collector_leaves_no_temporary_files(cluster, tmp_path, monkeypatch):
    monkeypatch.delenv("TMPDIR", raising=False)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TEMP", str(temporary))  # as if it were another machine
    node = cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
    config = shipping_config(tmp_path, cluster, collectors=1)
    killer = Killer(kills=1)
    killer.start()
    try:
        train(config, recipe_of(config), killer.log)
    finally:
        killer.stop()
    assert killer.killed == killer.replaced == 1, killer.lines
    assert gone_within(lambda: list(temporary.glob("touchline-[!b]*")), 10.0)
    assert list(temporary.glob("touchline-builds-*/*/Basic.x86_64"))
    cluster.remove_node(node)


def kill_one(title, killed):
    """End a process of Ray's with this title, as soon as there is one."""
    until = time.monotonic() + 120
    while time.monotonic() < until and not killed:
        for process in titled(title):
            time.sleep(1.0)  # it starts its run meanwhile
            process.kill()
            killed.append(process.pid)
            return
        time.sleep(0.1)


def test_seeds_on_nodes_are_the_runs_of_this_machine(cluster, tmp_path):
    lines, killed = [], []
    threading.Thread(target=kill_one, args=("ray::NodeProcess", killed)).start()
    changes = {
        "behaviors.Basic.max_steps": 300,
        "checkpoint_settings.results_dir": str(tmp_path),
    }
    result = touchline.train_seeds(
        "Basic",
        "0,3",
        run_id="study",
        changes=changes | {"cluster_settings.cluster": cluster.address},
        log=lines.append,
    )
    assert killed, "one run lost its node, and went on"
    assert sum("done after" in line for line in lines) == 2
    assert set(result.behaviors["Basic"].scores) == {0, 3}
    config = read_config(
        "Basic",
        (),
        changes | {"env_settings.seed": 3, "checkpoint_settings.run_id": "alone"},
    )
    alone = train(config, recipe_of(config, "Basic", print)).folder
    for name in ("Basic/checkpoint.safetensors", "Basic.onnx"):
        there = result.folder / "seed-3" / name
        assert there.read_bytes() == (alone / name).read_bytes()


def test_seeds_of_a_shipped_player_run_on_the_nodes(cluster, tmp_path):
    player = build("Basic", tmp_path / "build", num_areas=2)
    changes = {
        "behaviors.Basic.max_steps": 300,
        "checkpoint_settings.results_dir": str(tmp_path),
        "cluster_settings.cluster": cluster.address,
        "cluster_settings.ship": True,
        "env_settings.env_path": str(player),
    }
    result = touchline.train_seeds("Basic", "0-1", run_id="x", changes=changes)
    assert set(result.behaviors["Basic"].scores) == {0, 1}
    for seed in (0, 1):
        about = tmp_path / "x" / f"seed-{seed}" / "run_logs" / "training_status.json"
        world = json.loads(about.read_text(encoding="utf-8"))["target"]
        assert "touchline-builds-" in world
        assert (about.parent / "Player-0.log").exists()
    assert gone_within(players, 5.0)


@pytest.fixture
def busy(cluster, monkeypatch):
    """Lines that are logged; a cluster has no room until one of them says that something waits."""
    import ray

    from touchline.jobs.ray import connected

    class Holder:  # in here, so that Ray sends it along
        def is_there(self):
            return True

    class Lines(list):
        def append(self, line):
            super().append(line)
            if "waits for" in line:
                for one in holders:
                    ray.kill(one)

    monkeypatch.setattr("touchline.jobs.ray.SAY_AFTER_S", 2.0)
    with connected(cluster.address):
        holder = ray.remote(num_cpus=1)(Holder)
        holders = [holder.remote() for _ in range(3)]
        ray.get([one.is_there.remote() for one in holders])
        yield Lines()


def test_collectors_that_find_no_room_say_that_they_wait(cluster, busy, tmp_path):
    checkpoint(tmp_path, "waits", cluster, busy.append)
    line = "collector 0 waits for a node with room for it (CPUs: 1)"
    assert any(line in logged for logged in busy)


def test_a_run_that_finds_no_room_says_that_it_waits(
    cluster, busy, tmp_path, monkeypatch
):
    from touchline.studies import seeds

    monkeypatch.setattr(seeds, "BETWEEN_LINES_S", 0.0)
    changes = {
        "behaviors.Basic.max_steps": 300,
        "checkpoint_settings.results_dir": str(tmp_path),
        "cluster_settings.cluster": cluster.address,
    }
    result = touchline.train_seeds(
        "Basic", "0", run_id="waits", changes=changes, log=busy.append
    )
    assert any("waits for a node with room for it (CPUs: 1)" in line for line in busy)
    assert set(result.behaviors["Basic"].scores) == {0}


def test_an_answer_says_which_node_it_comes_from(cluster):
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from touchline.jobs.ray import connected
    from touchline.training.collect.cluster import Actor

    setup = WorkerSetup(0, (RECIPE,), RestartLimits(), 3, 0, 1)
    with connected(cluster.address):
        # Ray still lists nodes that earlier tests removed.
        for node in cluster.list_all_nodes():
            place = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
            options = {"num_cpus": 0, "scheduling_strategy": place}
            actor = ray.remote(Actor).options(**options).remote(setup)
            assert ray.get(actor.run.remote([("open", ())])).node == node.node_id
            ray.kill(actor)


def test_trials_on_nodes_are_those_of_this_machine(cluster, tmp_path, monkeypatch):
    pytest.importorskip("optuna", reason="needs touchline[tune]")
    monkeypatch.chdir(tmp_path)
    rate = "behaviors.*.hyperparameters.learning_rate"
    Path("space.yaml").write_text(f"{rate}: {{low: 1e-4, high: 1e-2, log: true}}\n")
    killed, changes = [], {"behaviors.*.max_steps": 300}
    here = touchline.tune("Basic", "space.yaml", 2, run_id="here", changes=changes)
    changes["cluster_settings.cluster"] = cluster.address
    threading.Thread(target=kill_one, args=("ray::NodeProcess", killed)).start()
    there = touchline.tune("Basic", "space.yaml", 2, run_id="there", changes=changes)
    assert killed, "one trial lost its node, and went on"
    assert there.trials == here.trials
    best = read_config(str(there.folder / "best.yaml")).cluster_settings
    assert best.cluster is None, "the best settings train anywhere"


def test_a_tournament_on_nodes_has_the_figures_of_this_machine(cluster, tmp_path):
    recipe = EnvRecipe("scene", "SoccerTwos", num_areas=1)
    block = "behaviors__SoccerTwos__network_settings__hidden_units"
    config = config_of(tmp_path, "own", None, 1, "SoccerTwos", **{block: 8})
    folder = train(config, recipe).folder
    entrants = [str(folder), f"SoccerTwos={folder / 'SoccerTwos.onnx'}"]
    here, there = (
        touchline.tournament(recipe, entrants, games=2, seed=1, **where)
        for where in ({"processes": 1}, {"cluster": cluster.address})
    )
    assert here == there
    with pytest.raises(UsageError, match="expected local:N"):
        touchline.tournament(recipe, entrants, cluster="local:0")


def players():
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if "touchline.player" in (p.info["cmdline"] or ())]


def test_what_a_cluster_cannot_do_is_one_line_and_nothing_is_written(
    cluster, tmp_path, monkeypatch
):
    def refused(**changes):
        with pytest.raises(UsageError) as caught:
            train(config_of(tmp_path, "run", cluster, **changes), RECIPE)
        text = str(caught.value)
        assert "\n" not in text
        assert not files_in(tmp_path / "run")
        return text

    assert "room for 3 (3 CPUs in 3 nodes)" in refused(cluster_settings__collectors=4)
    assert "room for 0" in refused(cluster_settings__cpus_per_collector=2)
    where = {"cluster_settings__cluster": "127.0.0.1:1"}
    assert "no cluster there" in refused(**where)
    monkeypatch.setattr("touchline.jobs.ray.__version__", "99.0")
    assert "it has Touchline" in refused()


def test_a_build_that_a_node_does_not_have_is_one_line(cluster, tmp_path):
    player = build("Basic", tmp_path / "build")
    config = config_of(tmp_path, "run", cluster, env_settings__env_path=str(player))
    recipe = recipe_of(config)
    player.unlink()
    with pytest.raises(UsageError, match=r"node \S+: no player at .*Basic"):
        train(config, recipe)
    assert not files_in(tmp_path / "run")


def slowdown():
    """How many times longer work takes than on an idle machine."""
    began, spent = time.perf_counter(), time.process_time()
    while time.process_time() < spent + 0.3:
        pass
    return (time.perf_counter() - began) / 0.3


SEGMENTS = Path("/dev/shm")
STUDIES = {
    "collectors": (["train", "3DBall", "--collectors", "2"], [""]),
    "seeds": (["train", "3DBall", "--seeds", "0-1"], ["seed-0", "seed-1"]),
    "trials": (
        ["tune", "3DBall", "--space", "space.yaml", "--trials", "2"],
        ["trial-0", "trial-1"],
    ),
}
"""A command, and its runs' folders within that of its results."""
PROGRAM = """
import signal
# A shell ignores Ctrl-C for what it starts in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
from touchline.cli import main
main()
"""


@pytest.mark.parametrize("what", STUDIES)
def test_ctrl_c_ends_all_within_seconds_and_saves(what, tmp_path, monkeypatch):
    monkeypatch.delenv("TMPDIR", raising=False)  # Ray's paths have to be short
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "space.yaml").write_text("behaviors.*.max_steps: {choices: [1e6]}\n")
    command, runs = STUDIES[what]
    place = ["--cluster", "local:2", "--num-areas", "2", "--run-id", "x"]
    source = str(Path(touchline.__file__).parents[1])
    before = set(SEGMENTS.glob("*"))
    with (tmp_path / "output.txt").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *command, *place],
            env=os.environ | {"PYTHONPATH": source, "TEMP": str(temporary)},
            cwd=tmp_path,
            stderr=output,
            start_new_session=True,
        )
    folders = [tmp_path / "results" / "x" / run for run in runs]
    begun = [folder / "3DBall" / "metrics.csv" for folder in folders]
    while not all(path.exists() for path in begun):
        assert process.poll() is None, (tmp_path / "output.txt").read_text(
            encoding="utf-8"
        )
        time.sleep(0.1)
    children = psutil.Process(process.pid).children(recursive=True)
    assert any("raylet" in child.name() for child in children)
    began = time.time()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it
    busy = slowdown()
    code = process.wait(timeout=600)
    took = time.time() - began
    assert code == 130
    assert took < 5.0 * busy, (took, busy)
    saved = [f for f in folders if (f / "resume.safetensors").stat().st_mtime > began]
    # Where saving takes longer than five seconds, the end does not wait for it.
    is_late = busy > 2 and "slow to stop" in (tmp_path / "output.txt").read_text(
        encoding="utf-8"
    )
    assert saved == folders or is_late
    _, alive = psutil.wait_procs(children, timeout=5.0 * busy)
    assert not alive
    assert set(SEGMENTS.glob("*")) <= before
    assert not list(temporary.glob("touchline-run-*"))


def test_a_run_whose_node_dies_leaves_no_folder_there(cluster, tmp_path, monkeypatch):
    monkeypatch.delenv("TMPDIR", raising=False)
    room = {"num_cpus": 2, "object_store_memory": STORE_BYTES}
    changes = {
        "behaviors.3DBall.max_steps": 2000,
        "checkpoint_settings.results_dir": str(tmp_path),
        "cluster_settings.cluster": cluster.address,
        "cluster_settings.cpus_per_collector": 2,  # only the new nodes have room
    }
    nodes = {}
    for name in ("one", "other"):
        temporary = tmp_path / name
        temporary.mkdir()
        monkeypatch.setenv("TEMP", str(temporary))  # as if it were another machine
        nodes[temporary] = cluster.add_node(**room)
    monkeypatch.delenv("TEMP")
    killed = []

    def kill_where_it_runs():
        while not killed:
            begun = "touchline-run-*/*/run_logs"
            killed.extend(place for place in nodes if list(place.glob(begun)))
            time.sleep(0.1)
        cluster.remove_node(nodes.pop(killed[0]), allow_graceful=False)

    killer = threading.Thread(target=kill_where_it_runs)
    killer.start()
    result = touchline.train_seeds("3DBall", "0", run_id="x", changes=changes)
    killer.join()
    (left,) = nodes.values()
    cluster.remove_node(left)
    assert set(result.behaviors["3DBall"].scores) == {0}
    assert gone_within(lambda: list(killed[0].glob("touchline-run-*")), 10.0)


HOST = """
import sys, ray
from touchline.jobs.ray import connected
with connected("local:1"):
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
"""
GUEST = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False)
print("let in", ray.get(ray.remote(lambda: 1).remote()))
"""


BESIDE = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""A program on the same machine, which finds the cluster on the loopback and shows its token."""


def test_strangers_at_the_ports_of_a_local_cluster_are_refused(tmp_path):
    """Another user has another home, and so not the token."""
    with subprocess.Popen(
        [sys.executable, "-c", HOST],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as host:  # fmt: skip
        address = host.stdout.readline().strip()
        guests = [
            subprocess.run(
                [sys.executable, "-c", GUEST, address],
                env=os.environ | BESIDE | home, capture_output=True, text=True, timeout=120,
            )
            for home in ({}, {"HOME": str(tmp_path)})
        ]  # fmt: skip
        host.stdin.close()
    friend, stranger = guests
    assert "let in 1" in friend.stdout, friend.stderr
    assert stranger.returncode != 0
    assert "let in" not in stranger.stdout


def test_a_local_cluster_listens_on_the_loopback_alone():
    with subprocess.Popen(
        [sys.executable, "-c", HOST],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as host:  # fmt: skip
        host.stdout.readline()
        family = [
            psutil.Process(host.pid),
            *psutil.Process(host.pid).children(recursive=True),
        ]
        listening = [
            connection.laddr.ip
            for process in family
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        host.stdin.close()
    assert len(listening) >= 5  # the head's, the node's, and each worker's
    assert all(ip.removeprefix("::ffff:").startswith("127.") for ip in listening), (
        listening
    )
