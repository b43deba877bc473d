// Lines over a pair of axes, for views that show numbers against numbers.
const CHART = { width: 760, height: 240, left: 52, right: 150, top: 12, bottom: 34 };

// `series` are { name, points: [[x, y], ...], kind: what headLook gives, onclick, faint }.
function lineChart(series, { x: title, low, high, ticks = null }) {
  const xs = series.flatMap((one) => one.points.map(([x]) => x));
  const ys = series.flatMap((one) => one.points.map(([, y]) => y));
  const [first, last] = [Math.min(...xs), Math.max(...xs)];
  const [bottom, top] = [low ?? Math.min(...ys), high ?? Math.max(...ys)];
  const wide = CHART.width - CHART.left - CHART.right;
  const high_ = CHART.height - CHART.top - CHART.bottom;
  const place = ([x, y]) => [CHART.left + ((x - first) / (last - first || 1)) * wide, CHART.top + (1 - (y - bottom) / (top - bottom || 1)) * high_];
  const grid = [0, 0.25, 0.5, 0.75, 1].flatMap((share) => {
    const value = bottom + share * (top - bottom);
    const [, y] = place([first, value]);
    return [drawn("line", { class: "rule", x1: CHART.left, x2: CHART.left + wide, y1: y, y2: y }), drawn("text", { class: "tick", x: CHART.left - 6, y, "text-anchor": "end", "dominant-baseline": "central" }, tidy(value))];
  });
  const below = (ticks ?? [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(first + share * (last - first)))).map((value) => {
    const [x] = place([value, bottom]);
    return drawn("text", { class: "tick", x, y: CHART.height - CHART.bottom + 16, "text-anchor": "middle" }, tidy(value));
  });
  const lines = series.map((one) =>
    drawn("polyline", {
      class: `series ${one.kind}${one.faint ? " faint" : ""}`,
      points: one.points.map((point) => place(point).map((value) => value.toFixed(1)).join(",")).join(" "),
      "data-name": one.name,
    }),
  );
  // Names stand where their lines end, moved apart where they would lie over each other.
  const ends = series.map((one) => ({ one, y: place(one.points[one.points.length - 1])[1] })).sort((a, b) => a.y - b.y);
  let above = -Infinity;
  const names = ends.map(({ one, y }) => {
    above = Math.max(y, above + 14);
    return drawn(
      "g",
      { class: `${one.kind}${one.faint ? " faint" : ""}`, onclick: one.onclick ?? (() => {}) },
      drawn("line", { class: "series", x1: CHART.left + wide + 8, x2: CHART.left + wide + 30, y1: above, y2: above }),
      drawn("text", { class: "tick name", x: CHART.left + wide + 35, y: above, "dominant-baseline": "central" }, one.name),
    );
  });
  const height = Math.max(CHART.height, above + 12);
  return drawn(
    "svg",
    { class: "chart", width: CHART.width, height, viewBox: `0 0 ${CHART.width} ${height}`, role: "img", "aria-label": `Lines over ${title}` },
    ...grid,
    ...below,
    drawn("text", { class: "tick", x: CHART.left + wide / 2, y: CHART.height - 4, "text-anchor": "middle" }, title),
    ...lines,
    ...names,
  );
}

function tidy(value) {
  return Number.isInteger(value) ? value.toLocaleString("en") : Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2);
}
