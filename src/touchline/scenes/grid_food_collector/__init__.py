"""GridFoodCollector: five agents on a court gather good food and avoid bad food.

Touching a good item earns 1, a bad one costs 1, and the item reappears elsewhere, keeping the speed
that the collision gave it. A shot freezes the first agent in its way for four seconds. Nothing ends
an episode but its 5000 physics steps, agent by agent, so courts never restart: items lie where the
last episode left them.

Source: ML-Agents Release 22, `FoodCollectorAgent.cs`, `FoodCollectorArea.cs`, `FoodLogic.cs`,
`FoodCollectorArea.prefab`, scene `FoodCollector`; confirmed by Unity's own policy in a trial twin.
"""
