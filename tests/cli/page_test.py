"""`gradmeter report` in a headless browser: every chart draws, filters, sorting and downloads work, nothing is asked of the network,
names from files are text, colours have the contrast that WCAG asks for; and without a browser: pictures, CSV, Markdown, text,
sentences."""
import json
import math
import shutil
import struct
import subprocess
import sys

import support

HOSTILE = "<script>window.hacked=1</script></script><img src=x onerror=window.hacked=1>"


def run_line(name, **changed):
    head = {"kind": "run", "schema": 2, "run_id": name, "time": "2026-01-01T00:00:00Z", "command": "made by a test", "version": "0.1",
            "commit": "c0", "hosts": ["n1"], "ranks": 8, "nodes": 1, "mapping": "block", "cpu": "a cpu", "mpi": "an MPI", "cores_per_node": 8,
            "memory_bytes_per_node": 1, "binding": "", "libraries": {}, "environment": {}, "gpus": [], "fingerprint": "f"}
    return {**head, **changed}


def summary(value, spread=0.02):
    return {"median": value, "q1": value, "q3": value, "ci95_low": value * (1 - spread), "ci95_high": value * (1 + spread), "p95": value,
            "p99": value, "min": value, "max": value, "n": 40, "stop": "interval"}


def point(name, experiment, factors, metrics, status="ok", reason=""):
    return {"kind": "point", "run_id": name, "experiment": experiment, "status": status, "reason": reason, "factors": factors,
            "metrics": metrics, "raw_times_s": []}


def timeline(base, wire):
    """Two layers and two buckets, the first of which is hidden by half."""
    backward = [{"name": "backward 1 dense:10", "begin_s": base / 2, "end_s": base * 0.75},
                {"name": "backward 0 dense:64", "begin_s": base * 0.75, "end_s": base}]
    exchange = [{"name": f"{i} fc{2 - i}", "ready_s": base * (0.75 + i / 4), "begin_s": base * 0.75 + wire * i / 2,
                 "end_s": base * 0.75 + wire * (i + 1) / 2, "bytes": 2560 << i} for i in (0, 1)]
    return {"exposed_union_s": wire / 2, "timeline_step_s": base + wire, "timeline_rank": 0, "timeline_exchange": exchange,
            "timeline_compute": [{"name": "forward 0 dense:64", "begin_s": 0, "end_s": base / 2}, *backward],
            "timeline_exposed": [{"name": "1 fc1", "begin_s": base, "end_s": base + wire / 2}]}


def scale_points(name):
    """Efficiency falls with ranks and small batches; most of the loss is on the wire; bf16 gradients win a half of it back."""
    for batch in (16, 64, 256):
        base = batch * 1e-5 + 2e-4
        for ranks in (1, 2, 4, 8):
            for gradients in (None, "bf16"):
                wire = 0 if ranks == 1 else 6e-4 * (1 - 1 / ranks) * (0.5 if gradients else 1)
                factors = {"ranks": ranks, "nodes": 1, "model": "mlp:784-64-10", "batch_per_rank": batch, "batch_global": batch * ranks,
                           "precision": "fp32", "strategy": "sync", "ranks_as": "processes"}
                if ranks > 1:
                    factors.update(algorithm="ring", codec="none", scaling="weak", gradients=gradients)
                elif gradients:
                    continue
                time = base + wire
                yield point(name, "scale", factors, {
                    "time_s": summary(time), "baseline_time_s": base, "efficiency": base / time, "efficiency_ci95_low": base / time * 0.99,
                    "efficiency_ci95_high": base / time * 1.01, "wire_s": wire * 0.9, "wait_s": wire * 0.1, "limit_s": base * 0.8,
                    "bound_by": "wire" if wire else "compute", "slowest_rank": 3, "slowest_host": "n1", **(timeline(base, wire) if wire else {})})


def other_points(name):
    for size in (1024, 65536, 4194304):
        for algorithm, factor in (("ring", 1.0), ("recursive-doubling", 0.5 if size < 10000 else 3.0)):
            time = factor * (2e-6 + size / 4e9)
            yield point(name, "allreduce", {"ranks": 8, "size_bytes": size, "algorithm": algorithm, "collective": "allreduce",
                                           "dtype": "fp32", "in_place": False},
                        {"time_s": summary(time), "busbw_bytes_per_s": 1.75 * size / time, "limit_s": size / 8e9})
    for codec, bits, error in (("qsgd4", 4.06, 0.1), ("bf16", 16, 0.002), ("onebit", 1.06, 0.6)):
        yield point(name, "codecs", {"codec": codec, "size_bytes": 1048576, "distribution": "gaussian"},
                    {"wire_bits": bits, "error": error, "crossover_bytes_per_s": 1e9 / bits})
    for precision, rate in (("fp32", 1e11), ("bf16", 3e11)):
        for batch in (16, 64, 256):
            yield point(name, "kernels", {"problem": f"gemm:m=512,n={batch},k=512", "precision": precision, "batch_per_rank": batch, "cache": "hot"},
                        {"time_s": summary(1e-4), "flops_per_s": rate, "bytes_per_s": 1e10, "roofline": 0.8, "peak_flops_per_s": 4e11,
                         "memory_bytes_per_s": 5e10})
            yield point(name, "infer", {"ranks": 1, "model": "mlp:784-64-10", "batch_per_rank": batch, "precision": precision},
                        {"time_s": summary(batch * 1e-5 / (3 if precision == "bf16" else 1)), "speedup": 3.0 if precision == "bf16" else 1.0})
    for epoch in (1, 2, 3):
        yield point(name, "train", {"ranks": 8, "model": "mlp:784-64-10", "batch_per_rank": 64, "strategy": "ps-async"},
                    {"time_s": summary(1e-3), "accuracy": 1 - 0.2 / epoch, "loss": 1 / epoch, "step": 100 * epoch, "epoch": epoch,
                     "staleness": 1.5, "staleness_p99": 4, "staleness_max": 9})
    yield point(name, "allreduce", {"ranks": 2, "size_bytes": 8, "collective": "allreduce"},  # as imported logs are
                {"time_s": 1e-6, "busbw_bytes_per_s": 0.0})
    yield from link_points(name)
    yield from soak_points(name)
    yield point(name, "scale", {"ranks": 8, "model": HOSTILE, "batch_per_rank": 64}, {}, "unsupported", f"no such model {HOSTILE}")


def host(rank):
    return f"gpu-node-{rank // 2:03d}.cluster.example.org"


def link_points(name, ranks=6):
    for size in (8192, 1048576):
        for sender in range(ranks):
            for receiver in range(ranks):
                if sender != receiver:
                    rate = (12e9 if sender // 2 == receiver // 2 else 2e9) * (0.5 if 3 in (sender, receiver) else 1)
                    yield point(name, "links", {"ranks": ranks, "pattern": "one-way", "from_rank": sender, "to_rank": receiver,
                                                "size_bytes": size, "outstanding": 8, "transport": "shm"},
                                {"time_s": summary(8 * size / rate), "link_bytes_per_s": rate, "latency_s": summary(size / rate),
                                 "from_host": host(sender), "to_host": host(receiver)})


def soak_points(name, ranks=6):
    for interval in range(40):
        for rank in range(ranks):
            slow = 2 if rank == 2 and 10 < interval < 15 else 1
            yield point(name, "soak", {"ranks": ranks, "from_rank": rank, "interval": interval, "size_bytes": 262144, "pattern": "ring"},
                        {"time_s": summary(slow * 1e-3), "elapsed_s": 10.0 * interval, "from_host": host(rank)})


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


CONTRAST = """
const light = (c) => { const f = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
const parse = (s) => { const m = s.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
const bad = [];
for (const e of document.querySelectorAll('h1,h2,h3,p,li,td,th,th button,button,select,input,label,figcaption,dt,dd,a,span,svg text')) {
  if (!e.textContent.trim() || e.closest('.skip') || e.closest('#chart-heat_map .mark-text')) continue;  // those stand on colours
  const style = getComputedStyle(e);
  const ink = parse(e instanceof SVGElement ? style.fill : style.color);
  const [a, b] = [light(ink.slice(0, 3)), light(ground(e).slice(0, 3))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) bad.push(e.tagName + ' ' + e.textContent.trim().slice(0, 30) + ' ' + ratio.toFixed(2));
}
return bad;"""


# What must not be found, however wide the screen is.
TEXTS = "[...document.querySelectorAll('.chart svg text')].filter((t) => t.textContent.trim())"
FITS = {
    "the page does not scroll sideways":
        "const d = document.documentElement; return d.scrollWidth > d.clientWidth ? [d.scrollWidth] : []",
    "no chart is wider than its place":
        "return [...document.querySelectorAll('.chart')].filter((c) => c.scrollWidth > c.clientWidth).map((c) => c.id + ' ' + c.scrollWidth)",
    "no text stands outside of its chart": f"""return {TEXTS}.filter((t) => {{
        const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect();
        return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1; }}).map((t) => t.textContent)""",
    "no text is of a value that is absent":
        f"return {TEXTS}.map((t) => t.textContent).filter((t) => /undefined|NaN|null|Infinity/.test(t))",
    "every axis of numbers has a title": """return [...document.querySelectorAll('.chart svg .role-axis[aria-label]')]
        .map((a) => a.getAttribute('aria-label')).filter((l) => /linear|log/.test(l) && !l.includes('titled'))""",
    "no two labels of an axis overlap": """const bad = [];
        for (const axis of document.querySelectorAll('.chart svg .role-axis-label')) {
          const boxes = [...axis.querySelectorAll('text')].filter((t) => t.textContent && getComputedStyle(t).opacity > 0)
            .map((t) => [t, t.getBoundingClientRect()]);
          if (boxes.some(([t]) => /rotate/.test(t.getAttribute('transform')))) continue;  // their boxes are larger than they are
          boxes.forEach(([t, a], i) => { const next = boxes[i + 1] && boxes[i + 1][1];
            if (next && a.left < next.right - 1 && next.left < a.right - 1 && a.top < next.bottom - 3 && next.top < a.bottom - 3)
              bad.push(t.textContent + ' | ' + boxes[i + 1][0].textContent); });
        }
        return bad""",
}


def all_drawn(browser):
    """The names of charts that never draw."""
    missing = []
    for name in browser.run("return [...document.querySelectorAll('.chart')].map((c) => c.id)"):
        browser.run(f"document.getElementById('{name}').scrollIntoView()")
        drawn = browser.wait(f"const c = document.getElementById('{name}'); return c.dataset.drawn === 'yes' && c.querySelector('svg, canvas') !== null", 10)
        if not drawn:
            missing.append(name)
    return missing


def count_of(browser):
    return int(browser.run("return document.getElementById('count').textContent").split()[0])


def draws_and_is_quiet(test, browser, page):
    browser.open(page)
    test.check(browser.wait("return document.documentElement.dataset.ready === 'yes'"), "the page gets ready")
    charts = browser.run("return document.querySelectorAll('.chart').length")
    files = list((test.source / "src/report/page/charts").glob("*.json"))
    test.equal(charts, len(files) - 2, "each chart but those of comparisons and of codecs on links has points")
    test.equal(all_drawn(browser), [], "every chart draws")
    empty = browser.run("return [...document.querySelectorAll('.chart svg')].filter((s) => s.querySelectorAll('path, text').length < 5).length")
    test.equal(empty, 0, "none of them is empty")
    foreign = [r for r in browser.requests() if not r.startswith(("file:", "data:", "blob:", "about:"))]
    test.equal(foreign, [], "nothing is asked of the network")
    test.equal(browser.errors(), [], "the console has no error")


def names_are_text(test, browser):
    test.equal(browser.run("return window.hacked === undefined"), True, "a script in a model's name does not run")
    test.check(HOSTILE in browser.run("return document.body.textContent"), "and is shown as text")


def filters_and_sorts(test, browser):
    whole = count_of(browser)
    browser.run("""const s = document.querySelector('select[data-factor="experiment"]'); s.value = 'allreduce'; s.dispatchEvent(new Event('change'))""")
    test.equal((whole > 30, count_of(browser)), (True, 7), "the filter leaves its points in the table")
    test.check(browser.wait("return document.getElementById('chart-efficiency').textContent.includes('No point')"), "and in the charts")
    browser.run("""const s = document.querySelector('select[data-factor="experiment"]'); s.value = ''; s.dispatchEvent(new Event('change'))""")
    browser.run("const s = document.getElementById('search'); s.value = 'onebit'; s.dispatchEvent(new Event('input'))")
    test.equal(count_of(browser), 1, "the search finds a word in any column")
    browser.run("const s = document.getElementById('search'); s.value = 'recursive'; s.dispatchEvent(new Event('input'))")
    sort = """const b = [...document.querySelectorAll('th button')].find((b) => b.textContent.startsWith('size_bytes')); b.click();
      const i = [...document.querySelectorAll('th')].findIndex((h) => h.textContent.startsWith('size_bytes'));
      return [document.querySelectorAll('th')[i].getAttribute('aria-sort'), ...[...document.querySelectorAll('tbody tr')].map((r) => r.cells[i].textContent)]"""
    browser.run("document.getElementById('columns').value = 'all'; document.getElementById('columns').dispatchEvent(new Event('change'))")
    table = "#results "
    sort = sort.replace("'th button'", f"'{table}th button'").replace("'th'", f"'{table}th'").replace("'tbody tr'", f"'{table}tbody tr'")
    test.equal(browser.run(sort), ["ascending", "1024", "65536", "4194304"], "a click on a head sorts, numbers as numbers")
    test.equal(browser.run(sort)[:2], ["descending", "4194304"], "and again the other way round")
    browser.run("const s = document.getElementById('search'); s.value = ''; s.dispatchEvent(new Event('input'))")


def downloads(test, browser):
    click = "document.querySelector('#figure-efficiency button[data-as=\"%s\"]').click()"
    browser.run(click % "csv")
    csv = browser.downloaded("efficiency.csv")
    test.check(csv and csv.count(b"\n") == 22 and b"efficiency" in csv.splitlines()[0], "a chart's data as CSV", csv and csv[:200])
    browser.run(click.replace("figure-efficiency", "figure-step_timeline") % "csv")
    csv = browser.downloaded("step_timeline.csv")
    test.check(csv and csv.count(b"\n") == 1 + 18 * 6 and csv.startswith(b"series,ranks,batch_per_rank,kind,name,ready_s,begin_s,end_s,bytes\n"),
               "a line for each span of a step", csv and csv[:200])
    test.check(csv and b"timeline_exposed,1 fc1,,0.00036,0.00051," in csv, "with its times", csv)
    browser.run(click % "svg")
    svg = browser.downloaded("efficiency.svg")
    test.check(svg and svg.startswith(b"<svg"), "a chart as SVG", svg and svg[:100])
    browser.run(click % "png")
    png = browser.downloaded("efficiency.png")
    test.check(png and png.startswith(b"\x89PNG"), "a chart as PNG", png and png[:20])


def looks(test, browser):
    for theme in ("light", "dark"):
        if browser.run("return document.documentElement.dataset.theme") != theme:
            browser.run("document.getElementById('theme').click()")
            browser.wait("return document.querySelector('.chart svg') !== null")
            all_drawn(browser)
        test.equal(browser.run(CONTRAST), [], f"all text has a contrast of 4.5 to 1, {theme}")
    for width, media in ((360, ""), (768, ""), (700, "print"), (1300, "")):
        browser.screen(width, media=media)
        browser.wait("return [...document.querySelectorAll('.chart')].every((c) => c.scrollWidth <= c.clientWidth)", 5)
        for check, script in FITS.items():
            test.equal(browser.run(script), [], f"{check} at {width} pixels{' on paper' * (media == 'print')}")
    browser.run("document.querySelector('.skip').focus()")
    reached = {browser.run("return document.activeElement.className")}
    for _ in range(30):
        browser.press_tab()
        reached.add(browser.run("const a = document.activeElement; return a.id || a.dataset.factor || a.dataset.as || a.className"))
    test.check({"skip", "theme", "experiment", "png", "csv"} <= reached, "the keyboard reaches skip link, theme, filters and downloads", reached)
    unnamed = browser.run("""return [...document.querySelectorAll('button, select, input')].filter((e) => !(e.textContent.trim() || e.labels?.length ||
      e.getAttribute('aria-label'))).length""")
    test.equal(unnamed, 0, "every control has a name for screen readers")
    unlabelled = browser.run("return [...document.querySelectorAll('.chart svg')].filter((s) => !s.querySelector('[aria-label]') && !s.getAttribute('aria-label')).length")
    test.equal(unlabelled, 0, "and every chart of SVG a description")


def in_a_browser(test, page):
    if not shutil.which("chromedriver"):
        print("note   chromedriver is not here (Debian: chromium-driver): the page is not opened")
        return
    import webdriver
    with webdriver.Browser() as browser:
        draws_and_is_quiet(test, browser, page)
        names_are_text(test, browser)
        filters_and_sorts(test, browser)
        downloads(test, browser)
        looks(test, browser)
        test.equal(browser.errors(), [], "the console has no error at the end")


def as_text(test, file):
    done = test.run("report", file, "--csv", "-")
    rows = done.out.splitlines()
    test.check(done.code == 0 and len(rows) == 1 + len(support.points(file)), "--csv has a line for each point", done)
    done = test.run("report", file, "--markdown", "-")
    lines = [json.loads(line) for line in test.run("report", file, "--findings", "-").out.splitlines()]
    test.check(lines and all({"kind", "experiment", "factors", "over", "figures", "probability", "sentence", "next"} == set(f) for f in lines),
               "--findings prints a JSON line for each finding", done)
    test.check(f"- {lines[0]['sentence']}".replace("<", "&lt;") in done.out, "Markdown begins with the first of them", done)
    test.check("<script>" not in done.out, "Markdown has no element from a file", done)
    done = test.run("report", file, "--text")
    test.check(done.code == 0 and "efficiency" in done.out and "busbw" in done.out, "--text prints the tables", done)


def as_pictures(test, file):
    for kind, begins in (("png", b"\x89PNG"), ("svg", b"<svg")):
        done = test.run("report", file, f"--{kind}", test.path(kind), timeout=120)
        pictures = sorted(test.path(kind).glob("*")) if test.path(kind).exists() else []
        test.check(done.code == 0 and len(pictures) >= 17 and all(p.read_bytes().startswith(begins) for p in pictures),
                   f"--{kind} draws every chart without a browser", done)
    picture = test.path("png") / "efficiency.png"
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    test.check(width > 800 and height > 500, f"efficiency.png has {width} x {height} pixels")
    done = test.run("report", file, "--png", test.path("none"), env={"GRADMETER_CHARTS_PYTHON": "/nonexistent"})
    test.check(done.code == 2 and len(done.own_lines) == 1 and "scripts/charts.sh" in done.err, "without vl-convert: one line that says what to do", done)


def compares(test):
    sides = []
    for side, factor in (("before", 1.0), ("after", 1.2)):
        lines = []
        for launch in range(4):
            name = f"{side}{launch}"
            lines.append(run_line(name, time=f"2026-01-01T00:00:{launch:02d}Z"))
            for size in (1024, 4096):
                lines.append(point(name, "allreduce", {"ranks": 8, "size_bytes": size, "algorithm": "ring", "collective": "allreduce", "dtype": "fp32"},
                                   {"time_s": summary(size * 1e-9 * factor * (1 + 0.01 * math.sin(launch + size))), "busbw_bytes_per_s": 1e9}))
        sides.append(write(test.path(f"{side}.jsonl"), lines))
    page = test.path("both.html")
    done = test.run("report", *sides, "-o", page)
    text = page.read_text(encoding="utf-8")
    test.check(done.code == 0 and "2 points: 2 slower" in text, "two files have their ratios on the page", done)
    done = test.run("report", *sides, "--markdown", "-")
    test.check("before.jsonl: All" in done.out and "after.jsonl: All" in done.out, "each file has sentences of its own", done)
    done = test.run("report", sides[0], "--csv", "-")
    test.equal(len(done.out.splitlines()), 9, "launches are rows of their own in CSV")


def launches_are_no_batches(test):
    """Three launches of one configuration differ by what launches do: nothing falls, and nothing wins anything back."""
    lines = []
    for launch, time in enumerate((1.2e-3, 1.0e-3, 1.4e-3)):
        name = f"l{launch}"
        lines.append(run_line(name))
        factors = {"ranks": 8, "model": "mlp:784-64-10", "batch_per_rank": 64, "strategy": "sync", "algorithm": "ring", "codec": "none"}
        lines.append(point(name, "scale", factors, {"time_s": summary(time), "baseline_time_s": 8e-4, "efficiency": 8e-4 / time,
                                                   "efficiency_ci95_low": 0.99 * 8e-4 / time, "efficiency_ci95_high": 1.01 * 8e-4 / time,
                                                   "wire_s": 1e-4, "bound_by": "wire"}))
    done = test.run("report", write(test.path("launches.jsonl"), lines), "--markdown", "-")
    test.check("on 8 ranks: efficiency is 67 % (" in done.out, "launches are merged before anything is said of them", done)
    test.check("wins" not in done.out and "falls" not in done.out, "and are not held against each other", done)


def refusals(test, file):
    for arguments in ((), (test.path("none.jsonl"),), (file, "-o", test.path("no") / "such" / "page.html")):
        done = test.run("report", *arguments)
        test.check(done.code in (2, 3) and len(done.own_lines) == 1, f"report {' '.join(map(str, arguments))}: one line", done)


def pandas_reads(test, file):
    script = "import pandas as pd, sys; d = pd.json_normalize(pd.read_json(sys.argv[1], lines=True).to_dict('records')); print(len(d), 'metrics.efficiency' in d)"
    done = subprocess.run([sys.executable, "-c", script, file], capture_output=True, text=True, check=False)
    if "ModuleNotFoundError" in done.stderr:
        print("note   pandas is not here: reading by it is not tested")
        return
    test.check(done.stdout.split() == [str(len(support.read_lines(file))), "True"], "pandas reads a result file", done.stdout + done.stderr)


def body(test):
    file = write(test.path("all.jsonl"), [run_line("r", cpu=f"a cpu {HOSTILE}"), *scale_points("r"), *other_points("r")])
    page = test.path("page.html")
    done = test.run("report", file, "-o", page)
    test.check(done.code == 0 and page.exists(), "a page is written and its path printed", done)
    refusals(test, file)
    pandas_reads(test, file)
    compares(test)
    launches_are_no_batches(test)
    as_text(test, file)
    if 'id="chart-efficiency"' not in page.read_text(encoding="utf-8"):
        test.check("built without vl-convert" in page.read_text(encoding="utf-8"), "a page without charts says why")
        print("note   this gradmeter was built without vl-convert: charts are not tested")
        return
    as_pictures(test, file)
    in_a_browser(test, page)


support.main(__doc__, body)
