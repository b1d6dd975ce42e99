"""A run's metrics in Weights & Biases, under the same tags as in TensorBoard."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from touchline.extras import explain_missing
from touchline.log import Log
from touchline.training.config.settings import RunConfig


@contextmanager
def weights_and_biases(
    config: RunConfig, folder: Path, log: Log, *, enabled: bool
) -> Iterator[None]:
    """Log what the block writes for TensorBoard; offline, below `folder`, unless WANDB_MODE
    differs.
    """
    if not enabled:
        yield
        return
    with explain_missing("--wandb"):
        import wandb
    settings = wandb.Settings(
        # Nothing leaves the machine unless the user says so.
        mode=os.environ.get("WANDB_MODE", "offline"),
        silent=os.environ.get("WANDB_SILENT", "true") == "true",
    )
    run = wandb.init(
        project="touchline",
        name=config.checkpoint_settings.run_id,
        dir=str(folder),
        config=config.model_dump(mode="json"),
        sync_tensorboard=True,
        settings=settings,
    )
    with run:
        yield
    if run.settings.mode == "offline":
        log(f"W&B: offline; to upload the run: wandb sync {run.settings.sync_dir}")
