"""The documentation: its commands run, its links lead somewhere, its pages hold what they promise.

A fenced block of language `sh` is run line by line in a folder of the page's own, after the page's
earlier blocks, with long runs cut short. A block that cannot run says so in its title: "Not
tested: why".
"""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from PIL import Image

import touchline
from touchline.cli.app import COMMANDS
from touchline.cli.generate import command_of
from touchline.player import build
from touchline.training.config.flags import setting_flags

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/tutorials").glob("*.md")),
]
BLOCK = re.compile(
    r"^ *```sh *(?P<title>title=[^\n]*)?\n(?P<body>.*?)^ *```", re.M | re.S
)
YAML = re.compile(
    r'^```yaml title="(?P<name>[^"]+\.yaml)"\n(?P<body>.*?)^```', re.M | re.S
)
"""A file that the page's commands take."""
MEASURED = re.compile(
    r"""
    \d[\d,.]*[ ]((agent[ ])?steps[ ](per|a)[ ]second|minutes|hours|ms\b|µs)
    | \d[\d,.]*[ ](MB|GB|MiB|GiB)\b
    | \d[\d,.]*[ ]?%(?![ ]interval)
    | \d[ ]±[ ]\d
    | \d\.\d+[ ](×|times)
    | \d[\d,]*[ ](tests|lines|games|episodes)\b
    | \b(returns?|returned|earns|earned|wins?|won|loses|lost|solves|solved|escapes|reaches
        |reached|scores?|rated)([ ](of|in|about))?[ ][−-]?\d
    | \b(returns?|reward|share|error|mean|median|rating)\b[^.|;:\n]{0,40}[ ]\d+\.\d+
    """,
    re.X,
)
"""Speeds and durations, sizes, shares, ratios, counts of what was run, and results."""
DATE = re.compile(r"(?:[A-Z][a-z]+\s20\d\d)|20\d\d-\d\d-\d\d")
MEASURING = re.compile(
    r"(?:^ *|`)(?:\w+=\S+ |taskset \S+ \S+ )*"
    r"(?:touchline (?!view|inspect|scenes)[a-z]+|make (?!setup)|pytest"
    r"|python (?:-m )?(?:bench|docs|examples|tests|touchline|pytest))",
    re.M,
)
"""A command that measures."""
NAMED_TEST = re.compile(r"`(tests/[\w/]+(?:\.py)?)`")
LINK = re.compile(r"\]\((?P<page>[\w/.-]+\.md)?(?:#(?P<anchor>[\w-]+))?\)")
NOT_MEASURED = {
    "docs/course.md": ("## What differs",),  # the size of another repository
    "docs/demonstrations.md": ("## Which record holds an action",),  # a printed line
    "docs/experiments.md": ("## Is A better than B?",),  # the level of an interval
    "docs/microrts.md": ("## Naming a game",),  # MicroRTS' searchers have 100 ms
    "docs/protocol.md": ("## Transport",),  # limits
    "docs/self_play.md": ("## Exploiting a policy",),  # what the command plays
    "docs/training.md": (
        "## What a run shows",
        "## Environment parameters and curricula",
    ),  # windows of figures; values of a YAML
    "docs/troubleshooting.md": ("## It does not learn",),  # thresholds of `doctor`
    "docs/view.md": (
        "## The time machine",
        "## Unity players and recordings",
    ),  # limits
    "docs/tutorials/your_build.md": ("## 4. How good is it?",),  # the level
}
"""Page -> sections whose numbers are settings, limits or formats."""
EXCUSES = ("Not tested: ", "Tested by make ")

SHORT_RUN = {
    "train": {"--max-steps": "64"},
    "exploit": {"--max-steps": "64", "--games": "2"},
    "eval": {"--episodes": "2"},
    "tournament": {"--games": "4"},
    "play": {"--seconds": "0.2"},
}
"""Verb -> the flags that cut it short; a `play` without --record would run until it is closed."""
SMALL_BUFFERS = ("hyperparameters.buffer_size=128", "hyperparameters.batch_size=64")
"""A run learns from whole buffers, and those of presets hold tens of thousands of steps."""


def _blocks(page):
    """(title, commands) of every block of shell commands."""
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        title = (match["title"] or "").removeprefix("title=").strip().strip('"')
        lines = match["body"].replace("\\\n", " ").splitlines()
        commands = [shlex.split(line, comments=True) for line in lines]
        yield title, [command for command in commands if command]


def _commands(page):
    return [
        command
        for title, commands in _blocks(page)
        if not title.startswith(EXCUSES)
        for command in commands
    ]


def _name(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_is_fenced_and_an_untested_one_gives_a_reason(page):
    for title, _ in _blocks(page):
        assert title == "" or title.startswith(EXCUSES), title
    outside = BLOCK.sub("", page.read_text(encoding="utf-8"))
    assert not re.findall(r"^ {0,4}touchline [a-z]+ .*", outside, re.M)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_packages_and_targets_that_a_page_names_exist(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    targets = set(
        re.findall(
            r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M
        )
    )
    for command in _commands(page):
        if command[0] == "make":
            assert command[1] in targets
        for extras in re.findall(r"touchline\[([a-z0-9,]+)\]", " ".join(command)):
            assert set(extras.split(",")) <= set(project["optional-dependencies"])


def _sections(page):
    """Heading -> text; what stands before the first section is that of the page's title."""
    parts = re.split(r"^(?=## )", page.read_text(encoding="utf-8"), flags=re.M)
    return {part.partition("\n")[0]: part for part in parts}


def _slug(heading):
    words = re.sub(r"[^\w\s-]", "", heading.lstrip("# ").lower())
    return re.sub(r"[\s-]+", "-", words.strip())


def _evidence(page, heading):
    """The texts that may say when and how a section's numbers were measured.

    They are the section with the head of its page, and likewise those that it links to.
    """
    sections = _sections(page)
    head = next(iter(sections.values()))
    yield sections[heading] + head
    for link in LINK.finditer(sections[heading]):
        target = page.parent / link["page"] if link["page"] else page
        if not target.exists():
            continue  # the site generates it
        linked = _sections(target)
        first = next(iter(linked.values()))
        named = {_slug(name): text for name, text in linked.items()}
        yield first + named.get(link["anchor"], "")


def _prose(section):
    """Without blocks of code, code, and the targets of links."""
    without = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", section, flags=re.M | re.S)
    return re.sub(r"\]\([^)]*\)", "]", without).replace("\n", " ")


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted((ROOT / "docs/decisions").glob("*.md"))], ids=_name
)
def test_measured_numbers_have_a_test_or_a_command_and_a_date(page):
    unfounded = {}
    for heading, section in _sections(page).items():
        claim = MEASURED.search(_prose(section))
        if claim is None or heading in NOT_MEASURED.get(_name(page), ()):
            continue
        is_tested = any((ROOT / test).exists() for test in NAMED_TEST.findall(section))
        if not is_tested and not any(
            DATE.search(text) and MEASURING.search(text)
            for text in _evidence(page, heading)
        ):
            unfounded[heading] = claim[0]
    assert not unfounded


def test_sections_without_measured_numbers_are_those_of_the_pages():
    for name, headings in NOT_MEASURED.items():
        assert set(headings) <= set(_sections(ROOT / name)), name


def test_the_readme_opens_with_a_small_film_of_several_seconds():
    title, picture, *_ = (ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")
    assert title == "# Touchline"
    path = ROOT / re.fullmatch(r"!\[[^]]+\]\((.+)\)", picture)[1]
    assert path.stat().st_size < 3_000_000
    with Image.open(path) as film:
        assert film.n_frames * film.info["duration"] >= 5000  # ms


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What the pages take for granted: a player, a YAML, a scene of one's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "builds").mkdir()
    build("3DBall", tmp_path / "builds", 2).rename("builds/game.x86_64")
    (tmp_path / "config.yaml").write_text("behaviors:\n  3DBall: {trainer_type: ppo}\n")
    shutil.copy(ROOT / "examples/chase.py", tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if _commands(page)], ids=_name)
def test_the_commands_of_a_page_run(page, folder):
    _prepare(page)
    for command in _commands(page):
        arguments = _shortened(command)
        if arguments is None:
            continue
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, f"{shlex.join(arguments)}\n{done.stderr}"


def _prepare(page):
    """Files that a page shows, and what it has from elsewhere, such as a rival's model."""
    for file in YAML.finditer(page.read_text(encoding="utf-8")):
        Path(file["name"]).write_text(file["body"])
    needed = " ".join(word for command in _commands(page) for word in command)
    if "rival.onnx" in needed:
        _train("SoccerTwos")
        for copy in ("rival.onnx", "../rival.onnx"):
            shutil.copy("results/SoccerTwos/SoccerTwos.onnx", copy)
    if "Goalie=" in needed:
        _train("StrikersVsGoalie")
        for side in ("Striker", "Goalie"):
            shutil.copy(f"results/StrikersVsGoalie/{side}.onnx", f"{side.lower()}.onnx")
    if "mine.demo" in needed:
        shutil.copy(ROOT / "models/demos/PushBlock.demo", "mine.demo")
    if "models/" in needed:
        shutil.copytree(ROOT / "models", "models")
    if "results/ppo" in needed:
        _train("config.yaml", "--env", "builds/game.x86_64")


def _train(*arguments):
    command = ["touchline", "train", *arguments]
    subprocess.run(_shortened(command), check=True, capture_output=True)


def _shortened(command):
    """What to run for a command of a page; None for those that other tests stand for."""
    match command:
        case ["touchline", "view", *arguments]:
            # It ends with Ctrl-C, and tests/viewer open pages; here only the call is checked.
            command_of(COMMANDS["view"], "view").make_context("view", arguments)
            return None
        case ["touchline", *arguments]:
            return [sys.executable, "-m", "touchline", *_short(arguments)]
        case ["python", script]:
            return [sys.executable, script]
        case ["pip" | "git" | "make" | "cd" | "python" | ".venv/bin/python", *_]:
            return None  # the wheel's tests and continuous integration install and make
        case ["tensorboard" | ".venv/bin/touchline", *_]:
            return None
    raise AssertionError(f"no rule for {shlex.join(command)}")


def _short(arguments):
    verb = arguments[0]
    for flag, value in SHORT_RUN.get(verb, {}).items():
        is_scene = arguments[1][0].isupper()  # a player has a window of its own
        if flag == "--seconds" and is_scene and "--record" not in arguments:
            arguments = [*arguments, "--record", "film.mp4"]
        if flag in arguments:
            arguments[arguments.index(flag) + 1] = value
        else:
            arguments = [*arguments, flag, value]
    if verb in ("train", "exploit") and "--print-config" not in arguments:
        arguments = (
            [*arguments, "--force"] if "--resume" not in arguments else arguments
        )
        has_file = any(
            word.endswith(".yaml") or word[0].isupper() for word in arguments
        )
        settings = SMALL_BUFFERS if has_file else ("trainer_type=ppo", *SMALL_BUFFERS)
        for setting in settings:
            arguments = [*arguments, "--set", f"behaviors.*.{setting}"]
    return arguments


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; a broken link or a missing picture fails the build."""
    pytest.importorskip("mkdocs", reason="the site is built with mkdocs-material")
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.slow
def test_the_site_names_every_public_name_setting_and_verb(site):
    python = (site / "reference/python/index.html").read_text(encoding="utf-8")
    for name in touchline.__all__:
        if name != "__version__":
            assert f'.{name}"' in python, name
    settings = (site / "reference/settings/index.html").read_text(encoding="utf-8")
    for flag in setting_flags():
        assert f"<code>{flag.name}</code>" in settings, flag.name
    commands = (site / "reference/command-line/index.html").read_text(encoding="utf-8")
    assert "touchline tournament" in commands
    messages = (site / "reference/messages/index.html").read_text(encoding="utf-8")
    assert "unknown scene" in messages


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'(?:src|href)="(https?://[^"]+\.(?:js|css|woff2?))"',
            page.read_text(encoding="utf-8"),
        )
        assert not loaded, (page, loaded)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in touchline.__all__ if n != "__version__"])
def test_every_public_name_has_a_docstring(name):
    documented = getattr(touchline, name).__doc__
    assert documented
    assert len(documented.split()) > 3


@pytest.mark.slow
def test_a_file_that_a_page_includes_is_on_the_site(site):
    assert "RAIL_M" in (site / "tutorials/your_scene/index.html").read_text(
        encoding="utf-8"
    )
