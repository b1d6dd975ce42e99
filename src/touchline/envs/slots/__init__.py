"""Agents come and go; slots are the rows that stay, so that learners can hold on to them."""

from touchline.envs.slots.rows import AllRows, SlotCounts, SlotRows, widened
from touchline.envs.slots.slots import Slots

__all__ = ["AllRows", "SlotCounts", "SlotRows", "Slots", "widened"]
