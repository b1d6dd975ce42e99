"""The one builder of `SlotRows` for tests."""

import numpy as np

from touchline.envs.slots import SlotRows
from touchline.envs.slots.rows import COLUMNS


def slot_rows(
    obs, *, action_mask=None, second_mask=None, final_slot=(), final_obs=None, **columns
):
    """Rows of N slots from `obs`, one array [N, *shape] per sensor.

    `columns` are the names in `COLUMNS`, with one value per slot or one for all.
    By default every slot decides, no episode begins or ends, no action has closed, rewards are 0
    and agent i of no group is in slot i of world 0.
    """
    size = len(obs[0])
    defaults = {"deciding": True, "agent_id": np.arange(size)}
    values = defaults | columns
    unknown = values.keys() - set(COLUMNS)
    assert not unknown, f"unknown columns {unknown}"
    kinds = [np.bool_] * 5 + [np.float32] * 2 + [np.int32] * 3
    all_columns = {
        name: np.broadcast_to(values.get(name, 0), size).astype(kind)
        for name, kind in zip(COLUMNS, kinds, strict=True)
    }
    if final_obs is None:
        final_obs = [sensor[:0] for sensor in obs]
    return SlotRows(
        obs=tuple(obs),
        action_mask=action_mask,
        final_slot=np.asarray(final_slot, np.int32),
        final_obs=tuple(final_obs),
        second_mask=second_mask,
        **all_columns,
    )
