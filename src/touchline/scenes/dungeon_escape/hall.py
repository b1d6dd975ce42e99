"""What stands in an area: hall, columns, door and portal; agents, dragon, keys and tombstone.

Source: `DungeonEscapePlatform.prefab`.
"""

from touchline.physics.shapes import ABSENT, box, boxes, pillar, rounds
from touchline.physics.upright.boxes import Body
from touchline.physics.upright.contacts import MU
from touchline.scenes.cube_agents import NOWHERE_M

AGENTS = 3
AGENT_KG, AGENT_DRAG = 10.0, 4.0

TAGS = ["wall", "agent", "dragon", "key", "lock", "portal"]
WALL, AGENT_TAG, DRAGON_TAG, KEY_TAG, LOCK_TAG, PORTAL_TAG = range(6)
COLUMNS_M = ((-4.5, -4.0), (-4.5, 4.0), (4.5, -4.0), (4.5, 4.0))
COLUMN_RADIUS_M, COLUMN_HEIGHT_M = 0.718, 3.45
FLOOR = 0
DOOR = 5
PORTAL = 6
FIRST_COLUMN = 7
FIXED = boxes(
    box((0.0, -0.5, 0.0), (25.0, 1.0, 25.0)),
    box((12.75, 2.0, 0.0), (0.5, 5.0, 26.0), WALL),
    box((-12.75, 2.0, 0.0), (0.5, 5.0, 26.0), WALL),
    box((0.0, 2.0, 12.75), (26.0, 5.0, 0.5), WALL),
    box((0.0, 2.0, -12.75), (26.0, 5.0, 0.5), WALL),
    box((0.015, 1.385, 12.6), (3.0, 2.6, 1.07), LOCK_TAG),
    box((11.83, 1.83, -11.77), (4.69, 4.73, 1.77), PORTAL_TAG, -45.0),
    *(box((x, 0.1845, z), (1.695, 0.369, 1.695), WALL) for x, z in COLUMNS_M),
)
PILLARS = rounds(
    *(
        pillar((x, COLUMN_HEIGHT_M / 2, z), COLUMN_RADIUS_M, COLUMN_HEIGHT_M, WALL)
        for x, z in COLUMNS_M
    )
)
"""Only rays of agents in the air hit these: on the ground they hit the wider foot first."""
COLUMN_MU = 0.5 * MU
"""Columns are frictionless, agents are not; the average counts."""

_NOWHERE = (0.0, NOWHERE_M, 0.0)
BODIES = [
    Body(box(_NOWHERE, (1.0, 1.0, 1.0), AGENT_TAG), AGENT_KG, AGENT_DRAG)
] * AGENTS
DRAGON, CARRIED_KEY, KEY, TOMB_FOOT, TOMB_STONE = range(AGENTS, AGENTS + 5)
"""The boxes after the agents. The key is carried by the dragon, then lies on the ground."""
PLACED = [
    box(_NOWHERE, (1.5, 1.5, 1.5), ABSENT),  # dragon
    box(_NOWHERE, (1.21, 0.46, 0.18), ABSENT),  # carried key
    box(_NOWHERE, (1.21, 0.46, 0.18), ABSENT),  # key
    box(_NOWHERE, (1.21, 0.44, 0.52), ABSENT),  # foot of the tombstone
    box(_NOWHERE, (1.05, 1.42, 0.33), ABSENT),  # tombstone
]
PORTAL_M = (11.58, -11.59)
"""x and z of where the dragon walks."""
CARRIED_KEY_Y_M, KEY_Y_M = 0.38, 0.75
KEY_AHEAD_M, KEY_LEFT_M = 0.94, 0.19
"""Place of the key that the dragon carries, relative to it."""
