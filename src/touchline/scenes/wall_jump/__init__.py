"""WallJump: reach the goal behind a wall.

A low wall is jumped over; a high one needs the block to climb on.

One agent per area, which moves between two behaviors with the wall's height: `SmallWallJump` (no
wall or a small one) and `BigWallJump`. An agent's behavior changes one step after its episode
began. At start-up Unity counts the very first setting as a change: every agent sends an end under
SmallWallJump, and some a second one a step later; so does this scene.

Source: ML-Agents 3.0.0, `WallJumpArea.prefab`, `WallJumpAgent.cs`.
"""
