# SPDX-License-Identifier: Apache-2.0
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
    """Two layers and six buckets, the first of which is hidden by half, and the last four of which are short."""
    backward = [{"name": "backward 1 dense:10", "begin_s": base / 2, "end_s": base * 0.75},
                {"name": "backward 0 dense:64", "begin_s": base * 0.75, "end_s": base}]
    exchange = [{"name": f"{i} fc{2 - i}", "ready_s": base * (0.75 + i / 4), "begin_s": base * 0.75 + wire * i / 2,
                 "end_s": base * 0.75 + wire * (i + 1) / 2, "bytes": 2560 << i} for i in (0, 1)]
    exchange += [{"name": f"{i} layer{i}.weight … layer{i}.bias", "ready_s": base, "begin_s": base * 0.75 + wire, "end_s": base * 0.76 + wire, "bytes": 64}
                 for i in range(2, 6)]
    return {"exposed_union_s": wire / 2, "timeline_step_s": base + wire, "timeline_rank": 0, "timeline_exchange": exchange,
            "timeline_compute": [{"name": "forward 0 dense:64", "begin_s": 0, "end_s": base / 2}, *backward],
            "timeline_exposed": [{"name": "1 fc1", "begin_s": base, "end_s": base + wire / 2}]}


def scale_points(name, batches=(16, 64, 256), counts=(1, 2, 4, 8)):
    """Efficiency falls with ranks and small batches; most of the loss is on the wire; bf16 gradients win a half of it back."""
    for batch in batches:
        base = batch * 1e-5 + 2e-4
        for ranks in counts:
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
                    "time_s": summary(time), "baseline_time_s": base, "samples_per_s": batch * ranks / time, "efficiency": base / time, "efficiency_ci95_low": base / time * 0.99,
                    "efficiency_ci95_high": base / time * 1.01, "wire_s": wire * 0.9, "wait_s": wire * 0.1, "limit_s": base * 0.8,
                    "bound_by": "wire" if wire else "compute", "slowest_rank": 3, "slowest_host": "n1", **(timeline(base, wire) if wire else {})})


def other_points(name, ranks=6, intervals=40):
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
                    {"time_s": summary(1e-3), "samples_per_s": 8 * 64 / 1e-3, "accuracy": 1 - 0.2 / epoch, "loss": 1 / epoch, "step": 100 * epoch, "epoch": epoch,
                     "staleness": 1.5, "staleness_p99": 4, "staleness_max": 9})
    for algorithm, growth in (("ring", 0.3), ("double-tree", 0.1)):
        for i in range(17):
            time = 1e-3 * (1 + growth * i)
            yield point(name, "predict", {"ranks": 2**i, "model": "mlp:784-64-10", "batch_per_rank": 16, "batch_global": 16 << i, "strategy": "sync",
                                          "algorithm": algorithm},
                        {"predicted": True, "predicted_time_s": time, "ci90_low": 0.8 * time, "ci90_high": 1.2 * time, "efficiency": 1e-3 / time,
                         **({"measured_time_s": 1.05 * time} if i < 3 else {})})
    yield point(name, "allreduce", {"ranks": 2, "size_bytes": 8, "collective": "allreduce"},  # as imported logs are
                {"time_s": 1e-6, "busbw_bytes_per_s": 0.0})
    yield from link_points(name, ranks)
    yield from soak_points(name, ranks, intervals)
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


def soak_points(name, ranks=6, intervals=40):
    for interval in range(intervals):
        for rank in range(ranks):
            slow = 2 if rank == 2 and 10 < interval < 15 else 1
            yield point(name, "soak", {"ranks": ranks, "from_rank": rank, "interval": interval, "size_bytes": 262144, "pattern": "ring"},
                        {"time_s": summary(slow * 1e-3), "elapsed_s": 10.0 * interval, "from_host": host(rank)})


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


# What each variation changes of points that are otherwise the same, for the audit: conditions and choices of every experiment.
VARIATIONS = ({}, {"model": "lenet5"}, {"interconnect": "1gbe"}, {"scaling": "strong"}, {"strategy": "ps-async"}, {"precision": "bf16"},
              {"codec": "qsgd4:bucket=512,ef=off"}, {"codec": "qsgd4:bucket=128,ef=off"}, {"algorithm": "tree"}, {"transport": "shm"}, {"threads": 2}, {"device": "cuda"},
              {"inject": "slow-rank:1"}, {"in_place": True}, {"collective": "allgather"}, {"cache": "cold"}, {"pass": "forward"}, {"distribution": "laplace"}, {"outstanding": 1})


def coded_points(name):
    """Exchanges with and without a codec over two links, and a pass of one batch."""
    for interconnect, rate in (("1gbe", 1.25e8), ("10gbe", 1.25e9)):
        for codec, factor in (("none", 1), ("bf16", 0.5), ("qsgd4:bucket=512,ef=off", 0.13)):
            yield point(name, "allreduce", {"ranks": 2, "nodes": 2, "size_bytes": 65536, "algorithm": "ring", "collective": "allreduce", "dtype": "fp32",
                                           "interconnect": interconnect, "codec": codec, "in_place": False},
                        {"time_s": summary(factor * 65536 / rate), "busbw_bytes_per_s": rate, "link_bytes_per_s": rate})
    yield point(name, "infer", {"ranks": 1, "model": "resnet20", "batch_per_rank": 1, "precision": "fp32"}, {"time_s": summary(1e-3)})


def mixed(path):
    """Rows of two networks, links, machines, builds and so on, which no mark may put together."""
    lines = []
    for run, changed in (("r0", {}), ("commit", {"commit": "c1"}), ("machine", {"fingerprint": "g", "cpu": "another cpu"})):
        lines.append(run_line(run, **changed))
        for variation in VARIATIONS if run == "r0" else ({},):
            of_exchange = set(variation) & {"scaling", "strategy", "codec", "algorithm", "transport"}
            for line in (*scale_points(run, (16, 64), (1, 2, 4)), *other_points(run, 3, 4), *coded_points(run)):
                if line["status"] == "ok" and not (of_exchange and line["factors"].get("ranks") == 1):
                    lines.append({**line, "factors": {**line["factors"], **variation}})
    return write(path, lines)


# For each chart: its marks whose rows differ in a factor that neither an axis of the chart nor a panel, a colour or a label names. Aggregates get
# a count of the different values of each factor; the items of a line, which are rows, are compared; and marks that cover each other are found.
AUDIT = """
const [name, broken] = arguments, read = (id) => JSON.parse(document.getElementById(id).textContent);
const {columns, rows, curve_starts} = read('data'), {charts} = read('specs');
const factors = %s, origin = ['side', 'machine', 'build'];
const follows = {ranks: ['ranks', 'nodes', 'ranks_per_node', 'batch_global'], batch: ['batch_per_rank', 'batch_global'], batch_per_rank: ['batch_per_rank', 'batch_global', 'problem'],
  interconnect: ['interconnect', 'transport', 'nodes', 'ranks_per_node']};
const object = (cells) => Object.fromEntries(columns.map((key, i) => [key, cells[i]]).filter(([, value]) => value !== null));
const taken = (list, ranges) => ranges.flatMap((begin, i) => (i %% 2 ? [] : list.slice(begin, ranges[i + 1]))).map(object);
const of_exchange = ['scaling', 'strategy', 'algorithm', 'codec', 'gradients', 'transport', 'in_place', 'collective'];
const each = (value, use) => { if (value && typeof value === 'object') { if (!Array.isArray(value)) use(value); Object.values(value).forEach((part) => each(part, use)); } };
return (async () => {
  const bad = [];
  for (const found of charts.filter((c) => c.name === name)) {
    const chart = broken ? {...found, spec: broken} : found;
    const named = new Set(chart.along.flatMap((key) => follows[key] || [key])), held = [...factors, ...origin].filter((key) => !named.has(key));
    const data = {name: 'points', values: [...taken(curve_starts, chart.starts), ...taken(rows, chart.rows)]};
    const patch = (spec) => { each(spec, (part) => {
      if (part.type !== 'aggregate' && part.type !== 'joinaggregate') return;
      const counts = !part.ops || part.ops.every((op) => op === 'count'), layout = part.as && part.as.every((name) => name.startsWith('layout_'));
      if (layout) return;
      part.ops = part.ops || ['count']; part.fields = part.fields || [null]; part.as = part.as || ['count'];
      (counts ? origin : held).forEach((key) => { part.ops.push('distinct'); part.fields.push(key); part.as.push('different_' + key); });
    }); return spec; };
    const {view} = await window.vegaEmbed(document.createElement('div'), {...chart.spec, data}, {mode: 'vega-lite', renderer: 'canvas', actions: false, patch});
    const tell = (mark, key, text) => bad.push(chart.name + ': ' + mark.marktype + ' ' + key + ' ' + text);
    const check = (mark) => {
      if (mark.role !== 'mark') return;
      const places = new Set();
      mark.items.forEach((item) => {
        const datum = item.datum || {};
        Object.keys(datum).filter((key) => key.startsWith('different_') && datum[key] > 1).forEach((key) => tell(mark, key, datum[key]));
        if (['symbol', 'rule'].includes(mark.marktype) || (mark.marktype === 'rect' && !(item.width > 3 && item.height > 3))) return;  // ticks
        const place = mark.marktype === 'line' || mark.marktype === 'area' ? [item.x] : [item.x, item.y, item.x2, item.y2, item.width, item.height, item.text];
        const text = place.map((v) => (typeof v === 'number' ? v.toFixed(2) : v)).join();
        if (places.has(text)) tell(mark, 'covers another at', text);
        places.add(text);
      });
      if (mark.marktype !== 'line' && mark.marktype !== 'area') return;
      held.forEach((key) => {
        const list = mark.items.filter((item) => !('different_' + key in item.datum) && !(item.datum.ranks === 1 && of_exchange.includes(key))).map((item) => JSON.stringify(item.datum[key]));
        if (new Set(list).size > 1) tell(mark, key, [...new Set(list)].join(' and '));
      });
    };
    const walk = (group) => group.items.forEach((item) => { if (item.marktype) { check(item); if (item.marktype === 'group') item.items.forEach(walk); } });
    walk(view.scenegraph().root.items[0]);
    view.finalize();
  }
  return [...new Set(bad)];
})();"""


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
    test.equal(charts, len(files) - 4, "each chart but those of comparisons, codecs on links, two rank counts and one batch has points")
    test.equal(all_drawn(browser), [], "every chart draws")
    empty = browser.run("return [...document.querySelectorAll('.chart svg')].filter((s) => s.querySelectorAll('path, text').length < 5).length")
    test.equal(empty, 0, "none of them is empty")
    foreign = [r for r in browser.requests() if not r.startswith(("file:", "data:", "blob:", "about:"))]
    test.equal(foreign, [], "nothing is asked of the network")
    test.equal(browser.errors(), [], "the console has no error")


# A best over whatever is not on the map, as no chart may be.
BEST_OF_ALL = {"transform": [{"aggregate": [{"op": "max", "field": "efficiency", "as": "best"}], "groupby": ["ranks", "batch_per_rank"]}],
               "mark": "rect", "encoding": {"x": {"field": "batch_per_rank", "type": "ordinal"}, "y": {"field": "ranks", "type": "ordinal"}, "color": {"field": "best"}}}
# A line through rows of all networks.
ONE_LINE = {"mark": "line", "encoding": {"x": {"field": "ranks", "type": "quantitative"}, "y": {"field": "efficiency", "type": "quantitative"}}}


def no_mark_crosses(test, browser):
    """No mark stands for rows that differ in a factor which its chart does not name."""
    page = test.path("mixed.html")
    done = test.run("report", mixed(test.path("mixed.jsonl")), "-o", page)
    test.check(done.code == 0, "rows of many kinds make a page", done)
    browser.open(page)
    browser.wait("return document.documentElement.dataset.ready === 'yes'")
    listed = test.run("list", "factors").out
    factors = [line.split("(")[1].split(",")[0] for line in (test.source / "src/core/result_keys.inc").read_text(encoding="utf-8").splitlines()
               if line.startswith("GRADMETER_FACTOR(")]
    test.check(len(factors) > 40 and all(factor in listed for factor in factors), "the factors are known")
    test.equal(all_drawn(browser), [], "every chart of them draws")
    alike = browser.run("""return [...document.querySelectorAll('#chart-decomposition .role-axis-label, #chart-throughput .role-legend-label, #chart-throughput .role-legend')]
            .flatMap((g) => { const list = [...g.querySelectorAll('text')].map((t) => t.textContent).filter((t) => t.endsWith('…')); return list.filter((t, i) => list.indexOf(t) < i); })""")
    test.equal(alike, [], "no two names are shortened to the same")
    audit = AUDIT % json.dumps(factors)
    names = browser.run("return JSON.parse(document.getElementById('specs').textContent).charts.map((c) => c.name)")
    every = {p.stem for p in (test.source / "src/report/page/charts").glob("*.json")}
    test.equal(every - set(names), {"ratio"}, "every chart is looked at but that of comparisons, whose marks are a row each")
    for name in names:
        test.equal(browser.run(audit, name, None), [], f"{name} crosses no factor that it does not name")
    found = browser.run(audit, "heat_map", BEST_OF_ALL)
    test.check(any("model" in f for f in found) and any("interconnect" in f for f in found), "a best of all networks and links is found", found)
    found = browser.run(audit, "efficiency", ONE_LINE)
    test.check(any("model" in f for f in found) and any("machine" in f for f in found), "and a line through networks and machines", found)
    test.equal(browser.errors(), [], "the console has no error")


def map_points(name):
    """Three networks of very different efficiency, and one whose efficiency cannot be."""
    for model, share, more in (("mlp:784-64-10", 0.40, {}), ("lenet5", 0.63, {"noise_run_delay": 0.4}), ("resnet20", 2.56, {}), ("transformer", 0.03, {})):
        for batch in (16, 64):
            interval = {} if share > 1 else {"efficiency_ci95_low": share * 0.9, "efficiency_ci95_high": share * 1.1}
            yield point(name, "scale", {"ranks": 2, "model": model, "batch_per_rank": batch, "precision": "fp32", "strategy": "sync", "algorithm": "ring"},
                        {"time_s": summary(1e-3), "baseline_time_s": 5e-4, "efficiency": share, **interval, **more})
    yield point(name, "scale", {"ranks": 2, "model": "lenet5", "batch_per_rank": 256, "precision": "fp32", "strategy": "sync", "algorithm": "ring"},
                {"time_s": summary(1e-3), "baseline_time_s": 5e-4, "efficiency": 0.7}, "mistrusted", "clocks jumped")


def maps_tell_networks_apart(test, browser):
    page = test.path("map.html")
    test.run("report", write(test.path("map.jsonl"), [run_line("m"), *map_points("m")]), "-o", page)
    browser.open(page)
    test.equal(all_drawn(browser), [], "every chart of four networks draws")
    texts = browser.run("return [...document.querySelectorAll('#chart-heat_map svg text')].map((t) => t.textContent)")
    for panel in ("2 ranks, mlp:784-64-10", "2 ranks, lenet5", "2 ranks, resnet20", "2 ranks, transformer"):
        test.equal(texts.count(panel), 1, f"a map for {panel}")
    for figure, count in (("40 %", 2), ("63 % ?", 2), ("256 % ?", 2), ("3 %", 2), ("36–44", 2), ("70 % ?", 1)):
        test.equal(texts.count(figure), count, f"cells say {figure}")
    rows = browser.run("const d = JSON.parse(document.getElementById('data').textContent), i = d.columns.indexOf('doubt'); return [...new Set(d.rows.map((r) => r[i]))]")
    test.equal(set(rows), {None, "disturbed", "above 100 %; no interval", "mistrusted: clocks jumped; no interval"}, "and why they are in doubt")


def findings_of(test, file):
    return [json.loads(line) for line in test.run("report", file, "--findings", "-").out.splitlines()]


def leads(test, browser, file):
    """The order of the page, its large figures, its colours."""
    lead = browser.run("const s = document.querySelector('main > section'); return [...s.querySelectorAll('.figures > div')].map((f) => f.textContent)")
    test.equal(lead, ["efficiency on 8 ranks91 % 90–92", "of the lost time: the wire90 % 0.24 of 0.26 ms", "of all ranks together678k samples/s"], "three large figures lead")
    test.check("batch 256, gradients in bf16" in browser.run("return document.querySelector('.figures + .summary').textContent"), "and say of which point they are")
    test.equal(browser.run("return document.querySelector('.verdict').textContent"), findings_of(test, file)[0]["sentence"],
               "then the most important sentence")
    order = browser.run("return [...document.querySelectorAll('.chart')].map((c) => c.id.slice(6))")
    test.equal(order[:6], ["decomposition", "step_timeline", "efficiency", "throughput", "speedup", "heat_map"], "the charts' order")
    test.equal(browser.run("return [...document.querySelectorAll('#chart-efficiency svg .role-row-title, #chart-efficiency svg text')].map((t) => t.textContent).filter((t) => /^batch/.test(t))"),
               ["batch 16", "batch 64", "batch 256"], "panels ascend")
    lanes = browser.run("""return [...document.querySelectorAll('#chart-step_timeline svg .role-axis-label text')].filter((t) => /^[0-5] /.test(t.textContent))
      .map((t) => t.getAttribute('opacity'))""")
    test.equal(lanes, ["1"] * 24, "each bucket of the four steps has its name")
    names = browser.run("return [...document.querySelectorAll('#chart-throughput svg text')].map((t) => t.textContent)")
    test.equal((names.count("gradients in bf16"), names.count("synchronous SGD")), (3, 4), "curves have their names behind them")
    colours = browser.run("""const out = {}; JSON.parse(document.getElementById('specs').textContent).charts.forEach((c) => { const look = (p) => { if (!p || typeof p !== 'object') return;
      if (p.color && /^series/.test(p.color.field || '')) p.color.scale.domain.forEach((s, i) => (out[s] = out[s] || []).push(p.color.scale.range[i])); Object.values(p).forEach(look); };
      look(c.spec); }); return Object.values(out).map((list) => new Set(list).size)""")
    test.check(len(colours) > 5 and set(colours) == {1}, "a series has one colour on the whole page", colours)
    heads = browser.run("return [...document.querySelectorAll('#table th')].map((t) => t.textContent)")
    test.check({"time [ms]", "efficiency [%]", "bus bandwidth [GB/s]", "mini-batch of a rank"} <= set(heads), "the table's heads are words, with the terminal's units", heads)
    test.check(str(test.path("all.jsonl")) not in browser.run("return document.body.textContent"), "no path is shown")


def names_are_text(test, browser):
    test.equal(browser.run("return window.hacked === undefined"), True, "a script in a model's name does not run")
    test.check(HOSTILE in browser.run("return document.body.textContent"), "and is shown as text")


def filters_and_sorts(test, browser):
    whole = count_of(browser)
    labels = browser.run("return [...document.querySelectorAll('#filter-form label')].map((l) => l.firstChild.textContent)")
    test.check("mini-batch of a rank" in labels and not any("_" in label for label in labels), "filters are named in words", labels)
    browser.run("""const s = document.querySelector('select[data-factor="experiment"]'); s.value = 'allreduce'; s.dispatchEvent(new Event('change'))""")
    test.equal((whole > 30, count_of(browser)), (True, 7), "the filter leaves its points in the table")
    test.check(browser.wait("return document.getElementById('chart-efficiency').textContent.includes('No point')"), "and in the charts")
    browser.run("""const s = document.querySelector('select[data-factor="experiment"]'); s.value = ''; s.dispatchEvent(new Event('change'))""")
    browser.run("const s = document.getElementById('search'); s.value = 'onebit'; s.dispatchEvent(new Event('input'))")
    test.equal(count_of(browser), 1, "the search finds a word in any column")
    browser.run("const s = document.getElementById('search'); s.value = 'recursive'; s.dispatchEvent(new Event('input'))")
    sort = """const b = [...document.querySelectorAll('th button')].find((b) => b.title === 'size_bytes'); b.click();
      const i = [...document.querySelectorAll('th')].findIndex((h) => h.firstChild.title === 'size_bytes');
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
    test.check(csv and csv.count(b"\n") == 1 + 18 * 10 and csv.startswith(b"series,ranks,batch_per_rank,kind,name,ready_s,begin_s,end_s,bytes\n"),
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
        reached.add(browser.run("const a = document.activeElement; return a.id || a.dataset.factor || a.localName"))
    test.check({"skip", "theme", "experiment", "summary"} <= reached, "the keyboard reaches skip link, theme, filters and downloads", reached)
    browser.run("const d = document.querySelector('.tools'); d.querySelector('summary').focus(); d.querySelector('summary').click()")
    browser.press_tab()
    test.equal(browser.run("return document.activeElement.dataset.as"), "png", "and the kinds of download in their menu")
    browser.run("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))")
    test.equal(browser.run("return [document.querySelector('.tools').open, document.activeElement.localName]"), [False, "summary"], "Escape closes the menu")
    unnamed = browser.run("""return [...document.querySelectorAll('button, select, input')].filter((e) => !(e.textContent.trim() || e.labels?.length ||
      e.getAttribute('aria-label'))).length""")
    test.equal(unnamed, 0, "every control has a name for screen readers")
    unlabelled = browser.run("return [...document.querySelectorAll('.chart svg')].filter((s) => !s.querySelector('[aria-label]') && !s.getAttribute('aria-label')).length")
    test.equal(unlabelled, 0, "and every chart of SVG a description")


def in_a_browser(test, page, file):
    if not shutil.which("chromedriver"):
        print("note   chromedriver is not here (Debian: chromium-driver): the page is not opened")
        return
    import webdriver
    with webdriver.Browser() as browser:
        draws_and_is_quiet(test, browser, page)
        leads(test, browser, file)
        names_are_text(test, browser)
        filters_and_sorts(test, browser)
        downloads(test, browser)
        looks(test, browser)
        maps_tell_networks_apart(test, browser)
        no_mark_crosses(test, browser)
        test.equal(browser.errors(), [], "the console has no error at the end")


def as_text(test, file):
    done = test.run("report", file, "-o", "/proc/report.html")  # where nobody may create a file, not even root
    test.check(done.code == 2 and len(done.own_lines) == 1 and "cannot be written" in done.err and "by -o" in done.err and not done.out,
               "a page in a folder that takes none ends with 2 and one line: what, why, what to do", done)
    done = test.run("report", file, "--csv", "-")
    rows = done.out.splitlines()
    test.check(done.code == 0 and len(rows) == 1 + len(support.points(file)), "--csv has a line for each point", done)
    done = test.run("report", file, "--markdown", "-")
    lines = findings_of(test, file)
    test.check(lines and all({"kind", "experiment", "factors", "over", "figures", "probability", "sentence", "next"} == set(f) for f in lines),
               "--findings prints a JSON line for each finding", done)
    test.check(f"- {lines[0]['sentence']}".replace("<", "&lt;") in done.out, "Markdown begins with the first of them", done)
    test.check("<script>" not in done.out, "Markdown has no element from a file", done)
    test.check("| mini-batch of a rank |" in done.out and "batch_per_rank" not in done.out, "its tables' heads are in words", done)
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
    test.check("- before: All" in done.out and "- after: All" in done.out, "each file has sentences of its own, by its label", done)
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
    in_a_browser(test, page, file)


support.main(__doc__, body)
