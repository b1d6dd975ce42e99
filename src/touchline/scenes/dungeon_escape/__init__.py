"""DungeonEscape: one of three agents dies for the dragon's key, another takes it to the door.

Unity turns the platform by a multiple of 90° at each reset, and the dragon starts at the same place
in the world; here the platform stays, and the dragon starts on one of four sides.

Source: ML-Agents 3.0.0, `DungeonEscapePlatform.prefab`, `DungeonEscapeEnvController.cs`,
`PushAgentEscape.cs`, `SimpleNPC.cs`.
"""
