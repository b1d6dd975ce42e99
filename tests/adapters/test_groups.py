"""Groups over one world and several: rows that stay where they are, and requests refused with the
reason.
"""

import numpy as np
import pytest
from tests.scripted_world import ScriptedWorld

from touchline.adapters.groups import Groups
from touchline.adapters.to_gymnasium import make_gymnasium
from touchline.envs.env import EnvRecipe, make
from touchline.envs.slots import Slots
from touchline.envs.slots.rows import COLUMNS
from touchline.errors import RunError, UsageError
from touchline.specs import ActionSpec, ActionTuple, BehaviorSpec, ObservationSpec
from touchline.testing import random_slot_actions


def _actions(groups, rng):
    return {
        g: random_slot_actions(groups.specs[g], rows, rng)
        for g, rows in groups.rows.items()
    }


def test_two_worlds_beside_each_other_are_each_as_if_alone():
    together = Groups(
        [
            EnvRecipe("scene", "3DBall", num_areas=2, seed=4),
            EnvRecipe("scene", "3DBall", num_areas=3, seed=9),
        ]
    )
    alone = [
        Slots(make(EnvRecipe("scene", "3DBall", num_areas=n, seed=s)), grow=False)
        for n, s in ((2, 4), (3, 9))
    ]
    assert together.sizes == {"3DBall": 5}
    rng = np.random.default_rng(0)
    rows = [slots.reset()["3DBall?team=0"] for slots in alone]
    for _ in range(150):
        actions = _actions(together, rng)
        both = together.step(actions)["3DBall"]
        parts = np.split(actions["3DBall"].continuous, [2])
        rows = [
            s.step({"3DBall?team=0": ActionTuple(a)})["3DBall?team=0"]
            for s, a in zip(alone, parts, strict=True)
        ]
        for name in ("reward", "terminated", "begins", "agent_id"):
            np.testing.assert_array_equal(
                getattr(both, name), np.concatenate([getattr(r, name) for r in rows])
            )
        np.testing.assert_array_equal(
            both.obs[0], np.concatenate([r.obs[0] for r in rows])
        )
        np.testing.assert_array_equal(
            both.final_slot,
            np.concatenate([rows[0].final_slot, rows[1].final_slot + 2]),
        )
    assert both.env_index.tolist() == [0, 0, 1, 1, 1]
    together.close()


def test_the_same_recipe_twice_plays_two_different_games():
    with_default = Groups(["3DBall", "3DBall"])
    obs = with_default.rows["3DBall"].obs[0]
    assert not np.array_equal(obs[:12], obs[12:])
    seeded = with_default.reset(seed=5)["3DBall"].obs[0]
    again = with_default.reset(seed=5)["3DBall"].obs[0]
    np.testing.assert_array_equal(seeded, again)
    assert not np.array_equal(seeded[:12], seeded[12:])
    with_default.close()


def test_a_seed_that_another_world_got_is_passed_over():
    groups = Groups(["Basic", "Basic", EnvRecipe("scene", "Basic", seed=1)])
    recipes = [world.recipe for world in groups._worlds._worlds]
    assert [recipe.seed for recipe in recipes] == [0, 1, 2]
    groups.close()


@pytest.mark.parametrize(
    ("group_by", "sizes"),
    [("behavior", {"Walker": 3, "Jumper": 3}), ("all", {"agents": 6})],
)
def test_grouping(group_by, sizes):
    groups = Groups(ScriptedWorld(), group_by=group_by)
    assert groups.sizes == sizes


def test_teams_are_apart_unless_merged():
    def teams():
        return ScriptedWorld(names=("Soccer?team=0", "Soccer?team=1"))

    assert Groups(teams()).sizes == {"Soccer_0": 3, "Soccer_1": 3}
    assert Groups(teams(), group_by="base").sizes == {"Soccer": 6}


def test_teams_that_show_their_state_are_joined_without_being_merged():
    recipe = EnvRecipe("scene", "SoccerTwos", 2, options={"state": True})
    groups = Groups(recipe, group_by="base")
    rng, ends = np.random.default_rng(0), 0
    assert groups.specs["SoccerTwos"].state_size
    while not ends:
        rows = groups.step(_actions(groups, rng))["SoccerTwos"]
        ends += len(rows.final_slot)
        assert len(rows.obs) == len(rows.final_obs) == 3
    groups.close()


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (("前锋?team=0", "守门员?team=1"), ["behavior_0", "behavior_1"]),
        (("My Agent", "My-Agent"), ["My_Agent", "My_Agent_1"]),
        (("A?team=0", "A?team=1", "A_0"), ["A_0", "A_1", "A_0_1"]),
    ],
)
def test_behaviors_of_any_name_have_groups_of_their_own(names, groups):
    world = ScriptedWorld(names=names)
    assert list(Groups(world).specs) == groups


def test_a_scene_that_merges_its_teams_plays_the_same_game():
    apart = Groups(EnvRecipe("scene", "SoccerTwos", num_areas=3, seed=7))
    merged = Groups(
        EnvRecipe("scene", "SoccerTwos", num_areas=3, seed=7), group_by="base"
    )
    assert list(merged.specs) == ["SoccerTwos"]
    assert list(merged.worlds[0].behaviors) == ["SoccerTwos"]
    rng, ends = np.random.default_rng(0), 0
    for _ in range(1050):  # a field has 1000 decisions of time
        two = list(apart.rows.items())
        one = merged.rows["SoccerTwos"]
        order = np.argsort(one.agent_id)
        theirs = np.argsort(np.concatenate([rows.agent_id for _, rows in two]))
        for name in (*COLUMNS, "action_mask"):
            joined = np.concatenate([getattr(rows, name) for _, rows in two])
            np.testing.assert_array_equal(getattr(one, name)[order], joined[theirs])
        for mine, *parts in zip(one.obs, *(rows.obs for _, rows in two), strict=True):
            np.testing.assert_array_equal(mine[order], np.concatenate(parts)[theirs])
        last = np.argsort(one.agent_id[one.final_slot])
        their_last = np.argsort(
            np.concatenate([rows.agent_id[rows.final_slot] for _, rows in two])
        )
        for mine, *parts in zip(
            one.final_obs, *(rows.final_obs for _, rows in two), strict=True
        ):
            np.testing.assert_array_equal(mine[last], np.concatenate(parts)[their_last])
        ends += len(last)
        chosen = rng.integers(0, 3, (12, 3))  # by agent id, none of which changes here
        merged.step({"SoccerTwos": ActionTuple(None, chosen[one.agent_id])})
        apart.step(
            {group: ActionTuple(None, chosen[rows.agent_id]) for group, rows in two}
        )
    assert ends >= 12
    apart.close()
    merged.close()


def test_behaviors_of_one_team_each_stay_what_they_are_when_teams_are_merged():
    groups = Groups(
        EnvRecipe("scene", "StrikersVsGoalie", num_areas=2), group_by="base"
    )
    assert groups.sizes == {"Striker": 4, "Goalie": 2}
    for _ in range(5):
        groups.step(
            {
                g: spec.action_spec.empty_action(groups.sizes[g])
                for g, spec in groups.specs.items()
            }
        )
    groups.close()


def test_teams_of_a_world_that_has_begun_stay_apart():
    world = make(EnvRecipe("scene", "SoccerTwos", num_areas=2))
    world.reset()
    groups = Groups(world, group_by="base")
    assert groups.sizes == {"SoccerTwos": 8}
    assert set(world.behaviors) == {"SoccerTwos?team=0", "SoccerTwos?team=1"}
    groups.close()


def test_only_the_first_reset_after_opening_restarts_nothing():
    class Counting(ScriptedWorld):
        resets = 0

        def reset(self, seed=None, parameters=None):
            self.resets += 1
            super().reset(seed, parameters)

    world = Counting(births=False)
    before = world.resets
    groups = Groups(world)
    groups.reset()
    assert world.resets == before + 1
    groups.reset()
    assert world.resets == before + 2
    stepped = Groups(world)
    stepped.step(_actions(stepped, np.random.default_rng(0)))
    stepped.reset()
    assert world.resets == before + 4


def test_what_was_set_after_opening_counts_from_the_first_reset_on():
    world = make(EnvRecipe("scene", "3DBall", 2, seed=0))
    groups = Groups(world)
    before = groups.rows["3DBall"].obs[0].copy()
    world.set_parameters({"scale": 3.0})
    after = groups.reset()["3DBall"].obs[0]
    assert not np.array_equal(after, before), "another start, with the new scale"
    np.testing.assert_array_equal(groups.rows["3DBall"].obs[0], after)
    groups.close()


def test_an_adapter_that_refuses_a_world_of_the_callers_leaves_it_open():
    world = make(EnvRecipe("scene", "3DBall", 2))
    with pytest.raises(UsageError, match="take a VectorEnv with vector=True"):
        make_gymnasium(world)
    with pytest.raises(UsageError, match="num_envs: expected 2, the agents"):
        make_gymnasium(world, num_envs=5)
    envs = make_gymnasium(world, vector=True)
    envs.reset()
    assert envs.num_envs == 2
    envs.close()


def test_a_closed_world_refuses_a_reset_even_if_it_is_the_first():
    groups = Groups("Basic")
    groups.close()
    with pytest.raises(UsageError, match="this environment is closed"):
        groups.reset()


def test_one_agent_too_many_names_the_option():
    groups = Groups(ScriptedWorld(moves=False))
    rng = np.random.default_rng(0)

    def live_long():
        for _ in range(500):
            groups.step(_actions(groups, rng))

    with pytest.raises(RunError, match="make the adapter with more spare_slots"):
        live_long()


def test_merging_what_differs_is_refused_with_the_difference():
    class Mixed(ScriptedWorld):
        @property
        def behaviors(self):
            specs = dict(super().behaviors)
            specs["Jumper?team=0"] = BehaviorSpec(
                (ObservationSpec((4,)),), ActionSpec(1)
            )
            return specs

    with pytest.raises(
        UsageError, match=r"Walker\?team=0 has observations .* take group_by='behavior'"
    ):
        Groups(Mixed(), group_by="all")


def test_a_behavior_that_appears_later_is_an_error_at_that_exchange():
    class Late(ScriptedWorld):
        shown = 1

        @property
        def behaviors(self):
            return dict(list(super().behaviors.items())[: self.shown])

    world = Late()
    groups = Groups(world, spare_slots=20)
    world.shown = 2
    with pytest.raises(RunError, match=r"behavior Jumper\?team=0 appeared after"):
        groups.step(_actions(groups, np.random.default_rng(0)))


def test_requests_that_mean_nothing_are_refused():
    with pytest.raises(UsageError, match="group_by: expected"):
        Groups("3DBall", group_by="team")
    with pytest.raises(UsageError, match="got an empty list"):
        Groups([])
    with pytest.raises(UsageError, match="unknown scene 'Soccer'"):
        Groups("Soccer")
    with pytest.raises(
        UsageError, match="expected an ENV, an EnvRecipe or a world, got None"
    ):
        Groups(None)
    with pytest.raises(UsageError, match="spare_slots: expected 0 or more, got -1"):
        Groups("3DBall", spare_slots=-1)
