// A recurrent model over time, as it works: the encoder's states as it reads, the one vector they end in, and the decoder
// step by step. A model with attention has more than that one vector, which the other views show.
addView({
  name: "flow",
  title: "Over time",
  help: (sentence) =>
    sentence.decoding?.summary
      ? "The encoder reads the text into its states, the last of which becomes the one vector that the decoder starts from. Step through it, or play it."
      : "The states of the recurrence after each step. Step through it, or play it.",
  draw: drawFlow,
  shown: (sentence) => flowRows(sentence, "source").length > 0,
  needs: () => [],
  bare: true,
  steps: "one step in time",
  step: (state, by) => {
    const { total } = timeline(sentenceOf(state));
    flow.time = Math.min(Math.max((flow.time ?? total - 1) + by, 0), total - 1);
  },
});

const flow = { time: null, playing: null, sentence: null };
const FLOW_SHOWN = 48; // columns of one side at a time

// The states h of the cells of a side, layer by layer.
function flowRows(sentence, side) {
  return (sentence.recurrences ?? [])
    .filter((cell) => cell.steps === side)
    .map((cell) => ({ cell, part: cell.parts.find((one) => one.name === "h") ?? cell.parts.find((one) => one.name === "mean") }))
    .filter(({ part }) => part);
}

// First the source is read, then it is one vector, then the target is written.
function timeline(sentence) {
  const read = sentence.source.pieces.length;
  const wrote = flowRows(sentence, "prefix").length ? sentence.prefix.pieces.length : 0;
  const summed = sentence.decoding?.summary ? 1 : 0;
  return { read, summed, wrote, total: read + summed + wrote };
}

function drawFlow(root, state) {
  stopFlow();
  const sentence = sentenceOf(state);
  const { read, summed, wrote, total } = timeline(sentence);
  if (flow.sentence !== state.sentence) Object.assign(flow, { sentence: state.sentence, time: null });
  const time = Math.min(flow.time ?? total - 1, total - 1);
  const go = (to) => ((flow.time = Math.min(Math.max(to, 0), total - 1)), change({}));
  const slider = element("input", { type: "range", min: 0, max: total - 1, value: time, "aria-label": "Time", "data-key": "flow-time", onchange: (event) => go(Number(event.target.value)) });
  const button = (key, label, to) => element("button", { type: "button", class: "chip", "data-key": `flow-${key}`, disabled: to < 0 || to >= total, onclick: () => go(to) }, label);
  const play = element("button", { type: "button", class: "chip play", "data-key": "flow-play", onclick: () => playFlow(total) }, "▶ play");
  const now = time < read ? `reads “${labelsOf(sentence.source)[time]}”` : time < read + summed ? "has read everything: one vector is left" : `writes after “${labelsOf(sentence.prefix)[time - read - summed]}”`;
  root.append(
    element("div", { class: "caption" }, element("span", { class: "steps" }, button("back", "‹ back", time - 1), button("on", "on ›", time + 1), play, slider, element("span", { class: "muted" }, `step ${time + 1} of ${total}: ${now}`)), legend("−", "+", "signed")),
    element("h4", {}, wrote ? "The encoder reads" : "The text, step by step"),
    flowColumns(sentence, "source", time, (step) => go(step)),
  );
  if (summed) root.append(summaryOf(sentence, time >= read));
  if (wrote) root.append(element("h4", {}, "The decoder writes"), flowColumns(sentence, "prefix", time - read - summed, (step) => go(read + summed + step)));
  const step = wrote ? time - read - summed : time;
  if (sentence.candidates && step >= 0 && step < sentence.candidates.length) root.append(distribution(sentence, stepSide(sentence), step));
  root.append(element("p", { class: "readout", id: "neuron-readout" }));
}

function flowColumns(sentence, side, time, go) {
  const labels = labelsOf(sentence[side]);
  const rows = flowRows(sentence, side);
  const from = Math.max(0, Math.min(time - FLOW_SHOWN / 2, labels.length - FLOW_SHOWN));
  const shown = labels.slice(from, from + FLOW_SHOWN);
  const column = (label, offset) => {
    const step = from + offset;
    const cells = rows.map(({ cell, part }) => {
      const count = part.values.shape[1];
      const values = rangeOf(part.values).subarray(step * count, (step + 1) * count);
      // What reads backward has seen a piece only after all those behind it.
      const later = cell.backward ? labels.length - 1 - step > time : step > time;
      const canvas = strip(values, Math.max(Math.abs(part.values.low), Math.abs(part.values.high), 1e-9), `${cell.name}, ${label}`);
      canvas.classList.toggle("later", later);
      return canvas;
    });
    const said_ = side === "prefix" ? element("small", { class: step > time ? "later" : "" }, "→ ", element("bdi", {}, labelsOf(sentence.target)[step] ?? "")) : "";
    return element("button", { type: "button", class: "moment", "aria-pressed": String(step === time), "data-key": `moment-${side}-${step}`, onclick: () => go(step) }, element("bdi", {}, label), ...cells, said_);
  };
  const more = labels.length > shown.length ? element("p", { class: "muted edit-note" }, `Steps ${from + 1} to ${from + shown.length} of ${labels.length}; each column has the states of ${rows.map(({ cell }) => cell.name).join(", ")}.`) : "";
  return element("div", {}, element("div", { class: "moments", role: "group", "aria-label": sideTitle(sentence, side) }, ...shown.map(column)), more);
}

// All that the decoder gets of the source.
function summaryOf(sentence, reached) {
  const packed = sentence.decoding.summary;
  return element(
    "div",
    { class: reached ? "summary" : "summary later" },
    element("h4", {}, `The context vector: all ${sentence.source.pieces.length} steps in ${packed.shape[0]} numbers`),
    strip(numbersOf(packed), extentOf(packed), "context"),
  );
}

function playFlow(total) {
  if (flow.playing) {
    stopFlow();
    return;
  }
  let time = -1;
  const on = () => {
    time += 1;
    if (time >= total || regard.state.view !== "flow") {
      stopFlow();
      return;
    }
    const playing = flow.playing;
    flow.playing = null; // drawing stops what plays; it is to go on
    flow.time = time;
    change({});
    flow.playing = playing;
    document.querySelector("[data-key=flow-play]").textContent = "❚❚ pause";
  };
  flow.playing = setInterval(on, 700);
  on();
}

function stopFlow() {
  clearInterval(flow.playing);
  flow.playing = null;
}
