// From a document's attention to the numbers a view shows: unpacked, averaged over heads, merged to words.
const unpacked = new WeakMap();

// One array a head, row after row.
function weightsOf(attention) {
  if (!unpacked.has(attention)) {
    const { shape, grid, data } = attention.weights;
    const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const size = shape[1] * shape[2];
    // A stored number is the floor of its cell: the middle is nearest on average. 0 and 1 are exact.
    const weight = (index) => {
      const whole = view.getUint16(index * 2, true);
      return (whole === 0 || whole === grid ? whole : whole + 0.5) / grid;
    };
    const heads = headsOf(attention).map((head) => Float64Array.from({ length: size }, (_, i) => weight(head * size + i)));
    unpacked.set(attention, heads);
  }
  return unpacked.get(attention);
}

function mean(arrays) {
  return arrays[0].map((_, index) => arrays.reduce((sum, one) => sum + one[index], 0) / arrays.length);
}

// Sums the columns of a word's pieces and averages its rows; pieces of no word are left out.
function merged(values, rowSide, columnSide) {
  const rows = rowSide.words.length;
  const columns = columnSide.words.length;
  const sums = new Float64Array(rows * columns);
  const pieces = new Float64Array(rows);
  rowSide.word_of.forEach((row, piece) => {
    if (row === null) return;
    pieces[row] += 1;
    columnSide.word_of.forEach((column, other) => {
      if (column !== null) sums[row * columns + column] += values[piece * columnSide.pieces.length + other];
    });
  });
  return sums.map((sum, index) => sum / Math.max(pieces[Math.floor(index / columns)], 1));
}

// Labels, one array a chosen head, their mean, and the cells a gold alignment joins.
function matrixOf(sentence, attention, heads, words) {
  const rowSide = sentence[attention.rows];
  const columnSide = sentence[attention.columns];
  const byWord = words && hasWords(sentence, attention);
  const all = weightsOf(attention);
  const values = heads.map((head) => (byWord ? merged(all[head], rowSide, columnSide) : all[head]));
  const rows = byWord ? rowSide.words : rowSide.pieces.map(visible);
  const columns = byWord ? columnSide.words : columnSide.pieces.map(visible);
  return { rows, columns, heads, values, mean: mean(values), byWord, gold: goldCells(sentence, attention, byWord) };
}

function goldCells(sentence, attention, byWord) {
  if (!sentence.alignment || attention.rows !== "target" || attention.columns !== "source") return null;
  const { source, target } = sentence;
  const columns = byWord ? source.words.length : source.pieces.length;
  const places = (side, word) =>
    byWord ? [word] : side.word_of.flatMap((one, piece) => (one === word ? [piece] : []));
  const cells = new Set();
  for (const [from, to] of sentence.alignment) {
    for (const row of places(target, to)) for (const column of places(source, from)) cells.add(row * columns + column);
  }
  return cells;
}

// Each row's heaviest column, or -1 where a row weighs nothing.
function heaviest(matrix) {
  const width = matrix.columns.length;
  return matrix.rows.map((_, row) => {
    const cells = matrix.mean.subarray(row * width, (row + 1) * width);
    const best = Math.max(...cells);
    return best > 0 ? cells.indexOf(best) : -1;
  });
}

// The alignment error rate of this sentence, from words; null where there is no gold.
function errorRate(sentence, attention, heads) {
  if (!sentence.alignment || !goldCells(sentence, attention, true)) return null;
  const matrix = matrixOf(sentence, attention, heads, true);
  const chosen = heaviest(matrix).flatMap((column, row) => (column < 0 ? [] : [row * matrix.columns.length + column]));
  const found = chosen.filter((cell) => matrix.gold.has(cell)).length;
  const size = chosen.length + matrix.gold.size;
  return size ? 1 - (2 * found) / size : 0;
}
