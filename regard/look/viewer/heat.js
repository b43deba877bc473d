// The map view: one cell per pair of tokens, darker for more, with the gold alignment outlined.
addView({
  name: "map",
  title: "Map",
  help: "Each row shows where a token looks. Point at a cell to read it; click to keep its row, or move with Shift and the arrow keys.",
  draw: drawMap,
  joins: true,
});

const LABEL = 13; // the labels' size in pixels
const TILED = 64; // longer sides are shown in tiles
let cursor = { row: 0, column: 0 };

function drawMap(root, state) {
  const sentence = sentenceOf(state);
  const attention = attentionOf(state);
  const matrix = matrixOf(sentence, attention, state.heads, state.words);
  if (Math.max(matrix.rows.length, matrix.columns.length) > TILED) {
    drawTiledMap(root, state, sentence, attention, matrix);
    return;
  }
  const place = layout(matrix, root.clientWidth);
  const readout = element("p", { class: "readout", role: "status" });
  const mark = drawn("g", { class: "mark" });
  const show = (row, column) => {
    cursor = { row, column };
    readout.replaceChildren(...sayCell(matrix, row, column));
    mark.replaceChildren(...markCell(place, row, column));
  };
  const picture = drawn(
    "svg",
    {
      class: "map",
      width: place.width,
      height: place.height,
      viewBox: `0 0 ${place.width} ${place.height}`,
      role: "img",
      "aria-label": `Weights of ${attention.name}, ${headPhrase(attention, matrix)}`,
      tabindex: 0,
      "data-key": "map",
      "data-moves": true,
      onmousemove: (event) => {
        const box = picture.getBoundingClientRect();
        const zoomed = box.width / place.width; // a presenter's page is larger than what was laid out
        const column = Math.floor(((event.clientX - box.left) / zoomed - place.left) / place.cell);
        const row = Math.floor(((event.clientY - box.top) / zoomed - place.top) / place.cell);
        if (matrix.rows[row] !== undefined && matrix.columns[column] !== undefined) show(row, column);
      },
      onkeydown: (event) => moveCursor(event, matrix, show),
      onclick: () => pinPlace(sentence, attention, matrix, { side: "rows", index: cursor.row }),
    },
    ...cells(matrix, place),
    ...goldOutlines(matrix, place),
    ...labels(matrix, place, pinnedPlace(state, sentence, attention, matrix)),
    mark,
  );
  root.append(
    element("div", { class: "caption" }, readout, element("span", { class: "keys" }, ...goldKey(matrix), legend())),
    element("div", { class: "scroll" }, picture),
  );
  readout.append(...summary(sentence, attention, state, matrix));
}

function moveCursor(event, matrix, show) {
  const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step || !event.shiftKey) return;
  event.preventDefault();
  event.stopPropagation();
  const clamp = (value, count) => Math.min(Math.max(value, 0), count - 1);
  show(clamp(cursor.row + step[0], matrix.rows.length), clamp(cursor.column + step[1], matrix.columns.length));
}

// Cells as large as the width allows; the column labels lean, so they need height by their length.
function layout(matrix, available) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = `${LABEL}px system-ui, sans-serif`;
  const longest = (texts) => Math.max(...texts.map((text) => context.measureText(text).width));
  const left = Math.ceil(longest(matrix.rows)) + 18;
  const lean = longest(matrix.columns);
  const cell = Math.max(16, Math.min(44, Math.floor((available - left - lean * 0.7 - 4) / matrix.columns.length)));
  const top = Math.ceil(lean * 0.72) + 20;
  return {
    left,
    top,
    cell,
    width: Math.ceil(left + cell * matrix.columns.length + lean * 0.72 + 4),
    height: top + cell * matrix.rows.length + 4,
  };
}

function cells(matrix, place) {
  const width = matrix.columns.length;
  return [...matrix.mean].flatMap((weight, index) => {
    const x = place.left + (index % width) * place.cell;
    const y = place.top + Math.floor(index / width) * place.cell;
    const square = drawn("rect", {
      x: x + 0.5,
      y: y + 0.5,
      width: place.cell - 1,
      height: place.cell - 1,
      rx: 2,
      fill: colour(weight),
    });
    if (place.cell < 40 || weight < 0.0005) return [square];
    const number = drawn(
      "text",
      {
        class: "figure",
        fill: ink(weight),
        x: x + place.cell / 2,
        y: y + place.cell / 2,
        "text-anchor": "middle",
        "dominant-baseline": "central",
      },
      weight.toFixed(3),
    );
    return [square, number];
  });
}

function goldOutlines(matrix, place) {
  const width = matrix.columns.length;
  return [...(matrix.gold ?? [])].map((index) =>
    drawn("rect", {
      class: "gold",
      x: place.left + (index % width) * place.cell + 1.5,
      y: place.top + Math.floor(index / width) * place.cell + 1.5,
      width: place.cell - 3,
      height: place.cell - 3,
      rx: 2,
    }),
  );
}

function labels(matrix, place, kept) {
  const name = (side, index) => (kept?.side === side && kept.index === index ? "label pinned" : "label");
  const rows = matrix.rows.map((label, row) =>
    drawn(
      "text",
      {
        class: name("rows", row),
        x: place.left - 8,
        y: place.top + (row + 0.5) * place.cell,
        "text-anchor": "end",
        "dominant-baseline": "central",
      },
      label,
    ),
  );
  const columns = matrix.columns.map((label, column) => {
    const x = place.left + (column + 0.5) * place.cell;
    const y = place.top - 8;
    return drawn("text", { class: name("columns", column), x, y, transform: `rotate(-45 ${x} ${y})` }, label);
  });
  return [...rows, ...columns];
}

function markCell(place, row, column) {
  return [
    drawn("rect", {
      class: "cursor",
      x: place.left + column * place.cell,
      y: place.top + row * place.cell,
      width: place.cell,
      height: place.cell,
      rx: 3,
    }),
  ];
}

function sayCell(matrix, row, column) {
  const index = row * matrix.columns.length + column;
  return [
    "“",
    element("bdi", {}, matrix.rows[row]),
    "” looks at “",
    element("bdi", {}, matrix.columns[column]),
    "”: ",
    element("strong", {}, matrix.mean[index].toFixed(3)),
    matrix.gold?.has(index) ? ", aligned in the gold" : "",
  ];
}

function summary(sentence, attention, state, matrix) {
  const rate = errorRate(sentence, attention, state.heads);
  const start = `${attention.name}, ${headPhrase(attention, matrix)}`;
  return [rate === null ? start : `${start}: alignment error rate ${rate.toFixed(3)} on this sentence`];
}

function goldKey(matrix) {
  return matrix.gold ? [element("span", { class: "gold-key" }), "gold alignment"] : [];
}
