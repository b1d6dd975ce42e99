"""What a search may choose: keys of the settings, each with its values, from `space.yaml`.

behaviors.*.hyperparameters.learning_rate: {low: 1e-5, high: 1e-2, log: true}
behaviors.*.network_settings.hidden_units: {low: 32, high: 256, step: 32}
behaviors.*.hyperparameters.num_epoch: {choices: [3, 5, 8]}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    RootModel,
    ValidationError,
    model_validator,
)

from touchline.errors import UsageError
from touchline.training.config.explain import explain
from touchline.training.config.flags import setting_flags
from touchline.training.config.values import (
    Part,
    Positive,
    Switch,
    mistake_at,
    numeric,
)
from touchline.training.config.yaml_tree import YamlTree

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

    from touchline.training.config.settings import RunConfig

Read = Callable[[Mapping[str, Any]], "RunConfig"]
"""Reads the configuration of a run with these keys changed."""
_OWN = ("checkpoint_settings.", "env_settings.seed")
"""Keys that a search sets itself begin so."""
# A share of a range whose value is no whole number, wherever the range is.
_GOLDEN = 0.381966


def _finite(value: float) -> float:
    # True of infinities and NaN; math.isfinite raises an error for a very large integer.
    if value - value != 0:
        raise ValueError("expected a finite number")
    return value


def _choice(value: Any) -> Any:
    return value if isinstance(value, bool) else numeric(value)


_Bound = Annotated[int | float, BeforeValidator(numeric), AfterValidator(_finite)]
_Choice = Annotated[str | bool | int | float | None, BeforeValidator(_choice)]


class Dimension(Part):
    """The values of one key: those of a list, or a range."""

    choices: Annotated[list[_Choice], Field(min_length=1)] | None = None
    """Values to choose from; their order means nothing."""
    low: _Bound | None = None
    """The smallest value of a range."""
    high: _Bound | None = None
    """The largest value of a range."""
    log: Switch = False
    """Whether factors count in a range, and not differences."""
    step: Positive | None = None
    """What lies between two values of a range; None: whatever the key takes."""

    @model_validator(mode="after")
    def _is_a_list_or_a_range(self) -> Self:
        given = self.model_fields_set
        if self.choices is not None:
            others = given & {"low", "high", "log", "step"}
            if others:
                raise mistake_at(
                    min(others), "is of a range, and choices are given: take one"
                )
            return self
        for bound in ("low", "high"):
            if getattr(self, bound) is None:
                raise mistake_at(bound, "missing; expected low and high, or choices")
        low, high = self.bounds
        if low >= high:
            raise mistake_at("high", f"expected more than low, {low}, got {high}")
        if self.log and low <= 0:
            raise mistake_at("low", f"expected more than 0 with log, got {low}")
        if self.log and self.step is not None:
            raise mistake_at("step", "cannot be combined with log: take one")
        # Optuna would lower such an end, with a warning of its own.
        if self.step is not None and (near := _on_step(low, high, self.step)) != high:
            raise mistake_at(
                "high", f"expected low and whole steps, such as {near:.10g}, got {high}"
            )
        return self

    @property
    def ends(self) -> list[Any]:
        """Values that a configuration must take, if it takes all."""
        return list(self.bounds if self.choices is None else self.choices)

    @property
    def bounds(self) -> tuple[float, float]:
        assert self.low is not None, "a list has none"
        assert self.high is not None, "a list has none"
        return self.low, self.high

    def distribution(self, *, is_whole: bool) -> BaseDistribution:
        from optuna.distributions import (
            CategoricalDistribution,
            FloatDistribution,
            IntDistribution,
        )

        if self.choices is not None:
            return CategoricalDistribution(self.choices)
        low, high = self.bounds
        if not is_whole:
            return FloatDistribution(low, high, log=self.log, step=self.step)
        step = 1 if self.step is None else int(self.step)
        return IntDistribution(int(low), int(high), log=self.log, step=step)


def _on_step(low: float, high: float, step: float) -> float:
    """The end of a range, lowered to a whole number of steps, of which there is at least one."""
    # As Optuna counts: 0.1 is a tenth here, which no binary fraction is.
    start, end, each = (Fraction(str(number)) for number in (low, high, step))
    nearest = start + max((end - start) // each, 1) * each
    return high if nearest == end else float(nearest)


class _Space(RootModel[dict[str, Dimension]]):
    """Dotted key -> its values."""


def read_space(path: Path, read: Read) -> dict[str, BaseDistribution]:
    """The values of each key in a file.

    `read` gives the configuration that is searched; every end of a range and every choice must fit
    it. Raises a UsageError that names file, line, column and key of the first mistake.
    """
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    tree = YamlTree.read(path, str(path))
    if tree.notices:
        raise UsageError(tree.notices[0])
    if not tree.values:
        raise UsageError(f"{path}: expected a key with its values, got an empty file")
    try:
        space = _Space.model_validate(tree.values).root
    except ValidationError as error:
        raise UsageError(explain(error, tree)) from None
    found = {}
    for key, dimension in space.items():
        place = tree.place((key,))
        if key.startswith(_OWN):
            raise UsageError(f"{place}: {key}: the search sets this key itself")
        for value in dimension.ends:
            _require_taken(read, key, value, place)
        is_whole = _is_whole(read, key, dimension)
        if is_whole and dimension.step is not None and dimension.step % 1:
            raise UsageError(
                f"{tree.place((key, 'step'))}: {key}.step: expected a whole number, as the key "
                f"takes, got {dimension.step:g}"
            )
        found[key] = dimension.distribution(is_whole=is_whole)
    return found


def _require_taken(read: Read, key: str, value: Any, place: str) -> None:
    try:
        read({key: value})
    except UsageError as error:
        text = str(error)
        at, _, problem = text.partition(": ")
        # Other refusals are of values that do not fit each other, as a batch that is larger than
        # its buffer: those of a trial may.
        if at == _shown(key) or "unknown key" in problem:
            raise UsageError(f"{place}: {problem}") from None


def _is_whole(read: Read, key: str, dimension: Dimension) -> bool:
    """Whether the key of a range takes whole numbers alone."""
    if dimension.choices is not None:
        return False
    low, high = dimension.bounds
    between = low + _GOLDEN * (high - low)
    try:
        read({key: between})
    except UsageError as error:
        return str(error).partition(": ")[0] == _shown(key)
    return False


def _shown(key: str) -> str:
    """How the reader of configurations names the place of a key that was set."""
    return next((flag.name for flag in setting_flags() if flag.key == key), key)
