"""Both ends of the wire for tests: exchanges made up at random, and messages made with plain
protobuf classes.
"""

import io

import numpy as np
from hypothesis import strategies as st
from PIL import Image
from tests.protocol.plain_messages import plain_messages

from touchline.protocol.decoding import ExchangeDecoder
from touchline.protocol.dialect import Dialect
from touchline.protocol.encoding import encode_output
from touchline.protocol.parsed_agents import ParsedAgents
from touchline.protocol.scan import ScannedAgents
from touchline.protocol.schema import MESSAGES
from touchline.specs import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from touchline.steps import DecisionSteps, TerminalSteps

READERS = {"scanned by numba": ScannedAgents, "parsed by protobuf": ParsedAgents}
SHAPES = ((1,), (8,), (3, 2), (2, 3, 4))


@st.composite
def specs(draw):
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=0, max_size=3))
    observations = tuple(
        ObservationSpec(
            shape,
            tuple(
                DimensionProperty(draw(st.sampled_from((0, 1, 2, 4)))) for _ in shape
            ),
            draw(st.sampled_from(ObservationType)),
            draw(st.sampled_from(("", "VectorSensor_size8", "Käse"))),
        )
        for shape in shapes
    )
    branches = draw(st.lists(st.integers(1, 300), max_size=3))
    return BehaviorSpec(
        observations, ActionSpec(draw(st.integers(0, 4)), tuple(branches))
    )


@st.composite
def exchanges(draw):
    """An exchange of up to three behaviors, with its specs."""
    names = draw(
        st.lists(
            st.sampled_from(("A?team=0", "A?team=1", "Walker?team=0")), unique=True
        )
    )
    described = {name: draw(specs()) for name in names}
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    return described, {
        name: (decisions(rng, spec), terminals(rng, spec))
        for name, spec in described.items()
    }


def common(rng, spec, count):
    return {
        "obs": [
            rng.normal(size=(count, *o.shape)).astype(np.float32)
            for o in spec.observation_specs
        ],
        "reward": rng.choice(np.array([0, -1, 0.1, 3e38], np.float32), count),
        "agent_id": rng.choice(2**31 - 1, count, replace=False).astype(np.int32)
        if count
        else np.zeros(0, np.int32),
        "group_id": rng.integers(0, 3, count).astype(np.int32),
        "group_reward": rng.normal(size=count).astype(np.float32),
    }


def decisions(rng, spec, count=None):
    count = int(rng.integers(1, 5)) if count is None else count
    masks = None
    if spec.action_spec.discrete_branches:
        masks = [
            rng.random((count, n)) < 0.5 for n in spec.action_spec.discrete_branches
        ]
    return DecisionSteps(action_mask=masks, **common(rng, spec, count))


def terminals(rng, spec, count=None):
    count = int(rng.integers(0, 3)) if count is None else count
    return TerminalSteps(
        interrupted=rng.random(count) < 0.5, **common(rng, spec, count)
    )


def message_of(described, exchange, announced=None, side_channel=b""):
    """The bytes of a UnityMessageProto that carries this exchange."""
    message = MESSAGES.UnityMessageProto(header=MESSAGES.HeaderProto(status=200))
    output = encode_output(
        exchange, described, set() if announced is None else announced, side_channel
    )
    message.unity_output.CopyFrom(output)
    return message.SerializeToString()


def decoded(data, decoder):
    return decoder.decode(MESSAGES.UnityMessageProto.FromString(data).unity_output)


def plain_message(*agents, name="A?team=0", brain=None, dialect=None, reader=None):
    """A decoder that knows no behavior, and the UnityOutputProto of these agents of one behavior."""
    plain = plain_messages()
    output = plain.UnityOutputProto()
    brain = {"num_continuous_actions": 1} if brain is None else brain
    output.rl_initialization_output.brain_parameters.append(
        plain.BrainParametersProto(
            brain_name=name, action_spec=plain.ActionSpecProto(**brain)
        )
    )
    output.rl_output.agentInfos[name].value.extend(
        plain.AgentInfoProto(**agent) for agent in agents
    )
    return ExchangeDecoder(
        dialect or Dialect(), reader
    ), MESSAGES.UnityOutputProto.FromString(output.SerializeToString())


def floats(*values, shape=None, **more):
    plain = plain_messages()
    return plain.ObservationProto(
        shape=[len(values)] if shape is None else shape,
        float_data=plain.FloatData(data=values),
        **more,
    )


def png(pixels, shape, **more):
    """An observation of PNG files: `pixels` is a list of uint8 arrays [H, W, 3] or [H, W]."""
    return plain_messages().ObservationProto(
        shape=shape,
        compression_type=1,
        compressed_data=b"".join(map(png_file, pixels)),
        **more,
    )


def png_file(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def assert_same_steps(left, right):
    for key in vars(left):
        if key == "agent_id_to_index":
            continue
        a, b = getattr(left, key), getattr(right, key)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, key
            np.testing.assert_array_equal(a, b, key)
        else:
            assert (a is None) == (b is None), key
            for x, y in zip(a or (), b or (), strict=True):
                assert x.dtype == y.dtype, key
                np.testing.assert_array_equal(x, y, key)
