// The grid view: every head of every layer at a glance; choosing one opens it in the map.
const THUMBNAIL = 88; // the longest side of a picture in pixels

addView({
  name: "grid",
  title: "All heads",
  help: "Each row is a layer, each picture a head: who looks, top to bottom, at what, left to right. Choose one to open it.",
  draw: drawGrid,
});

function drawGrid(root, state) {
  const sentence = sentenceOf(state);
  const rows = sentence.attentions.map((attention, index) =>
    element(
      "section",
      { class: "layer" },
      element(
        "h3",
        {},
        element("bdi", {}, attention.name),
        element("small", {}, `${sideTitle(sentence, attention.rows)} → ${sideTitle(sentence, attention.columns).toLowerCase()}`),
      ),
      element("div", { class: "pictures" }, ...headsOf(attention).map((head) => thumbnail(sentence, index, head, state))),
    ),
  );
  root.append(element("div", { class: "caption" }, element("span", { class: "muted" }, gridNote(sentence)), legend()), ...rows);
}

function gridNote(sentence) {
  return sentence.alignment ? "Under a picture: the head, and its alignment error rate on this sentence." : "Under a picture: the head.";
}

function thumbnail(sentence, index, head, state) {
  const attention = sentence.attentions[index];
  const matrix = matrixOf(sentence, attention, [head], state.words);
  const scale = THUMBNAIL / Math.max(matrix.rows.length, matrix.columns.length);
  const canvas = element("canvas", {
    "aria-hidden": "true",
    style: { width: `${matrix.columns.length * scale}px`, height: `${matrix.rows.length * scale}px` },
  });
  paint(canvas, matrix, matrix.mean);
  const rate = errorRate(sentence, attention, [head]);
  const chosen = state.attention === index && state.heads.includes(head);
  return element(
    "button",
    {
      class: chosen ? "thumbnail chosen" : "thumbnail",
      type: "button",
      "aria-label": `${attention.name}, head ${head}`,
      "data-key": `thumbnail-${index}-${head}`,
      onclick: () => change({ attention: index, heads: [head], view: "map" }),
    },
    canvas,
    element("span", {}, String(head), rate === null ? "" : element("small", {}, rate.toFixed(2))),
  );
}
