"""SoccerTwos (two against two) and StrikersVsGoalie: soccer on a field with bouncing walls.

Everything that matters moves in a plane: players are spheres whose height is locked, and so is the
ball's, which rolls. Positions are in the field's own frame: blue starts at -x and scores at +x.

Source: ML-Agents 3.0.0, `SoccerFieldTwos.prefab`, `StrikersVsGoalieField.prefab`, `AgentSoccer.cs`,
`SoccerEnvController.cs`, `SoccerBallController.cs`; every physics step of a running Unity scene.
"""
