"""How a policy fares against a list of bots: games won, tied and lost.

Every area plays the same number of games against each bot, so that short games do not count for
more, and both seats get the same share.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from touchline.envs.env import EnvRecipe
from touchline.envs.slots import Slots
from touchline.log import Progress, no_progress
from touchline.microrts.bots import bot_named, opponents_of_areas
from touchline.microrts.env import MicrortsEnv, open_microrts
from touchline.microrts.records import GameRecord, win_figures
from touchline.microrts.rules import SELF
from touchline.policies.loading import load_policies
from touchline.policies.policy import SlotActor

_MOST_AREAS = 8


def evaluate_opponents(
    recipe: EnvRecipe,
    sources: Sequence[str],
    opponents: Sequence[str],
    episodes: int,
    seed: int,
    *,
    deterministic: bool = False,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """`episodes` games against each opponent: {"opponents": {name: figures}, "total": figures}.

    `sources` are policies, as `--policy` takes them. The recipe's seat is used where it names one;
    otherwise seats alternate. `progress` counts games.
    """
    total = episodes * len(opponents)
    records: dict[str, list[GameRecord]] = {}
    for number, opponent in enumerate(opponents):
        played = episodes * number

        def report(done: int, played: int = played) -> None:
            progress(played + done, total)

        options = {"seat": "both", **recipe.options, "opponent": opponent}
        most = recipe.num_areas or _most_areas(opponent)
        num_areas = _largest_divisor(episodes, most)
        changed = replace(recipe, num_areas=num_areas, seed=seed, options=options)
        with open_microrts(changed) as env:
            policies = load_policies(
                sources,
                env.behaviors,
                deterministic=deterministic,
                seed=seed,
                world=env,
            )
            per_area = episodes // num_areas
            records[opponent] = play_games(env, policies, per_area, seed, report)
    all_records = [record for games in records.values() for record in games]
    return {
        "seed": seed,
        "episodes": episodes,
        "opponents": {
            opponent: win_figures(games) for opponent, games in records.items()
        },
        "total": win_figures(all_records),
    }


def _most_areas(opponent: str) -> int:
    """How many games are played side by side by default."""
    # Against bots that search it would save no time.
    names = opponents_of_areas(opponent, _MOST_AREAS)
    is_slow = any(name != SELF and bot_named(name).is_supervised for name in names)
    return 1 if is_slow else _MOST_AREAS


def _largest_divisor(number: int, most: int) -> int:
    """The largest divisor of `number` that is at most `most`."""
    return max(n for n in range(1, min(number, most) + 1) if number % n == 0)


def play_games(
    env: MicrortsEnv,
    policies: Mapping[str, SlotActor],
    per_area: int,
    seed: int,
    report: Callable[[int], None] = lambda _: None,
) -> list[GameRecord]:
    """The first `per_area` games of every area, for team 0; `report` gets their number so far."""
    env.rest_after(per_area * env.num_areas)
    slots = Slots(env)
    rows = slots.reset(seed)
    # Games that were played before this reset do not count.
    env.pop_records()
    records: list[GameRecord] = []
    num_played = np.zeros(env.num_areas, np.int64)
    while (num_played < per_area).any():
        actions = {name: policies[name].act(row) for name, row in rows.items()}
        rows = slots.step(actions)
        for record in env.pop_records():
            if record.team == 0 and num_played[record.area] < per_area:
                records.append(record)
                num_played[record.area] += 1
        report(len(records))
    return records
