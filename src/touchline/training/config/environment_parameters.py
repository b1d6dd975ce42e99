"""What `environment_parameters` may hold: a number, a sampler, or a curriculum of lessons.

Keys and defaults are those of `mlagents-learn` 1.1.0. `value_of` turns them into the values of
`touchline.parameters`, which worlds take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

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

    def to_value(self) -> ParameterValue:
        return self.value


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

    def to_value(self) -> ParameterValue:
        from touchline.parameters import Uniform

        return Uniform(self.min_value, self.max_value, self.own_seed)


class GaussianParameters(_Seeded):
    """Parameters of a normal distribution."""

    mean: Number = 1.0
    """The mean."""
    st_dev: NotNegative = 1.0
    """The standard deviation."""

    def to_value(self) -> ParameterValue:
        from touchline.parameters import Gaussian

        return Gaussian(self.mean, self.st_dev, self.own_seed)


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

    def to_value(self) -> ParameterValue:
        from touchline.parameters import MultiRangeUniform

        return MultiRangeUniform(self.intervals, self.own_seed)


SamplerParameters = (
    ConstantParameters | UniformParameters | GaussianParameters | MultiRangeParameters
)
_PARAMETERS: dict[str, type[SamplerParameters]] = {
    "constant": ConstantParameters,
    "uniform": UniformParameters,
    "gaussian": GaussianParameters,
    "multirangeuniform": MultiRangeParameters,
}


class Sampler(Part):
    """A distribution to draw from; a constant may be written as one."""

    sampler_type: Literal["constant", "uniform", "gaussian", "multirangeuniform"]
    """The distribution."""
    # The default is None so that `_read_parameters` makes those of the sampler_type.
    sampler_parameters: SamplerParameters = Field(
        default=None, validate_default=True, json_schema_extra={"default": {}}
    )
    """Its parameters."""

    @field_validator("sampler_parameters", mode="before")
    @classmethod
    def _read_parameters(cls, value: Any, info: ValidationInfo) -> Any:
        if "sampler_type" not in info.data:  # it is unknown, which is reported already
            return ConstantParameters()
        # pydantic puts the place of this field before the places in errors raised here.
        return _PARAMETERS[info.data["sampler_type"]].model_validate(value)


def _form(value: Any) -> str:
    """The tag of the form that a value has, of those in `ParameterSettings`."""
    # Tags carry brackets, so that error texts can leave them out.
    # A value comes as a mapping from a file, and as a model when it is checked again.
    if isinstance(value, Mapping):
        return "[curriculum]" if "curriculum" in value else "[sampler]"
    if isinstance(value, Curriculum):
        return "[curriculum]"
    return "[sampler]" if isinstance(value, Sampler) else "[number]"


def _lesson_form(value: Any) -> str:
    return "[sampler]" if isinstance(value, Mapping | Sampler) else "[number]"


_Values = Annotated[Number, Tag("[number]")] | Annotated[Sampler, Tag("[sampler]")]
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
    return lesson.value.sampler_parameters.to_value()
