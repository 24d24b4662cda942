"use strict";
// Fits a chart's specification into a width [px]: panels below each other, narrower plots, shorter labels, legends on top.
const fitted = (() => {
  const axisRoom = 80; // of an axis of y with numbers and a title
  const labelRoom = (limit) => limit + 24;
  const narrow = 600;

  function each(value, use) {
    if (value === null || typeof value !== "object") return;
    if (!Array.isArray(value)) use(value);
    Object.values(value).forEach((part) => each(part, use));
  }
  /** What stands left of the plot: names, or numbers. */
  function room(spec) {
    let limit = 0;
    each(spec, (part) => { if (part.y && part.y.axis && part.y.axis.labelLimit) limit = Math.max(limit, part.y.axis.labelLimit); });
    return limit === 0 ? axisRoom : labelRoom(limit);
  }
  function shortened(spec, width) {
    each(spec, (part) => {
      if (part.labelLimit) part.labelLimit = Math.min(part.labelLimit, Math.round(0.42 * width));
      if (part.legend && part.legend.columns && width < 1000) part.legend.columns = width < narrow ? 2 : 4;
      if (!part.legend || width >= narrow) return;
      if (part.legend.orient === "right") Object.assign(part.legend, { orient: "top", direction: "horizontal", gradientLength: Math.round(0.4 * width) });
    });
  }
  /** Of panels whose columns have one width each: as wide as there is place for. */
  function withSteps(spec, width, rows) {
    const view = spec.spec, x = view.encoding.x, key = (x.sort && x.sort.field) || x.field;
    const count = Math.max(1, new Set(rows.map((row) => row[key])).size);
    const step = Math.max(4, Math.min(view.width.step, Math.floor((width - room(view)) / count)));
    if (view.height.step === view.width.step) view.height = { step };
    view.width = { step };
    spec.columns = Math.max(1, Math.min(spec.columns, Math.floor(width / (step * count + room(view)))));
  }
  function withPanels(spec, width, rows) {
    const view = spec.spec;
    if (view.width.step) return withSteps(spec, width, rows);
    if (spec.columns) spec.columns = Math.max(1, Math.min(spec.columns, Math.floor(width / (view.width + room(view)))));
    view.width = Math.min(view.width, width - room(view));
    return undefined;
  }
  /** Long names of bars stand above them where there is no place beside them. */
  function withNamesAbove(spec, width) {
    const axis = spec.encoding.y.axis, step = 36;
    Object.assign(axis, { labelLimit: width - 16, labelFontSize: 11, labelAlign: "left", labelPadding: 0, labelOffset: -17, ticks: false, domain: false, zindex: 1,
      labelExpr: "replace(datum.label, regexp(' [a-z_]+=', 'g'), ' ')" });
    spec.encoding.y.scale = { paddingInner: 0.5, paddingOuter: 0.3 };
    spec.height = { step };
  }
  const hasLongNames = (spec) => spec.encoding && spec.encoding.y && spec.encoding.y.axis && spec.encoding.y.axis.labelLimit >= 400;

  return (original, width, rows) => {
    const spec = structuredClone(original);
    const above = width < narrow && hasLongNames(spec);
    shortened(spec, width);
    if (above) withNamesAbove(spec, width);
    if (spec.facet) withPanels(spec, width, rows);
    else if (spec.hconcat) {
      const whole = spec.hconcat.reduce((sum, view) => sum + view.width + axisRoom, 0);
      spec.hconcat.forEach((view) => { view.width = Math.min(view.width, width - axisRoom); });
      if (whole > width) {
        spec.vconcat = spec.hconcat;
        delete spec.hconcat;
      }
    } else if (spec.width + room(spec) > width) Object.assign(spec, { width, autosize: { type: "fit-x", contains: "padding" } });
    return spec;
  };
})();
