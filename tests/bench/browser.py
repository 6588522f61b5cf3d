"""A page, opened by a real browser without a head: what it says, how large its drawings are, what it complains of."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from html import unescape
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TIMEOUT_S = 300
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr"
)
PROBE = """
<script>
addEventListener("load", () => parent.postMessage(JSON.stringify({
  boxes: [...document.querySelectorAll("figure svg")].map(one => {
    const box = one.getBoundingClientRect();
    return [one.querySelector("title").textContent, box.width, box.height];
  }),
  text: document.body.innerText,
  page_width: document.documentElement.scrollWidth,
  window_width: innerWidth,
  ids: [...document.querySelectorAll("[id]")].map(one => one.id),
  asked: performance.getEntriesByType("resource").map(one => one.name),
}), "*"));
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


def look(page: Path, folder: Path, width: int = 1280) -> dict[str, Any]:
    """What the probe in a copy of the page sees, in CSS pixels, and ``complaints``: the lines of the console. A page
    that is wider than its window must be pushed sideways.
    """
    copy, frame = folder / "probed.html", folder / "frame.html"
    copy.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
    frame.write_text(FRAME % (copy.as_uri(), width, HEIGHT))
    with tempfile.TemporaryDirectory(prefix="blumfeld-browser-", ignore_cleanup_errors=True) as profile:
        window = [f"--user-data-dir={profile}", f"--window-size={max(width, 500)},{HEIGHT}", "--dump-dom"]
        command = [str(CHROMIUM), *FLAGS.split(), *window, frame.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    match = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match, "the page's probe did not run"
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return {**json.loads(unescape(match.group(1))), "complaints": complaints}
