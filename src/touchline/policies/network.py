"""What a network offers to learners and policies, and which networks there are.

A behavior's spec names its network (`BehaviorSpec.network`), a key of `NETWORKS`, unless
`network_settings.type` names another. Each network class takes `(spec, architecture, num_signals)`
and refuses, with a UsageError, an architecture that it does not support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from touchline.errors import UsageError, shortened
from touchline.plugins import Plugins, breach_of, imported_from_here
from touchline.policies.distributions import (
    ActionDistribution,
    RawActions,
    SquashedDistribution,
)
from touchline.policies.memory import DEFAULT_MEMORY
from touchline.policies.nets.memory import Sequences
from touchline.policies.nets.normalizer import RunningNormalizer
from touchline.specs import BehaviorSpec

NETWORKS = {
    "standard": "touchline.policies.nets.actor_critic:ActorCritic",
    "board": "touchline.microrts.board_network:BoardActorCritic",
}
"""Name in `BehaviorSpec.network` -> "module:Class"; imported when used."""
if find_spec("touchline.microrts") is None:
    del NETWORKS["board"]
NETWORK_PLUGINS = Plugins(
    "a network", "touchline.networks", NETWORKS, f"{__name__}:Network"
)
"""These and those of other packages."""

Obs = tuple[Tensor, ...]
"""What networks take: the vectors of all sensors side by side [B, V], then every other sensor
[B, *shape] in order."""

Allowed = Bool[Tensor, "B choices"] | None
"""Which choices may be made, True = allowed; None: all of them."""

OutputGradients = Callable[
    [Float[Tensor, " B"], Float[Tensor, "B S"]],
    tuple[Float[Tensor, " B"], Float[Tensor, "B S"]],
]
"""Maps log-probabilities and values to the gradient of the loss with respect to each of them."""


@dataclass(frozen=True)
class Architecture:
    """How a network is built; names as in ML-Agents' `network_settings`."""

    hidden_units: int = 128
    num_layers: int = 2
    normalize: bool = False
    vis_encode_type: str = "simple"
    goal_conditioning_type: str = "hyper"
    memory_size: int = 0
    """Numbers that the memory keeps for an agent. 0: no memory."""
    shared_critic: bool = False
    orthogonal_init: bool = False
    squashed: bool = False
    """Continuous actions are tanh of a normal whose spread depends on the situation: SAC's."""
    memory_type: str = DEFAULT_MEMORY
    """A key of `MEMORIES`."""

    def __post_init__(self) -> None:
        # Encoders alone have no dense layers: a group's critic uses them so.
        if self.hidden_units < 1 or self.num_layers < 0:
            raise UsageError(
                "a network needs 1 hidden unit or more and no negative number of layers, got "
                f"hidden_units {self.hidden_units}, num_layers {self.num_layers}"
            )


@runtime_checkable
class Distribution(Protocol):
    """A distribution over the actions of B agents; continuous parts are raw."""

    def sample(self, generator: torch.Generator) -> RawActions:
        """Random actions; drawn on the CPU, wherever the network is."""

    def mode(self) -> RawActions:
        """The most likely actions."""

    def log_prob(
        self, continuous: Float[Tensor, "B C"], discrete: Int[Tensor, "B D"]
    ) -> Float[Tensor, " B"]:
        """Of these actions, all parts together."""

    def entropy(self, discrete: Int[Tensor, "B D"] | None = None) -> Float[Tensor, ""]:
        """Mean over the agents, in nats.

        Where later choices depend on earlier ones, it is estimated from the choices made.
        """


Actor = Callable[..., Distribution]
"""Maps observations, masks and, for staged actions, second-stage masks to a distribution."""


@runtime_checkable
class WithoutOnnx(Protocol):
    """A network that is never written for Unity."""

    no_onnx: str
    """Why."""


@runtime_checkable
class TakesOtherSizes(Protocol):
    """A network that can start with the weights of one for another size of the same game."""

    def resized(
        self, spec: BehaviorSpec, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor] | None:
        """Weights for this network from those of a network for `spec`, by parameter.

        None: that is no other size of the same game.
        """


@runtime_checkable
class Network(Protocol):
    """A policy and its value function for one behavior, with one value per reward signal.

    Networks are `torch.nn.Module`s; the methods that learners need of those are listed last.
    """

    spec: BehaviorSpec
    architecture: Architecture
    num_signals: int
    """S: how many reward signals it estimates values for."""
    if TYPE_CHECKING:
        # A runtime check looks attributes up without `__getattr__` from Python 3.12 on, and
        # there torch finds submodules: no network with a normalizer would be a `Network`.
        normalizer: RunningNormalizer | None

    @property
    def memory_shape(self) -> tuple[int, int] | None:
        """What a slot remembers, [networks, M]; None without memory."""

    @property
    def has_gradient(self) -> bool:
        """Whether `gradient` can replace `loss.backward()`."""

    def normalized(self, obs: Obs) -> Obs:
        """Observations as every other method takes them."""

    def compact(self, obs: tuple[NDArray[Any], ...]) -> tuple[NDArray[Any], ...]:
        """What a rollout keeps of observations [N, *shape]; `normalized` takes it, too."""

    def __call__(
        self, obs: Obs, allowed: Allowed, sequences: Sequences | None = None
    ) -> tuple[Distribution, Float[Tensor, "B S"]]:
        """Distribution and values; with a memory, of the sequences that the batch consists of."""

    def step(
        self, obs: Obs, allowed: Allowed, memory: Float[Tensor, "B W M"]
    ) -> tuple[Distribution, Float[Tensor, "B S"], Float[Tensor, "B W M"]]:
        """Distribution, values and the next memory; only where there is a `memory_shape`."""

    def distribution(self, obs: Obs, allowed: Allowed) -> Distribution:
        """The actor alone; only without memory."""

    def actor(self) -> Actor:
        """`distribution` for many calls, valid until the weights change."""

    def value(self, obs: Obs) -> Float[Tensor, "B S"]:
        """The critic alone; only without memory."""

    def gradient(
        self,
        obs: Obs,
        allowed: Allowed,
        actions: tuple[Tensor, Tensor],
        output_gradients: OutputGradients,
        entropy_gradient: float,
        out: Sequence[Tensor],
        products: torch.dtype | None = None,
    ) -> None:
        """Write the gradient of the loss for every parameter, in the order of `parameters()`.

        An accelerator, only where `has_gradient`. `actions` are (continuous, discrete);
        `output_gradients` gives the loss's gradient by their log-probabilities and by the values,
        `entropy_gradient` is the one by the mean entropy, `products` the type of hidden layers.
        """

    def to(self, device: torch.device) -> Network: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> Any: ...


def make_network(
    spec: BehaviorSpec, architecture: Architecture, num_signals: int = 1
) -> Network:
    """The network that a behavior's spec names.

    Raises a UsageError for a name that is not in `NETWORKS`, an architecture that the network does
    not support, and a network of another package that fails on a batch of zeros.
    """
    make = partial(network_class(spec.network), spec, architecture, num_signals)
    # A sketch, on the device "meta", has no numbers to look at.
    is_sketch = torch.get_default_device().type == "meta"
    if spec.network not in NETWORKS and not is_sketch:
        _try_out(spec.network, make, architecture, num_signals)
    network: Network = make()
    return network


def network_class(name: str) -> Any:
    """The class of a network by its name, or by `module:Class` for one without an entry point.

    Raises a UsageError for a name that is not in `NETWORKS`, and for what is no network.
    """
    if ":" in name:
        return _network_of_another_module(name)
    if name not in NETWORK_PLUGINS:
        raise UsageError(
            f"no network is called {name!r}; there are: "
            f"{', '.join(sorted(NETWORK_PLUGINS.names()))}, and any MODULE:CLASS"
        )
    return NETWORK_PLUGINS.load(name)


def _network_of_another_module(name: str) -> Any:
    try:
        found = imported_from_here(name)
    # Whatever the module raises when it is imported; it may be a script that ends the process.
    except (Exception, SystemExit) as error:
        reason = shortened(f"{type(error).__name__}: {error}")
        raise UsageError(f"the network {name!r} cannot be loaded: {reason}") from error
    # Nothing else is called: a checkpoint from elsewhere may name anything.
    is_module = isinstance(found, type) and issubclass(found, nn.Module)
    breach = breach_of(Network, found) if is_module else "is no torch.nn.Module"
    if breach:
        raise UsageError(
            f"the network {name!r} {breach}; each has to be an attribute of the class"
        )
    return found


def _try_out(
    name: str, make: Callable[[], Any], architecture: Architecture, num_signals: int
) -> None:
    """Run a network of another package once. Raises a UsageError where it breaks the contract."""
    try:
        # This one is thrown away: what it draws, or counts, is not seen later.
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            breach = _breach_of_results(make(), architecture, num_signals)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # whatever its code raises
        reason = shortened(f"{type(error).__name__}: {error}")
        raise UsageError(
            f"the network {name!r} fails when it is made from (spec, architecture, num_signals) "
            f"and run on zeros as {Network.__module__}.Network describes: {reason}"
        ) from error
    if breach:
        raise UsageError(f"the network {name!r} {breach}")


def _breach_of_results(network: Any, asked: Architecture, num_signals: int) -> str:
    """How they break the contract, as the predicate of a sentence; empty where they do not."""
    if asked.memory_size and network.memory_shape is None:
        return "has no memory; expected no network_settings.memory, or a memory_shape"
    if not list(network.parameters()):
        return "has no parameters; expected weights that learn"
    _ = network.normalizer  # learners read it, and the class alone cannot show it
    spec, size = network.spec, 3
    blank = [np.zeros((size, *o.shape), np.float32) for o in spec.observation_specs]
    obs = network.normalized(tuple(map(torch.from_numpy, side_by_side(blank))))
    found: list[tuple[str, Tensor, tuple[int, ...]]]
    allowed = _without_first_choices(spec, size)
    if network.memory_shape is None:
        acted, values = network(obs, allowed)
        found = [("value()", network.value(obs), (size, num_signals))]
    else:
        before = torch.zeros(size, *network.memory_shape)
        acted, values, after = network.step(obs, allowed, before)
        found = [("memory", after, before.shape)]
    wanted = SquashedDistribution if asked.squashed else Distribution
    if not isinstance(acted, wanted):
        return f"acts by a {type(acted).__name__}; expected a {wanted.__name__}"
    if isinstance(acted, ActionDistribution | SquashedDistribution):
        if breach := _breach_of_choices(acted, spec, allowed):
            return breach
        numbers = (size, spec.action_spec.continuous_size)
        # The spread of an `ActionDistribution` may be the same for all agents.
        is_shared = acted.log_std.dim() == 1 and isinstance(acted, ActionDistribution)
        found.append(("mean", acted.mean, numbers))
        found.append(("log_std", acted.log_std, numbers[1:] if is_shared else numbers))
    log_prob = acted.log_prob(*acted.mode())
    results = [("values", values, (size, num_signals)), ("log_prob", log_prob, (size,))]
    for name, result, expected in [*results, *found]:
        if result.shape != expected:
            got = f"{list(result.shape)} as {name} of {size} agents"
            return f"returns {got}; expected {list(expected)}"
        if not bool(result.isfinite().all()):
            return f"returns NaN or infinity as {name} for observations of zeros"
    for name, result, _ in results:
        if not result.requires_grad:
            return (
                f"gives {name} that do not depend on its parameters; it could not learn"
            )
    return ""


def _without_first_choices(spec: BehaviorSpec, size: int) -> Allowed:
    """Masks for so many agents that forbid the first choice of each branch, if it has others."""
    sizes = spec.action_spec.discrete_branches
    rows = [torch.arange(n) >= min(n - 1, 1) for n in sizes]
    return torch.cat(rows).repeat(size, 1) if rows else None


def _breach_of_choices(
    acted: ActionDistribution | SquashedDistribution,
    spec: BehaviorSpec,
    allowed: Allowed,
) -> str:
    sizes = list(spec.action_spec.discrete_branches)
    widths = [p.shape[1] for p in acted.log_probs]
    if widths != sizes:
        return f"has branches {widths}; expected {sizes}"
    if allowed is not None:
        forbidden = torch.cat(list(acted.log_probs), dim=1)[~allowed]
        # exp(-15) is one in three million.
        if bool((forbidden > -15.0).any()):
            return "allows choices that `allowed` forbids; expected log-probabilities below -15"
    return ""


def side_by_side(obs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Observations [N, *shape] per sensor, in the order of `Obs`.

    They are float32, or whatever `Network.compact` made of them. A single vector is not copied.
    """
    vectors = [o for o in obs if o.ndim == 2]
    others = [o for o in obs if o.ndim > 2]
    if len(vectors) == 1:
        return vectors[0], *others
    if vectors:
        return np.concatenate(vectors, axis=1), *others
    return np.zeros((len(obs[0]), 0), np.float32), *others
