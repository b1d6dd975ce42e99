"""Curves of a page."""

import numpy as np

from touchline.viewer.curve import add_curve, draw_curve
from touchline.viewer.server import LOOPBACK, close_server, open_server


def test_a_curve_of_zeros_lies_in_the_middle_of_its_axis():
    server = open_server(LOOPBACK, 0, "curves")
    try:
        curve = add_curve(server.gui, "time", "rewards so far")
        times = np.arange(3.0)
        draw_curve(curve, times, np.zeros(3))
        assert curve.scales["y"]["range"] == (-1.0, 1.0)
        draw_curve(curve, times, np.array([0.0, 0.5, 1.0]))
        assert "y" not in curve.scales
    finally:
        close_server(server)


def test_scales_are_sent_only_when_they_change():
    class Curve:
        """Notes what is assigned: viser sends each assignment to the page."""

        scales = None

        def __setattr__(self, name, value):
            sent.append(name)
            super().__setattr__(name, value)

    sent, curve, times = [], Curve(), np.arange(2.0)
    for values in ([0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 2.0]):
        draw_curve(curve, times, np.array(values))
    assert sent == ["scales", "data", "data", "scales", "data", "data"]
