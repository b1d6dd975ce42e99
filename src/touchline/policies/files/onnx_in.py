"""Any ML-Agents ONNX file as a policy, of model API 2 (packages 1.x) and 3 (2.0 and later).

Random numbers are ours: where a graph draws some, its random nodes are taken out. So the same seed
gives the same actions, and a deterministic action exists even where the file offers none.

- `RandomNormalLike` (continuous actions) becomes an input that we fill with noise, or with zeros;
- the input of `Multinomial` (one per branch) becomes an output, and we draw from it;
- model API 2 gives log-probabilities of all choices in `discrete_actions`, and we draw.

Source: the files that ship with ML-Agents Release 22; names as in `docs/protocol.md`, "ONNX
models".
"""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from touchline.bounded import MOST_DATA, read_bounded
from touchline.envs.slots import SlotRows
from touchline.errors import NonFiniteError, UsageError, shortened
from touchline.policies.policy import Decision, Outlook, SlotMemory
from touchline.specs import ActionSpec, BehaviorSpec, ObservationSpec, describe_actions

MOST_INPUTS = 1 << 26
"""The most values of one input: 64 million, a thousand pictures of 256 x 256."""
NOISE = "touchline_noise_"
CHOICES = "touchline_choices_"
RECURRENT_INPUTS = {"recurrent_in", "recurrent_in_h", "recurrent_in_c"}


class OnnxPolicy:
    """A `Policy` that acts with an ONNX file; it has a memory when the model is recurrent."""

    def __init__(self, path: Path | str, *, deterministic: bool = False) -> None:
        """Raises a UsageError for a file that is no policy of ML-Agents."""
        self.path = Path(path)
        self._deterministic = deterministic
        model = load_model(self.path)
        _draw_noise_outside(model.graph)
        self._choices = draw_choices_outside(model.graph)
        self._session = open_session(self.path, model)
        self._inputs = {i.name: i.shape for i in self._session.get_inputs()}
        self._outputs = [o.name for o in self._session.get_outputs()]
        self.api_version = self._count("version_number")
        self.memory_size = self._count("memory_size")
        if self.api_version not in (2, 3):
            raise UsageError(
                f"{self.path}: not an ML-Agents policy: expected an output version_number of 2 or "
                f"3, found the outputs {shortened(', '.join(self._outputs))}"
            )
        shapes = {"continuous_action_output_shape", "discrete_action_output_shape"}
        self._lists_branches = self.api_version == 3 or not shapes.isdisjoint(
            self._outputs
        )
        """Models from before hybrid actions do not."""
        self._actions = self._action_spec()

    def check(self, behavior: str, spec: BehaviorSpec) -> None:
        self._check_inputs(behavior, spec)
        other = spec.action_spec
        if not self._lists_branches and not other.continuous_size:
            branches = other.discrete_branches
            if sum(branches) == sum(self._actions.discrete_branches):
                self._actions = ActionSpec(0, branches)
        # Unity refuses such a model, too: it could choose what is masked.
        if other.discrete_size and "action_masks" not in self._inputs:
            raise UsageError(
                f"{self.path}: does not fit {behavior}: it has no input action_masks, which a "
                "behavior with discrete branches needs"
            )
        own = self._actions
        if own != ActionSpec(other.continuous_size, other.discrete_branches):
            gives = describe_actions(own)
            takes = describe_actions(other)
            raise UsageError(
                f"{self.path}: does not fit {behavior}: it gives {gives}, "
                f"the behavior takes {takes}"
            )

    def new_memory(self) -> SlotMemory | None:
        return SlotMemory((1, self.memory_size)) if self.memory_size else None

    def new_generator(self, seed: int) -> np.random.Generator:
        return np.random.default_rng(seed)

    def act(
        self, rows: SlotRows, memory: SlotMemory | None, generator: np.random.Generator
    ) -> Decision:
        """Actions [N, ...] of all slots; those that do not decide get zeros.

        Raises a NonFiniteError when the model gives NaN.
        """
        chosen = self._actions.empty_action(len(rows))
        slots = np.flatnonzero(rows.deciding)
        if not len(slots):
            return Decision(chosen, None)
        before = None if memory is None else memory.recall(rows)
        noise = None if self._deterministic else generator
        outputs = self._run(rows, slots, noise, before)
        if memory is not None and before is not None:
            after = before.copy()
            after[slots] = self._memory_output(outputs)
            memory.keep(rows, before, after)
        if self._actions.continuous_size:
            chosen.continuous[slots] = self._continuous(outputs)
        if self._actions.discrete_size:
            chosen.discrete[slots] = self._draw(self._log_probs(outputs), generator)
        return Decision(chosen, None)

    def outlook(self, rows: SlotRows, memory: SlotMemory | None) -> Outlook:
        """Probabilities and most likely actions; an ONNX file has no values."""
        before = None if memory is None else memory.recall(rows)
        outputs = self._run(rows, np.arange(len(rows)), None, before)
        continuous = self._actions.empty_action(len(rows)).continuous
        if self._actions.continuous_size:
            continuous = self._continuous(outputs)
        branches = self._log_probs(outputs) if self._actions.discrete_size else []
        return Outlook([_softmax(branch) for branch in branches], continuous, None)

    def _check_inputs(self, behavior: str, spec: BehaviorSpec) -> None:
        for name, wanted in self._inputs.items():
            given = _given_shape(name, spec)
            if given is not None and list(wanted[1:]) != list(given):
                raise UsageError(
                    f"{self.path}: does not fit {behavior}: its input {name} takes "
                    f"{list(wanted[1:])}, the behavior gives {list(given)}"
                )
            is_ours = name.startswith(NOISE) or name in RECURRENT_INPUTS
            if given is None and not is_ours:
                raise UsageError(
                    f"{self.path}: does not fit {behavior}: the behavior gives nothing for its "
                    f"input {name}"
                )

    def _run(
        self,
        rows: SlotRows,
        slots: NDArray[np.intp],
        generator: np.random.Generator | None,
        before: NDArray[np.float32] | None,
    ) -> dict[str, NDArray[Any]]:
        """The model's outputs for these slots; no generator, no noise.

        `before` [N, 1, M] are the memories of all slots.
        """
        feeds: dict[str, NDArray[Any]] = {}
        vectors = [obs for obs in rows.obs if obs.ndim == 2]
        images = [obs for obs in rows.obs if obs.ndim == 4]
        for name in self._inputs:
            kind, _, number = name.rpartition("_")
            if name == "vector_observation":  # API 2: all vectors in one
                of_slots = [obs[slots] for obs in vectors]
                joined = np.concatenate(of_slots, axis=1)
                # What a world shows to critics alone comes last.
                feeds[name] = joined[:, : self._inputs[name][1]]
            elif kind == "visual_observation":
                feeds[name] = images[int(number)][slots]
            elif kind == "obs":
                feeds[name] = rows.obs[int(number)][slots]
            elif name == "action_masks":
                assert rows.action_mask is not None
                feeds[name] = rows.action_mask[slots].astype(np.float32)
            elif name.startswith(NOISE):
                size = (len(slots), self._actions.continuous_size)
                noise = np.zeros(size)
                if generator is not None:
                    noise = generator.standard_normal(size)
                feeds[name] = noise.astype(np.float32)
            elif before is not None and name in RECURRENT_INPUTS:
                # `memory_size` counts the hidden state and the cell: whole (API 3), or in halves
                # (API 2).
                half = self.memory_size // 2
                parts = {"h": slice(half), "c": slice(half, None)}
                feeds[name] = before[slots][..., parts.get(number, slice(None))]
        results = self._session.run(None, feeds)
        return dict(zip(self._outputs, results, strict=True))

    def _memory_output(
        self, outputs: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.float32]:
        """The memories [K, 1, M] after the model ran."""
        if "recurrent_out" in outputs:
            out = outputs["recurrent_out"]
        else:
            halves = [outputs["recurrent_out_h"], outputs["recurrent_out_c"]]
            out = np.concatenate(halves, axis=-1)
        return out.reshape(-1, 1, self.memory_size)

    def _continuous(self, outputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        # Models from before hybrid actions call every output `action`.
        values = outputs.get("continuous_actions", outputs.get("action"))
        assert values is not None
        if not np.isfinite(values).all():
            raise NonFiniteError(
                f"{self.path}: the policy gave an action that is not a number"
            )
        return values

    def _log_probs(self, outputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """One [K, choices] per branch; masked choices are as good as impossible."""
        if self._choices:
            return [outputs[name] for name in self._choices]
        flat = outputs.get("discrete_actions", outputs.get("action"))
        assert flat is not None
        ends = np.cumsum(self._actions.discrete_branches)
        return np.split(flat, ends[:-1], axis=1)

    def _draw(
        self, log_probs: Sequence[NDArray[Any]], generator: np.random.Generator
    ) -> NDArray[np.int32]:
        drawn = []
        for branch in log_probs:
            # -∞ is a masked choice; a branch of nothing else has none to draw.
            has_choice = np.isfinite(branch).any(axis=1).all()
            if not has_choice or np.isnan(branch).any():
                raise NonFiniteError(
                    f"{self.path}: the policy gave probabilities that are not numbers"
                )
            # The largest of log p + Gumbel noise is a draw from p (Gumbel 1954).
            noise = 0.0 if self._deterministic else generator.gumbel(size=branch.shape)
            drawn.append(np.argmax(branch + noise, axis=1))
        return np.stack(drawn, axis=1).astype(np.int32)

    def _action_spec(self) -> ActionSpec:
        continuous = self._count("continuous_action_output_shape")
        branches = self._constants("discrete_action_output_shape")
        if self._lists_branches:
            return ActionSpec(continuous, tuple(int(size) for size in branches))
        # Either kind of actions, and of discrete ones the choices of all branches together; `check`
        # learns the branches from the behavior.
        size = self._count("action_output_shape")
        is_continuous = self._count("is_continuous_control")
        return ActionSpec(size) if is_continuous else ActionSpec(0, (size,))

    def _count(self, name: str) -> int:
        """A constant output's first number, 0 without such an output."""
        values = self._constants(name)
        return int(values[0]) if values else 0

    def _constants(self, name: str) -> list[float]:
        """A constant output's numbers; found by running the model on zeros, as Unity does."""
        if name not in self._outputs:
            return []
        zeros = {}
        for input_name, shape in self._inputs.items():
            # Axes of any size have a name, such as "batch". A damaged file may hold negative sizes.
            sizes = [size if isinstance(size, int) else 1 for size in shape]
            if not 0 <= prod(sizes) <= MOST_INPUTS:
                raise UsageError(f"{self.path}: its input {input_name} is too large")
            zeros[input_name] = np.zeros(sizes, np.float32)
        try:
            (value,) = self._session.run([name], zeros)
        except Exception as error:  # onnxruntime raises a dozen types of its own
            raise UsageError(
                f"{self.path}: onnxruntime cannot run this model: {shortened(str(error))}"
            ) from error
        numbers = np.ravel(np.asarray(value, np.float64))
        is_count = np.isfinite(numbers) & (numbers >= 0) & (numbers <= MOST_INPUTS)
        if len(numbers) > MOST_INPUTS or not is_count.all():
            raise UsageError(
                f"{self.path}: not an ML-Agents policy: {name} holds {numbers[:3].tolist()}, "
                "expected numbers of choices or of values"
            )
        return [float(number) for number in numbers]


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """[N, choices]; of log-probabilities, the probabilities."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: NDArray[np.float32] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _given_shape(name: str, spec: BehaviorSpec) -> tuple[int, ...] | None:
    """The shape that a behavior gives for a model's input; None: it has nothing for it."""
    sensors = spec.observed.observation_specs
    kind, _, number = name.rpartition("_")
    if name == "vector_observation":
        sizes = [o.shape[0] for o in sensors if len(o.shape) == 1]
        return (sum(sizes),)
    if name == "action_masks":
        return (spec.action_spec.mask_size,)
    candidates: Sequence[ObservationSpec] = ()
    if kind == "obs":
        candidates = sensors
    elif kind == "visual_observation":
        candidates = [o for o in sensors if len(o.shape) == 3]
    is_known = number.isdigit() and int(number) < len(candidates)
    return candidates[int(number)].shape if is_known else None


def load_model(path: Path) -> onnx.ModelProto:
    """The graph in a file. Raises a UsageError for a file that is no ONNX model."""
    if not path.is_file():
        raise UsageError(f"{path}: no such policy file")
    try:
        model = onnx.load_model_from_string(read_bounded(path, MOST_DATA))
    except UsageError:
        raise
    # Protobuf's DecodeError, which moves between its versions.
    except Exception as error:
        raise UsageError(
            f"{path}: not an ONNX file, or cut short ({shortened(str(error))})"
        ) from error
    graph = model.graph
    if not graph.node:
        raise UsageError(f"{path}: not an ONNX file, or cut short (it holds no graph)")
    computed = {name for node in graph.node for name in node.output}
    constants = {constant.name for constant in graph.initializer}
    # ML-Agents' SoccerTwos lists two outputs that it never computes.
    missing = [o for o in graph.output if o.name not in computed | constants]
    for output in missing:
        graph.output.remove(output)
    return model


def open_session(path: Path, model: onnx.ModelProto) -> Any:
    options = ort.SessionOptions()
    # Small models: more threads cost more than they bring.
    options.intra_op_num_threads = 1
    # Errors only: onnxruntime warns of every constant that a graph does not use.
    options.log_severity_level = 3
    try:
        session = ort.InferenceSession(
            model.SerializeToString(),
            options,
            ["CPUExecutionProvider"],
            # A second try with the same provider prints stars to standard output.
            enable_fallback=0,
        )
        # Names that are no text are noticed here alone.
        session.get_inputs()
        session.get_outputs()
    except Exception as error:  # onnxruntime raises a dozen types of its own
        raise UsageError(
            f"{path}: onnxruntime cannot run this model: {shortened(str(error))}"
        ) from error
    return session


def _draw_noise_outside(graph: onnx.GraphProto) -> None:
    """Turn each normal draw into an input that the caller fills."""
    draws = [node for node in graph.node if node.op_type == "RandomNormalLike"]
    for number, node in enumerate(draws):
        name = f"{NOISE}{number}"
        given = onnx.helper.make_node("Identity", [name], [node.output[0]])
        # First, because the nodes of a graph must stand in the order of their dependencies.
        graph.node.insert(0, given)
        graph.input.append(_float_rows(name))
        graph.node.remove(node)


def draw_choices_outside(graph: onnx.GraphProto) -> list[str]:
    """Make the input of each Multinomial an output, in the branches' order; returns their names."""
    # The draws themselves are no outputs any more.
    draws = [node for node in graph.node if node.op_type == "Multinomial"]
    names = [f"{CHOICES}{number}" for number in range(len(draws))]
    for name, node in zip(names, draws, strict=True):
        shown = onnx.helper.make_node("Identity", [node.input[0]], [name])
        graph.node.append(shown)
        graph.output.append(_float_rows(name))
    drawn = {"discrete_actions", "deterministic_discrete_actions"} if names else set()
    for output in [o for o in graph.output if o.name in drawn]:
        graph.output.remove(output)
    return names


def _float_rows(name: str) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(
        name, onnx.TensorProto.FLOAT, ["batch", None]
    )
