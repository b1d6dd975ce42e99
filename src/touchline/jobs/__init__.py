"""Work that happens in a place, may die, and continues from its last state; see `job`."""
