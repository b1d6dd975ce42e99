"""Which message may be sent when: the whole table, both ends joined, and versions."""

import numpy as np
import pytest
from tests.protocol.plain_messages import plain_messages
from tests.protocol.wires import assert_same_steps, decisions, terminals

from touchline.protocol.dialect import Dialect
from touchline.protocol.errors import (
    MalformedMessageError,
    OutOfTurnError,
    VersionRefusedError,
)
from touchline.protocol.schema import MESSAGES
from touchline.protocol.session import (
    GOODBYE,
    NEXT,
    Command,
    MessageKind,
    Order,
    PlayerSession,
    State,
    TrainerSession,
    Welcome,
    advance,
)
from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec((2,)),), ActionSpec(1, (3,)))
NAME = "A?team=0"
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", MessageKind)
def test_any_message_in_any_state_is_in_the_table_or_a_clean_error(state, kind):
    if (state, kind) in NEXT:
        assert advance(state, kind) is NEXT[state, kind]
    else:
        with pytest.raises(OutOfTurnError, match=f"got {kind.value}"):
            advance(state, kind)


def test_every_state_is_reached_and_every_path_can_end():
    assert {*NEXT.values(), State.PLAYER_INTRODUCES} == set(State)
    ends = {State.CLOSED}
    while True:
        more = {at for (at, _), after in NEXT.items() if after in ends} - ends
        if not more:
            break
        ends |= more
    assert ends == set(State)


def joined(dialect=None, **options):
    """Both ends after the handshake, the first command due."""
    trainer, player = TrainerSession(**options), PlayerSession({NAME: SPEC}, dialect)
    trainer.receive(player.introduction())
    player.receive(trainer.welcome(7, 3))
    trainer.receive(player.ready())
    return trainer, player


def test_the_handshake_carries_seed_areas_versions_and_capabilities():
    trainer, player = (
        TrainerSession(),
        PlayerSession({}, Dialect("1.2.0", "1.6.0", frozenset({"hybridActions"}))),
    )
    assert trainer.receive(player.introduction()).kind is MessageKind.INTRODUCTION
    assert player.receive(trainer.welcome(7, 3)) == Welcome(7, 3, "1.1.0")
    assert trainer.receive(player.ready()).kind is MessageKind.READY
    assert trainer.dialect == Dialect("1.2.0", "1.6.0", frozenset({"hybridActions"}))


def test_exchanges_and_commands_cross_the_wire():
    trainer, player = joined()
    order = player.receive(trainer.command(Command.RESET, side_channel=b"hello"))
    assert order == Order(Command.RESET, {}, b"hello")
    exchange = {NAME: (decisions(RNG, SPEC, 2), terminals(RNG, SPEC, 1))}
    received = trainer.receive(player.exchange(exchange, b"back"))
    assert received.side_channel == b"back"
    assert dict(trainer.behaviors) == {NAME: SPEC}
    assert_same_steps(received.exchange[NAME][0], exchange[NAME][0])
    sent = ActionTuple(
        np.array([[0.5], [-0.5]], np.float32), np.array([[2], [1]], np.int32)
    )
    order = player.receive(trainer.command(Command.STEP, {NAME: sent}))
    acted = player.actions(order, NAME, 2)
    np.testing.assert_array_equal(acted.continuous, sent.continuous)
    np.testing.assert_array_equal(acted.discrete, sent.discrete)
    assert trainer.receive(
        player.exchange({NAME: (decisions(RNG, SPEC, 1), terminals(RNG, SPEC, 0))})
    ).exchange


def test_an_empty_step_still_carries_rl_input():
    """A player takes a reply without `rl_input` for a failed connection (RpcCommunicator.cs,
    3.0.0).
    """
    trainer, _ = joined()
    reply = plain_messages().UnityMessageProto.FromString(trainer.command(Command.STEP))
    assert reply.unity_input.HasField("rl_input")
    assert not reply.unity_input.HasField("rl_initialization_input")


def test_a_farewell_must_be_answered_with_goodbye():
    trainer, player = joined()
    player.receive(trainer.command(Command.RESET))
    assert trainer.receive(player.farewell()).kind is MessageKind.FAREWELL
    with pytest.raises(OutOfTurnError, match="expected goodbye, got command"):
        trainer.command(Command.STEP)
    assert trainer.goodbye() == GOODBYE
    assert player.receive(GOODBYE) is None


def test_quit_is_understood_though_official_python_never_sends_it():
    trainer, player = joined()
    assert player.receive(trainer.command(Command.QUIT)) is None


def test_an_exchange_before_the_handshake_is_out_of_turn():
    trainer, player = joined()
    player.receive(trainer.command(Command.RESET))
    data = player.exchange({NAME: (decisions(RNG, SPEC, 1), terminals(RNG, SPEC, 0))})
    with pytest.raises(
        OutOfTurnError,
        match="the player introduces itself: expected introduction or farewell",
    ):
        TrainerSession().receive(data)


def test_a_malformed_message_leaves_the_session_where_it_was():
    trainer, player = joined()
    player.receive(trainer.command(Command.RESET))
    with pytest.raises(MalformedMessageError, match="no such message"):
        trainer.receive(b"\xff\xff")
    assert trainer.state is State.PLAYER_SIMULATES


@pytest.mark.parametrize(
    ("version", "fits"),
    [("1.0.0", True), ("1.5.0", True), ("1.9.0", True), ("2.0.0", False)],
)
def test_only_the_major_version_must_agree(version, fits):
    trainer, _ = joined(Dialect(version, "9.9.9")) if fits else (TrainerSession(), None)
    if fits:
        return trainer.check_version()
    trainer.receive(PlayerSession({}, Dialect(version, "9.9.9")).introduction())
    with pytest.raises(
        VersionRefusedError,
        match=r"speaks communication version 2.0.0, Touchline speaks 1.5.0",
    ):
        trainer.check_version()
    return None


@pytest.mark.parametrize(
    ("package", "sent"),
    [("1.0.8", "0.20.0"), ("1.0.8-preview", "0.20.0"), ("1.0.80", "1.1.0")],
)
def test_package_1_0_8_receives_a_version_that_it_accepts(package, sent):
    """com.unity.ml-agents 1.0.8 stops answering when it reads a trainer version above 0.25."""
    trainer = TrainerSession()
    trainer.receive(PlayerSession({}, Dialect("1.0.0", package)).introduction())
    reply = MESSAGES.UnityMessageProto.FromString(trainer.welcome(0))
    assert reply.unity_input.rl_initialization_input.package_version == sent


def test_an_unknown_command_is_malformed():
    _, player = joined()
    message = MESSAGES.UnityMessageProto(header=MESSAGES.HeaderProto(status=200))
    message.unity_input.rl_input.command = 5
    with pytest.raises(MalformedMessageError, match=r"rl_input\.command"):
        player.receive(message.SerializeToString())
