"""The MicroRTS engine from the package index that pip is set to use.

A downloaded file is checked against a SHA-256 before anything of it is unpacked. Reading pip's own
settings means that mirrors, proxies and certificates work as they do for `pip install`.
"""

from __future__ import annotations

import ast
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from touchline.errors import RunError
from touchline.microrts.engine import (
    JAR_SHA256,
    PACKAGE,
    SDIST_SHA256,
    VERSION,
    Engine,
    cache_folder,
    check_hash,
    sha256_of,
    unpack,
)

# Without any byte: urllib applies it to each read, not to the whole file.
_TIMEOUT_S = 60.0


def fetch(folder: Path | None = None, *, bots: bool = False) -> Engine:
    """The engine in `folder` (default: the cache), downloaded unless it is already there.

    `bots` also unpacks the jars of the competition bots, which come without a license text. Raises
    an EngineError for a wrong hash, a RunError when no index has the file.
    """
    folder = folder or cache_folder()
    engine = Engine(folder)
    if _is_complete(engine, bots=bots):
        return engine
    name = f"{PACKAGE}-{VERSION}.tar.gz"
    with tempfile.TemporaryDirectory(prefix="touchline-microrts-") as temporary:
        sdist = Path(temporary) / name
        download(name, SDIST_SHA256, sdist)
        unpack(sdist, folder, bots=bots)
    check_hash(engine.jar, JAR_SHA256)
    return engine


def _is_complete(engine: Engine, *, bots: bool) -> bool:
    if not engine.jar.is_file() or sha256_of(engine.jar) != JAR_SHA256:
        return False
    return bool(engine.bot_jars) or not bots


@dataclass(frozen=True)
class PipSettings:
    """Where pip looks for packages: index pages and folders, and how it connects to them."""

    indexes: tuple[str, ...]
    links: tuple[str, ...]
    certificates: str | None
    proxy: str | None

    @staticmethod
    def read() -> PipSettings:
        """The output of `pip config list`, which includes environment variables."""
        scopes = _pip_config()
        values: dict[str, str] = {}
        # Later scopes override earlier ones. The order of pip's own list depends on its version.
        for scope in ("global", "install", "download", ":env:"):
            values |= scopes.get(scope, {})
        indexes = [
            values.get("index-url", "https://pypi.org/simple"),
            *values.get("extra-index-url", "").split(),
        ]
        if values.get("no-index", "").lower() in ("1", "true", "yes", "on"):
            indexes = []
        return PipSettings(
            indexes=tuple(indexes),
            links=tuple(values.get("find-links", "").split()),
            certificates=values.get("cert"),
            proxy=values.get("proxy"),
        )


def _pip_config() -> dict[str, dict[str, str]]:
    """Pip's settings: scope -> name -> value, from lines such as `global.index-url='https://…'`."""
    # By its command, because pip has no Python interface. Where there is no pip, its defaults hold.
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
    )
    scopes: dict[str, dict[str, str]] = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        scope, _, name = key.rpartition(".")
        # It is a text as Python writes it; several addresses have line ends between them.
        scopes.setdefault(scope, {})[name] = str(ast.literal_eval(value.strip()))
    return scopes


def download(name: str, sha256: str, to: Path) -> None:
    """Write the package's file `name` to `to`, from the first place that has it.

    Raises an EngineError for another hash than expected, a RunError when no place has the file.
    """
    settings = PipSettings.read()
    failures: list[str] = []
    for place, request in _sources(settings, name, failures):
        try:
            response = _opener(settings).open(request, timeout=_TIMEOUT_S)
            with response, to.open("wb") as file:
                shutil.copyfileobj(response, file)
        except OSError as error:
            failures.append(f"{_without_password(place)}: {error}")
            continue
        check_hash(to, sha256)
        return
    reasons = "; ".join(failures) or "pip is set to use no index"
    raise RunError(
        f"could not download {name}: {reasons}. Set pip's index-url (or PIP_INDEX_URL) to an index "
        "that has it, or download it elsewhere and give it: microrts:MAP?engine=PATH"
    )


def _sources(
    settings: PipSettings, name: str, failures: list[str]
) -> Iterator[tuple[str, urllib.request.Request]]:
    """Every place that has the file, with the request for it; others are added to `failures`."""
    for link in settings.links:
        is_url = link.startswith("file:")
        folder = Path(urllib.parse.urlparse(link).path if is_url else link)
        file = folder / name
        if file.is_file():
            yield link, urllib.request.Request(file.resolve().as_uri())
    for index in settings.indexes:
        page = f"{index.rstrip('/')}/{PACKAGE}/"
        # A server answers with a folder's index by itself.
        if page.startswith("file:"):
            page += "index.html"
        request = _request(page)
        try:
            with _opener(settings).open(request, timeout=_TIMEOUT_S) as response:
                links = _Links(response.read().decode("utf-8", "replace")).found
        except OSError as error:
            failures.append(f"{_without_password(index)}: {error}")
            continue
        url = links.get(name)
        if url is None:
            failures.append(f"{_without_password(index)}: has no {name}")
        else:
            yield (
                index,
                _request(urllib.parse.urljoin(request.full_url, url), index_page=page),
            )


def _request(url: str, index_page: str = "") -> urllib.request.Request:
    """A request that sends the user and password of a URL in a header, as HTTP requires."""
    # A file's URL has none of its own; it gets those of the index page, if it is on the same host.
    parts = urllib.parse.urlsplit(url)
    account = parts if parts.username else urllib.parse.urlsplit(index_page)
    request = urllib.request.Request(_without_password(url))
    if account.username and account.hostname == parts.hostname:
        user = urllib.parse.unquote(account.username)
        password = urllib.parse.unquote(account.password or "")
        token = b64encode(f"{user}:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    return request


def _opener(settings: PipSettings) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context(cafile=settings.certificates)
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.HTTPSHandler(context=context)
    ]
    if settings.proxy:
        proxies = {"http": settings.proxy, "https": settings.proxy}
        handlers.append(urllib.request.ProxyHandler(proxies))
    return urllib.request.build_opener(*handlers)


class _Links(HTMLParser):
    """The files of a package's page in an index (PEP 503): name -> URL."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href:
            url = urllib.parse.urldefrag(href).url  # the fragment holds a hash
            name = urllib.parse.unquote(url.rpartition("/")[2])
            self.found[name] = url


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url)
