// The head view: both columns of tokens, and a line a head for every weight between them.
const ROW = 26; // the height of a token; the style sheet has the same
// Lines of weights below these would only be fog; with one token isolated there is room for more.
const FAINT = { all: 0.04, isolated: 0.01 };

addView({
  name: "heads",
  title: "Lines",
  help: "Each line joins a token to what it looks at; a stronger line is a larger weight. Point at a token to isolate it.",
  draw: drawHeads,
});

function drawHeads(root, state) {
  const sentence = sentenceOf(state);
  const attention = attentionOf(state);
  const matrix = matrixOf(sentence, attention, state.heads, state.words);
  const height = Math.max(matrix.rows.length, matrix.columns.length) * ROW;
  const lines = drawn("svg", {
    class: "lines",
    viewBox: `0 0 100 ${height}`,
    preserveAspectRatio: "none",
    height,
    "aria-hidden": "true",
  });
  const details = element("aside", { class: "details", "aria-live": "polite" });
  const sides = {
    rows: tokenColumn(matrix.rows, "rows"),
    columns: tokenColumn(matrix.columns, "columns"),
  };
  let kept = null;
  const show = (only) => {
    drawLines(lines, matrix, only);
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
      token.addEventListener("click", () => {
        kept = kept?.side === side && kept.index === index ? null : here;
        for (const other of [...sides.rows, ...sides.columns]) other.setAttribute("aria-pressed", "false");
        token.setAttribute("aria-pressed", String(kept !== null));
        show(kept);
      });
    });
  }
  show(null);
  root.append(
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

function drawLines(lines, matrix, only) {
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
      paths.push(
        drawn("path", {
          class: `line head-${matrix.heads[order] % 8}`,
          d: `M0 ${from} C45 ${from} 55 ${to} 100 ${to}`,
          "stroke-opacity": (0.06 + 0.94 * weight).toFixed(3),
          "stroke-width": (1 + 2 * weight).toFixed(2),
        }),
      );
    });
  });
  lines.replaceChildren(...paths);
}

function weigh(sides, matrix, only) {
  for (const [side, tokens] of Object.entries(sides)) {
    const weights = only && only.side !== side ? weightsAt(matrix, matrix.mean, only) : null;
    tokens.forEach((token, index) => {
      token.classList.toggle("isolated", only?.side === side && only.index === index);
      token.querySelector(".bar").style.setProperty("width", weights ? `${(weights[index] * 100).toFixed(1)}%` : "0");
      token.querySelector(".number").textContent = weights ? weights[index].toFixed(3) : "";
    });
  }
}

// In words and numbers: the isolated token's largest weights, and what its step could have chosen.
function describe(details, sentence, attention, matrix, only) {
  details.replaceChildren();
  if (!only) {
    details.append(element("p", { class: "muted" }, "Point at a token to read its weights here; click to keep it."));
    return;
  }
  const label = matrix[only.side][only.index];
  const others = only.side === "rows" ? matrix.columns : matrix.rows;
  const weights = weightsAt(matrix, matrix.mean, only);
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 6);
  details.append(
    element("h4", {}, only.side === "rows" ? "“" : "Who looks at “", element("bdi", {}, label), only.side === "rows" ? "” looks at" : "”"),
    figures(order.map((index) => [others[index], weights[index]])),
    element("p", { class: "muted" }, headPhrase(matrix)),
  );
  const predicts = only.side === "rows" && attention.rows === "target" && !matrix.byWord;
  const candidates = predicts ? sentence.candidates?.[only.index] : null;
  if (candidates?.length) {
    details.append(
      element("h4", {}, "The step could have chosen"),
      figures(candidates.map((one) => [visible(one.piece), one.probability])),
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

function headPhrase(matrix) {
  return matrix.heads.length === 1 ? `head ${matrix.heads[0]}` : `mean of ${matrix.heads.length} heads`;
}
