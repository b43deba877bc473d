// From a document's attention to the numbers a view shows: averaged over heads, merged to words.
function mean(arrays) {
  if (arrays.length === 1) return arrays[0];
  const sums = new Float64Array(arrays[0].length);
  for (const array of arrays) for (let index = 0; index < sums.length; index += 1) sums[index] += array[index];
  for (let index = 0; index < sums.length; index += 1) sums[index] /= arrays.length;
  return sums;
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

// Labels, one array per chosen head, their mean, and the cells a gold alignment joins.
function matrixOf(sentence, attention, heads, words) {
  const rowSide = sentence[attention.rows];
  const columnSide = sentence[attention.columns];
  const byWord = words && hasWords(sentence, attention);
  const read = heads.map((head) => weightsOf(attention, head));
  const values = byWord ? read.map((one) => merged(one, rowSide, columnSide)) : read;
  const rows = byWord ? rowSide.words : labelsOf(rowSide);
  const columns = byWord ? columnSide.words : labelsOf(columnSide);
  return { rows, columns, heads, values, mean: mean(values), byWord, gold: goldCells(sentence, attention, byWord) };
}

// Where a piece of a side stands among the rows or columns of a matrix, and the other way: its first piece.
function placeOf(side, piece, byWord) {
  return byWord && piece >= 0 ? (side.word_of[piece] ?? -1) : piece;
}

function pieceAt(side, place, byWord) {
  return byWord ? side.word_of.indexOf(place) : place;
}

// The largest of each square of so many cells: what is bright stays bright, however small it is drawn.
function pooled(values, width, height, square) {
  const columns = Math.ceil(width / square);
  const rows = Math.ceil(height / square);
  const largest = new Float32Array(columns * rows);
  for (let row = 0; row < height; row += 1) {
    const start = Math.floor(row / square) * columns;
    for (let column = 0; column < width; column += 1) {
      const place = start + Math.floor(column / square);
      const value = values[row * width + column];
      if (value > largest[place]) largest[place] = value;
    }
  }
  return { columns, rows, values: largest };
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
    let best = 0;
    for (let column = 1; column < width; column += 1) if (cells[column] > cells[best]) best = column;
    return cells[best] > 0 ? best : -1;
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
