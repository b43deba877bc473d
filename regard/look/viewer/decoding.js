// The decoding view: the output as it grows, the vectors of each step, what it could have chosen, and the beam's tree.
addView({
  name: "decoding",
  title: (sentence) => (sentence.candidates ? "Decoding" : "Vectors"),
  help: (sentence) =>
    sentence.candidates
      ? "The output, a step at a time. Click a token to see its step: where it looked, and what else it could have been."
      : "The text, a token at a time. Click one to see where it looked, and the vectors that came of it.",
  draw: drawDecoding,
  shown: (sentence) => Boolean(sentence.candidates || sentence.decoding?.hidden),
  steps: "one step of decoding",
  step: (state, by) => {
    const side = stepSide(sentenceOf(state));
    const last = sentenceOf(state)[side].pieces.length - 1;
    const here = pinnedPiece(state, side);
    return { pin: { side, piece: here < 0 ? (by > 0 ? 0 : last) : Math.min(Math.max(here + by, 0), last) } };
  },
});

const decodingState = { playing: null, step: null };

// A step is a piece of the target; of a text without one, a piece that is read, which predicts the next.
function stepSide(sentence) {
  return sentence.target ? "target" : "source";
}

function drawDecoding(root, state) {
  stopDecoding();
  const sentence = sentenceOf(state);
  const side = stepSide(sentence);
  const pieces = labelsOf(sentence[side]);
  const pinned = pinnedPiece(state, side);
  const last = pieces.length - 1;
  const shown = pinned >= 0 ? pinned : (decodingState.step ?? last);
  const step = Math.min(shown, last);
  const mixture = sentence.decoding?.mixture?.[step];
  const go = (to) => {
    decodingState.step = Math.min(Math.max(to, 0), last);
    change({ pin: { side, piece: decodingState.step } });
  };
  const slider = element("input", { type: "range", min: 0, max: last, value: step, "aria-label": "Step", "data-key": "decoding-step", onchange: (event) => go(Number(event.target.value)) });
  const button = (key, label, to) => element("button", { type: "button", class: "chip", "data-key": `decoding-${key}`, disabled: to < 0 || to > last, onclick: () => go(to) }, label);
  const play = element("button", { type: "button", class: "chip play", "data-key": "decoding-play", onclick: () => playDecoding(last) }, "▶ play");
  root.append(
    element("div", { class: "caption" }, element("span", { class: "steps" }, button("back", "‹ back", step - 1), button("on", "on ›", step + 1), play, slider, element("span", { class: "muted" }, `step ${step + 1} of ${last + 1}`)), legend("−", "+", "signed")),
    growing(sentence, side, pieces, step, go),
    mixture ? element("p", { class: "tree-key muted" }, element("span", { class: "copied" }, "copied"), "more likely copied from what was read than written") : "",
    element("div", { class: "decoding-step" }, lookedAt(state, sentence, side, step), element("div", {}, sentence.candidates ? distribution(sentence, side, step) : "", mixture ? mixtureOf(mixture, wantedPiece(sentence, side, step) ?? "") : "")),
  );
  if (sentence.decoding?.hidden) root.append(element("h3", {}, "Vectors of the steps so far"), vectorTable(sentence, pieces, step, go));
  if (sentence.decoding?.beam.length) root.append(element("h3", {}, "The beam: what was kept, and what was pruned"), beamTree(sentence.decoding.beam, step, go));
}

function growing(sentence, side, pieces, step, go) {
  const kinds = (index) => ["word", index > step && "later", copiedAt(sentence, side, index) && "copied"].filter(Boolean).join(" ");
  const chip = (label, index) =>
    element("button", { type: "button", class: kinds(index), "aria-pressed": String(index === step), "data-key": `grown-${index}`, onclick: () => go(index) }, element("bdi", {}, label));
  return element("div", { class: "chooser", role: "group", "aria-label": sideTitle(sentence, side) }, ...pieces.map(chip));
}

// Whether a piece was more likely copied from what was read than written. In a text that is read, the step before gave it.
function copiedAt(sentence, side, piece) {
  const one = sentence.decoding?.mixture?.[side === "target" ? piece : piece - 1];
  return Boolean(one) && one.copied > one.written;
}

// How the step of a model that may copy was mixed, and what either way gave the piece that came.
function mixtureOf(one, piece) {
  const part = (share, kind, label) => element("tr", {}, element("th", { scope: "row" }, label), element("td", {}, shareBar(share, kind)));
  const came = one.written == null ? "" : ` Of the probability of ${visible(piece)}, ${one.written.toFixed(3)} was written and ${one.copied.toFixed(3)} copied.`;
  return element(
    "div",
    { class: "mixture" },
    element("h4", {}, "Written or copied"),
    element("table", {}, element("tbody", {}, part(one.writing, "model", "writes a word it knows"), part(1 - one.writing, "copy", "copies a word it read"))),
    element("p", { class: "muted" }, came),
  );
}

function shareBar(share, kind) {
  return element("span", { class: `share ${kind}` }, element("span", { class: "fill", style: { width: `${(share * 100).toFixed(1)}%` } }), element("span", { class: "number" }, share.toFixed(3)));
}

// The text that the chosen attention looked at in this step; a decoder's self-attention looks at its own past.
function lookedAt(state, sentence, side, step) {
  const attention = attentionOf(state);
  const box = element("div", { class: "looked" });
  if (attention && attention.rows !== side) {
    box.append(element("p", { class: "muted" }, `${attention.name} is not where these steps look. Choose another layer to see where they do.`));
    return box;
  }
  if (attention) {
    const matrix = matrixOf(sentence, attention, state.heads, false);
    box.append(element("h4", {}, `It looked at (${attention.name}, ${headPhrase(attention, matrix)})`), shadedText(matrix, matrix.mean, step, -1));
  }
  for (const name of ["hidden", "context"]) {
    const packed = sentence.decoding?.[name];
    if (!packed) continue;
    box.append(element("h4", {}, name === "hidden" ? "Hidden vector" : "Context vector"), strip(vectorOf(packed, step), extentOf(packed), name));
  }
  box.append(element("p", { class: "readout", id: "neuron-readout" }));
  return box;
}

const extents = new WeakMap();

function extentOf(packed) {
  if (!extents.has(packed)) extents.set(packed, numbersOf(packed).reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9));
  return extents.get(packed);
}

// The piece that a step should have given: its own, or of a text that is read the one that follows.
function wantedPiece(sentence, side, step) {
  return side === "target" ? sentence.target.pieces[step] : sentence.source.pieces[step + 1];
}

function distribution(sentence, side, step) {
  const candidates = sentence.candidates[step];
  const wanted = wantedPiece(sentence, side, step);
  const row = candidates.find((one) => one.piece === wanted);
  const lines = candidates.map((one) =>
    element(
      "tr",
      { class: one === row ? "wanted" : "" },
      element("th", { scope: "row" }, element("bdi", {}, stepLabel(sentence, one.piece))),
      element("td", {}, shareBar(one.probability, "model")),
      element("td", {}, wanted === undefined ? "" : shareBar(one === row ? 1 : 0, "target")),
    ),
  );
  const rest = 1 - candidates.reduce((sum, one) => sum + one.probability, 0);
  return element(
    "div",
    { class: "distribution" },
    element(
      "table",
      {},
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, sentence.target ? "could have been" : "expected next"), element("th", { scope: "col" }, "the model's"), element("th", { scope: "col" }, "the target's"))),
      element("tbody", {}, ...lines),
    ),
    element("p", { class: "muted" }, `All others together ${Math.max(rest, 0).toFixed(3)}.`, row ? ` Loss of this step: ${(-Math.log(Math.max(row.probability, 1e-12))).toFixed(3)} nats.` : ""),
  );
}

const VECTORS_SHOWN = 40;

function vectorTable(sentence, pieces, step, go) {
  const { hidden, context } = sentence.decoding;
  const from = Math.max(0, step - VECTORS_SHOWN + 1);
  const lines = pieces.slice(from, step + 1).map((label, offset) => {
    const index = from + offset;
    const cells = [hidden, context].filter(Boolean).map((packed, order) => element("td", {}, strip(vectorOf(packed, index), extentOf(packed), order ? "context" : "hidden")));
    return element("tr", { class: index === step ? "wanted" : "" }, element("th", { scope: "row" }, element("button", { type: "button", class: "line-name", "data-key": `vector-${index}`, onclick: () => go(index) }, element("bdi", {}, label))), ...cells);
  });
  return element(
    "table",
    { class: "neurons vectors" },
    element("thead", {}, element("tr", {}, element("th", {}, "step"), element("th", {}, "hidden"), context ? element("th", {}, "context") : "")),
    element("tbody", {}, ...lines),
  );
}

const BRANCH = { width: 104, height: 19, top: 12, left: 46 };

// One column per step, best branches above; what came of each is told by colour, by dashes and by its mark.
function beamTree(beam, step, go) {
  const shown = beam.slice(0, step + 1);
  const most = Math.max(...beam.map((branches) => branches.length));
  const at = (number, index) => ({ x: BRANCH.left + number * BRANCH.width, y: BRANCH.top + index * BRANCH.height + BRANCH.height / 2 });
  const start = { x: 6, y: BRANCH.top + BRANCH.height / 2 };
  const edges = [];
  const nodes = [];
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "700 12px system-ui, sans-serif";
  const short = (branch) => {
    const label = visible(branch.piece);
    return label.length > 9 ? `${label.slice(0, 8)}…` : label;
  };
  const behind = (number, index) => ({ ...at(number, index), x: at(number, index).x + pen.measureText(short(shown[number][index])).width + 6 });
  shown.forEach((branches, number) => {
    branches.forEach((branch, index) => {
      const from = branch.parent < 0 ? { ...start, x: start.x + 10 } : behind(number - 1, branch.parent);
      const to = at(number, index);
      const kind = `${branch.best ? "best" : branch.fate}`;
      const middle = (from.x + to.x) / 2;
      edges.push(drawn("path", { class: `branch ${kind}`, d: `M${from.x} ${from.y} C${middle} ${from.y} ${middle} ${to.y} ${to.x - 3} ${to.y}` }));
      const label = visible(branch.piece);
      const mark = { finished: " ■", pruned: " ×", kept: "" }[branch.fate];
      nodes.push(
        drawn(
          "text",
          { class: `twig ${kind}`, x: to.x, y: to.y, "dominant-baseline": "central", "data-step": number, "data-branch": index, onclick: () => branch.best && go(number) },
          drawn("title", {}, `${label}: ${branch.log_prob.toFixed(3)}, ${branch.fate}`),
          short(branch) + mark,
        ),
      );
    });
  });
  // The best branch is drawn last, over the others.
  edges.sort((one, other) => one.classList.contains("best") - other.classList.contains("best"));
  const width = BRANCH.left + shown.length * BRANCH.width + 30;
  const height = BRANCH.top * 2 + most * BRANCH.height;
  const picture = drawn("svg", { class: "tree", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The beam search as a tree" }, drawn("circle", { cx: start.x + 4, cy: start.y, r: 4, class: "root" }), ...edges, ...nodes);
  const frame = element("div", { class: "scroll", tabindex: 0, "data-key": "tree" }, picture);
  requestAnimationFrame(() => (frame.scrollLeft = width));
  return element(
    "div",
    {},
    frame,
    element("p", { class: "tree-key muted" }, element("span", { class: "best" }, "the output"), element("span", { class: "kept" }, "kept"), element("span", { class: "pruned" }, "× pruned"), element("span", { class: "finished" }, "■ finished"), worded("Rest on a branch to read its log-probability.")),
  );
}

function playDecoding(last) {
  if (decodingState.playing) {
    stopDecoding();
    return;
  }
  const side = stepSide(sentenceOf(regard.state));
  let step = -1;
  const on = () => {
    step += 1;
    if (step > last || regard.state.view !== "decoding") {
      stopDecoding();
      return;
    }
    const playing = decodingState.playing;
    decodingState.playing = null; // drawing stops what plays; it is to go on
    change({ pin: { side, piece: step } });
    decodingState.playing = playing;
    document.querySelector("[data-key=decoding-play]").textContent = "❚❚ pause";
  };
  decodingState.playing = setInterval(on, 900);
  on();
}

function stopDecoding() {
  clearInterval(decodingState.playing);
  decodingState.playing = null;
}
