// The page's behaviour: charts drawn from their specifications, filters for charts and table, sorting, downloads, theme.
"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const { columns, rows: cells, curve_starts: startCells } = read("data");
  const { charts, varying, palette, units, words } = read("specs");
  const asObjects = (list) => list.map((row) => {
    const object = {};
    row.forEach((value, i) => { if (value !== null) object[columns[i]] = value; });
    return object;
  });
  const rows = asObjects(cells), starts = asObjects(startCells);
  const $ = (id) => document.getElementById(id);
  const pageLength = 100;
  const manyPoints = 1000; // beyond it, drawn as pixels: a thousand marks of SVG make a page slow

  // --- filters

  const chosen = {};
  const passes = (row) => Object.entries(chosen).every(([key, value]) => value === "" || String(row[key]) === value);

  function addFilter(key) {
    const values = [...new Set(rows.filter((row) => row[key] !== undefined).map((row) => String(row[key])))];
    if (values.length < 2) return;
    values.sort((a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b));
    const label = document.createElement("label");
    label.append(words[key] || key);
    const select = document.createElement("select");
    select.dataset.factor = key;
    select.add(new Option("all", ""));
    values.forEach((value) => select.add(new Option(value, value)));
    select.addEventListener("change", () => { chosen[key] = select.value; page = 0; refresh(); });
    label.append(select);
    $("filter-form").append(label);
  }
  ["experiment", "status", ...varying].forEach(addFilter);
  $("filters").hidden = $("filter-form").children.length === 0;
  $("filter-form").addEventListener("submit", (event) => event.preventDefault());

  // --- charts

  const isDark = () => document.documentElement.dataset.theme === "dark";
  // Colours that are too dark for a dark ground, and the colours that replace them there.
  const onDark = { "#5D4A00": "#F0E442", "#000000": "#DDDDDD", "#332288": "#8F84E8", "#882255": "#C9578C", "#117733": "#3BA55D", "#AA4499": "#CC6CBB",
    "#555555": "#DDDDDD", "#DDDDDD": "#5C6370", "#BBBBBB": "#7C8594" };
  const shade = (colour) => (isDark() && onDark[colour]) || colour;
  const colours = () => palette.map(shade);
  const config = (width) => {
    const text = isDark() ? "#ececec" : "#1a1a1a", grid = isDark() ? "#3a3e46" : "#dddddd";
    return {
      background: isDark() ? "#16181c" : "#ffffff", font: "system-ui, sans-serif",
      axis: { labelColor: text, titleColor: text, gridColor: grid, tickColor: grid, domainColor: grid, labelFontSize: 12, titleFontSize: 12,
        labelOverlap: "greedy", labelSeparation: 6 },
      legend: { labelColor: text, titleColor: text, labelFontSize: 12, titleFontSize: 12, labelLimit: Math.min(360, width - 120), orient: "bottom", columns: width < 600 ? 1 : 2, symbolOpacity: 1 },
      header: { labelAnchor: "start", labelFontWeight: "bold", labelColor: text, titleColor: text, labelFontSize: 12, titleFontSize: 12, labelLimit: Math.min(480, width - 110) },
      title: { color: text }, text: { color: text }, view: { stroke: grid }, range: { category: colours() },
      rule: { color: text }, tick: { color: text },
    };
  };
  const inRanges = (list, ranges) => ranges.flatMap((begin, i) => (i % 2 ? [] : list.slice(begin, ranges[i + 1])));
  const rowsOf = (chart) => inRanges(rows, chart.rows).filter(passes);

  function draw(chart) {
    const place = $("chart-" + chart.name);
    const points = rowsOf(chart);
    chart.drawn = true;
    if (points.length === 0) { place.textContent = "No point passes the filter."; return Promise.resolve(); }
    chart.width = place.clientWidth;
    const spec = fitted(chart.spec, chart.width, points, shade);
    const curve = (row) => row.series + "|" + row.panel + "|" + row.batch, drawn = new Set(points.map(curve));
    const begins = inRanges(starts, chart.starts).filter((row) => drawn.has(curve(row)));
    const text = JSON.stringify(chart.spec), used = columns.filter((key) => text.includes(key));
    const lean = (row) => { const out = {}; used.forEach((key) => { if (key in row) out[key] = row[key]; }); return out; };
    spec.data = { name: "points", values: [...begins, ...points].map(lean) };
    const options = { actions: false, mode: "vega-lite", renderer: points.length > manyPoints ? "canvas" : "svg", config: config(chart.width),
      tooltip: { theme: isDark() ? "dark" : "light" } };
    return window.vegaEmbed(place, spec, options).then((result) => {
      chart.view = result.view;
      place.dataset.drawn = "yes";
    });
  }
  function save(name, href) {
    const link = document.createElement("a");
    link.download = name;
    link.href = href;
    document.body.append(link);
    link.click();
    link.remove();
  }
  function saveText(name, text, type) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    save(name, url);
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
  const quoted = (value) => {
    const text = value === undefined ? "" : String(value);
    return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  // Spans are no cell of a table.
  const plain = columns.filter((key) => !rows.some((row) => Array.isArray(row[key])));
  const toCsv = (list) => {
    const used = plain.filter((key) => list.some((row) => key in row));
    return [used, ...list.map((row) => used.map((key) => row[key]))].map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  };
  // A line for each span of a chart that draws them, with the factors of its point.
  const spansToCsv = (chart, list) => {
    const factors = ["series", "ranks", "batch_per_rank"], own = ["name", "ready_s", "begin_s", "end_s", "bytes"];
    const lines = list.flatMap((row) => chart.spans.flatMap((key) => (row[key] || []).map((span) =>
      [...factors.map((factor) => row[factor]), key, ...own.map((part) => span[part])])));
    return [[...factors, "kind", ...own], ...lines].map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  };
  const csvOf = (chart) => (chart.spans.length ? spansToCsv(chart, rowsOf(chart)) : toCsv(rowsOf(chart)));
  const drawsCharts = typeof window.vegaEmbed === "function";
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (!entry.isIntersecting) return;
    seen.unobserve(entry.target);
    draw(charts.find((chart) => "chart-" + chart.name === entry.target.id));
  }), { rootMargin: "600px" });
  charts.forEach((chart) => {
    const figure = $("figure-" + chart.name);
    if (drawsCharts) seen.observe($("chart-" + chart.name));
    const menu = figure.querySelector("details");
    menu.addEventListener("keydown", (event) => { if (event.key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); } });
    figure.querySelectorAll("button").forEach((button) => button.addEventListener("click", async () => {
      if (button.dataset.as === "csv") return saveText(chart.name + ".csv", csvOf(chart), "text/csv");
      if (!chart.view) await draw(chart);
      if (!chart.view) return undefined;
      if (button.dataset.as === "svg") return saveText(chart.name + ".svg", await chart.view.toSVG(), "image/svg+xml");
      return save(chart.name + ".png", await chart.view.toImageURL("png", 2));
    }));
  });
  let resized = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => charts.filter((chart) => chart.drawn && $("chart-" + chart.name).clientWidth !== chart.width).forEach(draw), 200);
  });

  // --- table

  let page = 0, sortKey = null, descending = false;
  const isNumber = new Map(plain.map((key) => [key, rows.every((row) => !(key in row) || typeof row[key] === "number")]));
  const interval = /_ci95_(low|high)$/;
  // Units as in the terminal: what a figure in the file's unit is divided by, and the unit that it is then in.
  const shownIn = { s: [1e-3, "ms"], "B/s": [1e9, "GB/s"], "FLOP/s": [1e9, "GFLOP/s"], share: [0.01, "%"] };
  const unitOf = (key) => shownIn[units[key.replace(/_ci95_(low|high)$/, "")] || units[key]];
  // The words of a key without the unit that is in it: the head has the one that is shown.
  const headOf = (key) => {
    const end = key.match(interval), name = key.replace(interval, ""), shown = unitOf(key);
    const said = (words[name] || name.replace(/_/g, " ")).replace(/ \[[^\]]*\]$/, shown ? "" : "$&");
    return (shown ? said.replace(/ (bytes per s|s)$/, "") : said) + (end ? ", 95 % " + end[1] : "") + (shown ? " [" + shown[1] + "]" : "");
  };
  const cellOf = (key, value) => (value === undefined ? "" : typeof value === "number" && unitOf(key) ? String(Number((value / unitOf(key)[0]).toPrecision(4))) : String(value));
  function shownColumns() {
    const everywhere = $("columns").value === "all";
    const passed = rows.filter(passes);
    return plain.filter((key) => {
      if (["source", "batch"].includes(key) || /_over_links$/.test(key) || (!everywhere && interval.test(key))) return false;
      const values = new Set(passed.map((row) => row[key]));
      return everywhere ? [...values].some((v) => v !== undefined) : values.size > 1 || key === "experiment";
    });
  }
  function found() {
    const word = $("search").value.toLowerCase();
    const list = rows.filter((row) => passes(row) && (word === "" || Object.values(row).some((v) => String(v).toLowerCase().includes(word))));
    if (sortKey !== null) {
      const sign = descending ? -1 : 1;
      list.sort((a, b) => {
        const x = a[sortKey], y = b[sortKey];
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
      });
    }
    return list;
  }
  function head(used) {
    const row = document.createElement("tr");
    used.forEach((key) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      if (!isNumber.get(key)) cell.className = "word";
      cell.setAttribute("aria-sort", sortKey !== key ? "none" : descending ? "descending" : "ascending");
      const button = document.createElement("button");
      button.type = "button";
      button.title = key;
      button.textContent = headOf(key) + (sortKey !== key ? "" : descending ? " ▾" : " ▴");
      button.addEventListener("click", () => {
        descending = sortKey === key && !descending;
        sortKey = key;
        page = 0;
        showTable();
        $("table").querySelectorAll("th button")[used.indexOf(key)].focus();
      });
      cell.append(button);
      row.append(cell);
    });
    const part = document.createElement("thead");
    part.append(row);
    return part;
  }
  function showTable() {
    const list = found(), used = shownColumns();
    const pages = Math.max(1, Math.ceil(list.length / pageLength));
    page = Math.min(page, pages - 1);
    const part = document.createElement("tbody");
    list.slice(page * pageLength, (page + 1) * pageLength).forEach((row) => {
      const line = document.createElement("tr");
      used.forEach((key) => {
        const cell = document.createElement("td");
        cell.textContent = cellOf(key, row[key]);
        if (!isNumber.get(key)) cell.className = key === "reason" ? "word reason" : "word";
        line.append(cell);
      });
      part.append(line);
    });
    $("table").replaceChildren(head(used), part);
    $("count").textContent = list.length + " of " + rows.length + " points";
    $("place").textContent = "page " + (page + 1) + " of " + pages;
    $("previous").disabled = page === 0;
    $("next").disabled = page === pages - 1;
  }
  $("search").addEventListener("input", () => { page = 0; showTable(); });
  $("columns").addEventListener("change", showTable);
  $("previous").addEventListener("click", () => { page -= 1; showTable(); });
  $("next").addEventListener("click", () => { page += 1; showTable(); });
  $("csv").addEventListener("click", () => saveText("points.csv", toCsv(found()), "text/csv"));

  function refresh() {
    showTable();
    if (drawsCharts) charts.filter((chart) => chart.drawn).forEach(draw);
  }

  // --- theme

  function setTheme(dark) {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    $("theme").setAttribute("aria-pressed", String(dark));
    if (drawsCharts) charts.filter((chart) => chart.drawn).forEach(draw);
  }
  $("theme").addEventListener("click", () => setTheme(!isDark()));
  // Paper is light, and has the charts that nobody has scrolled to.
  let wasDark = false;
  window.addEventListener("beforeprint", () => {
    wasDark = isDark();
    if (wasDark) setTheme(false);
    if (drawsCharts) charts.filter((chart) => !chart.drawn).forEach(draw);
  });
  window.addEventListener("afterprint", () => { if (wasDark) setTheme(true); });
  setTheme(window.matchMedia("(prefers-color-scheme: dark)").matches);
  showTable();
  document.documentElement.dataset.ready = "yes";
})();
