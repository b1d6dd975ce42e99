"""Frames as objects of a page's 3-D scene: made once, then moved.

A mesh has all its copies in one object, whose positions travel as one array.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from touchline.drawing.look import DAYLIGHT, GROUND_REACH
from touchline.drawing.tableau import Camera, DrawnShapes, Kind, Tableau, join
from touchline.physics.frames import swap_axes
from touchline.viewer.backdrop import floor_glb, ground_glb, light_up, shade, sky_glb
from touchline.viewer.meshes import Copies, MeshKey, copies_of, pointer_mesh, unit_mesh

Clicked = Callable[[viser.SceneNodePointerEvent[Any]], Coroutine[Any, Any, None]]

ROOT = "/areas"
MARK_COLOR = (255, 140, 5)
"""Linear, and bright, so that it is yellow in the shade, too."""
RADIUS = 0.03
"""Half the diagonal of what is shown, in the page's units. three.js' shadows are worked out
from 0.001 units before their light on, with an error that grows with the square of the distance."""
_GAP = 1.15
"""Distance between the centers of neighboring areas, per width."""
LABEL_HEIGHT = 0.2
"""Height of labels above areas, per width."""
WIDE = 4 / 3
"""Width per height that shows what a film shows; on a narrower page the camera goes back."""
_RAISED = 0.22
"""Share of its height by which the picture is raised where a sheet covers half."""
_MARGIN = 1.05
"""Share of the distance from which several areas just fill the picture: walls are higher than
floors."""
_ROOM = 1.2
"""Share of the distance from where films are made: a page is narrower by its panel."""


class Stage:
    def __init__(
        self, server: viser.ViserServer, on_click: Clicked | None = None
    ) -> None:
        """`on_click` is called when a viewer clicks on something that moves."""
        self.server = server
        self._scene = server.scene
        self._on_click = on_click
        self._root = self._scene.add_frame(ROOT, show_axes=False)
        self._handles: dict[tuple[str, MeshKey], viser.BatchedMeshHandle] = {}
        self._areas: tuple[int, ...] = ()
        self._target = np.zeros(3)
        """Point at which the camera of the shown area looked first; the scene moves under it."""
        self._moved = np.zeros(3)
        """How far the scene is drawn back for that, in Unity's frame."""
        self._light = DAYLIGHT
        self.sun: viser.SpotLightHandle | None = None
        """The light that casts shadows."""
        self._floor = b""
        """The floors that are shown."""
        self._labels: list[viser.LabelHandle] = []
        self._names: tuple[str, ...] = ()
        self._score: viser.LabelHandle | None = None
        self._mark: viser.BatchedMeshHandle | None = None
        self._height_m = 0.0
        """Height of labels above areas."""
        self.unit = 1.0
        """Page units per meter."""
        self.size_m = (0.0, 0.0)
        """Width and depth of an area."""
        self.offsets: dict[int, NDArray[np.float64]] = {}
        """Origin of each shown area in the scene, [3] in Unity's frame."""

    @property
    def places(self) -> dict[int, NDArray[np.float64]]:
        """Of each shown area, where its origin is on the page, [3] in Unity's frame."""
        return {area: place - self._moved for area, place in self.offsets.items()}

    def show(
        self,
        tableaux: Mapping[int, Tableau],
        *,
        with_fixed: bool = True,
        followed: NDArray[np.float64] | None = None,
    ) -> None:
        """Show these areas side by side.

        Without `with_fixed`, floors and walls stay as they are. The camera looks at `followed` [3]
        in the scene, if that is given: the scene moves under it, so that viewers can orbit.
        """
        if tuple(tableaux) != self._areas:
            self._begin(tableaux)
            with_fixed = True
        first = next(iter(tableaux.values()))
        if followed is None and len(tableaux) == 1:
            followed = np.array(first.camera.target)  # of a ragdoll it moves
        self._moved = np.zeros(3) if followed is None else followed - self._target
        self._root.position = self.on_page(-self._moved)
        moving = [
            _moved(tableau.moving, self.offsets[area])
            for area, tableau in tableaux.items()
        ]
        self._place("moving", join(*moving))
        if with_fixed:
            fixed = [
                _moved(_fitting(tableau, is_first=tableau is first), self.offsets[area])
                for area, tableau in tableaux.items()
            ]
            self._place_fixed(join(*fixed))

    def on_page(self, place_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Where places [..., 3] of the scene, in Unity's frame, are on the page."""
        return self.unit * swap_axes(place_m)

    def look(
        self,
        camera: Any,
        view: tuple[NDArray[np.float64], NDArray[np.float64], float],
    ) -> None:
        """Point a viewer's camera, or that of viewers to come, as `camera_of` says."""
        eye_m, target_m, camera.fov = view
        camera.position, camera.look_at = self.unit * eye_m, self.unit * target_m
        # viser's own, 0.01 units, would cut off what a viewer comes close to: see RADIUS.
        camera.near = 0.01 * self.unit * float(np.linalg.norm(eye_m - target_m))

    def label(self, names: Sequence[str]) -> None:
        """Write these names on the shown areas, in their order; none on areas beyond."""
        if tuple(names) == self._names:
            return
        self._names = tuple(names)
        for label in self._labels:
            label.remove()
        self._labels = [
            self._scene.add_label(
                f"{ROOT}/label_{number}",
                name,
                position=self.on_page(place + (0.0, self._height_m, 0.0)),
                # Away from each other: two names, however long, never cover each other.
                anchor="bottom-right" if number % 2 == 0 else "bottom-left",
            )
            for number, (place, name) in enumerate(
                zip(self.offsets.values(), names, strict=False)
            )
        ]

    def mark(self, position: NDArray[np.float64] | None, size_m: float = 1.0) -> None:
        """Mark what is at this position [3] in the scene, of about this size; None: nothing."""
        if position is None:
            if self._mark is not None:
                self._mark.visible = False
            return
        tip = swap_axes(position + (0.0, 1.6 * size_m, 0.0))[None].astype(np.float32)
        scale = np.full((1, 3), 1.5 * size_m, np.float32)
        if self._mark is None:
            # Moved in the same way as bodies are, or a slow page would show it elsewhere.
            self._mark = self._scene.add_batched_meshes_simple(
                f"{ROOT}/mark",
                *pointer_mesh(),
                batched_positions=tip,
                batched_wxyzs=np.array([[1.0, 0.0, 0.0, 0.0]], np.float32),
                batched_scales=scale,
                batched_colors=np.array([MARK_COLOR], np.uint8),
                flat_shading=True,
                lod="off",
                cast_shadow=False,
                scale=self.unit,
            )
        self._mark.batched_positions = tip
        self._mark.batched_scales = scale
        self._mark.visible = True

    def score(self, text: str) -> None:
        if self._score is None:
            middle = np.mean(list(self.offsets.values()), axis=0)
            self._score = self._scene.add_label(
                f"{ROOT}/score",
                text,
                position=self.on_page(middle + (0.0, self._height_m, 0.0)),
                anchor="bottom-center",
                font_screen_scale=1.6,
            )
        self._score.text = text

    def _begin(self, tableaux: Mapping[int, Tableau]) -> None:
        self._areas = tuple(tableaux)
        first = next(iter(tableaux.values()))
        self._target = np.array(first.camera.target)
        self._moved = np.zeros(3)
        self._root.position = (0.0, 0.0, 0.0)
        low, high = _bounds(first)
        width_m, _, depth_m = map(float, high - low)
        self.size_m = width_m, depth_m
        self._height_m = LABEL_HEIGHT * max(width_m, depth_m)
        self.label(())  # the areas have other places
        places = grid_places(len(tableaux), width_m, depth_m)
        self.offsets = dict(zip(tableaux, places, strict=True))
        self._place_backdrop(first)

    def _place_fixed(self, shapes: DrawnShapes) -> None:
        is_floor = shapes.kind == Kind.PLANE
        self._place("fixed", _chosen(shapes, ~is_floor))
        floor = floor_glb(_chosen(shapes, is_floor)) if is_floor.any() else b""
        if floor != self._floor:
            self._floor = floor
            self._unlit("floor", floor, np.zeros(3))

    def _place(self, part: str, shapes: DrawnShapes) -> None:
        copies = copies_of(shapes, is_flat=self._light.sun == 0.0)
        for known in [key for key in self._handles if key[0] == part]:
            if known[1] not in copies:
                self._handles.pop(known).remove()
        for key, of_mesh in copies.items():
            handle = self._handles.get((part, key))
            if handle is None or len(handle.batched_positions) != len(of_mesh.position):
                self._handles[part, key] = self._make(part, key, of_mesh)
                continue
            # viser sends only what has changed.
            handle.batched_positions = of_mesh.position
            handle.batched_wxyzs = of_mesh.wxyz
            handle.batched_scales = of_mesh.scale
            handle.batched_colors = of_mesh.color
            if key.is_clear:
                handle.batched_opacities = of_mesh.opacity

    def _make(self, part: str, key: MeshKey, copies: Copies) -> viser.BatchedMeshHandle:
        vertices, faces = unit_mesh(key.kind, key.ratio)
        look = "clear" if key.is_clear else "solid"
        handle = self._scene.add_batched_meshes_simple(
            f"{ROOT}/{part}/{key.kind.name.lower()}_{key.ratio:g}_{look}",
            vertices,
            faces,
            batched_positions=copies.position,
            batched_wxyzs=copies.wxyz,
            batched_scales=copies.scale,
            batched_colors=copies.color,
            batched_opacities=copies.opacity if key.is_clear else None,
            lod="off",
            # three.js' shadows are as dark behind glass as behind a wall.
            cast_shadow=not key.is_clear,
            scale=self.unit,
        )
        if part == "moving" and self._on_click is not None:
            handle.on_click(self._on_click)
        return handle

    def _place_backdrop(self, tableau: Tableau) -> None:
        """Light, ground and sky around all shown areas."""
        self._light = tableau.light
        low, high = _bounds(tableau)
        places = np.array(list(self.offsets.values()))
        low, high = low + places.min(axis=0), high + places.max(axis=0)
        camera = tableau.camera
        distance_m = float(np.linalg.norm(np.subtract(camera.eye, camera.target)))
        middle = 0.5 * (low + high)
        radius_m = max(0.5 * float(np.linalg.norm(high - low)), 0.5 * distance_m)
        # What is shown is in an earlier unit.
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()
        self._floor = b""
        if self._mark is not None:
            self._mark.remove()
            self._mark = None
        self.unit = RADIUS / radius_m
        # On a floor without end, the light follows whoever walks there.
        lamps = ROOT if _fits(tableau).all() else "/light"
        self.sun = light_up(
            self._scene,
            tableau.light,
            self.on_page(middle),
            self.unit * radius_m,
            lamps,
        )
        away_m = max(distance_m, radius_m)
        ground = middle * (1.0, 0.0, 1.0) + (0.0, tableau.ground_y_m, 0.0)
        self._unlit("ground", ground_glb(away_m), ground)
        self._unlit("sky", sky_glb(GROUND_REACH * away_m), ground)

    def _unlit(self, name: str, glb: bytes, place_m: NDArray[np.float64]) -> None:
        """Show a mesh in its own colors, on which shadows fall."""
        self._scene.add_glb(
            f"{ROOT}/{name}",
            glb,
            position=self.on_page(place_m),
            scale=self.unit,
            cast_shadow=False,
            receive_shadow=False if name == "sky" else shade(self._light),
        )


def grid_places(
    count: int, width_m: float, depth_m: float
) -> list[NDArray[np.float64]]:
    """The centers [3] of the areas in rows and columns; the first is at the origin."""
    columns = int(np.ceil(np.sqrt(count)))
    places = []
    for i in range(count):
        row, column = divmod(i, columns)
        places.append(np.array([column * width_m * _GAP, 0.0, row * depth_m * _GAP]))
    return places


def camera_of(
    camera: Camera,
    places: list[NDArray[np.float64]],
    aspect: float = WIDE,
    size_m: tuple[float, float] = (0.0, 0.0),
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """From where areas at these places are well seen on a page of this width per height.

    `size_m` is the width and the depth of an area: several are shown whole. Returns the eye and
    the target [3] in the page's frame, and the vertical field of view in rad.
    """
    eye, target = np.array(camera.eye), np.array(camera.target)
    field = np.radians(camera.field_of_view_deg)
    if camera.height_m is not None:  # parallel rays: as far as a lens shows as much
        away = (eye - target) / np.linalg.norm(eye - target)
        eye = target + away * camera.height_m / 2 / np.tan(field / 2)
    sideways = eye - target
    if not sideways[[0, 2]].any():
        # Straight down, an orbiting camera would not know which way is up.
        eye = eye - (0.0, 0.0, 0.05 * sideways[1])
    middle = np.mean([places[0], places[-1]], axis=0)
    away = (eye - target) * _ROOM * max(1.0, WIDE / aspect)
    if len(places) > 1:
        ends = np.array([np.min(places, axis=0), np.max(places, axis=0)])
        middle = ends.mean(axis=0)
        half = (ends[1] - ends[0] + (size_m[0], 0.0, size_m[1])) / 2
        away *= _distance_m(away, half, field, aspect) / np.linalg.norm(away)
    if aspect < 1.0:
        # A sheet covers the lower half of a phone, so the picture belongs into the upper one.
        seen_m = 2 * np.linalg.norm(away) * np.tan(field / 2)
        middle = middle - _RAISED * seen_m * _up_of(away)
    return (
        swap_axes(target + away + middle),
        swap_axes(target + middle),
        float(field),
    )


def _distance_m(
    away: NDArray[np.float64],
    half_m: NDArray[np.float64],
    field: float,
    aspect: float,
) -> float:
    """From how far along `away` the whole floor of this half size [3] is in the picture."""
    back = away / np.linalg.norm(away)
    up = _up_of(away)
    right = np.cross(up, back)
    signs = np.array([(x, 0.0, z) for x in (-1.0, 1.0) for z in (-1.0, 1.0)])
    corners = signs * half_m
    high = np.tan(field / 2)
    needed = np.maximum(
        np.abs(corners @ right) / (high * aspect), np.abs(corners @ up) / high
    )
    return _MARGIN * float((corners @ back + needed).max())


def _up_of(away: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is up in the picture of a camera that looks back along `away`."""
    ahead = -away / np.linalg.norm(away)
    up = np.array([0.0, 1.0, 0.0]) - ahead[1] * ahead
    return np.asarray(up / np.linalg.norm(up))


def _bounds(tableau: Tableau) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lowest and highest coordinates [3] of an area, at least 1 m apart, in m."""
    shapes = _fitting(tableau, is_first=False)
    if not len(shapes):
        shapes = tableau.moving
    reach = np.where(shapes.shown[:, None], np.abs(shapes.size), 0.0)
    low = (shapes.position - reach).min(axis=0)
    high = (shapes.position + reach).max(axis=0)
    return low, np.maximum(high, low + 1.0)


def _fitting(tableau: Tableau, *, is_first: bool) -> DrawnShapes:
    """The floor and walls of an area, without a floor without end that all areas would share."""
    fits = _fits(tableau)
    return tableau.static if is_first or fits.all() else _chosen(tableau.static, fits)


def _fits(tableau: Tableau) -> NDArray[np.bool_]:
    """Which of the static shapes are of one area alone."""
    distance = np.linalg.norm(np.subtract(tableau.camera.eye, tableau.camera.target))
    static = tableau.static
    fits = np.asarray(static.size.max(axis=1, initial=0.0) <= 1.2 * distance)
    # The cells of a floor go with it.
    return fits if fits.all() else fits & (static.kind != Kind.PLANE)


def _chosen(shapes: DrawnShapes, which: NDArray[np.bool_]) -> DrawnShapes:
    return DrawnShapes(**{name: array[which] for name, array in vars(shapes).items()})


def _moved(shapes: DrawnShapes, offset: NDArray[np.float64]) -> DrawnShapes:
    return DrawnShapes(**{**vars(shapes), "position": shapes.position + offset})
