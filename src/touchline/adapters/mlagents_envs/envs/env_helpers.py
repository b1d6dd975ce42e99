"""Names of agents in ML-Agents' PettingZoo wrappers: `<behavior>?agent_id=<id>`.

The official module has no public name. Of its private ones, those about names are here.
"""

from touchline.specs import base_name, team_of


def name_of(behavior: str, agent_id: int) -> str:
    """An agent's name."""
    return f"{behavior}?agent_id={agent_id}"


def behavior_of(agent: str) -> str:
    """The behavior in an agent's name."""
    return agent.partition("?agent_id=")[0]


_behavior_to_agent_id = name_of
_agent_id_to_behavior = behavior_of


def _parse_behavior(full_behavior: str) -> tuple[str, int]:
    return base_name(full_behavior), team_of(full_behavior)
