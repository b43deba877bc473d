// From base64 to numbers: weights head by head, when a view first asks for them, and plain 32-bit numbers.
const unpacked = new WeakMap();

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let index = 0; index < raw.length; index += 1) bytes[index] = raw.charCodeAt(index);
  return bytes;
}

function keptHeads(attention) {
  if (!unpacked.has(attention)) unpacked.set(attention, []);
  return unpacked.get(attention);
}

// Low and high bytes, wherever they stand, to weights. A stored number is the floor of its cell: the middle is nearest
// on average. 0 and 1 are exact.
function weightsFrom(bytes, count, low, high, step, grid) {
  const weights = new Float32Array(count);
  for (let index = 0; index < count; index += 1) {
    const whole = bytes[low + index * step] | (bytes[high + index * step] << 8);
    weights[index] = (whole === 0 || whole === grid ? whole : whole + 0.5) / grid;
  }
  return weights;
}

// The weights of one head, row after row; squeezed ones must have been read before.
function weightsOf(attention, head) {
  const kept = keptHeads(attention);
  const { shape, grid, data, squeezed } = attention.weights;
  if (!kept[head] && !squeezed) kept[head] = weightsFrom(bytesOf(data[head]), shape[1] * shape[2], 0, 1, 2, grid);
  return kept[head];
}

function isRead(attention, heads) {
  return !attention.weights.squeezed || heads.every((head) => keptHeads(attention)[head]);
}

async function readWeights(attention, heads) {
  const kept = keptHeads(attention);
  const { shape, grid, data } = attention.weights;
  const count = shape[1] * shape[2];
  for (const head of heads) {
    if (kept[head] || !attention.weights.squeezed) continue;
    const stream = new Blob([bytesOf(data[head])]).stream().pipeThrough(new DecompressionStream("deflate"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    kept[head] = weightsFrom(bytes, count, 0, count, 1, grid);
  }
}

// Packed 32-bit numbers with their shape.
const floats = new WeakMap();

function numbersOf(packed) {
  if (!floats.has(packed)) {
    const view = new DataView(bytesOf(packed.data).buffer);
    const count = packed.shape.reduce((product, size) => product * size, 1);
    const values = new Float32Array(count);
    for (let index = 0; index < count; index += 1) values[index] = view.getFloat32(index * 4, true);
    floats.set(packed, values);
  }
  return floats.get(packed);
}

// The vector at the given leading indices: vectorOf(q, head, row).
function vectorOf(packed, ...indices) {
  const { shape } = packed;
  let start = 0;
  indices.forEach((index, axis) => {
    start = start * shape[axis] + index;
  });
  const width = shape.slice(indices.length).reduce((product, size) => product * size, 1);
  return numbersOf(packed).subarray(start * width, (start + 1) * width);
}

// Gates and states: 16-bit numbers between two bounds. One is read when it is first shown.
const ranges = new WeakMap();

function rangeOf(packed) {
  if (!ranges.has(packed)) {
    const bytes = bytesOf(packed.data);
    const values = new Float32Array(bytes.length / 2);
    const scale = (packed.high - packed.low) / 65535;
    for (let index = 0; index < values.length; index += 1) values[index] = packed.low + (bytes[2 * index] | (bytes[2 * index + 1] << 8)) * scale;
    ranges.set(packed, values);
  }
  return ranges.get(packed);
}
