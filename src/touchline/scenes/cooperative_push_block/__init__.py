"""CooperativePushBlock: three agents push six blocks onto the goal strip, the heavy ones together.

`yard` says what stands in an area, `places` where agents and blocks start, `game` is the scene.

Unity turns the area by a multiple of 90° at each reset. No observation depends on that, so here the
area stays and everything is in its frame: the goal lies at -z.

Source: ML-Agents 3.0.0, `PushBlockCollabAreaGrid.prefab`, `PushBlockAgentGridCollab.prefab`,
`PushAgentCollab.cs`, `PushBlockEnvController.cs`, `GoalDetectTrigger.cs`.
"""
