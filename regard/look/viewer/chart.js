// Lines over a pair of axes, for views that show numbers against numbers.
// On a narrow screen it is as wide as the screen, since made smaller its text could not be read.
function chartSize(series) {
  const room = document.documentElement.clientWidth - 24;
  // Names of lines stand on the right, whole.
  const longest = Math.max(...series.map((one) => one.name.length));
  const right = Math.min(Math.max(room < 600 ? 92 : 150, 42 + 7.5 * longest), 0.55 * room);
  return { width: Math.min(760, Math.max(280, room)), height: 240, left: 52, right, top: 12, bottom: 34 };
}

// `series` are { name, points: [[x, y], ...], kind: what headLook gives, onclick, faint }.
function lineChart(series, { x: title, low, high, ticks = null }) {
  const size = chartSize(series);
  const xs = series.flatMap((one) => one.points.map(([x]) => x));
  const ys = series.flatMap((one) => one.points.map(([, y]) => y));
  const [first, last] = [Math.min(...xs), Math.max(...xs)];
  const [bottom, top] = [low ?? Math.min(...ys), high ?? Math.max(...ys)];
  const wide = size.width - size.left - size.right;
  const high_ = size.height - size.top - size.bottom;
  const place = ([x, y]) => [size.left + ((x - first) / (last - first || 1)) * wide, size.top + (1 - (y - bottom) / (top - bottom || 1)) * high_];
  const grid = [0, 0.25, 0.5, 0.75, 1].flatMap((share) => {
    const value = bottom + share * (top - bottom);
    const [, y] = place([first, value]);
    return [drawn("line", { class: "rule", x1: size.left, x2: size.left + wide, y1: y, y2: y }), drawn("text", { class: "tick", x: size.left - 6, y, "text-anchor": "end", "dominant-baseline": "central" }, tidy(value))];
  });
  const below = (ticks ?? [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(first + share * (last - first)))).map((value) => {
    const [x] = place([value, bottom]);
    return drawn("text", { class: "tick", x, y: size.height - size.bottom + 16, "text-anchor": "middle" }, tidy(value));
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
      drawn("line", { class: "series", x1: size.left + wide + 8, x2: size.left + wide + 30, y1: above, y2: above }),
      drawn("text", { class: "tick name", x: size.left + wide + 35, y: above, "dominant-baseline": "central" }, one.name),
    );
  });
  const height = Math.max(size.height, above + 12);
  return drawn(
    "svg",
    { class: "chart", width: size.width, height, viewBox: `0 0 ${size.width} ${height}`, role: "img", "aria-label": `Lines over ${title}` },
    ...grid,
    ...below,
    drawn("text", { class: "tick", x: size.left + wide / 2, y: size.height - 4, "text-anchor": "middle" }, title),
    ...lines,
    ...names,
  );
}

function tidy(value) {
  return Number.isInteger(value) ? value.toLocaleString("en") : Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(2);
}
