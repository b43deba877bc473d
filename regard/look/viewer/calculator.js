// A calculator: queries, keys and values, or raw scores, as they are typed, in the place of what a model computed.
const MOST_TYPED = 64; // rows

// What was typed, row by row; throws what is wrong with it in words.
function typedRows(name, text) {
  const lines = text.split(/[\n;]+/).filter((line) => line.trim());
  const rows = lines.map((line) => line.split(/[\s,]+/).filter(Boolean).map(Number));
  if (!rows.length) throw new Error(`${name} is empty: write a row of numbers.`);
  if (rows.length > MOST_TYPED) throw new Error(`${name} has ${rows.length} rows; there is room for ${MOST_TYPED}.`);
  if (rows.some((row) => row.some((one) => !Number.isFinite(one)))) throw new Error(`${name} has something that is no number.`);
  if (rows.some((row) => row.length !== rows[0].length)) throw new Error(`${name} has rows of ${[...new Set(rows.map((row) => row.length))].join(" and ")} numbers; all must have as many.`);
  return rows;
}

// Numbers as a document would hold them, already read.
function heldNumbers(rows) {
  const packed = { shape: [1, rows.length, rows[0].length] };
  floats.set(packed, Float32Array.from(rows.flat()));
  return packed;
}

function isOneHot(rows) {
  return rows.every((row, place) => row.length === rows.length && row.every((one, column) => one === Number(place === column)));
}

// A sentence of what was typed, with its weights worked out.
function workedOut({ q, k, v, scores, d_k, causal }) {
  const raw = Boolean(scores);
  const identity = (count) => Array.from({ length: count }, (_, row) => Array.from({ length: count }, (__, column) => Number(row === column)));
  const queries = raw ? identity(scores.length) : q;
  const keys = raw ? scores[0].map((_, column) => scores.map((row) => row[column])) : k;
  const values = v ?? identity(keys.length);
  if (queries[0].length !== keys[0].length) throw new Error(`Queries have ${queries[0].length} numbers and keys ${keys[0].length}: a dot product needs as many.`);
  if (values.length !== keys.length) throw new Error(`There are ${keys.length} keys and ${values.length} values: each key has one.`);
  const width = d_k ?? keys[0].length;
  if (!(width > 0)) throw new Error("d_k must be above 0.");
  const weights = queries.map((query, row) => {
    const scaled = keys.map((key, column) => (causal && column > row ? -Infinity : key.reduce((sum, one, j) => sum + one * query[j], 0) / Math.sqrt(width)));
    const top = Math.max(...scaled);
    const powers = scaled.map((one) => Math.exp(one - top));
    const total = powers.reduce((sum, one) => sum + one, 0);
    return powers.map((one) => one / total);
  });
  const across = queries.length !== keys.length;
  const numbered = (count) => ({ text: "your own numbers", names: true, pieces: Array.from({ length: count }, (_, place) => String(place + 1)) });
  const attention = {
    name: "attention",
    kind: across ? "cross" : "self",
    rows: across ? "target" : "source",
    columns: "source",
    weights: { shape: [1, queries.length, keys.length] },
    neurons: { q: heldNumbers(queries), k: heldNumbers(keys), v: heldNumbers(values), scale: 1 / Math.sqrt(width), combine: "product" },
  };
  keptHeads(attention)[0] = Float32Array.from(weights.flat());
  return { source: numbered(keys.length), ...(across ? { target: { ...numbered(queries.length), text: "" } } : {}), attentions: [attention], scores: {}, worked: { d_k: width, causal, raw } };
}

// The boxes to type in, filled with what is shown.
function typing(state, sentence, attention) {
  const { worked } = sentence;
  const { q, k, v } = attention.neurons;
  const rowsOf = (packed) => Array.from({ length: packed.shape[1] }, (_, row) => Array.from(vectorOf(packed, 0, row), (one) => Number(one.toFixed(4))));
  const written = (rows) => rows.map((row) => row.join(" ")).join("\n");
  const table = () => rowsOf(q).map((query) => rowsOf(k).map((key) => Number(key.reduce((sum, one, j) => sum + one * query[j], 0).toFixed(4))));
  const box = (name, label, rows) =>
    element("label", { class: "typed" }, element("span", { class: "muted" }, label), element("textarea", { rows: Math.min(6, Math.max(2, rows.length)), spellcheck: "false", "data-key": `typed-${name}` }, written(rows)));
  const boxes = worked.raw
    ? { scores: box("scores", "scores, a row per query", table()), v: box("v", "values, a row per key", rowsOf(v)) }
    : { q: box("q", "queries, a row each", rowsOf(q)), k: box("k", "keys, a row each", rowsOf(k)), v: box("v", "values, a row per key", rowsOf(v)) };
  const width = element("input", { type: "text", inputmode: "decimal", size: 5, value: String(worked.d_k), "data-key": "typed-width" });
  const causal = element("input", { type: "checkbox", checked: worked.causal, "data-key": "typed-causal" });
  const readout = element("p", { class: "readout", role: "alert", id: "typed-readout" });
  const put = (given) => {
    try {
      regard.document.sentences[state.sentence] = workedOut(given());
      change({ pin: null });
    } catch (error) {
      readout.textContent = error.message;
    }
  };
  const typed = (name) => boxes[name].querySelector("textarea").value;
  // Values that nobody typed are one-hot, one per key, however many keys there are now.
  const own = (name) => name !== "v" || (typed("v").trim() && !(typed("v") === written(rowsOf(v)) && isOneHot(rowsOf(v))));
  const given = () => ({
    ...Object.fromEntries(Object.keys(boxes).filter(own).map((name) => [name, typedRows(name, typed(name))])),
    d_k: Number(width.value),
    causal: causal.checked,
  });
  const other = worked.raw ? () => ({ q: rowsOf(q), k: rowsOf(k), v: rowsOf(v), d_k: worked.d_k, causal: worked.causal }) : () => ({ scores: table(), v: rowsOf(v), d_k: worked.d_k, causal: worked.causal });
  return element(
    "div",
    { class: "calculator" },
    ...Object.values(boxes),
    element(
      "div",
      { class: "typed-more" },
      element("label", {}, element("span", { class: "muted" }, "d_k "), width),
      element("label", {}, causal, element("span", {}, " look-ahead mask")),
      element("button", { type: "button", class: "chip", "data-key": "typed-go", onclick: () => put(given) }, "Calculate"),
      element("button", { type: "button", class: "chip", "data-key": "typed-other", onclick: () => put(other) }, worked.raw ? "type vectors instead" : "type scores instead"),
    ),
    readout,
  );
}
