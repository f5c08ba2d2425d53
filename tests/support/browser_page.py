"""A page in a real browser without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


OVERLAPS = """
() => {
  const found = [];
  for (const plot of document.querySelectorAll(".plot")) {
    const box = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll("svg text")].filter((t) => t.textContent.trim());
    const places = texts.map((t) => [t.textContent, t.getBoundingClientRect()]);
    for (const [text, r] of places) {
      if (r.left < box.left - 1 || r.right > box.right + 1 || r.bottom > box.bottom + 1) {
        found.push(`outside: ${text}`);
      }
    }
    const inner = 2;  // boxes of letters are larger than the letters
    places.forEach(([a, r], i) => {
      for (const [b, s] of places.slice(i + 1)) {
        const wide = Math.min(r.right, s.right) - Math.max(r.left, s.left);
        const high = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
        if (wide > inner && high > inner + 2) found.push(`overlap: ${a} and ${b}`);
      }
    });
  }
  return found;
}
"""


COVERED = """plot => {
  const bar = plot.querySelector(".modebar").getBoundingClientRect();
  const under = (r) => r.left < bar.right - 1 && r.right > bar.left + 1
    && r.top < bar.bottom - 1 && r.bottom > bar.top + 1;
  const found = bar.height > 10 && bar.top >= 0 ? [] : ["there is no toolbar"];
  const drawn = plot.querySelectorAll("text, .point path, .points path, .lines path, image");
  for (const mark of drawn) {
    if (!mark.closest(".hoverlayer") && under(mark.getBoundingClientRect())) {
      found.push(mark.textContent || mark.tagName);
    }
  }
  // The words around the figure, as lines of letters.
  const nodes = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (nodes.nextNode()) {
    if (plot.contains(nodes.currentNode) || !nodes.currentNode.data.trim()) continue;
    range.selectNodeContents(nodes.currentNode);
    if ([...range.getClientRects()].some(under)) found.push(nodes.currentNode.data);
  }
  return found;
}"""


def covered_by_toolbars(page: Page) -> list[str]:
    """What the toolbars of the page's figures would cover; the page must have a figure."""
    plots = page.locator(".plot")
    assert plots.count() > 0
    found: list[str] = []
    for index in range(plots.count()):
        plots.nth(index).scroll_into_view_if_needed()
        found += [f"figure {index}: {each}" for each in plots.nth(index).evaluate(COVERED)]
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser on PATH ({', '.join(NAMES)}); apt-get install chromium")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=[*FLAGS, *sandbox])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = os.environ.get("VTAX_SCREENSHOTS")
    folder = Path(chosen) if chosen else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Visit:
    """A page opened from disk, and every error and request of it."""

    def __init__(self, browser: Browser, path: Path, scheme: str = "light", width: int = 1280):
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            offline=True,
        )
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn=yes]", timeout=30_000)

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.complaints == []
        outside = [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]
        assert outside == []
