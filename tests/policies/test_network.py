"""Networks by the name that a spec declares."""

from importlib import import_module
from inspect import getattr_static

import pytest

from touchline.errors import UsageError
from touchline.policies.nets.actor_critic import ActorCritic
from touchline.policies.network import NETWORKS, Architecture, Network, make_network
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec

VECTOR = ObservationSpec.vector(3, "a")


def test_a_spec_names_its_network():
    made = make_network(
        BehaviorSpec((VECTOR,), ActionSpec(1)), Architecture(hidden_units=8), 2
    )
    assert isinstance(made, ActorCritic)
    assert made.num_signals == 2


def test_an_unknown_network_is_refused_with_those_that_exist():
    spec = BehaviorSpec((VECTOR,), ActionSpec(1), "other")
    with pytest.raises(
        UsageError, match=r"no network is called 'other'; there are: .*standard"
    ):
        make_network(spec, Architecture())


def test_the_standard_network_refuses_staged_actions():
    spec = BehaviorSpec((VECTOR,), ActionSpec(0, (3, 2), staged=True))
    with pytest.raises(UsageError, match="staged actions needs a network of its own"):
        make_network(spec, Architecture())


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_can_be_imported(name):
    module, _, cls = NETWORKS[name].partition(":")
    assert isinstance(getattr(import_module(module), cls), type)


@pytest.mark.parametrize("normalize", [False, True])
def test_a_runtime_check_finds_the_attributes_of_a_network(normalize):
    """As Python 3.12 looks them up: without `__getattr__`, so without torch's submodules."""
    spec = BehaviorSpec((VECTOR,), ActionSpec(1))
    network = make_network(spec, Architecture(hidden_units=8, normalize=normalize))
    assert isinstance(network, Network)
    for name in Network.__annotations__:
        getattr_static(network, name)
