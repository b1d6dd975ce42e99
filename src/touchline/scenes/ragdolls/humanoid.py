"""The Walker's parts and bones, as its prefab has them."""

from touchline.physics.ragdoll.model import Part, box, capsule, sphere
from touchline.physics.shapes import Vector
from touchline.scenes.ragdolls.anatomy import STILL, UPRIGHT, Anatomy, Bone, assemble

GROUND_TOP_M = 0.125

# In the order in which Unity's agent lists them.
_PLACES_M: dict[str, Vector] = {
    "hips": (0.0, 0.953, 0.0),
    "chest": (0.0, 1.44404, 0.0),
    "spine": (0.0, 1.17839, 0.0),
    "head": (0.0, 1.8935, 0.0),
    "thighL": (-0.131998, 0.689, 0.0),
    "shinL": (-0.131998, 0.359, 0.0),
    "footL": (-0.131998, 0.161, 0.0),
    "thighR": (0.131998, 0.689, 0.0),
    "shinR": (0.131998, 0.359, 0.0),
    "footR": (0.131998, 0.161, 0.0),
    "armL": (-0.4125, 1.44404, 0.0),
    "forearmL": (-0.7425, 1.44404, 0.0),
    "handL": (-0.9735, 1.44404, 0.0),
    "armR": (0.4125, 1.44404, 0.0),
    "forearmR": (0.7425, 1.44404, 0.0),
    "handR": (0.9735, 1.44404, 0.0),
}

_X = (1.0, 0.0, 0.0)
_BACK = (0.0, 0.0, -1.0)
_SOLE_M = (0.12784, 0.04306, 0.23002)
_SOLE_CENTER_M = (0.0, -0.00022, 0.03283)


def humanoid() -> Anatomy:
    trunk = [
        capsule("hips", 15.0, 0.1, 0.42, "x"),
        capsule("chest", 8.0, 0.13, 0.45, "x"),
        capsule("spine", 10.0, 0.08, 0.36, "x"),
        sphere("head", 6.0, 0.22),
    ]
    legs = [part for side in "LR" for part in _leg(side)]
    arms = [part for side in "LR" for part in _arm(side)]
    bones = {
        bone.owner: bone for bone in (*_trunk_bones(), *_leg_bones(), *_arm_bones())
    }
    return assemble(
        parts=[*trunk, *legs, *arms],
        poses=[(place, UPRIGHT) for place in _PLACES_M.values()],
        bones=[bones[name] for name in _CREATED],
        parents={},
        spring=(40000.0, 5000.0, 20000.0),
        drag=0.05,
        max_spin={},
    )


# The order of the joints' creation, which decides how they are solved: that of the prefab's file,
# reversed. With others, Unity's policy falls more often.
_CREATED = (
    *("chest", "armR", "handR", "forearmL", "shinR", "thighL", "armL"),
    *("head", "thighR", "shinL", "footL", "handL", "forearmR", "footR", "spine"),
)


def _leg(side: str) -> list[Part]:
    return [
        capsule(f"thigh{side}", 14.0, 0.09, 0.30, "y"),
        capsule(f"shin{side}", 7.0, 0.06, 0.32, "y"),
        box(f"foot{side}", 5.0, _SOLE_M, _SOLE_CENTER_M),
    ]


def _arm(side: str) -> list[Part]:
    return [
        capsule(f"arm{side}", 4.0, 0.08, 0.33, "x"),
        capsule(f"forearm{side}", 3.0, 0.08, 0.30, "x"),
        sphere(f"hand{side}", 2.0, 0.08),
    ]


def _trunk_bones() -> list[Bone]:
    bend = (-20.0, 20.0)
    spine = (0.0, -0.1, 0.0)
    chest = (0.0, -0.16, 0.0)
    head = (0.0, -0.28, 0.0)
    nod = (-30.0, 10.0)
    return [
        Bone("spine", "hips", spine, _X, _BACK, bend, 20.0, 15.0, (3, 4, 5), 27),
        Bone("chest", "spine", chest, _X, _BACK, bend, 20.0, 15.0, (0, 1, 2), 26),
        Bone("head", "chest", head, _X, _BACK, nod, 20.0, None, (24, 25, STILL), 28),
    ]


def _leg_bones() -> list[Bone]:
    left = (-1.0, 0.0, 0.0)
    up = (0.0, 1.0, 0.0)
    hip = (0.0, 0.16, 0.0)
    knee = (0.0, 0.17, 0.0)
    ankle = (0.0, 0.03, 0.0)
    bones = []
    # Unity's script sets the right foot before the left one: its actions come first.
    for side, thigh, shin, foot, strength in (
        ("L", (6, 7, STILL), (10, STILL, STILL), (15, 16, 17), 29),
        ("R", (8, 9, STILL), (11, STILL, STILL), (12, 13, 14), 32),
    ):
        upper, lower, sole = f"thigh{side}", f"shin{side}", f"foot{side}"
        bones += [
            Bone(
                *(upper, "hips", hip, left, _BACK),
                x_deg=(-90.0, 60.0),
                y_deg=40.0,
                actions=thigh,
                strength=strength,
            ),
            Bone(
                *(lower, upper, knee, left, _BACK),
                x_deg=(0.0, 120.0),
                actions=shin,
                strength=strength + 1,
            ),
            Bone(
                *(sole, lower, ankle, _X, up),
                x_deg=(-20.0, 20.0),
                y_deg=20.0,
                z_deg=20.0,
                actions=foot,
                strength=strength + 2,
            ),
        ]
    return bones


def _arm_bones() -> list[Bone]:
    ahead = (0.0, 0.0, 1.0)
    bones = []
    for side, sign, arm, forearm, strength in (
        ("L", 1.0, (18, 19, STILL), (22, STILL, STILL), 35),
        ("R", -1.0, (20, 21, STILL), (23, STILL, STILL), 37),
    ):
        upper, lower = f"arm{side}", f"forearm{side}"
        # The prefab mirrors the arms: axis and anchors, while ranges stay the same.
        down = (0.0, -sign, 0.0)
        shoulder = (sign * 0.18, 0.0, 0.0)
        elbow = (sign * 0.16, 0.0, 0.0)
        bones += [
            Bone(
                *(upper, "chest", shoulder, down, ahead),
                x_deg=(-60.0, 120.0),
                y_deg=100.0,
                actions=arm,
                strength=strength,
            ),
            Bone(
                *(lower, upper, elbow, down, ahead),
                x_deg=(0.0, 160.0),
                actions=forearm,
                strength=strength + 1,
            ),
            Bone(f"hand{side}", lower, (0.0, 0.0, 0.0), _X, ahead),
        ]
    return bones
