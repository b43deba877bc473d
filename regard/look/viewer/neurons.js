// The neuron view: how one query becomes weights and then an output, in six steps, feature by feature.
addView({
  name: "neurons",
  title: "Neurons",
  help: "How the chosen token's weights come about, from queries and keys to the sum of values. Blue is above zero, orange below.",
  draw: drawNeurons,
  shown: (sentence) => sentence.attentions.some((attention) => attention.neurons),
  steps: "one step of the arithmetic",
  step: (state, by) => {
    neuron.step = Math.min(Math.max(neuron.step === STEPS.length && by > 0 && !neuron.shown ? 1 : neuron.step + by, 1), STEPS.length);
    neuron.shown = true;
  },
});

const STEPS = [
  ["Vectors", "Each token has a query, a key and a value. The chosen token asks with its query; every token answers with its key."],
  ["Score", "Query times key, feature by feature, summed up: the dot product q·k. The more they point the same way, the larger."],
  ["Scale", "The score is divided by √d, the root of the vectors' length, so that it does not grow with it."],
  ["Softmax", "Exponentials of the scores, divided by their sum: weights that are positive and add up to 1."],
  ["Weigh", "Each value is multiplied by its weight: what is not looked at nearly disappears."],
  ["Sum", "The weighed values are added up. This is what the head hands on for the chosen token."],
];
const KEYS_SHOWN = 14; // keys of a page
const neuron = { shown: false, step: STEPS.length, playing: null, heaviest: false, from: 0, hand: null };

function drawNeurons(root, state) {
  stopPlaying();
  const sentence = sentenceOf(state);
  const attention = attentionOf(state);
  if (!attention.neurons) {
    root.append(element("p", { class: "muted" }, "The vectors of this attention are not in the page. Choose another layer."));
    return;
  }
  const head = state.heads[0];
  const pieces = { rows: labelsOf(sentence[attention.rows]), columns: labelsOf(sentence[attention.columns]) };
  const pinned = pinnedPiece(state, attention.rows);
  // Worked examples are about their first token, but under a look-ahead mask that one sees itself alone.
  const first = sentence.worked && !sentence.worked.causal ? 0 : Math.min(Math.floor(pieces.rows.length / 2), pieces.rows.length - 1);
  const row = pinned >= 0 ? pinned : first;
  // Weights written by hand hold for one row of one head.
  const place = `${state.sentence}.${state.attention}.${head}.${row}`;
  if (neuron.hand?.place !== place) neuron.hand = null;
  const found = workings(attention, head, row, neuron.hand?.weights);
  const write = (column, weight) => {
    const weights = neuron.hand?.weights ?? Array.from(found.all, (one) => one.weight);
    const rest = weights.reduce((sum, one, index) => sum + (index === column ? 0 : one), 0);
    // The others keep their proportions and share what is left.
    neuron.hand = { place, weights: weights.map((one, index) => (index === column ? weight : rest > 0 ? (one / rest) * (1 - weight) : 0)) };
    change({});
  };
  const table = neuronTable(pieces, found, row, write);
  const say = element("p", { class: "step-text", role: "status" });
  const steps = STEPS.map(([name], index) =>
    element(
      "button",
      { type: "button", class: "step", "data-key": `step-${index + 1}`, onclick: () => (stopPlaying(), reveal(index + 1)) },
      element("b", {}, String(index + 1)),
      name,
    ),
  );
  const play = element("button", { type: "button", class: "chip play", "data-key": "play", onclick: () => startPlaying(reveal, play) }, "▶ play");
  const reveal = (step) => {
    neuron.step = step;
    steps.forEach((button, index) => button.setAttribute("aria-pressed", String(index + 1 === step)));
    for (const part of table.querySelectorAll("[data-step]")) part.classList.toggle("unseen", Number(part.dataset.step) > step);
    say.replaceChildren(`${step}. `, stepText(attention, step));
  };
  if (sentence.worked) root.append(typing(state, sentence, attention));
  root.append(
    element("div", { class: "caption" }, element("span", { class: "steps", role: "group", "aria-label": "Steps" }, ...steps, play), legend("−", "+", "signed")),
    say,
    chooser(sentence, attention, pieces, row, head, state),
    table,
    byHand(attention, head, row, found),
    element("p", { class: "readout", id: "neuron-readout", role: "status" }),
  );
  reveal(neuron.step);
}

// Additive scores have no product and no scale; the steps say what is done instead.
function stepText(attention, step) {
  const { combine, scale, offsets } = attention.neurons;
  const { worked } = sentenceOf(regard.state);
  if (worked?.raw && step <= 2) return "The scores are given: what queries and keys made them does not matter from here on.";
  if (worked && step === 3) return `Each score is divided by √${worked.d_k} = ${Math.sqrt(worked.d_k).toFixed(3)}.`;
  if (worked?.causal && step === 4) return `The mask: a key after the query is hidden, its score becomes −∞. ${STEPS[3][1]}`;
  if (step === 2 && combine === "additive") return "tanh(q + k), feature by feature, times a learnt vector, summed up: the additive score.";
  if (step === 3 && offsets) return `The score is multiplied by ${scale.toFixed(4)}; then what the head adds for the distance between the tokens is added.`;
  if (step === 3 && scale === 1) return "This score is not scaled: it goes on as it is.";
  if (step === 3) return `${STEPS[2][1]} Here it is multiplied by ${scale.toFixed(4)}.`;
  return STEPS[step - 1][1];
}

// The chosen token's query, and for every key: terms, score, scaled score, weight, weighed value; and their sum.
function workings(attention, head, row, hand = null) {
  const { q, k, v, scale, combine, vector, offsets } = attention.neurons;
  const query = vectorOf(q, head, row);
  const [, , keys] = attention.weights.shape;
  const along = vector ? numbersOf(vector) : null;
  const own = weightsOf(attention, head).subarray(row * keys, (row + 1) * keys);
  const weights = hand ?? own;
  const sum = new Float64Array(v.shape[2]);
  const all = Array.from({ length: keys }, (_, column) => {
    const key = vectorOf(k, head, column);
    const value = vectorOf(v, head, column);
    const terms = Float64Array.from(query, (one, j) => (combine === "additive" ? Math.tanh(one + key[j]) * along[j] : one * key[j]));
    const score = terms.reduce((total, term) => total + term, 0);
    const scaled = score * scale + (offsets ? vectorOf(offsets, head)[row - column + keys - 1] : 0);
    const weight = weights[column];
    const weighed = Float64Array.from(value, (one) => one * weight);
    weighed.forEach((one, j) => (sum[j] += one));
    return { column, key, value, terms, score, scaled, weight, weighed };
  });
  const top = Math.max(...all.filter((one) => own[one.column] > 0).map((one) => one.scaled), -Infinity);
  // A key that scores well and weighs nothing is one that the token may not see.
  for (const one of all) one.hidden = own[one.column] === 0 && one.scaled > top - 9;
  return { query, all, sum };
}

// What weights written by hand make of the head's output.
function byHand(attention, head, row, found) {
  if (!neuron.hand) return element("p", { class: "muted hand" }, worded("Click a weight to write it by hand, and see what the head would hand on."));
  const { sum } = workings(attention, head, row);
  const dot = (one, other) => one.reduce((total, value, index) => total + value * other[index], 0);
  const likeness = dot(sum, found.sum) / (Math.sqrt(dot(sum, sum) * dot(found.sum, found.sum)) || 1);
  return element(
    "p",
    { class: "hand" },
    `Weights by hand: the output's cosine with the model's own is ${likeness.toFixed(3)}. `,
    element("button", { type: "button", class: "chip", "data-key": "hand-back", onclick: () => ((neuron.hand = null), change({})) }, "back to the model's"),
  );
}

function neuronTable(pieces, { query, all, sum }, row, write) {
  const order = neuron.heaviest ? [...all].sort((a, b) => b.weight - a.weight || a.column - b.column) : all;
  const from = Math.min(neuron.from, Math.max(0, Math.floor((order.length - 1) / KEYS_SHOWN) * KEYS_SHOWN));
  const shown = order.slice(from, from + KEYS_SHOWN);
  const extent = (arrays) => arrays.reduce((most, array) => array.reduce((a, b) => Math.max(a, Math.abs(b)), most), 1e-9);
  const sizes = {
    key: extent([query, ...all.map((one) => one.key)]),
    terms: extent(all.map((one) => one.terms)),
    value: extent(all.map((one) => one.value)),
    sum: extent([sum]),
  };
  const named = { 1: "k", 2: "q × k", 3: "scaled", 4: "softmax", 5: "weight × v", 6: "sum" };
  const cell = (step, kind, ...children) => element("td", { "data-step": step, class: kind, "data-label": kind.includes("score") ? "score" : kind.includes("asks") ? "q" : named[step] }, ...children);
  const lines = shown.map((one) =>
    element(
      "tr",
      { class: one.hidden ? "hidden-key" : "", "data-key-index": one.column },
      element("th", { scope: "row" }, element("bdi", {}, pieces.columns[one.column])),
      cell(1, "wide", ...vector(one.key, sizes.key, "k")),
      cell(2, "wide", ...vector(one.terms, sizes.terms, "q × k")),
      cell(2, "figure score", one.score.toFixed(2)),
      cell(3, "figure scaled", one.scaled.toFixed(3)),
      cell(4, "figure weight", ...weightCell(one, write)),
      cell(5, "wide", ...vector(one.weighed, sizes.value, "weight × v")),
    ),
  );
  const raw = sentenceOf(regard.state).worked?.raw;
  const heading = (step, label) => element("th", { "data-step": step, scope: "col", class: ["score", "scaled", "softmax"].includes(label) ? "figure" : "" }, label);
  return element(
    "table",
    { class: raw ? "neurons raw" : "neurons" },
    element(
      "thead",
      {},
      element("tr", {}, element("th", { scope: "col" }, "token"), heading(1, "key k"), ...(raw ? [] : [heading(2, "q × k")]), heading(2, "score"), heading(3, "scaled"), heading(4, "softmax"), heading(5, "weight × v")),
      element("tr", { class: "query" }, element("th", { scope: "row" }, "query of ", element("bdi", {}, pieces.rows[row])), cell(1, "wide asks", ...vector(query, sizes.key, "q")), element("td", { colspan: 5 })),
    ),
    element("tbody", {}, ...lines),
    element("tfoot", {}, element("tr", {}, element("th", { scope: "row" }, all.length > shown.length ? `sum over all ${all.length}` : "sum"), element("td", { colspan: raw ? 3 : 5 }), cell(6, "", ...vector(sum, sizes.sum, "output")))),
  );
}

function weightCell(one, write) {
  if (one.hidden) return ["hidden"];
  const ask = (event) => {
    const box = element("input", { type: "number", min: 0, max: 1, step: 0.05, value: one.weight.toFixed(3), class: "by-hand", "aria-label": "Weight" });
    const done = () => {
      const weight = Math.min(Math.max(Number(box.value), 0), 1);
      if (Number.isFinite(weight) && box.value !== one.weight.toFixed(3)) write(one.column, weight);
      else change({});
    };
    box.addEventListener("change", done);
    box.addEventListener("keydown", (pressed) => {
      pressed.stopPropagation();
      if (pressed.key === "Escape") change({});
    });
    event.currentTarget.replaceWith(box);
    box.focus();
    box.select();
  };
  return [
    element("span", { class: "meter", style: { width: `${(one.weight * 100).toFixed(1)}%` } }),
    element("button", { type: "button", class: "written", "data-key": `weight-${one.column}`, title: "Write this weight by hand", onclick: ask }, one.weight.toFixed(3)),
  ];
}

// A vector of the table; of a few features the numbers are written below.
const FEW_FEATURES = { raw: 8, vectors: 4 };

function vector(values, extent, name) {
  const { worked } = sentenceOf(regard.state);
  if (values.length > (worked?.raw ? FEW_FEATURES.raw : FEW_FEATURES.vectors)) return [strip(values, extent, name)];
  const written = Array.from(values, (one) => element("span", {}, String(Number(one.toFixed(3)))));
  return [strip(values, extent, name), element("span", { class: "numbers" }, ...written)];
}

// A vector as a row of cells; pointing at one says which feature it is and its number.
function strip(values, extent, name) {
  const canvas = paint(element("canvas", { class: "strip", "aria-label": `${name}, ${values.length} features`, role: "img" }), values.length, 1, values, { ramp: "signed", extent });
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const feature = Math.min(values.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * values.length)));
    const place = document.getElementById("neuron-readout");
    if (place) place.textContent = `${name}, feature ${feature}: ${values[feature].toFixed(4)}`;
  });
  return canvas;
}

function chooser(sentence, attention, pieces, row, head, state) {
  const options = pieces.rows.map((label, index) => element("option", { value: index, selected: index === row }, `${index + 1}. ${label}`));
  const keys = attention.weights.shape[2];
  const turn = (label, to) =>
    element(
      "button",
      { type: "button", class: "chip", "data-key": `keys-${label}`, disabled: to < 0 || to >= keys, onclick: () => ((neuron.from = to), change({})) },
      label,
    );
  const from = Math.min(neuron.from, Math.max(0, Math.floor((keys - 1) / KEYS_SHOWN) * KEYS_SHOWN));
  return element(
    "p",
    { class: "neuron-choice" },
    element(
      "label",
      {},
      element("span", { class: "muted" }, "Token "),
      element("select", { "data-key": "neuron-token", onchange: (event) => change({ pin: { side: attention.rows, piece: Number(event.target.value) } }) }, ...options),
    ),
    element("span", { class: "muted" }, `${attention.name}, head ${headName(attention, head)}${state.heads.length > 1 ? " (the first of those chosen)" : ""}`),
    element(
      "label",
      {},
      element("input", { type: "checkbox", checked: neuron.heaviest, "data-key": "heaviest", onchange: (event) => ((neuron.heaviest = event.target.checked), (neuron.from = 0), change({})) }),
      element("span", {}, " heaviest first"),
    ),
    keys > KEYS_SHOWN
      ? element("span", { class: "turns" }, turn("earlier", from - KEYS_SHOWN), ` ${from + 1} to ${Math.min(from + KEYS_SHOWN, keys)} of ${keys} `, turn("later", from + KEYS_SHOWN))
      : "",
  );
}

function startPlaying(reveal, button) {
  if (neuron.playing) {
    stopPlaying(button);
    return;
  }
  let step = 1;
  reveal(step);
  button.textContent = "❚❚ pause";
  neuron.playing = setInterval(() => {
    step += 1;
    if (step > STEPS.length || !button.isConnected) stopPlaying(button);
    else reveal(step);
  }, 1400);
}

function stopPlaying(button) {
  clearInterval(neuron.playing);
  neuron.playing = null;
  if (button) button.textContent = "▶ play";
}
