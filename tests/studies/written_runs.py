"""Folders of runs with figures of our own, as a training would write them."""

import csv
import json

from touchline.policies.files.run_layout import RunLayout


def write_run(folder, returns, *, behavior="Basic", scores=(), rating=False, every=100):
    """A run with one row of metrics for each return, and an evaluation at its last step.

    The episodes of the evaluation are `scores`; its score is their mean. Several behaviors may be
    written into one folder.
    """
    layout = RunLayout(folder)
    (folder / behavior).mkdir(parents=True)
    layout.logs.mkdir(exist_ok=True)
    layout.configuration.write_text("behaviors: {}\n")
    with layout.metrics(behavior).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "time_s", "mean_return"])
        for number, value in enumerate(returns, 1):
            writer.writerow([every * number, 60 * number, value])
    steps = every * len(returns)
    checkpoint = {"file": f"{behavior}-{steps}", "steps": steps, "mean_return": None}
    if returns:
        checkpoint["mean_return"] = returns[-1]
    entry = {"checkpoints": [checkpoint], "evaluations": []}
    if len(scores):
        mean = sum(scores) / len(scores)
        evaluation = {"steps": steps, "score": mean, "scores": list(scores)}
        entry["evaluations"] = [evaluation | ({"error": 10.0} if rating else {})]
    status = (
        json.loads(layout.status.read_text(encoding="utf-8"))
        if layout.status.exists()
        else {}
    )
    layout.status.write_text(json.dumps({**status, behavior: entry}))
    layout.latest(behavior).write_bytes(b"")
    return folder
