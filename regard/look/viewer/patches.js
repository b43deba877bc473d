// The view of images: where a patch, the token for the whole, or a word of a caption looks in the image.
addView({
  name: "patches",
  title: "Image",
  help: (sentence) =>
    sentence.target
      ? "The image, lit where the chosen word's step looked. Point at a word to choose it; click to keep it. Of an attention within the image, patches are chosen instead."
      : "The image, lit where the chosen patch looks. Point at a patch to choose it; click to keep it, or move with Shift and the arrow keys.",
  draw: drawPatches,
  shown: (sentence) => Boolean(sentence.picture),
  needs: (state) => {
    const { rollout } = sentenceOf(state);
    return [[litAttention(state), headsOf(litAttention(state))], ...(rollout ? [[rollout, headsOf(rollout)]] : [])];
  },
});

const patchState = { rollout: false };
const PICTURE = 320; // pixels of the longer side of the large image

// What lights the image: the chosen attention or, where that one looks at words, the last that looks at the image.
function litAttention(state) {
  const chosen = attentionOf(state);
  const others = sentenceOf(state).attentions.filter((one) => one.columns === "source");
  return chosen.columns === "source" ? chosen : (others.at(-1) ?? chosen);
}

function drawPatches(root, state) {
  const sentence = sentenceOf(state);
  const attention = litAttention(state);
  if (attention.columns !== "source") {
    root.append(element("p", { class: "muted" }, "The attentions of this page look at words, not at the image."));
    return;
  }
  const { picture, rollout } = sentence;
  const pieces = sentence.source.pieces;
  const heads = attention === attentionOf(state) ? state.heads : headsOf(attention);
  const matrix = matrixOf(sentence, attention, heads, false);
  const within = attention.rows === "source";
  const pinned = pinnedPiece(state, attention.rows);
  const row = pinned >= 0 ? pinned : 0;
  const rolled = rollout && patchState.rollout;
  // Attention's layers and the rollout's are the same ones, in order.
  const layer = rolled ? Math.min(state.attention, rollout.weights.shape[0] - 1) : 0;
  const weightsAtRow = (values, at) => values.subarray(at * pieces.length, (at + 1) * pieces.length);
  const chosen = (at) => weightsAtRow(rolled ? weightsOf(rollout, layer) : matrix.mean, at);
  const say = element("p", { class: "readout", role: "status" });
  const large = litPicture(picture, PICTURE);
  for (const [name, value] of Object.entries({ tabindex: 0, role: "img", "data-key": "picture", "aria-label": `The image, lit where the chosen ${within ? "patch" : "word"} looks` })) {
    large.node.setAttribute(name, value);
  }
  const small = rolled ? [] : matrix.heads.map((head, order) => ({ head, lit: litPicture(picture, 110), values: matrix.values[order] }));
  const show = (at) => {
    const framed = within ? at : -1;
    large.light(chosen(at), framed);
    for (const one of small) one.lit.light(weightsAtRow(one.values, at), framed);
    say.replaceChildren(...sayPatch(sentence, chosen(at), sentence[attention.rows].pieces[at]));
  };
  large.node.addEventListener("mousemove", (event) => {
    const at = within ? large.pieceAt(event) : null;
    if (at !== null) show(at);
  });
  large.node.addEventListener("mouseleave", () => show(row));
  large.node.addEventListener("click", (event) => {
    const at = within ? large.pieceAt(event) : null;
    if (at !== null) pin("source", at);
  });
  large.node.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -picture.columns, ArrowDown: picture.columns, ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!within || !step || !event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    const to = Math.min(Math.max(row - picture.first + step, 0), picture.rows * picture.columns - 1) + picture.first;
    change({ pin: { side: "source", piece: row < picture.first ? picture.first : to } });
  });
  const toggle = rollout
    ? [element("label", {}, element("input", { type: "checkbox", checked: patchState.rollout, "data-key": "rollout", onchange: (event) => ((patchState.rollout = event.target.checked), change({})) }), element("span", {}, " rollout: through all layers up to the chosen one"))]
    : [];
  const named = within ? pieces.slice(0, picture.first) : sentence[attention.rows].pieces;
  const specials = named.map((label, index) =>
    element("button", { type: "button", class: "word", "aria-pressed": String(index === row), "data-key": `special-${index}`, onmouseenter: () => show(index), onmouseleave: () => show(row), onclick: () => pin(attention.rows, index) }, element("bdi", {}, visible(label))),
  );
  root.append(
    element("div", { class: "caption" }, element("span", { class: "modes" }, ...specials, ...toggle), glowLegend()),
    say,
    element(
      "div",
      { class: "pictures-of" },
      large.node,
      element("div", { class: "pictures" }, ...small.map(({ head, lit }) => element("figure", { class: lookOf(attention, head) }, lit.node, element("figcaption", {}, `head ${headName(attention, head)}`)))),
    ),
  );
  show(row);
}

// The image in grey, with a sheet of patches over it that glow where they are looked at: seen on dark and light alike.
const GLOW = [255, 140, 0];
const OPAQUE = 0.82;

function glowLegend() {
  const bar = element("canvas", { class: "ramp", width: 64, height: 1, "aria-hidden": "true" });
  const context = bar.getContext("2d");
  for (let step = 0; step < 64; step += 1) {
    const share = (OPAQUE * step) / 63;
    const mixed = GLOW.map((channel) => Math.round(128 * (1 - share) + channel * share));
    context.fillStyle = `rgb(${mixed.join(" ")})`;
    context.fillRect(step, 0, 1, 1);
  }
  return element("span", { class: "legend" }, "0", bar, "most");
}

function litPicture(picture, longest) {
  const scale = longest / Math.max(picture.width, picture.height);
  const [width, height] = [picture.width * scale, picture.height * scale];
  const sheet = element("canvas", { class: "sheet" });
  const frame = element("span", { class: "patch-frame" });
  const image = element("img", { src: picture.image, alt: "", draggable: "false", style: { width: `${width}px`, height: `${height}px` } });
  const node = element("div", { class: "lit", style: { width: `${width}px`, height: `${height}px` } }, image, sheet, frame);
  const light = (weights, at) => {
    const patches = Array.from(weights.subarray(picture.first));
    const most = Math.max(...patches, 1e-9);
    sheet.width = picture.columns;
    sheet.height = picture.rows;
    const context = sheet.getContext("2d");
    const pixels = context.createImageData(picture.columns, picture.rows);
    patches.forEach((weight, index) => pixels.data.set([...GLOW, Math.round((OPAQUE * 255 * weight) / most)], index * 4));
    context.putImageData(pixels, 0, 0);
    const place = at - picture.first;
    frame.hidden = place < 0;
    if (place >= 0) {
      const [across, down] = [width / picture.columns, height / picture.rows];
      const box = { left: (place % picture.columns) * across, top: Math.floor(place / picture.columns) * down, width: across, height: down };
      for (const [name, value] of Object.entries(box)) frame.style.setProperty(name, `${value}px`);
    }
    node.dataset.weights = patches.map((weight) => weight.toFixed(3)).join(" ");
  };
  const pieceAt = (event) => {
    const box = node.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * picture.columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * picture.rows);
    const inside = column >= 0 && row >= 0 && column < picture.columns && row < picture.rows;
    return inside ? picture.first + row * picture.columns + column : null;
  };
  return { node, light, pieceAt };
}

function sayPatch(sentence, weights, name) {
  const { pieces } = sentence.source;
  const { first } = sentence.picture;
  const order = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 4);
  const named = order.map((index) => `${visible(pieces[index])} ${weights[index].toFixed(3)}`).join(", ");
  const beside = pieces.slice(0, first).map((label, index) => `${visible(label)} itself ${weights[index].toFixed(3)}`);
  return ["“", element("bdi", {}, visible(name)), `” looks most at ${named}`, beside.length && !order.includes(0) ? `; ${beside.join(", ")}` : "", "."];
}
