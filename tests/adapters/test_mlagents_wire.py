"""The modules of `mlagents_envs` about messages, connections and downloads, without that package.

Their names and parameters are compared with the official package's in `tests/interop`.
"""

import concurrent.futures
import copy
import importlib
import io
import pickle
import subprocess
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from PIL import Image
from tests.protocol.wires import assert_same_steps, png_file

import touchline
from touchline.adapters.mlagents_envs import communicator_objects as proto
from touchline.adapters.mlagents_envs.communicator import Communicator
from touchline.adapters.mlagents_envs.communicator_objects import command_pb2
from touchline.adapters.mlagents_envs.communicator_objects import (
    unity_to_external_pb2_grpc as service,
)
from touchline.adapters.mlagents_envs.environment import UnityEnvironment
from touchline.adapters.mlagents_envs.mock_communicator import MockCommunicator
from touchline.adapters.mlagents_envs.registry import UnityEnvRegistry, binary_utils
from touchline.adapters.mlagents_envs.rpc_communicator import (
    RpcCommunicator,
    UnityToExternalServicerImplementation,
)
from touchline.adapters.mlagents_envs.rpc_utils import (
    PNG_HEADER,
    OffsetBytesIO,
    behavior_spec_from_proto,
    process_pixels,
    steps_from_proto,
)
from touchline.envs.wire_server import WireServer
from touchline.player import build
from touchline.protocol.errors import (
    UnityCommunicatorStoppedException,
    UnityObservationException,
    UnityTimeOutException,
    UnityWorkerInUseException,
)
from touchline.protocol.schema import MESSAGES
from touchline.protocol.session import Command, PlayerSession, TrainerSession

HERE = "touchline.adapters.mlagents_envs"

# messages


@pytest.mark.parametrize("title", proto.NAMES)
def test_every_official_module_of_messages_can_be_imported(title):
    module = importlib.import_module(f"{HERE}.communicator_objects.{title}_pb2")
    assert module is getattr(proto, f"{title}_pb2")
    for name in proto.NAMES[title].split():
        assert getattr(module, name) is getattr(proto, name)
        assert name in {
            *module.DESCRIPTOR.message_types_by_name,
            *module.DESCRIPTOR.enum_types_by_name,
        }


def test_enums_have_names_values_and_constants():
    assert command_pb2.CommandProto.Name(command_pb2.RESET) == "RESET"
    assert command_pb2.CommandProto.Value("QUIT") == command_pb2.QUIT == Command.QUIT
    assert (proto.NONE, proto.PNG, proto.discrete, proto.continuous) == (0, 1, 0, 1)
    assert proto.ObservationTypeProto.keys() == ["DEFAULT", "GOAL_SIGNAL"]


def example():
    floats = proto.ObservationProto.FloatData(data=[1, 2])
    sensor = proto.ObservationProto(shape=[2], float_data=floats)
    agent = proto.AgentInfoProto(id=3, reward=0.5, observations=[sensor])
    agents = proto.UnityRLOutputProto.ListAgentInfoProto(value=[agent])
    output = proto.UnityRLOutputProto(agentInfos={"A": agents}, side_channel=b"x")
    return proto.UnityMessageProto(unity_output={"rl_output": output})


def test_a_message_survives_bytes_pickle_and_copies():
    message = example()
    assert proto.UnityMessageProto.FromString(message.SerializeToString()) == message
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message
    assert f"{HERE}.communicator_objects.unity_message_pb2" in str(type(message))


def test_the_bytes_are_those_of_touchlines_own_messages():
    sent = MESSAGES.UnityMessageProto.FromString(example().SerializeToString())
    agents = MESSAGES.ListAgentInfoProto.FromString(
        sent.unity_output.rl_output.agentInfos["A"]
    )
    data = agents.value[0].observations[0].float_data.data
    assert np.frombuffer(data, "<f4").tolist() == [1, 2]


OFFICIAL_NAME = """
import sys
sys.modules["grpc"] = None
from touchline.adapters.mlagents_envs import take_the_name
take_the_name()
import mlagents_envs.communicator_objects.agent_info_pb2 as messages
from mlagents_envs.communicator_objects import unity_to_external_pb2_grpc as service
from mlagents_envs.environment import UnityRLCapabilitiesProto
from mlagents_envs.rpc_communicator import RpcCommunicator
from touchline.adapters.mlagents_envs.communicator_objects import AgentInfoProto
assert messages.AgentInfoProto is AgentInfoProto
RpcCommunicator(base_port=0).close()
try:
    service.add_UnityToExternalProtoServicer_to_server(None, None)
except Exception as error:
    print(type(error).__name__, error)
"""


def test_the_official_name_leads_to_the_messages_too_and_only_a_service_needs_grpc():
    done = subprocess.run(
        [sys.executable, "-c", OFFICIAL_NAME],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "MissingError add_UnityToExternalProtoServicer_to_server needs grpc, which is not "
        "installed: pip install 'touchline[scenes]'\n"
    )


# specs and steps


def exchanges(scene, count):
    """What a scene's player sends, and how Touchline decodes it: (message, exchange, specs)."""
    recipe = touchline.EnvRecipe("scene", scene, num_areas=2, seed=3)
    rng = np.random.default_rng(0)
    with touchline.make(recipe) as env:
        env.reset()
        player, trainer = PlayerSession(env.behaviors), TrainerSession()
        trainer.receive(player.introduction())
        player.receive(trainer.welcome(3))
        trainer.receive(player.ready())
        for _ in range(count):
            player.receive(trainer.command(Command.STEP))
            seen = {name: env.get_steps(name) for name in env.behaviors}
            sent = player.exchange(seen)
            exchange = trainer.receive(sent).exchange
            message = proto.UnityMessageProto.FromString(sent)
            yield message.unity_output, exchange, trainer.behaviors
            for name, spec in env.behaviors.items():
                decisions = seen[name][0]
                actions = spec.action_spec.random_action(len(decisions), rng)
                if scene != "GridWorld":  # where some of them would be masked
                    env.set_actions(name, actions)
            env.step()


@pytest.mark.parametrize("scene", ["3DBall", "GridWorld", "SoccerTwos"])
def test_specs_and_steps_are_those_of_the_decoder(scene):
    specs, ended = {}, 0
    for output, exchange, behaviors in exchanges(scene, 60):
        infos = output.rl_output.agentInfos
        for brain in output.rl_initialization_output.brain_parameters:
            first = infos[brain.brain_name].value[0]
            specs[brain.brain_name] = behavior_spec_from_proto(brain, first)
        assert specs == behaviors
        for name, (decisions, terminals) in exchange.items():
            agents = infos[name].value if name in infos else []
            ours = steps_from_proto(agents, specs[name])
            assert_same_steps(ours[0], decisions)
            assert_same_steps(ours[1], terminals)
            ended += len(terminals)
    assert specs
    assert ended or scene != "3DBall"


def test_agents_that_do_not_fit_their_spec_are_the_official_errors():
    output, _, behaviors = next(exchanges("3DBall", 1))
    ((name, spec),) = behaviors.items()
    agents = output.rl_output.agentInfos[name].value
    agents[1].observations[0].float_data.data[0] = float("nan")
    with pytest.raises(RuntimeError, match="NaN"):
        steps_from_proto(agents, spec)
    agents[0].observations[0].shape[:] = [4]
    with pytest.raises(UnityObservationException, match=r"shape: expected \(8,\)"):
        steps_from_proto(agents, spec)


def test_pixels_are_channels_first_and_follow_a_mapping():
    rng = np.random.default_rng(0)
    files = [rng.integers(0, 256, (4, 6, 3), np.uint8) for _ in range(2)]
    data = b"".join(map(png_file, files))
    planes = np.concatenate(files, axis=2).transpose(2, 0, 1) / np.float32(255)
    np.testing.assert_array_equal(process_pixels(data, 6), planes)
    np.testing.assert_array_equal(process_pixels(data, 4), planes[:4])
    mapped = process_pixels(data, 9, [0, 0, -1, 1, 1, 1])
    means = [planes[:2].mean(axis=0), planes[3:].mean(axis=0)]
    np.testing.assert_allclose(mapped, means, rtol=1e-6)
    gray = process_pixels(png_file(files[0]), 1)
    np.testing.assert_allclose(gray, [planes[:3].mean(axis=0)], rtol=1e-6)
    for broken in (b"", data[:20], b"no image" * 9, data[:-5]):
        with pytest.raises(UnityObservationException, match="image_bytes"):
            process_pixels(broken, 3)


def test_bytes_can_be_read_as_a_file_from_any_place():
    first, second = (png_file(np.full((2, 2, 3), n, np.uint8)) for n in (7, 9))
    file = OffsetBytesIO(first + second)
    assert np.asarray(Image.open(file)).max() == 7
    file.offset = (first + second).index(PNG_HEADER, 1)
    assert np.asarray(Image.open(file)).max() == 9
    assert file.seek(0) == file.tell() == 0
    assert file.original_tell() == len(first)
    assert file.read(8) == PNG_HEADER
    assert file.seek(0, io.SEEK_END) == len(second)


# communicators


@pytest.mark.parametrize("discrete", [False, True])
def test_the_mock_sends_what_the_decoder_takes(discrete):
    mock = MockCommunicator(discrete, 2, 4, "Mine", 5)
    assert isinstance(mock, Communicator)
    output = mock.initialize(proto.UnityInputProto())
    (brain,) = output.rl_initialization_output.brain_parameters
    agents = output.rl_output.agentInfos["Mine"].value
    spec = behavior_spec_from_proto(brain, agents[0])
    assert spec.action_spec.discrete_branches == ((3, 2) if discrete else ())
    assert spec.action_spec.continuous_size == (0 if discrete else 2)
    assert [s.shape for s in spec.observation_specs] == [(30, 40, 3)] * 2 + [(5,)]
    answer = mock.exchange(proto.UnityInputProto())
    assert answer.rl_output == output.rl_output
    assert not answer.HasField("rl_initialization_output")
    decisions, terminals = steps_from_proto(agents, spec)
    assert (decisions.agent_id.tolist(), terminals.agent_id.tolist()) == (
        [0, 1, 3],
        [2],
    )
    assert decisions.obs[2].tolist() == [[1, 2, 3, 4, 5]] * 3
    assert terminals.reward.tolist() == [1]
    mock.close()
    assert mock.has_been_closed


def test_a_communicator_of_your_own_says_what_it_lacks():
    Communicator(1, 5005).close()
    with pytest.raises(NotImplementedError, match=r"Communicator has no exchange\(\)"):
        Communicator().exchange(proto.UnityInputProto())


def free_port():
    server = WireServer(None, 1 << 20)
    server.close()
    return server.port


def welcome():
    message = proto.UnityRLInitializationInputProto(
        seed=1, communication_version=UnityEnvironment.API_VERSION, num_areas=1
    )
    return proto.UnityInputProto(rl_initialization_input=message)


def order(command, **choices):
    message = proto.UnityRLInputProto(command=command)
    for name, choice in choices.items():
        message.agent_actions[f"{name}?team=0"].value.add(discrete_actions=[choice])
    return proto.UnityInputProto(rl_input=message)


def test_a_communicator_plays_with_a_real_player_and_leaves_nothing(tmp_path):
    communicator = RpcCommunicator(2, free_port() - 2, timeout_wait=60)
    player = subprocess.Popen(
        [build("Basic", tmp_path), "--mlagents-port", str(communicator.port)]
    )
    calls = []
    introduction = communicator.initialize(welcome(), lambda: calls.append(1))
    assert introduction.rl_initialization_output.capabilities.hybridActions
    assert calls, "a player takes longer to start than a wait for the callback"
    output = communicator.exchange(order(command_pb2.RESET))
    (brain,) = output.rl_initialization_output.brain_parameters
    (agent,) = output.rl_output.agentInfos[brain.brain_name].value
    spec = behavior_spec_from_proto(brain, agent)
    places = []
    for _ in range(3):
        output = communicator.exchange(order(command_pb2.STEP, Basic=2))
        (agent,) = output.rl_output.agentInfos[brain.brain_name].value
        decisions, _ = steps_from_proto([agent], spec)
        places.append(int(decisions.obs[0].argmax()))
    assert places == [11, 12, 13]
    with pytest.raises(UnityWorkerInUseException, match="is in use"):
        communicator.check_port(communicator.port)
    with pytest.raises(UnityWorkerInUseException, match="is in use"):
        RpcCommunicator(0, communicator.port)
    communicator.close()
    communicator.close()
    assert not communicator.is_open
    assert player.wait(20) == 0
    communicator.check_port(communicator.port)


def test_a_communicator_reports_who_does_not_come_and_who_leaves(tmp_path):
    communicator = RpcCommunicator(0, free_port(), timeout_wait=0.1)
    with pytest.raises(
        UnityTimeOutException, match=r"within 0\.1 s: does the player run"
    ):
        communicator.initialize(welcome())
    communicator.timeout_wait = 60

    def has_ended():
        raise ProcessLookupError("the player has ended")

    with pytest.raises(ProcessLookupError, match="the player has ended"):
        communicator.initialize(welcome(), has_ended)
    player = subprocess.Popen(
        [build("Basic", tmp_path), "--mlagents-port", str(communicator.port)]
    )
    communicator.initialize(welcome())
    player.kill()
    player.wait()
    with pytest.raises(UnityCommunicatorStoppedException, match="player"):
        communicator.exchange(order(command_pb2.RESET))
    communicator.close()


def test_a_farewell_is_none():
    grpc = pytest.importorskip("grpc")
    communicator = RpcCommunicator(0, free_port(), timeout_wait=60)
    leaving = proto.UnityMessageProto(header={"status": 400})
    with (
        grpc.insecure_channel(f"localhost:{communicator.port}") as channel,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        send = service.UnityToExternalProtoStub(channel).Exchange
        answers = [threads.submit(send, example())]
        communicator.poll_for_timeout()
        communicator.poll_for_timeout()  # the message is still there
        answers.append(threads.submit(lambda: answers[0].result() and send(example())))
        communicator.initialize(welcome())
        answers.append(threads.submit(lambda: answers[1].result() and send(leaving)))
        assert communicator.exchange(order(command_pb2.RESET)) is None
        channel_is_released = threads.submit(communicator.close)
        assert answers[2].result(20).header.status == 400
        assert answers[1].result().unity_input == order(command_pb2.RESET)
    channel_is_released.result(20)
    for call in (communicator.initialize, communicator.exchange):
        with pytest.raises(UnityCommunicatorStoppedException, match="was closed; make"):
            call(welcome())


@pytest.mark.filterwarnings("ignore:.*experimental API")
def test_a_server_of_grpcio_takes_the_servicers():
    grpc = pytest.importorskip("grpc")
    server = grpc.server(concurrent.futures.ThreadPoolExecutor())
    pipe = UnityToExternalServicerImplementation()
    service.add_UnityToExternalProtoServicer_to_server(pipe, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    threads = concurrent.futures.ThreadPoolExecutor()
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        stub = service.UnityToExternalProtoStub(channel)
        answer = threads.submit(stub.Exchange, example())
        assert pipe.parent_conn.recv() == example()
        pipe.parent_conn.send(proto.UnityMessageProto(header={"status": 200}))
        assert answer.result().header.status == 200
    server.stop(None).wait()

    server = grpc.server(threads)
    servicer = service.UnityToExternalProtoServicer()
    service.add_UnityToExternalProtoServicer_to_server(servicer, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
        service.UnityToExternalProto.Exchange(
            example(), f"localhost:{port}", insecure=True, timeout=20
        )
    server.stop(None).wait()
    threads.shutdown()


# downloads


@pytest.fixture
def site(tmp_path):
    """A folder, and the address at which it is served."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=folder)
    ) as server:
        threading.Thread(target=server.serve_forever).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def archive(path, *names):
    with zipfile.ZipFile(path, "w") as files:
        for name in names:
            files.writestr(name, "#!/bin/sh\n")


def test_a_player_is_downloaded_once_and_again_when_asked(site, tmp_path, capsys):
    folder, address = site
    url, tmp_dir = f"{address}/game.zip", str(tmp_path / "tmp")
    names = "game/game.x86_64", "game/game.exe", "game/game.app/Contents/MacOS/game"
    archive(folder / "game.zip", *names, "game/data/level0")
    assert binary_utils.get_local_binary_path_if_exists("Game", url, tmp_dir) is None
    path = binary_utils.get_local_binary_path("Game", url, tmp_dir)
    said = capsys.readouterr().out
    assert "Downloading Game [####################] 100%\n" in said
    assert "Unpacking Game [##########          ]  50%\r" in said
    downloads, players = binary_utils.get_tmp_dirs(tmp_dir)
    assert path.startswith(players)
    assert binary_utils.validate_environment_path(path) == path
    (folder / "game.zip").unlink()
    assert binary_utils.get_local_binary_path("Game", url, tmp_dir) == path
    with pytest.raises(OSError, match="404"):
        binary_utils.get_local_binary_path("Other", url, tmp_dir)
    for names in [("readme.txt",), ()]:
        archive(folder / "game.zip", *names)
        binary_utils.download_and_extract_zip(url, "Game", tmp_dir)
        with pytest.raises(FileNotFoundError, match=r"game\.zip: no player for"):
            binary_utils.get_local_binary_path("Game", url, tmp_dir)
    assert not list((tmp_path / "tmp" / "touchline-players" / "downloads").iterdir())
    assert downloads.endswith("downloads")


def test_two_downloads_at_once_end_in_one_player(site, tmp_path):
    folder, address = site
    names = "game.x86_64", "game.exe", "game.app/Contents/MacOS/game"
    archive(folder / "game.zip", *names)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        download = partial(binary_utils.get_local_binary_path, "Game")
        paths = threads.map(
            lambda _: download(f"{address}/game.zip", str(tmp_path)), range(2)
        )
        first, second = paths
    assert first == second == binary_utils.validate_environment_path(first)


def test_a_manifest_is_read_from_a_file_or_an_address(site):
    folder, address = site
    fields = "expected_reward: 1, description: d, linux_url: , darwin_url: , win_url: "
    file = folder / "manifest.yaml"
    file.write_text(f"environments:\n- Mine: {{{fields}}}\n")
    manifest = binary_utils.load_local_manifest(str(file))
    assert list(manifest["environments"][0]) == ["Mine"]
    assert binary_utils.load_remote_manifest(f"{address}/manifest.yaml") == manifest
    registry = UnityEnvRegistry()
    registry.register_from_yaml(f"{address}/manifest.yaml")
    assert list(registry) == ["Mine"]


def test_a_bar_keeps_to_its_ends(capsys):
    for percent in (-5, 33.4, 250):
        binary_utils.print_progress("Reading", percent)
    assert capsys.readouterr().out == (
        f"Reading [{' ' * 20}]   0%\rReading [{'#' * 6}{' ' * 14}]  33%\r"
        f"Reading [{'#' * 20}] 100%\n"
    )
