// Maps too large for one element per cell: a canvas that shows a part of them, put together from tiles of pixels that are
// made once. Drag or Shift with the arrow keys moves, + and - and the wheel change the size.
const TILE = 256; // cells on a side
const GUTTER = { left: 130, top: 96 };
const NAMED_FROM = 11; // pixels a cell must have for its row and column to be named

// Tiles by level: at each level a cell is the largest of four of the level before.
function tileStore(width, height, values, extent) {
  const levels = [{ columns: width, rows: height, values }];
  const kept = new Map();
  const store = { made: 0 };
  store.level = (index) => {
    while (levels.length <= index) {
      const { columns, rows, values: before } = levels[levels.length - 1];
      levels.push(pooled(before, columns, rows, 2));
    }
    return levels[index];
  };
  store.tile = (index, across, down) => {
    const key = `${index}.${across}.${down}`;
    if (!kept.has(key)) {
      const { columns, rows, values: all } = store.level(index);
      const wide = Math.min(TILE, columns - across * TILE);
      const high = Math.min(TILE, rows - down * TILE);
      const part = new Float32Array(wide * high);
      for (let row = 0; row < high; row += 1) {
        const start = (down * TILE + row) * columns + across * TILE;
        part.set(all.subarray(start, start + wide), row * wide);
      }
      kept.set(key, paint(document.createElement("canvas"), wide, high, part, { extent }));
      store.made += 1;
    }
    return kept.get(key);
  };
  return store;
}

let lastView = null;

// The mean over rows of their largest weight: on a long text few weights come near 1.
function usualLargest(values, width, height) {
  let sum = 0;
  for (let row = 0; row < height; row += 1) {
    let largest = 0;
    for (let index = row * width; index < (row + 1) * width; index += 1) if (values[index] > largest) largest = values[index];
    sum += largest;
  }
  return Math.min(1, Math.max(sum / height, 0.01));
}

function drawTiledMap(root, state, sentence, attention, matrix) {
  const [width, height] = [matrix.columns.length, matrix.rows.length];
  const extent = usualLargest(matrix.mean, width, height);
  const store = tileStore(width, height, matrix.mean, extent);
  const readout = element("p", { class: "readout", role: "status" });
  const canvas = element("canvas", {
    class: "tiled",
    role: "img",
    tabindex: 0,
    "data-key": "map",
    "data-moves": true,
    "aria-label": `Weights of ${attention.name}, ${headPhrase(attention, matrix)}`,
  });
  const zoom = (label, factor, title) =>
    element("button", { type: "button", class: "chip", title, "data-key": `zoom-${title}`, onclick: () => scaled(factor) }, label);
  const buttons = element(
    "span",
    { class: "zoom" },
    zoom("−", 1 / 1.5, "Smaller"),
    zoom("+", 1.5, "Larger"),
    zoom("fit", 0, "The whole map"),
  );
  root.append(
    element("div", { class: "caption" }, readout, element("span", { class: "keys" }, buttons, ...goldKey(matrix), legend("0", `${extent.toFixed(2)} or more`))),
    canvas,
  );
  const size = { width: root.clientWidth, height: Math.max(360, Math.min(innerHeight - 120, root.clientWidth)) };
  // A page drawn anew, as after a click, shows the same part of the same map.
  const same = lastView?.columns === width && lastView.rows === height;
  const view = { x: 0, y: 0, scale: 0, ...(same ? lastView : {}), ...size, columns: width, rows: height };
  lastView = view;
  const room = () => [view.width - GUTTER.left, view.height - GUTTER.top];
  const smallest = () => Math.min(room()[0] / width, room()[1] / height);
  const clamped = () => {
    const [wide, high] = room();
    view.scale = Math.min(Math.max(view.scale, smallest()), 48);
    view.x = Math.min(Math.max(view.x, 0), Math.max(0, width - wide / view.scale));
    view.y = Math.min(Math.max(view.y, 0), Math.max(0, height - high / view.scale));
  };
  let asked = false;
  const soon = () => {
    if (!asked) requestAnimationFrame(() => ((asked = false), drawTiles(canvas, view, store, matrix, kept)));
    asked = true;
  };
  const kept = pinnedPlace(state, sentence, attention, matrix);
  if (!same || cursor.row >= height || cursor.column >= width) cursor = startingCell(matrix, kept);
  // Without a pointer, nearer means nearer to the cell that is marked.
  const marked = () => ({
    x: Math.min(Math.max((cursor.column + 0.5 - view.x) * view.scale, 0), room()[0]),
    y: Math.min(Math.max((cursor.row + 0.5 - view.y) * view.scale, 0), room()[1]),
  });
  const scaled = (factor, at = marked()) => {
    const cell = { x: view.x + at.x / view.scale, y: view.y + at.y / view.scale };
    view.scale = factor ? Math.min(Math.max(view.scale * factor, smallest()), 48) : smallest();
    view.x = cell.x - at.x / view.scale;
    view.y = cell.y - at.y / view.scale;
    clamped();
    soon();
  };
  const show = (row, column) => {
    cursor = { row, column };
    readout.replaceChildren(...sayCell(matrix, row, column));
    const [wide, high] = [room()[0] / view.scale, room()[1] / view.scale];
    if (column < view.x || column + 1 > view.x + wide) view.x = column - wide / 2;
    if (row < view.y || row + 1 > view.y + high) view.y = row - high / 2;
    clamped();
    soon();
  };
  followPointer(canvas, view, { show, soon, clamped, scaled, matrix, pinned: (row) => pinPlace(sentence, attention, matrix, { side: "rows", index: row }) });
  canvas.addEventListener("keydown", (event) => {
    moveCursor(event, matrix, show);
    const factor = { "+": 1.5, "=": 1.5, "-": 1 / 1.5 }[event.key];
    if (factor) scaled(factor);
  });
  clamped();
  drawTiles(canvas, view, store, matrix, kept);
  readout.append(...summary(sentence, attention, state, matrix));
}

// The heaviest cell of the row that is kept, or of the middle one.
function startingCell(matrix, kept) {
  const width = matrix.columns.length;
  const row = kept?.side === "rows" ? kept.index : Math.floor(matrix.rows.length / 2);
  const cells = matrix.mean.subarray(row * width, (row + 1) * width);
  let column = 0;
  for (let index = 1; index < width; index += 1) if (cells[index] > cells[column]) column = index;
  return { row, column: kept?.side === "columns" ? kept.index : column };
}

function followPointer(canvas, view, { show, soon, clamped, scaled, matrix, pinned }) {
  const zoomed = () => canvas.getBoundingClientRect().width / view.width; // a presenter's page is larger than what was laid out
  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / zoomed() - GUTTER.left, (event.clientY - box.top) / zoomed() - GUTTER.top];
    const [row, column] = [Math.floor(view.y + y / view.scale), Math.floor(view.x + x / view.scale)];
    return x >= 0 && y >= 0 && row < matrix.rows.length && column < matrix.columns.length ? { x, y, row, column } : null;
  };
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, from: { x: view.x, y: view.y }, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const [x, y] = [(event.clientX - drag.x) / zoomed(), (event.clientY - drag.y) / zoomed()];
      drag.moved ||= Math.abs(x) + Math.abs(y) > 3;
      view.x = drag.from.x - x / view.scale;
      view.y = drag.from.y - y / view.scale;
      clamped();
      soon();
      return;
    }
    const cell = cellAt(event);
    if (cell) show(cell.row, cell.column);
  });
  canvas.addEventListener("pointerup", (event) => {
    const still = drag && !drag.moved;
    drag = null;
    const cell = cellAt(event);
    if (still && cell) pinned(cell.row);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      const cell = cellAt(event);
      // Without a key held the wheel scrolls the page, as everywhere.
      if (!cell || !(event.ctrlKey || event.metaKey || document.activeElement === canvas)) return;
      event.preventDefault();
      scaled(event.deltaY < 0 ? 1.2 : 1 / 1.2, cell);
    },
    { passive: false },
  );
}

function drawTiles(canvas, view, store, matrix, kept) {
  const dense = devicePixelRatio || 1;
  if (canvas.width !== Math.round(view.width * dense) || canvas.height !== Math.round(view.height * dense)) {
    canvas.width = Math.round(view.width * dense);
    canvas.height = Math.round(view.height * dense);
    canvas.style.setProperty("width", `${view.width}px`);
    canvas.style.setProperty("height", `${view.height}px`);
  }
  const context = canvas.getContext("2d");
  context.setTransform(dense, 0, 0, dense, 0, 0);
  context.clearRect(0, 0, view.width, view.height);
  const index = Math.max(0, Math.floor(Math.log2(1 / view.scale) + 0.01));
  const cell = view.scale * 2 ** index; // pixels per cell of this level
  const { columns, rows } = store.level(index);
  const [wide, high] = [view.width - GUTTER.left, view.height - GUTTER.top];
  const across = (pixels, count, from) => {
    const first = Math.floor((from / 2 ** index) / TILE);
    const last = Math.min(Math.ceil(count / TILE) - 1, Math.floor((from / 2 ** index + pixels / cell) / TILE));
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, step) => first + step);
  };
  context.save();
  context.beginPath();
  context.rect(GUTTER.left, GUTTER.top, wide, high);
  context.clip();
  context.translate(GUTTER.left - view.x * view.scale, GUTTER.top - view.y * view.scale);
  context.imageSmoothingEnabled = cell < 1;
  let drawnTiles = 0;
  for (const down of across(high, rows, view.y)) {
    for (const right of across(wide, columns, view.x)) {
      const tile = store.tile(index, right, down);
      context.drawImage(tile, right * TILE * cell, down * TILE * cell, tile.width * cell, tile.height * cell);
      drawnTiles += 1;
    }
  }
  outlineCells(context, view, matrix, kept);
  context.restore();
  nameCells(context, view, matrix, kept);
  canvas.dataset.tiles = drawnTiles;
  canvas.dataset.made = store.made;
  canvas.dataset.frames = Number(canvas.dataset.frames ?? 0) + 1;
}

function outlineCells(context, view, matrix, kept) {
  const style = getComputedStyle(document.documentElement);
  const { scale } = view;
  const outline = (row, column, wide, high, name, line) => {
    context.strokeStyle = style.getPropertyValue(name);
    context.lineWidth = line;
    context.strokeRect(column * scale, row * scale, wide * scale, high * scale);
  };
  const width = matrix.columns.length;
  if (scale >= 3) for (const index of matrix.gold ?? []) outline(Math.floor(index / width), index % width, 1, 1, "--gold", 2);
  if (kept?.side === "rows") outline(kept.index, 0, width, 1, "--accent", 1.5);
  if (kept?.side === "columns") outline(0, kept.index, 1, matrix.rows.length, "--accent", 1.5);
  outline(cursor.row, cursor.column, 1, 1, "--text", 1.5);
}

// Every token's name where there is room, else its number from time to time.
function nameCells(context, view, matrix, kept) {
  const style = getComputedStyle(document.documentElement);
  const { scale } = view;
  const named = scale >= NAMED_FROM;
  const step = named ? 1 : [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((one) => one * scale >= 34) ?? 1000;
  const short = (text) => (text.length > 16 ? `${text.slice(0, 15)}…` : text);
  const visibleFrom = (from, count, pixels) => {
    const first = Math.ceil(Math.max(0, from - 0.5) / step) * step;
    const found = [];
    for (let index = first; index < Math.min(count, from + pixels / scale - 0.3); index += step) found.push(index);
    return found;
  };
  context.font = `${named ? Math.min(13, scale) : 11}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  const tint = (side, index) => {
    context.fillStyle = style.getPropertyValue(kept?.side === side && kept.index === index ? "--accent" : named ? "--text" : "--muted");
  };
  context.textAlign = "right";
  for (const row of visibleFrom(view.y, matrix.rows.length, view.height - GUTTER.top)) {
    tint("rows", row);
    context.fillText(named ? short(matrix.rows[row]) : String(row), GUTTER.left - 8, GUTTER.top + (row + 0.5 - view.y) * scale);
  }
  context.textAlign = "left";
  for (const column of visibleFrom(view.x, matrix.columns.length, view.width - GUTTER.left)) {
    context.save();
    context.translate(GUTTER.left + (column + 0.5 - view.x) * scale, GUTTER.top - 8);
    context.rotate(named ? -Math.PI / 4 : 0);
    context.textAlign = named ? "left" : "center";
    tint("columns", column);
    context.fillText(named ? short(matrix.columns[column]) : String(column), 0, 0);
    context.restore();
  }
}
