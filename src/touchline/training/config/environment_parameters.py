"""What `environment_parameters` may hold: a number, a sampler, or a curriculum of lessons.

Keys and defaults are those of `mlagents-learn` 1.1.0. `value_of` turns them into the values of
`touchline.parameters`, which worlds take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from touchline.training.config.values import (
    Count,
    Integer,
    NotNegative,
    Number,
    Part,
    Switch,
    Text,
    mistake_at,
)

if TYPE_CHECKING:
    # Imported in functions below: NumPy would double the time that a configuration error takes.
    from touchline.parameters import ParameterValue


class _Seeded(Part):
    # A message to a player has room for 32 bits.
    seed: Annotated[Integer, Field(ge=-1, le=2**31 - 1)] = -1
    """Seed of a Unity world's draws; -1: the run's seed plus a running number."""

    @property
    def own_seed(self) -> int | None:
        """The seed, None where the run's is used."""
        return None if self.seed < 0 else self.seed


class ConstantParameters(_Seeded):
    """Parameters of a constant."""

    value: Number = 0.0
    """The value."""


class UniformParameters(_Seeded):
    """Parameters of a uniform distribution."""

    min_value: Number = 0.0
    """The smallest value."""
    max_value: Number = 1.0
    """The largest value."""

    @model_validator(mode="after")
    def _bounds_fit(self) -> Self:
        if self.min_value > self.max_value:
            raise ValueError(
                f"min_value {self.min_value:g} is larger than max_value {self.max_value:g}"
            )
        return self


class GaussianParameters(_Seeded):
    """Parameters of a normal distribution."""

    mean: Number = 1.0
    """The mean."""
    st_dev: NotNegative = 1.0
    """The standard deviation."""


class MultiRangeParameters(_Seeded):
    """Parameters of a uniform distribution over several ranges."""

    intervals: Annotated[tuple[tuple[Number, Number], ...], Field(min_length=1)] = (
        (0.0, 1.0),
    )
    """[smallest, largest] of each range; a range is chosen by its length."""

    @model_validator(mode="after")
    def _bounds_fit(self) -> Self:
        for low, high in self.intervals:
            if low > high:
                raise ValueError(f"intervals: {low:g} is larger than {high:g}")
        return self


class ConstantSampler(Part):
    """A constant, written as a sampler."""

    sampler_type: Literal["constant"]
    """The distribution."""
    sampler_parameters: ConstantParameters = Field(default_factory=ConstantParameters)
    """Its parameters."""

    def to_value(self) -> ParameterValue:
        return self.sampler_parameters.value


class UniformSampler(Part):
    """Uniform draws from one range."""

    sampler_type: Literal["uniform"]
    """The distribution."""
    sampler_parameters: UniformParameters = Field(default_factory=UniformParameters)
    """Its parameters."""

    def to_value(self) -> ParameterValue:
        from touchline.parameters import Uniform

        given = self.sampler_parameters
        return Uniform(given.min_value, given.max_value, given.own_seed)


class GaussianSampler(Part):
    """Draws from a normal distribution."""

    sampler_type: Literal["gaussian"]
    """The distribution."""
    sampler_parameters: GaussianParameters = Field(default_factory=GaussianParameters)
    """Its parameters."""

    def to_value(self) -> ParameterValue:
        from touchline.parameters import Gaussian

        given = self.sampler_parameters
        return Gaussian(given.mean, given.st_dev, given.own_seed)


class MultiRangeSampler(Part):
    """Uniform draws from one of several ranges."""

    sampler_type: Literal["multirangeuniform"]
    """The distribution."""
    sampler_parameters: MultiRangeParameters = Field(
        default_factory=MultiRangeParameters
    )
    """Its parameters."""

    def to_value(self) -> ParameterValue:
        from touchline.parameters import MultiRangeUniform

        given = self.sampler_parameters
        return MultiRangeUniform(given.intervals, given.own_seed)


class UnknownSampler(Part):
    """Stands for a block of an unknown type, so that the error names the known ones."""

    sampler_type: Literal["constant", "uniform", "gaussian", "multirangeuniform"]
    sampler_parameters: Any = None

    def to_value(self) -> ParameterValue:
        raise AssertionError("a sampler of a known type is read as one")


def _form(value: Any) -> str:
    """The tag of the form that a value has, of those in `ParameterSettings`."""
    # Tags carry brackets, so that error texts can leave them out.
    if isinstance(value, Curriculum):
        return "[curriculum]"
    if isinstance(value, Mapping) and "curriculum" in value:
        return "[curriculum]"
    return _lesson_form(value)


def _lesson_form(value: Any) -> str:
    if not isinstance(value, Mapping | Part):
        return "[number]"
    # A value comes as a mapping from a file, and as a model when it is checked again.
    if isinstance(value, Part):
        kind = getattr(value, "sampler_type", None)
    else:
        kind = value.get("sampler_type")
    # An unknown type becomes an `UnknownSampler`, whose error lists the known ones.
    is_known = kind in ("constant", "uniform", "gaussian", "multirangeuniform")
    return f"[{kind}]" if is_known else "[sampler]"


_Values = (
    Annotated[Number, Tag("[number]")]
    | Annotated[ConstantSampler, Tag("[constant]")]
    | Annotated[UniformSampler, Tag("[uniform]")]
    | Annotated[GaussianSampler, Tag("[gaussian]")]
    | Annotated[MultiRangeSampler, Tag("[multirangeuniform]")]
    | Annotated[UnknownSampler, Tag("[sampler]")]
)
LessonValue = Annotated[_Values, Discriminator(_lesson_form)]


class CompletionCriteria(Part):
    """When a lesson is over."""

    behavior: Text
    """The behavior whose progress counts; its name without team."""
    measure: Literal["reward", "progress"] = "reward"
    """Mean return of the latest episodes, or steps / max_steps."""
    threshold: Number = 0.0
    """The lesson is over when the measure is above it."""
    min_lesson_length: Count = 0
    """Episodes that must have ended in this lesson."""
    signal_smoothing: Switch = True
    """For `reward`: 0.25 of the last value plus 0.75 of the new one."""
    require_reset: Switch = False
    """Restart all worlds with the next lesson."""

    @model_validator(mode="after")
    def _progress_is_a_share(self) -> Self:
        if self.measure == "progress" and not 0 <= self.threshold <= 1:
            wrong = f"progress goes from 0 to 1, got {self.threshold:g}"
            raise mistake_at("threshold", wrong)
        return self


class Lesson(Part):
    """One lesson of a curriculum."""

    name: Text
    """Its name in logs."""
    value: LessonValue
    """The parameter's value during this lesson: a number or a sampler."""
    completion_criteria: CompletionCriteria | None = None
    """When the next lesson begins; the last lesson has none."""


class Curriculum(Part):
    """Lessons, from easy to hard."""

    curriculum: Annotated[list[Lesson], Field(min_length=1)]
    """The lessons in their order."""

    @model_validator(mode="after")
    def _lessons_end(self) -> Self:
        for number, lesson in enumerate(self.curriculum[:-1]):
            if lesson.completion_criteria is None:
                raise mistake_at(
                    f"curriculum.{number}",
                    "completion_criteria are missing; only the last lesson has none",
                )
        return self


ParameterSettings = Annotated[
    _Values | Annotated[Curriculum, Tag("[curriculum]")], Discriminator(_form)
]


def lessons_of(settings: ParameterSettings) -> list[Lesson]:
    """The lessons of a curriculum; a number or sampler is one lesson that never ends."""
    if isinstance(settings, Curriculum):
        return list(settings.curriculum)
    return [Lesson(name="always", value=settings)]


def value_of(lesson: Lesson) -> ParameterValue:
    """The value of the parameter in this lesson, as worlds take it."""
    if isinstance(lesson.value, float):
        return lesson.value
    return lesson.value.to_value()
