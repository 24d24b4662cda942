"use strict";
// Fits a chart's specification into a width [px]: panels below each other, narrower plots, shorter labels, legends on top and
// in place of labels behind curves. `shade` gives a colour's equal on the page's ground.
const fitted = (() => {
  const axisRoom = 86; // of an axis of y with numbers and a title
  const labelRoom = (limit) => limit + 24;
  const narrow = 600;
  const longestName = 260; // behind a curve
  const besideBars = (width) => Math.round((width < narrow ? 0.34 : 0.42) * width);

  function each(value, use) {
    if (value === null || typeof value !== "object") return;
    if (!Array.isArray(value)) use(value);
    Object.values(value).forEach((part) => each(part, use));
  }
  const widthOf = (text) => 6.5 * String(text || "").length; // of a label of 11 or 12 px
  const longest = (rows, field) => Math.max(0, ...rows.map((row) => widthOf(row[field])));
  /** Of the names beside bars: a series', or a batch and a series'. */
  const nameWidth = (y, rows) => longest(rows, "series") + (y.field === "row" ? longest(rows, "batch") + widthOf(", ") : 0);
  /** What stands left of the plot: names, or numbers. */
  function room(spec, rows) {
    const y = spec.encoding && spec.encoding.y, limit = y && y.axis && y.axis.labelLimit;
    if (!limit) return axisRoom;
    if (y.axis.labelAlign === "left") return 8; // above the bars
    return labelRoom(["row", "series"].includes(y.field) ? Math.min(limit, nameWidth(y, rows)) : limit);
  }
  /** What stands right of it: names of curves, figures of bars. */
  function roomBehind(view, rows) {
    const layers = view.layer || [];
    if (hasLegendBeside(view)) return 100;
    if (layers.some(namesCurves)) return longest(rows, "series") + 24;
    if (layers.some((layer) => layer.description === "label")) return 190;
    return layers.some((layer) => layer.mark && layer.mark.align === "left") ? 110 : 0;
  }
  function hasLegendBeside(view) {
    let found = false;
    each(view, (part) => { found = found || (part.legend && part.legend.orient === "right"); });
    return found;
  }
  const namesCurves = (layer) => layer.description === "label" && layer.layer;
  function shortened(spec, width, beside) {
    each(spec, (part) => {
      const room = part.labelAnchor ? width - beside - 8 : besideBars(width); // above a panel, or beside its rows
      if (part.labelLimit) part.labelLimit = Math.min(part.labelLimit, room);
      if (part.legend && part.legend.columns && width < 1000) part.legend.columns = width < narrow ? Math.max(1, Math.floor((width - beside) / 130)) : 4;
      if (!part.legend || width >= narrow) return;
      if (part.legend.orient === "right") Object.assign(part.legend, { orient: "top", direction: "horizontal", gradientLength: Math.round(0.4 * width) });
    });
  }
  /** Of panels whose columns have one width each: as wide as there is place for. */
  function withSteps(spec, width, rows) {
    const view = spec.spec, x = view.encoding.x, key = (x.sort && x.sort.field) || x.field;
    const count = Math.max(1, new Set(rows.map((row) => row[key])).size);
    const beside = room(view, rows), legend = roomBehind(view, rows);
    const step = Math.max(4, Math.min(view.width.step, Math.floor((width - beside - legend) / count)));
    if (view.height.step === view.width.step) view.height = { step };
    view.width = { step };
    spec.columns = Math.max(1, Math.min(spec.columns, Math.floor((width - legend) / (beside + Math.max(step * count + 24, longest(rows, "panel") + 60)))));
  }
  function withPanels(spec, width, rows) {
    const view = spec.spec, beside = room(view, rows) + roomBehind(view, rows);
    if (view.width.step) return withSteps(spec, width, rows);
    if (spec.columns) spec.columns = Math.max(1, Math.min(spec.columns, Math.floor(width / (view.width + beside))));
    view.width = spec.columns === 1 ? Math.min(Math.max(view.width, 760), width - beside) : Math.min(view.width, width - beside);
    return undefined;
  }
  /** Curves have their names behind them where there is place for these, and else a legend. */
  function withLegend(view, width) {
    if (!view.layer || !view.layer.some(namesCurves)) return;
    view.layer = view.layer.filter((layer) => !namesCurves(layer));
    each(view, (part) => { if (part.color && part.color.legend === null) part.color.legend = { columns: 1, labelLimit: width - 120 }; });
  }
  /** Names of bars stand above them where there is no place for them, whole, beside them. */
  function withNamesAbove(spec, width) {
    const axis = spec.encoding.y.axis, step = 38;
    Object.assign(axis, { labelLimit: width - 16, labelFontSize: 11, labelAlign: "left", labelPadding: 0, labelOffset: -17, ticks: false, domain: false, zindex: 1 });
    spec.encoding.y.scale = { paddingInner: 0.5, paddingOuter: 0.3 };
    spec.height = { step };
  }
  function hasLongNames(spec, width, rows) {
    const y = spec.encoding && spec.encoding.y, limit = y && y.axis && y.axis.labelLimit, isBar = spec.height && spec.height.step < 30;
    return isBar && limit >= 400 && (width < narrow || nameWidth(y, rows) > 0.42 * width);
  }

  return (original, width, rows, shade) => {
    const spec = structuredClone(original), view = spec.facet ? spec.spec : spec;
    const above = hasLongNames(view, width, rows);
    each(spec, (part) => { if (part.range && Array.isArray(part.range)) part.range = part.range.map(shade); });
    shortened(spec, width, above ? 8 : Math.min(room(view, rows), labelRoom(besideBars(width))));
    if (width < narrow || longest(rows, "series") > longestName) withLegend(view, width);
    if (above) withNamesAbove(view, width);
    if (spec.facet) withPanels(spec, width, rows);
    else if (spec.width + room(spec, rows) > width) Object.assign(spec, { width, autosize: { type: "fit-x", contains: "padding" } });
    return spec;
  };
})();
