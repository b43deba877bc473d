// The units of a recurrence over time: every unit of a gate or state as a line of a heat map, sorted by what it does, and
// the text shaded by one of them.
addView({
  name: "units",
  title: "Units",
  help: "Each line is a unit of a recurrent cell, over the steps from left to right. Sort them by a feature to find the units that track it; click a unit to read it along the text.",
  draw: drawUnits,
  shown: (sentence) => Boolean(sentence.recurrences?.length),
  needs: () => [],
  bare: true,
  steps: "one unit",
  step: (state, by) => {
    const { order } = unitsOf(sentenceOf(state));
    const here = order.indexOf(units.unit);
    units.unit = order[Math.min(Math.max(here + by, 0), order.length - 1)];
  },
});

const units = { cell: 0, part: null, sort: "number", unit: null };
const LETTERS = {
  i: "input gate i", f: "forget gate f", o: "output gate o", g: "candidate g", c: "cell c", h: "state h", z: "update gate z",
  m: "memory read m", n: "memory cell n", decay: "decay per step", kept: "share kept", mean: "weighted mean",
};
const UNIT_ROWS = 900; // pixels of height, where the units are few enough

function partTitle(cell, part) {
  if (part.name === "r") return cell.parts.some((one) => one.name === "z") ? "reset gate r" : "gate r";
  return LETTERS[part.name] ?? part.name;
}

// What is chosen, its values step by step, and the units in the order asked for with what they were sorted by.
function unitsOf(sentence) {
  const cell = sentence.recurrences[Math.min(units.cell, sentence.recurrences.length - 1)];
  const part = cell.parts.find((one) => one.name === units.part) ?? cell.parts.find((one) => one.name === "c") ?? cell.parts[0];
  const [steps, count] = part.values.shape;
  const values = rangeOf(part.values);
  const features = (sentence.features ?? []).filter((one) => one.side === cell.steps);
  const feature = features.find((one) => `tracks ${one.name}` === units.sort);
  const scores = unitScores(values, steps, count, feature?.values ?? null, units.sort);
  const order = Array.from({ length: count }, (_, unit) => unit);
  if (scores) order.sort((a, b) => Math.abs(scores[b]) - Math.abs(scores[a]) || a - b);
  if (!order.includes(units.unit)) units.unit = order[0];
  return { cell, part, steps, count, values, features, feature, scores, order };
}

// By a feature: each unit's correlation with it. By what it does: its mean, or how much it changes.
function unitScores(values, steps, count, feature, sort) {
  if (!feature && sort !== "mean" && sort !== "change") return null;
  const means = new Float64Array(count);
  for (let index = 0; index < values.length; index += 1) means[index % count] += values[index] / steps;
  if (sort === "mean") return means;
  const middle = feature ? feature.reduce((sum, one) => sum + one, 0) / steps : 0;
  const [together, own] = [new Float64Array(count), new Float64Array(count)];
  let given = 0;
  for (let step = 0; step < steps; step += 1) {
    const away = feature ? feature[step] - middle : 0;
    given += away * away;
    for (let unit = 0; unit < count; unit += 1) {
      const value = values[step * count + unit] - means[unit];
      own[unit] += value * value;
      together[unit] += value * away;
    }
  }
  if (!feature) return own.map((one) => Math.sqrt(one / steps));
  return together.map((one, unit) => (own[unit] * given > 1e-24 ? one / Math.sqrt(own[unit] * given) : 0));
}

function drawUnits(root, state) {
  const sentence = sentenceOf(state);
  const found = unitsOf(sentence);
  const { cell, part, steps, count, values, features, feature, scores, order } = found;
  const labels = labelsOf(sentence[cell.steps]);
  const set = (part_) => () => (Object.assign(units, part_), change({}));
  const select = (label, key, options, chosen, choose) =>
    element(
      "label",
      {},
      element("span", { class: "muted" }, label),
      element("select", { "data-key": key, onchange: (event) => set(choose(event.target.value))() }, ...options.map(([value, name]) => element("option", { value, selected: value === chosen }, name))),
    );
  const sorts = [["number", "their number"], ["mean", "mean"], ["change", "change over time"], ...features.map((one) => [`tracks ${one.name}`, `tracking: ${one.name}`])];
  const sort = sorts.some(([value]) => value === units.sort) ? units.sort : "number";
  const search = element("input", { type: "search", inputmode: "numeric", placeholder: "number", "aria-label": "Unit", "data-key": "unit-search", size: 6, onchange: (event) => find(event.target.value) });
  const find = (text) => {
    const wanted = Number(text);
    if (text.trim() && Number.isInteger(wanted) && wanted >= 0 && wanted < count) set({ unit: wanted })();
    else readout.textContent = `There is no unit ${text}: they run from 0 to ${count - 1}.`;
  };
  const readout = element("p", { class: "readout", role: "status" });
  const extent = part.gate ? 1 : Math.max(Math.abs(part.values.low), Math.abs(part.values.high), 1e-9);
  const ramp = part.gate ? "weight" : "signed";
  const map = unitMap(root, found, extent, ramp, labels, readout, (unit) => set({ unit })());
  const score = (unit) => (scores ? ` ${scores[unit].toFixed(2)}` : "");
  root.append(
    element(
      "div",
      { class: "unit-choice" },
      select("Cell ", "unit-cell", sentence.recurrences.map((one, index) => [String(index), one.name]), String(sentence.recurrences.indexOf(cell)), (value) => ({ cell: Number(value) })),
      select("Part ", "unit-part", cell.parts.map((one) => [one.name, partTitle(cell, one)]), part.name, (value) => ({ part: value })),
      select("Sorted by ", "unit-sort", sorts, sort, (value) => ({ sort: value, unit: null })),
      element("label", {}, element("span", { class: "muted" }, "Unit "), search),
      legend(part.gate ? "0" : `−${extent.toFixed(2)}`, part.gate ? "1" : extent.toFixed(2), ramp),
    ),
    element("p", { class: "muted edit-note" }, feature ? `Sorted by how each unit's ${partTitle(cell, part)} goes with “${feature.name}”: the correlation over ${steps} steps.` : `${partTitle(cell, part)} of ${count} units over ${steps} steps.`),
    element("div", { class: "chips", role: "group", "aria-label": "The first units in this order" }, ...order.slice(0, 8).map((unit) => element("button", { type: "button", class: "chip", "aria-pressed": String(unit === units.unit), "data-key": `unit-${unit}`, onclick: set({ unit }) }, `unit ${unit}${score(unit)}`))),
    readout,
    map,
    element("h4", {}, `Unit ${units.unit} along the text${scores ? `: ${feature ? "correlation" : sort}${score(units.unit)}` : ""}`),
    unitText(values, steps, count, units.unit, labels, extent, ramp),
  );
  if (feature) root.append(element("h4", {}, `“${feature.name}” along the text`), unitText(Float32Array.from(feature.values), steps, 1, 0, labels, Math.max(...feature.values.map(Math.abs), 1e-9), "weight"));
}

// The whole map is one image, made once, which the browser scrolls.
function unitMap(root, { steps, count, values, order }, extent, ramp, labels, readout, choose) {
  const sorted = new Float32Array(count * steps);
  order.forEach((unit, row) => {
    for (let step = 0; step < steps; step += 1) sorted[row * steps + step] = values[step * count + unit];
  });
  const canvas = paint(element("canvas", { class: "unit-map", role: "img", tabindex: 0, "data-key": "unit-map", "aria-label": `${count} units over ${steps} steps` }), steps, count, sorted, { ramp, extent });
  const height = Math.max(2, Math.min(14, Math.floor(UNIT_ROWS / count)));
  const width = Math.max(1, Math.min(26, Math.floor((root.clientWidth - 12) / steps)));
  canvas.style.setProperty("width", `${steps * width}px`);
  canvas.style.setProperty("height", `${count * height}px`);
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const place = (share, many) => Math.min(many - 1, Math.max(0, Math.floor(share * many)));
    return { row: place((event.clientY - box.top) / box.height, count), step: place((event.clientX - box.left) / box.width, steps) };
  };
  canvas.addEventListener("pointermove", (event) => {
    const { row, step } = at(event);
    readout.replaceChildren(`unit ${order[row]} after “`, element("bdi", {}, labels[step]), `” (step ${step + 1}): `, element("strong", {}, sorted[row * steps + step].toFixed(3)));
  });
  canvas.addEventListener("click", (event) => choose(order[at(event).row]));
  return element("div", { class: "scroll unit-frame" }, canvas);
}

// The text, every piece on the colour of what the unit is after reading it.
function unitText(values, steps, count, unit, labels, extent, ramp) {
  const shades = palette(ramp).shades;
  const spans = labels.map((label, step) => {
    const value = values[step * count + unit];
    const colour_ = shades[level(ramp === "signed" ? 0.5 + value / (2 * extent) : value / extent)];
    return element("span", { class: "shade", title: value.toFixed(3), "data-value": value.toFixed(3), style: { background: `rgb(${colour_.join(" ")})`, color: inkOn(colour_) } }, label);
  });
  return element("p", { class: "shaded unit-text" }, ...spans);
}
