"""Settings of self-play: the `self_play` block of a behavior.

The first six keys, their meanings and defaults are those of `mlagents-learn` 1.1.0; the others are
not in ML-Agents.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from touchline.flag import Flag
from touchline.training.config.values import (
    Count,
    Number,
    Part,
    Share,
    Switch,
    Text,
    Whole,
    mistake_at,
)


class SelfPlaySettings(Part):
    """Against whom a behavior learns. An opponent plays in an area for a whole game."""

    save_steps: Whole = 20_000
    """Agent steps between two snapshots of the policy for the pool."""
    team_change: Whole | None = None
    """With take_turns: agent steps that a team learns before the next one does. Default: 5 x
    save_steps."""
    swap_steps: Whole = 2000
    """Steps of opponents after which others are drawn from the pool; they enter with new games."""
    window: Count = 10
    """How many snapshots the pool holds; 0: none, only the files of versus."""
    play_against_latest_model_ratio: Share = 0.5
    """Share of games in which the latest policy plays all sides; in the others the pool plays
    one."""
    initial_elo: Number = 1200
    """Rating of the first policy."""
    pool: Literal["whole_run", "latest"] = "whole_run"
    """whole_run: snapshots of the whole run, denser towards now, drawn more often the more they
    win. latest: the newest ones, drawn uniformly, one at a time, as in ML-Agents."""
    take_turns: Switch = False
    """One team learns at a time, as in ML-Agents; otherwise all teams do."""
    versus: Annotated[list[Text], Flag("--versus", "FILE")] = Field(
        default_factory=list
    )
    """Opponents from files, which stay in the pool: a model, a checkpoint, a run folder, random or
    zero. On the command line, repeat the flag; it switches self-play on."""

    @property
    def turn_steps(self) -> int:
        """Agent steps that a team learns before the next one does."""
        return self.team_change or 5 * self.save_steps

    @model_validator(mode="after")
    def _pool_is_not_empty(self) -> Self:
        if self.window == 0 and not self.versus:
            raise mistake_at(
                "window",
                "a pool without snapshots needs the files of versus; expected 1 or more",
            )
        return self
