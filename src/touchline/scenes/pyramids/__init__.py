"""Pyramids: press a switch, a pyramid of bricks appears elsewhere, topple it and touch the gold.

Touching the golden brick on top gives 2 and ends the episode; every step costs 1/5000, and 5000 of
them interrupt it. Six pyramids of stone are in the way. Nothing but searching leads to a reward.

Two solvers share the work, both with PhysX's own contact rule. The agent, the switch, stones and
walls stay upright: `physics.upright` moves them (`agent`). The 26 bricks tumble: `physics.tumbling`
moves them from the moment the switch is pressed (`bricks`). Bricks that lie still are not simulated
until something comes near. Stones never move, which Unity's own policy hardly notices
(`docs/scenes.md`).

Source: ML-Agents Release 22, `PyramidAgent.cs`, `PyramidArea.cs`, `PyramidSwitch.cs`,
`AreaPB.prefab`, `BrickPyramid.prefab`, `StonePyramid.prefab`; confirmed by Unity's own policy in a
trial twin.
"""
