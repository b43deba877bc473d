// The view of parses: the tree that was written, and for the chosen node the words that its step looked at.
addView({
  name: "trees",
  title: "Tree",
  help: () =>
    "The tree that the model wrote. Point at a node to see which words its step looked at; click to keep it, or move with Shift and the arrow keys.",
  draw: drawTree,
  shown: (sentence) => Boolean(sentence.tree?.length),
  needs: (state) => {
    const attention = treeAttention(state);
    return attention ? [[attention, headsOf(attention)]] : [];
  },
});

const LEVEL = 42; // pixels from a node to its children
const GAP = 14; // pixels between two words

// What shades the words: the chosen attention or, where that one does not look from the tree at words, the last that does.
function treeAttention(state) {
  const looks = (one) => one.rows === "target" && one.columns === "source";
  const chosen = attentionOf(state);
  return looks(chosen) ? chosen : sentenceOf(state).attentions.filter(looks).at(-1);
}

// Where each node stands: words side by side at the bottom, every other node in the middle above its children.
function laidOut(tree, pieces) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "14px system-ui, sans-serif";
  const children = tree.map(() => []);
  tree.forEach((node, index) => node.parent >= 0 && children[node.parent].push(index));
  const depth = [];
  tree.forEach((node, index) => depth.push(node.parent < 0 ? 0 : depth[node.parent] + 1));
  const lowest = Math.max(...depth);
  const places = tree.map(() => ({ x: 0, y: 0 }));
  let right = GAP;
  tree.forEach((node, index) => {
    if (typeof node.word !== "number") return;
    const width = Math.max(pen.measureText(visible(pieces[node.word])).width, pen.measureText(node.label).width);
    places[index] = { x: right + width / 2, y: 24 + lowest * LEVEL, width };
    right += width + GAP;
  });
  for (let index = tree.length - 1; index >= 0; index -= 1) {
    if (!children[index].length) continue;
    const across = children[index].map((child) => places[child].x);
    places[index] = { x: (across[0] + across.at(-1)) / 2, y: 24 + depth[index] * LEVEL };
  }
  return { places, width: right, height: 24 + lowest * LEVEL + 48 };
}

function drawTree(root, state) {
  const sentence = sentenceOf(state);
  const { tree } = sentence;
  const { pieces } = sentence.source;
  const attention = treeAttention(state);
  const heads = attention === attentionOf(state) ? state.heads : attention ? headsOf(attention) : [];
  const mean = attention ? matrixOf(sentence, attention, heads, false).mean : null;
  const pinned = tree.findIndex((node) => node.step === pinnedPiece(state, "target"));
  const chosen = Math.max(pinned, 0);
  const { places, width, height } = laidOut(tree, pieces);
  const say = element("p", { class: "readout", role: "status" });
  const shades = tree.map((node, index) =>
    typeof node.word === "number"
      ? drawn("rect", { class: "shade", x: places[index].x - places[index].width / 2 - 3, y: places[index].y + 10, width: places[index].width + 6, height: 22, rx: 3 })
      : null,
  );
  const edges = tree.flatMap((node, index) =>
    node.parent < 0 ? [] : [drawn("line", { class: "edge", x1: places[node.parent].x, y1: places[node.parent].y + 7, x2: places[index].x, y2: places[index].y - 11 })],
  );
  const show = (at) => {
    labels.forEach((label, index) => label.classList.toggle("chosen", index === at));
    if (!mean) return;
    const row = mean.subarray(tree[at].step * pieces.length, (tree[at].step + 1) * pieces.length);
    tree.forEach((node, index) => shades[index]?.style.setProperty("opacity", row[node.word].toFixed(3)));
    const order = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, 4);
    const named = order.map((index) => `${visible(pieces[index])} ${row[index].toFixed(3)}`).join(", ");
    say.replaceChildren(`Writing ${tree[at].label}, the model looked most at ${named}.`);
  };
  const labels = tree.map((node, index) =>
    drawn(
      "text",
      { class: "node", x: places[index].x, y: places[index].y, "text-anchor": "middle", "dominant-baseline": "central", "data-node": index, onmouseenter: () => show(index), onmouseleave: () => show(chosen), onclick: () => pin("target", node.step) },
      node.label,
    ),
  );
  const words = tree.flatMap((node, index) =>
    typeof node.word === "number" ? [drawn("text", { class: "leaf", x: places[index].x, y: places[index].y + 21, "text-anchor": "middle", "dominant-baseline": "central" }, visible(pieces[node.word]))] : [],
  );
  const picture = drawn("svg", { class: "parse", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "The tree of the sentence" }, ...edges, ...shades.filter(Boolean), ...labels, ...words);
  const frame = element("div", {
    class: "scroll",
    tabindex: 0,
    "data-key": "parse",
    onkeydown: (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!step || !event.shiftKey) return;
      event.preventDefault();
      event.stopPropagation();
      const to = Math.min(Math.max(chosen + step, 0), tree.length - 1);
      change({ pin: { side: "target", piece: tree[to].step } });
    },
  }, picture);
  root.append(say, frame);
  show(chosen);
}
