"""A page, opened by a real browser without a head: what it says, how large its drawings are, what it complains of."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path

import attrs

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
TIMEOUT_S = 300
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
)
PROBE = """
<script>
addEventListener("load", () => {
  const boxes = [...document.querySelectorAll("figure svg")].map(one => {
    const box = one.getBoundingClientRect();
    return {name: one.querySelector("title").textContent, width: box.width, height: box.height};
  });
  const probe = {
    boxes,
    text: document.body.innerText,
    page_width: document.documentElement.scrollWidth,
    window_width: innerWidth,
    ids: [...document.querySelectorAll("[id]")].map(one => one.id),
    asked: performance.getEntriesByType("resource").map(one => one.name),
  };
  parent.postMessage(JSON.stringify(probe), "*");
});
</script>
"""
FRAME = """<!DOCTYPE html>
<script>
addEventListener("message", message => {
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = message.data;
  document.body.append(out);
});
</script>
<body style="margin: 0"><iframe src="%s" style="border: 0; width: %dpx; height: %dpx"></iframe></body>
"""
"""As wide as a phone, too: Chromium's own window doesn't get narrower than 500 px."""
HEIGHT = 2000


@attrs.frozen
class Box:
    """A drawing as it is laid out, in CSS pixels."""

    name: str
    width: float
    height: float


@attrs.frozen
class Seen:
    """What the browser made of a page."""

    boxes: list[Box]
    text: str
    page_width: float
    """More than the window's is a page that must be pushed sideways."""
    window_width: float
    ids: list[str]
    asked: list[str]
    """What it loaded beside the page."""
    complaints: list[str]
    """Lines of its console."""


def look(page: Path, folder: Path, width: int = 1280) -> Seen:
    """Open a copy of the page, with a probe in it."""
    copy, frame = folder / "probed.html", folder / "frame.html"
    copy.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
    frame.write_text(FRAME % (copy.as_uri(), width, HEIGHT))
    with tempfile.TemporaryDirectory(prefix="blumfeld-browser-", ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [
                str(CHROMIUM),
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--window-size={max(width, 500)},{HEIGHT}",
                "--dump-dom",
                frame.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, "the page's probe did not run"
    probe = json.loads(unescape(found.group(1)))
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    boxes = [Box(**one) for one in probe.pop("boxes")]
    return Seen(boxes=boxes, complaints=complaints, **probe)
