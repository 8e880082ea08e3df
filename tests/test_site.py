"""The site of docs/: it builds without a warning, and its pages work in a browser, on a phone too, and without other servers."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(ROOT / "mkdocs.yml"), "-d", str(folder)],
        capture_output=True, text=True, check=False, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in built.stderr
    return folder


def test_every_page_is_in_the_navigation(site):
    start = (site / "index.html").read_text(encoding="utf-8")
    for page in site.rglob("*.html"):
        name = page.relative_to(site).as_posix()
        assert name == "404.html" or name == "index.html" or f'href="{name}"' in start, name
    assert {"r.html", "SECURITY.html", "mxnet.html"} <= {p.name for p in site.glob("*.html")}


def test_links_between_pages_lead_to_the_site(site):
    """Other files of the repository are not on it, so that nothing leads out of its folder."""
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'href="../' not in text and ".md" not in {Path(h).suffix for h in text.split('href="')[1:]}, page


def test_blocks_and_lists_are_read_as_such(site):
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8").split('<article class="md-content__inner')[-1].split("</article>")[0]
        prose = re.sub(r"<(pre|code)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert "```" not in prose, page
        assert not re.search(r"\n *([*-]|\d\.) ", prose), page


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("name", ["index", "verification", "coverage", "reference-api", "mxnet"])
def test_pages_open(address, browser, name, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/{name}.html", wait_until="load")
    assert said == [] and all(url.startswith((address, "data:", "blob:")) for url in asked)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_search_finds_a_page(address, browser):
    from playwright.sync_api import TimeoutError

    page = browser.new_page(viewport={"width": 1300, "height": 800})
    page.goto(f"{address}/index.html")
    found = page.locator(".md-search-result__item a[href*='mxnet']")
    for _ in range(20):  # what is typed before the index is loaded is not searched for
        page.click("input.md-search__input")
        page.fill("input.md-search__input", "")
        page.keyboard.type("oneDNN")
        with contextlib.suppress(TimeoutError):
            found.first.wait_for(timeout=3_000)
            break
    assert found.count()
    page.close()
