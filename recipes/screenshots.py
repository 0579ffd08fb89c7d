"""Takes the screenshots of docs/page.md with the bundled model of the built-in grammar: the views in the text as PNG, and of
every view one sheet at three widths, light and dark; or, given another model, those of OTHER_MODELS: of a model of 2015
trained as in docs/recurrent.md, or of a published one.

python recipes/screenshots.py             # needs the page (make page) and chromium
python recipes/screenshots.py runs/2015 attention-2015
python recipes/screenshots.py gemma-3-270m-Q4_K_M.gguf gemma-generate gemma-inspector
python recipes/screenshots.py all-MiniLM-L6-v2 minilm-inspector
python recipes/screenshots.py runs/digits spoken-digits=string.wav      # as in docs/media.md
python recipes/screenshots.py runs/numbers written-numbers=number.png
"""

import shutil
import subprocess
import sys
import time
import urllib.request
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from seq2see.storage.bundled import BUNDLED, GRAMMAR

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
PORT = 8799
VIEWS = {
    "map": "#/map",
    "translate": "#/translate?row=1",
    "walk": "#/walk?row=1&stage=decoder.1.cross.scores&attention=decoder.1.cross&head=1"
    "&cell=decoder.1.cross.scores:1,1,3",
    "heads": "#/heads?row=1&sort=entropy&lines=1,3,5",
    "microscope": "#/microscope?attention=decoder.1.masked&head=3&row=3",
    "intervene": "#/intervene?interventions=" + ";".join(f"ablate:decoder.1.cross:{head}" for head in range(8)),
    "replay": "#/replay?snapshot=256",
    "compare": "#/compare?attention=decoder.1.cross&head=1&forced=1",
    "space": "#/space?space=layers&stack=decoder&position=1",
    "space-words": "#/space?space=words&words=went+−+go+%2B+come",
    "train": "#/train?head=1",
    "learn": "#/learn?lesson=context",
}
IN_TEXT = ("map-light", "translate-light", "walk-light", "heads-dark", "intervene-light", "space-light", "learn-light")
LESSONS = ("cross", "heads", "senses")
PHONE = "#/learn?lesson=positions"
WIDTHS = {1440: 900, 1024: 768, 390: 844}  # and heights of the window
SCALE, MAX_HEIGHT = 0.5, 1800  # of a sheet, and of a page in it before scaling
OTHER_MODELS = {
    "attention-2015": "#/microscope?text=She+is+drinking+water+at+home+now.&row=4&cell=decoder.0.cross.energies:0,4,3",
    "gemma-generate": "#/translate?text=The+capital+of+France+is",
    "gemma-inspector": "#/walk?text=The+capital+of+France+is&stage=decoder.0.masked.normed_queries&row=4"
    "&cell=decoder.0.masked.normed_queries:4,0,3",
    "minilm-inspector": "#/microscope?text=She+sat+on+the+bank+of+the+river.&attention=encoder.0.self&head=4"
    "&cell=encoder.0.self.weights:4,5,8",
    "spoken-digits": "#/translate?row=1",
    "written-numbers": "#/translate?row=1",
}


def main() -> None:
    run, *pictures = sys.argv[1:] or [""]
    screenshots = {name: (VIEWS[name.split("-")[0]], name.split("-")[1]) for name in IN_TEXT}
    screenshots |= {f"learn-{lesson}": (f"#/learn?lesson={lesson}", "light") for lesson in LESSONS}
    screenshots["learn-phone"] = (PHONE, "light")
    files = dict(name.split("=", 1) for name in pictures if "=" in name)  # to choose in the page, by picture
    if run:
        screenshots = {name: (OTHER_MODELS[name], "light") for name in (each.split("=")[0] for each in pictures)}
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium not found")
    PICTURES.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "seq2see", "explore", "--no-open", "--port", str(PORT)]
    command += ["--model", run or GRAMMAR, "--follow", str(BUNDLED / GRAMMAR)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{PORT}/"
    try:
        _wait_for(f"{address}api/models")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            for name, (url_hash, theme) in screenshots.items():
                size = (390, 844) if name.endswith("phone") else (1280, 800)
                picture = _take(browser, address + url_hash, theme, size, full_page=False, file=files.get(name))
                (PICTURES / f"{name}.png").write_bytes(picture)
            for name, url_hash in {} if run else VIEWS.items():
                _sheet(browser, address + url_hash).save(PICTURES / f"{name}.webp", quality=82, method=6)
            browser.close()
    finally:
        server.terminate()


def _take(
    browser: Browser, url: str, theme: Any, size: tuple[int, int], full_page: bool, file: str | None = None
) -> bytes:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    page = context.new_page()
    page.set_default_timeout(300_000)  # a large model takes its time
    page.goto(url)
    if file:
        page.locator("input[type=file]").set_input_files(file)
        page.get_by_label("written tokens").get_by_role("button").nth(1).hover()
    page.wait_for_load_state("networkidle")
    page.locator("main [role=status].state").wait_for(state="detached")
    page.wait_for_timeout(1500)  # for animations
    picture = page.screenshot(full_page=full_page)
    context.close()
    return picture


def _sheet(browser: Browser, url: str) -> Image.Image:
    """One view at every width: the light theme above the dark one."""
    rows = [
        [
            Image.open(BytesIO(_take(browser, url, theme, size, full_page=True))).convert("RGB")
            for size in WIDTHS.items()
        ]
        for theme in ("light", "dark")
    ]
    width = sum(WIDTHS) + 20 * (len(WIDTHS) - 1)
    heights = [max(min(picture.height, MAX_HEIGHT) for picture in row) for row in rows]
    sheet = Image.new("RGB", (width, sum(heights) + 20), "#8b8a99")
    for top, row in zip((0, heights[0] + 20), rows, strict=True):
        left = 0
        for picture in row:
            sheet.paste(picture.crop((0, 0, picture.width, min(picture.height, MAX_HEIGHT))), (left, top))
            left += picture.width + 20
    return sheet.resize((round(sheet.width * SCALE), round(sheet.height * SCALE)), Image.Resampling.LANCZOS)


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
