"""The built site in a browser: no page is wider than its window, and no table loses a column."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.viewer.browser import PHONE, open_browser, resize

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow
SIZES = [(1280, 800), PHONE]
OUTSIDE = """
const width = document.documentElement.clientWidth;
const found = [];
if (document.documentElement.scrollWidth > width)
  found.push('the page is ' + document.documentElement.scrollWidth + ' pixels wide');
for (const table of document.querySelectorAll('article table:not(.highlighttable)')) {
  const article = table.closest('article').getBoundingClientRect();
  const heads = table.querySelectorAll('thead th').length;
  for (const cell of table.querySelectorAll('td, th')) {
    const box = cell.getBoundingClientRect();
    const isHidden = getComputedStyle(cell.closest('thead') ?? cell).display === 'none';
    if (isHidden) continue;
    const text = cell.textContent.trim().slice(0, 40);
    if (box.right > article.right + 1 || box.left < article.left - 1)
      found.push('a cell is outside: ' + text);
    if (cell.scrollWidth > cell.clientWidth + 1)
      found.push('a cell is cut off: ' + text);
    if (text && box.width < 16) found.push('a cell is narrow: ' + text);
  }
  for (const row of table.querySelectorAll('tbody tr'))
    if (row.querySelectorAll('td').length < heads) found.push('a row lacks cells');
}
return found;
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d"]
    subprocess.run([*command, str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("size", SIZES, ids=["desk", "phone"])
def test_no_page_is_wider_than_its_window_and_no_table_loses_a_column(site, size):
    wrong = {}
    with open_browser(size, webgl=False) as browser:
        resize(browser, size)
        pages = sorted(site.rglob("*.html"))
        assert len(pages) > 35
        for page in pages:
            browser.get(page.as_uri())
            found = browser.execute_script(OUTSIDE)
            if found:
                wrong[page.relative_to(site).as_posix()] = found[:5]
    assert not wrong


def test_the_front_page_opens_with_a_film_above_the_fold(site):
    for size in SIZES:
        with open_browser(size, webgl=False) as browser:
            resize(browser, size)
            browser.get((site / "index.html").as_uri())
            bottom, width = browser.execute_script(
                "const box = document.querySelector('article img').getBoundingClientRect();"
                "return [box.bottom, box.width];"
            )
            assert bottom <= size[1]
            assert width > 0.4 * size[0]


def test_every_command_has_an_example(site):
    page = (site / "reference/command-line/index.html").read_text(encoding="utf-8")
    assert page.count(">Examples<") == page.count('<h2 id="touchline-')
