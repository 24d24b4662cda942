# SPDX-License-Identifier: Apache-2.0
"""A report of ten thousand points opens in a headless browser in under 3 s, its first chart drawn."""
import json
import random
import shutil

import support


def many(path, count):
    draw = random.Random(1)
    lines = [{"kind": "run", "schema": 2, "run_id": "r", "ranks": 8}]
    for i in range(count):
        time = 1e-5 * (1 + draw.random())
        factors = {"ranks": 8, "size_bytes": 1024 * (1 + i // 10), "algorithm": f"a{i % 10}", "collective": "allreduce", "dtype": "fp32",
                   "in_place": False}
        metrics = {"time_s": {"median": time, "ci95_low": 0.9 * time, "ci95_high": 1.1 * time, "n": 10}, "busbw_bytes_per_s": 1e4 / time,
                   "limit_s": 5e-6}
        lines.append({"kind": "point", "run_id": "r", "experiment": "allreduce", "status": "ok", "factors": factors, "metrics": metrics})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def opens_fast(test, browser):
    page = test.path("many.html")
    done = test.run("report", many(test.path("many.jsonl"), 10000), "-o", page, timeout=60)
    test.check(done.code == 0, "10,000 points make a page", done)

    def attempt(again):
        browser.open(page)
        seconds = browser.wait("const c = document.querySelector('.chart'); return document.documentElement.dataset.ready === 'yes' && c.dataset.drawn === 'yes' && performance.now() / 1000")
        again.check(seconds and seconds < 3, f"it opens in {seconds:.2f} s, its first chart drawn, of 3 s" if seconds else "it opens")
    test.attempt(attempt, "another process may have had the cores")


def body(test):
    if not shutil.which("chromedriver"):
        test.check(True, "chromedriver is not here (Debian: chromium-driver): the page is not opened")
        return
    import webdriver
    with webdriver.Browser() as browser:
        opens_fast(test, browser)


support.main(__doc__, body)
