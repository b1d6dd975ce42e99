"""Signals at work: a reward that random actions never find, and a way that only experts know."""

import numpy as np
import pytest
from tests.slot_rows import slot_rows
from tests.training.practice import Practice
from tests.training.rewards.worlds import demonstration, learner

from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from touchline.training.rewards.gail import imitation
from touchline.training.rewards.settings import REWARD_SIGNALS, GAILSettings

CELLS, LENGTH, SLOTS = 20, 24, 32
SPEC = BehaviorSpec((ObservationSpec.vector(CELLS, "cell"),), ActionSpec(0, (2,)))


ONWARD = np.random.default_rng(0).integers(0, 2, CELLS)
"""The choice that leads on from each cell."""


class GuideSettings(GAILSettings):
    """GAIL with demonstrations of the way."""

    signal = f"{__name__}:guide"
    demo_path: str = ""


def guide(name, settings, setup):
    """Ten times from the start to the end."""
    way = np.tile(np.arange(CELLS), 10)
    obs = [np.eye(CELLS, dtype=np.float32)[way]]
    actions = ActionTuple(discrete=ONWARD[way][:, None])
    experts = demonstration(SPEC, obs, actions, ends=CELLS)
    return imitation(name, settings, setup, experts)


def _reached(of, updates):
    """Share of the last quarter's episodes that reach the end of a corridor.

    One choice leads a cell on, the other back to the start, so that random actions reach the end in
    one of some 100,000 episodes. Which choice leads on differs from cell to cell.
    """
    practice, cell = Practice(of), np.zeros(SLOTS, np.int64)
    reached, found = np.zeros(SLOTS, bool), []
    step = 0
    while True:
        ends = step > 0 and step % LENGTH == 0
        last = np.eye(CELLS, dtype=np.float32)[cell]
        paid = np.zeros(SLOTS, np.float32)
        if ends:
            paid[reached] = 1.0
            found.append(reached.mean())
            cell[:], reached[:] = 0, False
        rows = slot_rows(
            [np.eye(CELLS, dtype=np.float32)[cell]],
            begins=step == 0 or ends,
            closed=step > 0,
            terminated=ends,
            reward=paid,
            final_slot=np.arange(SLOTS) if ends else (),
            final_obs=[last] if ends else None,
        )
        practice.add(rows)
        updates -= practice.learn(rows) is not None
        if not updates:
            return float(np.mean(found[-len(found) // 4 :]))
        choice = practice.act().discrete[:, 0]
        cell = np.where(choice == ONWARD[cell], np.minimum(cell + 1, CELLS - 1), 0)
        reached |= cell == CELLS - 1
        step += 1


def _learner(signals, seed=0):
    return learner(
        "ppo",
        signals,
        SPEC,
        seed,
        batch_size=160,
        buffer_size=640,
        num_epoch=3,
        learning_rate=3e-3,
        learning_rate_schedule="constant",
        beta=0.003,
    )


GUIDE = {
    "gamma": 0.9,
    "learning_rate": 3e-3,
    "use_actions": True,
    "reward_form": "signed",
}


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize(
    ("signals", "finds_it"),
    [
        ({}, False),
        ({"curiosity": {"strength": 0.1, "learning_rate": 1e-3}}, True),
        ({"rnd": {"strength": 0.05, "learning_rate": 1e-3}}, True),
        ({"guide": GUIDE}, True),
    ],
    ids=["none", "curiosity", "rnd", "gail"],
)
def test_a_reward_far_away_is_found_with_a_signal_that_leads_there(
    signals, finds_it, monkeypatch
):
    monkeypatch.setitem(REWARD_SIGNALS, "guide", f"{__name__}:GuideSettings")
    reached = _reached(_learner(signals), 80)
    assert (reached > 0.5) == finds_it, reached
