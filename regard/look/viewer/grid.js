// The grid view: every head of every layer at a glance; choosing one opens it in the map.
const THUMBNAIL = 88; // the longest side in pixels

addView({
  name: "grid",
  title: "All heads",
  help: "Each row is a layer, each thumbnail a head: who looks, top to bottom, at what, left to right. Choose one to open it.",
  draw: drawGrid,
  joins: true,
  needs: () => [],
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
  return sentence.alignment ? "Under a thumbnail: the head, and its alignment error rate on this sentence." : "Under a thumbnail: the head.";
}

function thumbnail(sentence, index, head, state) {
  const attention = sentence.attentions[index];
  const [, rows, columns] = attention.weights.shape;
  const picture = element("canvas", { "aria-hidden": "true" });
  const rate = element("small", {});
  const chosen = state.attention === index && state.heads.includes(head);
  const name = headName(attention, head);
  const button = element(
    "button",
    {
      class: chosen ? "thumbnail chosen" : "thumbnail",
      type: "button",
      "aria-label": `${attention.name}, head ${name}`,
      "data-key": `thumbnail-${index}-${head}`,
      onclick: () => change({ attention: index, heads: [head], view: "map" }),
    },
    picture,
    element("span", {}, name, rate),
  );
  size(picture, rows, columns);
  const show = () => {
    const matrix = matrixOf(sentence, attention, [head], state.words);
    const [height, width] = [matrix.rows.length, matrix.columns.length];
    const small = pooled(matrix.mean, width, height, Math.max(1, Math.floor(Math.max(width, height) / (2 * THUMBNAIL))));
    const extent = Math.max(width, height) > TILED ? usualLargest(matrix.mean, width, height) : 1;
    paint(picture, small.columns, small.rows, small.values, { extent });
    size(picture, height, width);
    const found = errorRate(sentence, attention, [head]);
    if (found !== null) rate.textContent = found.toFixed(2);
  };
  if (isRead(attention, [head])) show();
  // Long inputs are read head by head; whoever leaves meanwhile is not waited for.
  else laterHeads(() => readWeights(attention, [head]).then(() => button.isConnected && show()), button);
  return button;
}

function size(picture, rows, columns) {
  const scale = THUMBNAIL / Math.max(rows, columns);
  picture.style.setProperty("width", `${Math.max(columns * scale, 4)}px`);
  picture.style.setProperty("height", `${Math.max(rows * scale, 4)}px`);
}

let queue = Promise.resolve();

function laterHeads(work, button) {
  queue = queue.then(() => new Promise((done) => setTimeout(done))).then(() => (button.isConnected ? work() : null));
}
