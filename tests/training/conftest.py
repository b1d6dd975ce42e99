"""What keeps whole runs short."""

import os

import pytest


@pytest.fixture(autouse=True)
def short_evaluations(monkeypatch):
    """Runs end with an evaluation, whose figures only its own tests look at."""
    monkeypatch.setattr("touchline.training.evaluator.EPISODES", 5)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """Tests outlive no power failure, and runs write many files."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
