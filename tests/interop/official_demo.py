"""What official ML-Agents 1.1.0 makes of a demonstration, as JSON on standard output.

python official_demo.py FILE
"""

import json
import sys

from mlagents.trainers.buffer import BufferKey, ObservationKeyPrefix
from mlagents.trainers.demo_loader import demo_to_buffer, load_demonstration

path = sys.argv[1]
spec, pairs, expected = load_demonstration(path)
_, buffer = demo_to_buffer(path, 1)
print(
    json.dumps(
        {
            "shapes": [list(o.shape) for o in spec.observation_specs],
            "names": [o.name for o in spec.observation_specs],
            "continuous": spec.action_spec.continuous_size,
            "branches": list(spec.action_spec.discrete_branches),
            "records": len(pairs),
            "expected": expected,
            "done": [bool(p.agent_info.done) for p in pairs],
            "reward": [p.agent_info.reward for p in pairs],
            "experiences": buffer.num_experiences,
            "first_obs": [
                float(o.ravel()[0])
                for o in buffer[(ObservationKeyPrefix.OBSERVATION, 0)]
            ],
            "last_obs": buffer[(ObservationKeyPrefix.OBSERVATION, 0)][-1]
            .ravel()
            .tolist(),
            "actions": [
                [float(a) for a in row]
                for row in buffer[
                    BufferKey.CONTINUOUS_ACTION
                    if spec.action_spec.continuous_size
                    else BufferKey.DISCRETE_ACTION
                ]
            ],
        }
    )
)
