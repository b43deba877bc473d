// The head view: both columns of tokens, and a line per head for every weight between them.
const ROW = 26; // the height of a token; the style sheet has the same
// Lines of weights below these would only be fog; with one token isolated there is room for more.
const FAINT = { all: 0.04, isolated: 0.01 };

addView({
  name: "heads",
  title: "Lines",
  help: "Each line joins a token to what it looks at; a stronger line is a larger weight. Point at a token to isolate it; click to keep it, in every view.",
  draw: drawHeads,
  joins: true,
  opens: (known) => (known.length > FEW ? known.slice(0, 1) : known),
});

// With more heads than this nobody could follow the lines of all of them together.
const FEW = 4;

// More tokens than this are shown as far as they can be seen, not all at once.
const LONG = 150;

function drawHeads(root, state) {
  const sentence = sentenceOf(state);
  const attention = attentionOf(state);
  const matrix = matrixOf(sentence, attention, state.heads, state.words);
  if (Math.max(matrix.rows.length, matrix.columns.length) > LONG) {
    drawLongHeads(root, state, sentence, attention, matrix);
    return;
  }
  const height = Math.max(matrix.rows.length, matrix.columns.length) * ROW;
  const lines = drawn("svg", {
    class: "lines",
    viewBox: `0 0 100 ${height}`,
    preserveAspectRatio: "none",
    height,
    "aria-hidden": "true",
  });
  const details = element("aside", { class: "details", "aria-live": "polite" });
  const looks = state.heads.map((head) => lookOf(attention, head));
  const sides = {
    rows: tokenColumn(matrix.rows, "rows"),
    columns: tokenColumn(matrix.columns, "columns"),
  };
  const kept = pinnedPlace(state, sentence, attention, matrix);
  const show = (only) => {
    drawLines(lines, looks, matrix, only);
    weigh(sides, matrix, only);
    describe(details, sentence, attention, matrix, only);
  };
  for (const [side, tokens] of Object.entries(sides)) {
    tokens.forEach((token, index) => {
      const here = { side, index };
      token.addEventListener("mouseenter", () => show(here));
      token.addEventListener("mouseleave", () => show(kept));
      token.addEventListener("focus", () => show(here));
      token.addEventListener("blur", () => show(kept));
      token.addEventListener("click", () => pinPlace(sentence, attention, matrix, here));
      token.setAttribute("aria-pressed", String(kept?.side === side && kept.index === index));
    });
  }
  show(kept);
  root.append(
    headKey(attention, state.heads),
    element(
      "div",
      { class: "heads" },
      element("h3", { class: "looks" }, `${sideTitle(sentence, attention.rows)} looks`),
      element("h3", { class: "seen" }, `at ${sideTitle(sentence, attention.columns).toLowerCase()}`),
      element("div", { class: "tokens from" }, ...sides.rows),
      lines,
      element("div", { class: "tokens to" }, ...sides.columns),
      details,
    ),
  );
}

// Which line is which head and how strong a line is which weight; saved images have it too.
function headKey(attention, heads) {
  const line = (look, weight, name) => element("li", {}, swatch(look, { weight }), name);
  const looks = heads.map((head) => lookOf(attention, head));
  const alike = new Set(looks).size < looks.length;
  return element(
    "ul",
    { class: "head-key", "aria-label": "Legend" },
    ...heads.map((head, order) => line(looks[order], 0.8, `head ${headName(attention, head)}`)),
    ...[0.1, 0.5, 1].map((weight) => line("", weight, `weight ${weight}`)),
    element("li", {}, `lines below ${FAINT.all} are not shown (below ${FAINT.isolated} of a token ${worded("pointed at")})`),
    alike ? element("li", {}, `heads ${HUES * DASHES} apart look alike`) : "",
  );
}

// The pinned piece as { side, index } of this attention's matrix, and pinning one.
function pinnedPlace(state, sentence, attention, matrix) {
  for (const side of ["rows", "columns"]) {
    const index = placeOf(sentence[attention[side]], pinnedPiece(state, attention[side]), matrix.byWord);
    if (index >= 0) return { side, index };
  }
  return null;
}

function pinPlace(sentence, attention, matrix, { side, index }) {
  pin(attention[side], pieceAt(sentence[attention[side]], index, matrix.byWord));
}

function tokenColumn(labels, side) {
  return labels.map((label, index) =>
    element(
      "button",
      { class: "token", type: "button", "aria-pressed": "false", "data-key": `${side}-${index}` },
      element("span", { class: "bar" }),
      element("bdi", {}, label),
      element("span", { class: "number" }),
    ),
  );
}

// The weights between the isolated token and each token of the other side.
function weightsAt(matrix, values, only) {
  const width = matrix.columns.length;
  return only.side === "rows"
    ? matrix.columns.map((_, column) => values[only.index * width + column])
    : matrix.rows.map((_, row) => values[row * width + only.index]);
}

function drawLines(lines, looks, matrix, only) {
  const width = matrix.columns.length;
  const paths = [];
  matrix.values.forEach((values, order) => {
    // Heads run side by side, so that equal weights do not hide each other.
    const shift = (order - (matrix.values.length - 1) / 2) * Math.min(2.2, (ROW - 8) / matrix.values.length);
    values.forEach((weight, cell) => {
      const row = Math.floor(cell / width);
      const column = cell % width;
      const chosen = !only || (only.side === "rows" ? row : column) === only.index;
      if (!chosen || weight < (only ? FAINT.isolated : FAINT.all)) return;
      const from = (row + 0.5) * ROW + shift;
      const to = (column + 0.5) * ROW + shift;
      const { opacity, width: thickness } = lineStrength(weight);
      paths.push(
        drawn("path", {
          class: `line ${looks[order]}`,
          d: `M0 ${from} C45 ${from} 55 ${to} 100 ${to}`,
          "stroke-opacity": opacity.toFixed(3),
          "stroke-width": thickness.toFixed(2),
        }),
      );
    });
  });
  lines.replaceChildren(...paths);
}

function weigh(sides, matrix, only) {
  for (const [side, tokens] of Object.entries(sides)) {
    const weights = only && only.side !== side ? weightsAt(matrix, matrix.mean, only) : null;
    tokens.forEach((token, index) => weighToken(token, weights?.[index], only?.side === side && only.index === index));
  }
}

function weighToken(token, weight, isolated) {
  token.classList.toggle("isolated", isolated);
  token.querySelector(".bar").style.setProperty("width", weight === undefined ? "0" : `${(weight * 100).toFixed(1)}%`);
  token.querySelector(".number").textContent = weight === undefined ? "" : weight.toFixed(3);
}

// In words and numbers: the isolated token's largest weights, and what its step could have chosen.
function describe(details, sentence, attention, matrix, only) {
  details.replaceChildren();
  if (!only) {
    details.append(element("p", { class: "muted" }, worded("Point at a token to read its weights here; click to keep it, in every view.")));
    return;
  }
  const label = matrix[only.side][only.index];
  const others = only.side === "rows" ? matrix.columns : matrix.rows;
  const weights = weightsAt(matrix, matrix.mean, only);
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 6);
  details.append(
    element("h4", {}, only.side === "rows" ? "“" : "Who looks at “", element("bdi", {}, label), only.side === "rows" ? "” looks at" : "”"),
    figures(order.map((index) => [others[index], weights[index]])),
    element("p", { class: "muted" }, headPhrase(attention, matrix)),
  );
  const steps = sentence.target ? "target" : "source";
  const predicts = only.side === "rows" && attention.rows === steps && !matrix.byWord;
  const candidates = predicts ? sentence.candidates?.[only.index] : null;
  if (candidates?.length) {
    details.append(
      element("h4", {}, sentence.target ? "The step could have chosen" : "Expected after it"),
      figures(candidates.map((one) => [stepLabel(sentence, one.piece), one.probability])),
    );
  }
}

function figures(pairs) {
  return element(
    "ol",
    { class: "figures" },
    ...pairs.map(([label, number]) =>
      element(
        "li",
        {},
        element("span", { class: "bar", style: { width: `${(number * 100).toFixed(1)}%` } }),
        element("bdi", {}, label),
        element("span", { class: "number" }, number.toFixed(3)),
      ),
    ),
  );
}

function headPhrase(attention, matrix) {
  return matrix.heads.length === 1 ? `head ${headName(attention, matrix.heads[0])}` : `mean of ${matrix.heads.length} heads`;
}

// The same for long texts: a window that scrolls, with the tokens and lines that can be seen in it.
function drawLongHeads(root, state, sentence, attention, matrix) {
  const sizes = { rows: matrix.rows.length, columns: matrix.columns.length };
  const height = Math.max(sizes.rows, sizes.columns) * ROW;
  const canvas = element("canvas", { class: "window-lines", "aria-hidden": "true" });
  const columns = { rows: element("div", { class: "tokens from" }), columns: element("div", { class: "tokens to" }) };
  const details = element("aside", { class: "details", "aria-live": "polite" });
  const inside = element("div", { class: "window-inside", style: { height: `${height}px` } }, columns.rows, canvas, columns.columns);
  const frame = element("div", { class: "window", tabindex: 0, "data-key": "window" }, inside);
  const kept = pinnedPlace(state, sentence, attention, matrix);
  let only = kept;
  const draw = () => {
    const first = Math.max(0, Math.floor(frame.scrollTop / ROW) - 2);
    const last = Math.min(Math.max(sizes.rows, sizes.columns), Math.ceil((frame.scrollTop + frame.clientHeight) / ROW) + 2);
    for (const side of ["rows", "columns"]) {
      const there = new Map([...columns[side].children].map((node) => [Number(node.dataset.index), node]));
      const wanted = [];
      for (let index = first; index < Math.min(last, sizes[side]); index += 1) {
        wanted.push(there.get(index) ?? longToken(side, index));
      }
      columns[side].replaceChildren(...wanted);
    }
    weighLong(columns, matrix, only);
    drawWindow(canvas, frame, attention, matrix, only, first, last);
  };
  const longToken = (side, index) => {
    const [token] = tokenColumn([matrix[side][index]], side);
    token.dataset.index = index;
    token.dataset.key = `${side}-${index}`;
    token.style.setProperty("top", `${index * ROW}px`);
    token.setAttribute("aria-pressed", String(kept?.side === side && kept.index === index));
    const show = (here) => {
      only = here;
      draw();
      describe(details, sentence, attention, matrix, only);
    };
    token.addEventListener("mouseenter", () => show({ side, index }));
    token.addEventListener("mouseleave", () => show(kept));
    token.addEventListener("click", () => pinPlace(sentence, attention, matrix, { side, index }));
    return token;
  };
  let asked = false;
  frame.addEventListener("scroll", () => {
    if (!asked) requestAnimationFrame(() => ((asked = false), draw()));
    asked = true;
  });
  root.append(
    headKey(attention, state.heads),
    element(
      "div",
      { class: "heads long" },
      element("h3", { class: "looks" }, `${sideTitle(sentence, attention.rows)} looks`),
      element("h3", { class: "seen" }, `at ${sideTitle(sentence, attention.columns).toLowerCase()}`),
      frame,
      details,
    ),
  );
  describe(details, sentence, attention, matrix, only);
  if (kept) frame.scrollTop = Math.max(0, kept.index * ROW - frame.clientHeight / 2);
  draw();
}

function weighLong(columns, matrix, only) {
  for (const [side, column] of Object.entries(columns)) {
    const weights = only && only.side !== side ? weightsAt(matrix, matrix.mean, only) : null;
    for (const token of column.children) weighToken(token, weights?.[token.dataset.index], only?.side === side && only.index === Number(token.dataset.index));
  }
}

function drawWindow(canvas, frame, attention, matrix, only, first, last) {
  const width = canvas.clientWidth;
  const height = frame.clientHeight;
  const dense = devicePixelRatio || 1;
  canvas.width = width * dense;
  canvas.height = height * dense;
  canvas.style.setProperty("height", `${height}px`);
  canvas.style.setProperty("top", `${frame.scrollTop}px`);
  const context = canvas.getContext("2d");
  context.scale(dense, dense);
  const count = matrix.columns.length;
  let lines = 0;
  matrix.values.forEach((values, order) => {
    const shift = (order - (matrix.values.length - 1) / 2) * Math.min(2.2, (ROW - 8) / matrix.values.length);
    canvas.setAttribute("class", `window-lines ${lookOf(attention, matrix.heads[order])}`);
    const look = getComputedStyle(canvas);
    context.strokeStyle = look.getPropertyValue("--head");
    context.setLineDash((look.getPropertyValue("--dash").match(/\d+/g) ?? []).map(Number));
    const [from, to] = only?.side === "rows" ? [only.index, only.index + 1] : [first, Math.min(last, matrix.rows.length)];
    for (let row = from; row < to; row += 1) {
      const [left, right] = only?.side === "columns" ? [only.index, only.index + 1] : [0, count];
      for (let column = left; column < right; column += 1) {
        const weight = values[row * count + column];
        if (weight < (only ? FAINT.isolated : FAINT.all)) continue;
        const start = (row + 0.5) * ROW + shift - frame.scrollTop;
        const end = (column + 0.5) * ROW + shift - frame.scrollTop;
        const { opacity, width: thickness } = lineStrength(weight);
        context.globalAlpha = opacity;
        context.lineWidth = thickness;
        context.beginPath();
        context.moveTo(0, start);
        context.bezierCurveTo(width * 0.45, start, width * 0.55, end, width, end);
        context.stroke();
        lines += 1;
      }
    }
  });
  canvas.dataset.lines = lines;
}
