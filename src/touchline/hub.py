"""Trained policies on the Hugging Face Hub: `push` uploads a run, `pull` brings one back.

A repository holds what `mlagents-push-to-hf` uploads (the model for Unity, the configuration, the
status and a model card with the tags that leaderboards look for) and the checkpoint that a run can
start from. Source of the tags and of the card's fields: ML-Agents 1.1.0,
`mlagents/utils/push_to_hf.py`.

What is pulled was made by strangers. Only files whose formats hold data and no code are taken, and
none whose path leads out of the folder.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import yaml

from touchline.bounded import read_json, read_text
from touchline.errors import RunError, UsageError
from touchline.extras import explain_missing
from touchline.flag import Flag
from touchline.log import Log, silent
from touchline.operating_systems import replace_file
from touchline.policies.files.run_layout import LATEST, MODEL, RunLayout, run_of
from touchline.training.config.yaml_tree import loaded

CARD = "README.md"
FILM = "replay.mp4"
"""The hub's page of a model plays the film of this name."""
REPLAY = "replay.html"
"""What `touchline view --save` wrote; the card links it."""
PLAIN = (".safetensors", MODEL, ".yaml", ".json", ".md", ".csv", ".png", ".mp4")
"""Suffixes of files that hold data and no code, unlike pickles (`.pt`)."""
MOST_FILES = 2_000
"""Files of one repository: a run of 500 checkpoints has 1,000 of them."""
MOST_BYTES = 8 << 30
"""Bytes of one repository; a run with its films has some hundred MB."""
ANSWERS_WITHIN_S = 10.0
DOWNLOADS = 8
"""Files that are downloaded at a time."""
_REPO = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)


@dataclass(frozen=True)
class Upload:
    """What `push` uploads, or would upload."""

    repo: str
    files: Mapping[str, int]
    """Path in the repository -> bytes, the card included."""
    card: str
    url: str | None = None
    """The repository's page; None for a dry run."""


def push(
    run: Annotated[str | os.PathLike[str], Flag("RUN")],
    repo: Annotated[str, Flag(metavar="USER/NAME")],
    *,
    dry_run: bool = False,
    log: Log = silent,
) -> Upload:
    """Upload a trained policy to the Hugging Face Hub.

    Parameters
    ----------
    run
        A run folder; of several seeds or trials the best by evaluation is taken.
    repo
        The model repository, which is made if there is none.
    dry_run
        List the files and show the model card, without uploading.

    Raises
    ------
    UsageError
        The folder holds no trained policy, the name is malformed, or there is no token, or one that
        is refused.
    RunError
        The hub cannot be reached.

    Notes
    -----
    All files arrive in one commit. A dry run needs neither an account nor huggingface_hub.
    """
    _check_name(repo)
    layout = RunLayout(run_of(Path(run), log))
    files = _files_of(layout)
    card = _card(layout, repo, has_replay=REPLAY in files)
    sizes = {name: path.stat().st_size for name, path in files.items()}
    sizes[CARD] = len(card.encode())
    if dry_run:
        return Upload(repo, sizes, card)
    log(f"uploading {len(sizes)} files, {_megabytes(sizes.values())}, to {repo}")
    return Upload(repo, sizes, card, _upload(repo, files, card))


def pull(
    repo: Annotated[str, Flag("USER/NAME")],
    folder: Annotated[
        str | os.PathLike[str] | None, Flag("--output", "FOLDER", short="-o")
    ] = None,
    *,
    log: Log = silent,
) -> Path:
    """Download a policy from the Hugging Face Hub as a run folder.

    Parameters
    ----------
    repo
        The model repository.
    folder
        The run folder to write, results/NAME by default.

    Raises
    ------
    UsageError
        The name is malformed, the repository does not exist, holds no policy, or has a path that
        leads out of the folder, or the folder is not empty.
    RunError
        The hub cannot be reached.

    Notes
    -----
    The folder is written whole or not at all. Files that could run code are left out.
    """
    _check_name(repo)
    _, _, name = repo.partition("/")
    target = Path("results", name) if folder is None else Path(folder)
    is_empty = target.is_dir() and not any(target.iterdir())
    if target.exists() and not is_empty:
        raise UsageError(f"{target}: already there; name another folder with -o")
    with _explained(repo):
        log(f"looking for {repo} on {_endpoint()}")
        info = _api().model_info(repo, files_metadata=True, timeout=ANSWERS_WITHIN_S)
        offered = {file.rfilename: file.size or 0 for file in info.siblings or []}
        taken = _plain_files(repo, offered)
        left_out = sorted(set(offered) - set(taken))
        if left_out:
            log(f"left out, not plain data: {', '.join(left_out)}")
        sizes = [offered[name] for name in taken]
        _check_room(repo, sizes, target)
        log(f"downloading {len(taken)} files, {_megabytes(sizes)}, from {repo}")
        _download(repo, taken, str(info.sha), target)
    return target


# ----------------------------------------------------------------------------------------------
# What is uploaded


def _files_of(layout: RunLayout) -> dict[str, Path]:
    """Path in the repository -> file, of those that the run has."""
    if not layout.configuration.is_file():
        raise UsageError(
            f"{layout.path}: not a run folder: it has no {layout.configuration.name}"
        )
    behaviors = layout.behaviors()
    if not behaviors:
        raise UsageError(
            f"{layout.path}: no model yet; train until the first checkpoint is written"
        )
    wanted = [layout.configuration, layout.status, layout.timers, layout.report]
    for name in behaviors:
        wanted += [layout.model(name), layout.latest(name)]
        wanted += [layout.curve(name), layout.metrics(name)]
    found = [path for path in wanted if path.is_file()]
    files = {path.relative_to(layout.path).as_posix(): path for path in found}
    for name, pattern in ((FILM, "*.mp4"), (REPLAY, "*.html")):
        shown = sorted(layout.path.glob(pattern), key=lambda path: path.stat().st_mtime)
        if shown:
            files[name] = shown[-1]
    return files


def _card(layout: RunLayout, repo: str, *, has_replay: bool) -> str:
    """The model card: tags as YAML, then what was trained and how to use it."""
    trainers = _trainers(layout)
    trained = layout.behaviors()
    # ML-Agents names the scene after the configuration's first behavior.
    scene = next((name for name in trainers if name in trained), trained[0])
    tags = [scene, "deep-reinforcement-learning", "reinforcement-learning"]
    header = {"library_name": "ml-agents", "tags": [*tags, f"ML-Agents-{scene}"]}
    status = read_json(layout.status) if layout.status.is_file() else {}
    rows = [_row(name, trainers.get(name, ""), status.get(name)) for name in trained]
    is_scene = status.get("world") == "scene"
    env = status.get("target") if is_scene else "builds/game.x86_64"
    folder = f"results/{repo.partition('/')[2]}"
    # The hub does not open pages of a repository in a frame.
    replay = f"https://huggingface.co/{repo}/resolve/main/{REPLAY}?download=true"
    watch = (
        f"[Watch it play]({replay}): one file, to be opened in any browser, with a camera, a time "
        "line and the score."
    )
    return "\n".join(
        [
            "---",
            yaml.safe_dump(header, sort_keys=False).strip(),
            "---",
            "",
            f"# {scene}",
            "",
            f"A policy for {scene}, a scene of Unity ML-Agents, trained with Touchline.",
            "",
            "| behavior | trainer | steps | mean return |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            *([watch, ""] if has_replay else []),
            "In Unity, assign the `.onnx` file to the agent's Behavior Parameters as its model.",
            "In Python:",
            "",
            "```sh",
            "pip install 'touchline[scenes,train,hub]'",
            f"touchline pull {repo}",
            f"touchline eval {env} --policy {folder}",
            "```",
            "",
            "`configuration.yaml` holds all settings of the training.",
            "",
        ]
    )


def _row(name: str, trainer: str, status: Any) -> str:
    checkpoints = status.get("checkpoints") if isinstance(status, dict) else None
    latest = checkpoints[-1] if isinstance(checkpoints, list) and checkpoints else {}
    # ML-Agents names the return of a checkpoint `reward`.
    mean = latest.get("mean_return", latest.get("reward"))
    steps = latest.get("steps")
    steps_text = f"{steps:,}" if isinstance(steps, int) else ""
    mean_text = f"{mean:.2f}" if isinstance(mean, int | float) else ""
    return f"| {name} | {trainer} | {steps_text} | {mean_text} |"


def _trainers(layout: RunLayout) -> dict[str, str]:
    """Behavior -> the name of its trainer, in the configuration's order."""
    path = layout.configuration
    try:
        settings = loaded(read_text(path))
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{path}: not YAML: {str(error).splitlines()[0]}") from None
    behaviors = settings.get("behaviors") if isinstance(settings, dict) else None
    if not isinstance(behaviors, dict):
        raise UsageError(f"{path}: expected the settings of a run, with `behaviors`")
    return {
        str(name): str(block.get("trainer_type", ""))
        for name, block in behaviors.items()
        if isinstance(block, dict)
    }


# ----------------------------------------------------------------------------------------------
# What is downloaded


def _plain_files(repo: str, offered: Iterable[str]) -> list[str]:
    """Those of the offered paths that `pull` takes."""
    names = sorted(offered)
    for name in names:
        if _leads_out(name):
            raise UsageError(
                f"{repo}: refused: the path {name!r} leads out of the folder"
            )
    taken = [name for name in names if _is_plain(PurePosixPath(name))]
    if not any(_is_policy(PurePosixPath(name)) for name in taken):
        raise UsageError(
            f"{repo}: no policy in it: expected NAME{MODEL} or NAME/{LATEST}; "
            f"it has {', '.join(names[:8]) or 'no files'}"
        )
    return taken


def _check_room(repo: str, sizes: list[int], target: Path) -> None:
    """Refuse what no run is, and what the disk has no room for, before anything is downloaded."""
    total = sum(sizes)
    if len(sizes) > MOST_FILES or total > MOST_BYTES:
        raise UsageError(
            f"{repo}: refused: {len(sizes):,} files of {_megabytes(sizes)}; a run has at most "
            f"{MOST_FILES:,} files and {_megabytes([MOST_BYTES])}"
        )
    # The target is not there yet; the nearest folder above it is on the same disk.
    parent = next(path for path in target.absolute().parents if path.is_dir())
    free = shutil.disk_usage(parent).free
    if total > free:
        raise UsageError(
            f"{repo}: {_megabytes(sizes)} to download, but {parent} has room for "
            f"{_megabytes([free])}; name a folder on another disk with -o"
        )


def _leads_out(name: str) -> bool:
    # A backslash and a colon (drive, alternate stream) are separators on Windows.
    has_separator = bool(set(name) & set("\\:")) or not name.isprintable()
    return has_separator or name.startswith("/") or ".." in name.split("/")


def _is_plain(path: PurePosixPath) -> bool:
    # Hidden folders hold the library's own records of a download.
    is_hidden = any(part.startswith(".") for part in path.parts)
    return path.suffix in PLAIN and not is_hidden


def _is_policy(path: PurePosixPath) -> bool:
    is_model = len(path.parts) == 1 and path.suffix == MODEL
    return is_model or (len(path.parts) == 2 and path.name == LATEST)


def _download(repo: str, names: Iterable[str], revision: str, target: Path) -> None:
    """Download files of one commit next to `target`, then move them there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    staging = beside / "run"  # mkdtemp's own folder could not be read by others
    try:
        api = _api()

        def fetch(name: str) -> None:
            api.hf_hub_download(repo, name, revision=revision, local_dir=staging)

        # Small files wait for the network, not for its width.
        with ThreadPoolExecutor(DOWNLOADS) as pool:
            try:
                list(pool.map(fetch, names))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        # The library's records, from which it would continue the download.
        shutil.rmtree(staging / ".cache", ignore_errors=True)
        if target.is_dir():
            # Empty, as `pull` has made sure; Windows does not rename onto a folder.
            target.rmdir()
        replace_file(staging, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


# ----------------------------------------------------------------------------------------------
# The hub


def _check_name(repo: str) -> None:
    is_name = _REPO.fullmatch(repo) and not re.search(r"--|\.\.|[.-](/|$)", repo)
    if not is_name or repo.endswith(".git"):
        raise UsageError(
            f"repository {repo!r}: expected USER/NAME in letters, digits, '-', '_' and '.', "
            "such as ada/Pyramids"
        )


def _endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def _api() -> Any:
    from huggingface_hub import HfApi

    return HfApi(library_name="touchline")


def _upload(repo: str, files: Mapping[str, Path], card: str) -> str:
    """Send all files in one commit; returns the address of the repository's page."""
    with _explained(repo):
        from huggingface_hub import CommitOperationAdd, get_token

        if get_token() is None:
            raise UsageError(
                "no token for the hub: log in with `hf auth login`, or set HF_TOKEN to a token "
                "that may write"
            )
        api = _api()
        operations = [
            CommitOperationAdd(name, str(path)) for name, path in files.items()
        ]
        operations.append(CommitOperationAdd(CARD, card.encode()))
        url = api.create_repo(repo, exist_ok=True)
        api.create_commit(repo, operations, commit_message="A policy from Touchline")
        return str(url)


@contextmanager
def _explained(repo: str) -> Iterator[None]:
    """Turn what huggingface_hub raises into one line each."""
    with explain_missing("sharing policies"):
        import httpx2
        from huggingface_hub import errors
    try:
        yield
    except errors.RepositoryNotFoundError:
        raise UsageError(
            f"{repo}: no such model repository, or it is private and the token may not read it"
        ) from None
    except errors.HfHubHTTPError as error:
        code = error.response.status_code
        if code in (401, 403):
            raise UsageError(
                f"{repo}: the hub refused the token ({code}): log in with `hf auth login`, or "
                "set HF_TOKEN to a token that may write there"
            ) from error
        raise RunError(f"{repo}: the hub answered {code}: {error}") from error
    except errors.HFValidationError as error:
        raise UsageError(f"repository {repo!r}: {error}") from error
    except (
        httpx2.TransportError,
        errors.LocalEntryNotFoundError,
        errors.OfflineModeIsEnabled,
    ) as error:
        reason = error.__cause__ or error
        raise RunError(
            f"{repo}: cannot reach {_endpoint()}: {reason}; is there a network?"
        ) from error
    except (RuntimeError, ValueError) as error:
        # What the library raises for an upload that fails between two requests.
        raise RunError(f"{repo}: {error}: {error.__cause__}") from error


def _megabytes(sizes: Iterable[int]) -> str:
    return f"{sum(sizes) / 1e6:.1f} MB"
