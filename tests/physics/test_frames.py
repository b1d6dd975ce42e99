"""Unity's frame and MuJoCo's, against MuJoCo's own arithmetic."""

import mujoco
import numpy as np
import pytest

from touchline.physics.frames import (
    from_mujoco_quaternion,
    product,
    rotate,
    swap_axes,
    to_mujoco_quaternion,
    turn_about,
)


def random_quaternion(rng):
    quaternion = rng.normal(size=4)
    return quaternion / np.linalg.norm(quaternion)


def test_swapping_axes_twice_changes_nothing():
    vectors = np.random.default_rng(0).normal(size=(5, 2, 3))
    np.testing.assert_array_equal(swap_axes(swap_axes(vectors)), vectors)


def rotate_in_unity(quaternion, vector):
    """v + 2 w (u x v) + 2 u x (u x v), as in Unity: formulas do not depend on handedness."""
    u, w = quaternion[:3], quaternion[3]
    return vector + 2 * w * np.cross(u, vector) + 2 * np.cross(u, np.cross(u, vector))


def test_a_vector_rotated_in_unity_is_the_vector_rotated_in_mujoco():
    rng = np.random.default_rng(1)
    for _ in range(20):
        quaternion, vector, result = (
            random_quaternion(rng),
            rng.normal(size=3),
            np.zeros(3),
        )
        mujoco.mju_rotVecQuat(
            result, swap_axes(vector), to_mujoco_quaternion(quaternion)
        )
        expected = swap_axes(rotate_in_unity(quaternion, vector))
        np.testing.assert_allclose(result, expected, atol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_rotation_about_an_own_axis_comes_before_the_old_one(axis):
    rng = np.random.default_rng(axis)
    quaternion, angle, vector = (
        random_quaternion(rng),
        rng.uniform(-3, 3),
        rng.normal(size=3),
    )
    result = product(quaternion, turn_about(axis, np.array(angle)))
    own = np.zeros(4)
    own[axis], own[3] = np.sin(angle / 2), np.cos(angle / 2)
    expected = rotate_in_unity(quaternion, rotate_in_unity(own, vector))
    np.testing.assert_allclose(rotate_in_unity(result, vector), expected, atol=1e-12)


def test_mujocos_quaternions_and_unitys_map_back_and_forth():
    quaternion = np.random.default_rng(0).normal(size=(5, 4))
    assert (
        from_mujoco_quaternion(to_mujoco_quaternion(quaternion)) == quaternion
    ).all()


def test_a_product_rotates_by_its_second_factor_first():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(2, 7, 4))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    vector = rng.normal(size=(7, 3))
    in_turn = rotate(first, rotate(second, vector))
    np.testing.assert_allclose(
        rotate(product(first, second), vector), in_turn, atol=1e-12
    )
