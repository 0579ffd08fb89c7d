"""Takes the screenshots of docs/page.md: every view of the page with the bundled model, light and dark; or, given another
model, those of OTHER_MODELS: of a model of 2015 trained as in docs/recurrent.md, or of a published one.

python recipes/screenshots.py             # needs the page (make page) and chromium
python recipes/screenshots.py runs/2015 attention-2015
python recipes/screenshots.py gemma-3-270m-Q4_K_M.gguf gemma-generate gemma-inspector
python recipes/screenshots.py all-MiniLM-L6-v2 minilm-inspector
"""

import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
PORT = 8799
VIEWS = {
    "translate": "#/translate?row=1",
    "walk": "#/walk?row=1&stage=decoder.1.cross.scores&attention=decoder.1.cross&head=1"
    "&cell=decoder.1.cross.scores:1,1,3",
    "heads": "#/heads?row=1&sort=entropy",
    "microscope": "#/microscope?attention=decoder.1.masked&head=3&step=masked&row=3",
    "intervene": "#/intervene?interventions=ablate:decoder.1.cross:0;ablate:decoder.1.cross:3",
    "replay": "#/replay?snapshot=256",
    "compare": "#/compare?attention=decoder.1.cross&head=1&attention2=decoder.1.cross&head2=5",
    "learn": "#/learn?lesson=context",
}
LESSONS = ("cross", "heads", "senses")
PHONE = "#/learn?lesson=positions"
OTHER_MODELS = {
    "attention-2015": "#/microscope?text=She+is+drinking+water+at+home+now.&row=4&cell=decoder.0.cross.energies:0,4,3",
    "gemma-generate": "#/translate?text=The+capital+of+France+is",
    "gemma-inspector": "#/walk?text=The+capital+of+France+is&stage=decoder.0.masked.normed_queries&row=4"
    "&cell=decoder.0.masked.normed_queries:4,0,3",
    "minilm-inspector": "#/microscope?text=She+sat+on+the+bank+of+the+river.&attention=encoder.0.self&head=4"
    "&cell=encoder.0.self.weights:4,5,8",
}


def main() -> None:
    run, *pictures = sys.argv[1:] or [""]
    screenshots = {
        f"{name}-{theme}": (url_hash, theme) for theme in ("light", "dark") for name, url_hash in VIEWS.items()
    }
    screenshots |= {f"learn-{lesson}": (f"#/learn?lesson={lesson}", "light") for lesson in LESSONS}
    screenshots["learn-phone"] = (PHONE, "light")
    if run:
        screenshots = {name: (OTHER_MODELS[name], "light") for name in pictures}
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium not found")
    PICTURES.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "seq2see", "explore", "--no-open", "--port", str(PORT)]
    command += ["--model", run] if run else []
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{PORT}/"
    try:
        _wait_for(f"{address}api/models")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            for name, (url_hash, theme) in screenshots.items():
                size = {"width": 390, "height": 844} if name.endswith("phone") else {"width": 1280, "height": 800}
                page = browser.new_context(viewport=size, color_scheme=theme).new_page()  # type: ignore[arg-type]
                page.set_default_timeout(300_000)  # a large model takes its time
                page.goto(address + url_hash)
                page.wait_for_load_state("networkidle")
                page.locator("main [role=status]").wait_for(state="detached")
                page.wait_for_timeout(1500)  # for animations
                page.screenshot(path=PICTURES / f"{name}.png")
                page.close()
            browser.close()
    finally:
        server.terminate()


def _wait_for(url: str) -> None:
    for _ in range(400):
        try:
            urllib.request.urlopen(url)
            return
        except OSError:
            time.sleep(0.3)
    raise SystemExit(f"{url} did not respond within 2 minutes")


if __name__ == "__main__":
    main()
