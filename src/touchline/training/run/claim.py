"""Who may write into a run's folder: one process, and never over another run by accident."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from touchline.errors import UsageError
from touchline.operating_systems import remove_file, remove_folder, replace_file
from touchline.policies.files.run_layout import RunLayout
from touchline.training.config.settings import CheckpointSettings
from touchline.whole import part_of


def locked(folder: Path, purpose: str) -> BaseFileLock:
    """A folder's lock, held; a UsageError where another process holds it, for `purpose`."""
    # Beside the folder, not in it: `force` moves the folder away while it is locked.
    path = folder.with_name(f".{folder.name}.lock")
    if path.is_symlink():
        raise UsageError(f"{path}: a link; delete it")
    try:
        # The lock itself takes a folder that cannot be written to for one that is in use.
        path.open("ab").close()
    except OSError as error:
        raise UsageError(
            f"{folder.parent}: cannot be written to ({error.strerror}); "
            "choose another --results-dir"
        ) from None
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise UsageError(
            f"{folder}: another process {purpose} just now; choose another --run-id"
        ) from None
    return lock


def refuse_links(folder: Path) -> None:
    """Raise a UsageError for a link that leads out of a folder in which a run continues.

    The folder may be a copy of another person's: through such a link, files elsewhere would be
    replaced, continued or deleted.
    """
    inside = folder.resolve()
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise UsageError(
                    f"{path}: a link; a run's files must be in its own folder: move them there"
                )


def make_results_dir(folder: Path) -> None:
    """Make the folder of runs, unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--results-dir {folder}: expected a folder, or room for one ({error.strerror})"
        ) from error


class Claim:
    """The right to write into one run's folder, held by a lock next to it.

    A run that `force` replaces is put aside, and comes back if the new run fails before it begins.
    Raises a UsageError where the folder holds another run, or is in use.
    """

    def __init__(self, settings: CheckpointSettings) -> None:
        self._layout = RunLayout(Path(settings.results_dir) / settings.run_id)
        self._path = self._layout.path
        # No run's name begins with a dot.
        replaced = self._path.with_name(f".{self._path.name}.replaced")
        # First, so that a run which a killed process had put aside is back before it is looked for.
        self._restore_if_never_begun(replaced)
        exists = self._holds_run()
        self._refuse_conflicts(settings, exists)
        # With `force` the whole folder is moved away, and nothing in it is followed.
        if not settings.force:
            refuse_links(self._path)
        make_results_dir(self._path.parent)
        self._lock = locked(self._path, "trains this run")
        self._aside = replaced if settings.force and exists else None
        if self._aside is not None:
            # What an earlier replacement left behind, whose successor did begin.
            shutil.rmtree(self._aside, ignore_errors=True)
            replace_file(self._path, self._aside)

    def settle(self) -> None:
        """The run has begun: delete the run that it replaces."""
        if self._aside is not None:
            remove_folder(self._aside)
            self._aside = None

    def undo(self) -> None:
        """The run never began: leave the folder as it was, except for players' logs."""
        remove_file(self._layout.status)
        for part in self._path.iterdir():
            if part == self._layout.logs and any(part.iterdir()):
                continue
            if part.is_dir():
                remove_folder(part)
            else:
                remove_file(part)
        if self._aside is not None:
            remove_folder(self._path)
            replace_file(self._aside, self._path)
        elif not any(self._path.iterdir()):
            self._path.rmdir()

    def release(self) -> None:
        """Let other processes write here. Idempotent."""
        self._lock.release()

    def _restore_if_never_begun(self, replaced: Path) -> None:
        """Bring back a run whose replacement was killed before it began."""
        if not replaced.exists() or self._holds_run():
            return
        lock = locked(self._path, "trains this run")
        try:
            shutil.rmtree(self._path, ignore_errors=True)
            # Another process may have brought it back between the check and the lock.
            with suppress(FileNotFoundError):
                replace_file(replaced, self._path)
        finally:
            lock.release()

    def _refuse_conflicts(self, settings: CheckpointSettings, exists: bool) -> None:
        if settings.resume and settings.force:
            raise UsageError(
                "--resume continues a run and --force overwrites it: give one of them"
            )
        if settings.resume and not exists:
            raise UsageError(
                f"{self._path}: there is no run to resume; leave --resume out to start it"
            )
        if exists and not (settings.resume or settings.force):
            raise UsageError(
                f"{self._path}: this run exists; --resume continues it, --force overwrites it"
            )
        if not exists and self._has_more_than_a_start():
            raise UsageError(
                f"{self._path}: this folder holds something else than a run; "
                "choose another --run-id"
            )

    def _holds_run(self) -> bool:
        """Whether there is a run that got further than opening its world."""
        return self._layout.configuration.exists() and self._has_more_than_a_start()

    def _has_more_than_a_start(self) -> bool:
        """Whether there is more than what a run writes before its world is open."""
        configuration = self._layout.configuration
        # A kill while the configuration is written leaves its part.
        start = (self._layout.logs, configuration, part_of(configuration))
        return self._path.exists() and any(p not in start for p in self._path.iterdir())
