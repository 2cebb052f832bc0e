"""The site is built without a warning, and its search works when a page is opened as a file, without the network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
def test_the_search_works_on_files(tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(build, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    with api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, asked = browser.new_page(), list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "rollouts.html").as_uri())
        page.click("input.md-search__input")
        page.keyboard.type("pseudo-rollouts", delay=20)
        found = page.locator(".md-search-result__item a[href*='rollouts.html']")
        found.first.wait_for(state="attached")
        browser.close()
    assert [url for url in asked if not url.startswith("file:")] == []
