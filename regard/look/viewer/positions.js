// The view of positions: the encoding as a heat map, how alike positions are, and how one becomes another by a rotation.
addView({
  name: "positions",
  title: "Positions",
  help: "How the model knows where a token stands. Move the offset to see the turn that leads from each position to another.",
  draw: drawPositions,
  shown: () => Boolean(regard.document.positions?.length),
  needs: () => [],
  bare: true,
});

const placeState = { table: 0, offset: 3, from: 5 };

const KINDS = {
  sinusoidal: "Sines and cosines: each pair of features turns at a speed of its own, from fast on the left to slow on the right.",
  learned: "Learned: every position has a vector of its own, found in training.",
  linear: "Linear: one number that grows with the position.",
  rotary: "Rotary: queries and keys are turned by these sines and cosines, so that their product depends on the distance alone.",
  relative: "Relative: nothing is added to tokens; each head adds to a score a number it has learnt for the distance.",
  alibi: "ALiBi: nothing is added to tokens; each head takes its slope times the distance off the scores.",
};

function drawPositions(root) {
  const all = regard.document.positions;
  const places = all[Math.min(placeState.table, all.length - 1)];
  if (all.length > 1) {
    root.append(element("p", { class: "neuron-choice" }, picker2("Of", "table", all.map((one) => `${one.name || one.kind} (${one.kind})`), placeState.table)));
  }
  root.append(element("p", {}, KINDS[places.kind]));
  if (places.kind === "alibi" || places.kind === "relative") {
    drawSlopes(root, places);
    return;
  }
  const [rows, columns] = places.table.shape;
  const values = numbersOf(places.table);
  const extent = extentOf(places.table);
  const readout = element("p", { class: "readout", role: "status" }, `${rows} positions, ${columns} features.`);
  const picture = paint(element("canvas", { class: "places", role: "img", "aria-label": "The encoding: one row per position" }), columns, rows, values, { ramp: "signed", extent });
  const alike = similarity(values, rows, columns);
  const pairs = paint(element("canvas", { class: "places", role: "img", "aria-label": "How alike positions are" }), rows, rows, alike, { ramp: "signed", extent: 1 });
  const follow = (canvas, width, height, say) =>
    canvas.addEventListener("mousemove", (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.min(width - 1, Math.floor(((event.clientX - box.left) / box.width) * width));
      const row = Math.min(height - 1, Math.floor(((event.clientY - box.top) / box.height) * height));
      readout.textContent = say(row, column);
    });
  follow(picture, columns, rows, (row, column) => `position ${row}, feature ${column}: ${values[row * columns + column].toFixed(4)}`);
  follow(pairs, rows, rows, (row, column) => `positions ${row} and ${column}: cosine ${alike[row * rows + column].toFixed(4)}`);
  root.append(
    readout,
    element(
      "div",
      { class: "places-pair" },
      element("figure", {}, element("h4", {}, "The encoding: one row per position, one column per feature"), picture, legend(`−${extent.toFixed(2)}`, extent.toFixed(2), "signed")),
      element("figure", {}, element("h4", {}, "How alike positions are (cosine)"), pairs, legend("−1", "1", "signed")),
    ),
  );
  drawByDistance(root, alike, rows);
  if (places.pairs.length) drawTurns(root, places, values, rows, columns);
  else root.append(element("p", { class: "muted" }, "These positions promise no turn: nothing says that one offset is the same change everywhere."));
}

function picker2(label, name, choices, chosen) {
  const options = choices.map((choice, index) => element("option", { value: index, selected: index === chosen }, choice));
  return element("label", {}, element("span", { class: "muted" }, `${label} `), element("select", { "data-key": `place-${name}`, onchange: (event) => ((placeState[name] = Number(event.target.value)), change({})) }, ...options));
}

// Cosines between all rows of a table.
function similarity(values, rows, columns) {
  const lengths = Array.from({ length: rows }, (_, row) => Math.hypot(...values.subarray(row * columns, (row + 1) * columns)) || 1);
  const found = new Float64Array(rows * rows);
  for (let one = 0; one < rows; one += 1) {
    for (let other = 0; other <= one; other += 1) {
      let sum = 0;
      for (let j = 0; j < columns; j += 1) sum += values[one * columns + j] * values[other * columns + j];
      found[one * rows + other] = found[other * rows + one] = sum / (lengths[one] * lengths[other]);
    }
  }
  return found;
}

// The mean over all pairs of positions so far apart, as a line.
function drawByDistance(root, alike, rows) {
  const means = Array.from({ length: rows }, (_, distance) => {
    let sum = 0;
    for (let row = 0; row + distance < rows; row += 1) sum += alike[row * rows + row + distance];
    return sum / (rows - distance);
  });
  const points = means.map((value, distance) => [distance, value]);
  root.append(element("h4", {}, "How alike, by distance"), lineChart([{ name: "mean cosine", points, kind: headLook(0) }], { x: "distance", low: Math.min(0, ...means), high: 1 }));
}

// Position i and i + d of some pairs on their circles, and how exactly the turn by d leads from one to the other.
function drawTurns(root, places, values, rows, columns) {
  const { pairs, angles } = places;
  const offset = Math.min(placeState.offset, rows - 1);
  const from = Math.min(placeState.from, rows - 1 - offset);
  const slide = (name, label, value, most) =>
    element("label", {}, element("span", { class: "muted" }, `${label} `), element("input", { type: "range", min: 0, max: most, value, "data-key": `place-${name}`, onchange: (event) => ((placeState[name] = Number(event.target.value)), change({})) }), ` ${value}`);
  const step = Math.max(1, Math.floor(pairs.length / 6));
  const shown = [0, 1, 2, 3, 4, 5].map((index) => index * step).filter((index) => index < pairs.length);
  let worst = 0;
  for (let row = 0; row + offset < rows; row += 1) {
    pairs.forEach(([sine, cosine], pair) => {
      const [s, c] = [values[row * columns + sine], values[row * columns + cosine]];
      const angle = angles[pair] * offset;
      const turned = [s * Math.cos(angle) + c * Math.sin(angle), c * Math.cos(angle) - s * Math.sin(angle)];
      const there = [values[(row + offset) * columns + sine], values[(row + offset) * columns + cosine]];
      worst = Math.max(worst, Math.abs(turned[0] - there[0]), Math.abs(turned[1] - there[1]));
    });
  }
  root.append(
    element("h4", {}, "The rotation: PE(i + d) is PE(i), each pair turned by d times its own angle, whatever i"),
    element("p", { class: "neuron-choice" }, slide("from", "position i", from, rows - 1 - offset), slide("offset", "offset d", offset, rows - 1), element("span", { class: "turn-error" }, `Largest difference over all i: ${worst.toExponential(1)}`)),
    element("div", { class: "circles" }, ...shown.map((pair) => circle(places, values, columns, pair, from, offset))),
  );
}

function circle(places, values, columns, pair, from, offset) {
  const [sine, cosine] = places.pairs[pair];
  const at = (row) => ({ x: 60 + 46 * values[row * columns + cosine], y: 60 - 46 * values[row * columns + sine] });
  const [start, end] = [at(from), at(from + offset)];
  const turn = places.angles[pair] * offset;
  const far = Math.abs(turn % (2 * Math.PI)) > Math.PI ? 1 : 0;
  return element(
    "figure",
    {},
    drawn(
      "svg",
      { class: "circle", width: 120, height: 120, viewBox: "0 0 120 120", role: "img", "aria-label": `Pair ${pair}` },
      drawn("circle", { class: "ring", cx: 60, cy: 60, r: 46 }),
      drawn("path", { class: "arc", d: `M${start.x} ${start.y} A46 46 0 ${far} ${turn >= 0 ? 0 : 1} ${end.x} ${end.y}` }),
      drawn("line", { class: "hand from", x1: 60, y1: 60, x2: start.x, y2: start.y }),
      drawn("line", { class: "hand to", x1: 60, y1: 60, x2: end.x, y2: end.y }),
      drawn("circle", { class: "dot from", cx: start.x, cy: start.y, r: 4.5 }),
      drawn("rect", { class: "dot to", x: end.x - 4.5, y: end.y - 4.5, width: 9, height: 9 }),
    ),
    element("figcaption", {}, `pair ${pair}: ${((turn * 180) / Math.PI).toFixed(1)}°`),
  );
}

function drawSlopes(root, places) {
  const [heads, columns] = places.table.shape;
  const far = (columns - 1) / 2;
  const points = (head) => {
    const row = vectorOf(places.table, head);
    return places.kind === "alibi" ? [[0, 0], [64, -64 * row[0]]] : Array.from(row, (value, index) => [index - far, value]);
  };
  const series = Array.from({ length: heads }, (_, head) => ({ name: `head ${head}`, kind: headLook(head), points: points(head) }));
  root.append(element("h4", {}, "What is added to a score, by how many places the key lies before"), lineChart(series, { x: "distance", ...(places.kind === "alibi" ? { high: 0 } : {}) }));
}
