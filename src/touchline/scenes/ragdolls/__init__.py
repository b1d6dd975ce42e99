"""Walker, Crawler and Worm: ragdolls that walk to a moving target.

`physics/ragdoll` moves them, after PhysX's own rules, because Unity's policies are tuned to joints
that do not converge.

Source: ML-Agents Release 22, `WalkerAgent.cs`, `CrawlerAgent.cs`, `WormAgent.cs`,
`JointDriveController.cs`, `OrientationCubeController.cs`, `TargetController.cs`, and their prefabs.
"""
