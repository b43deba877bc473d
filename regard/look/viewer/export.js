// Any view as one SVG file: what the browser laid out, box by box and line by line, with its text still text.
const SVG_STYLE = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor", "dominant-baseline"];

// A document of its own, which is never shown and so loads nothing.
const PAPER = document.implementation.createDocument(DRAWING, "svg");

function onPaper(tag, attributes = {}, ...children) {
  return furnish(PAPER.createElementNS(DRAWING, tag), attributes, children);
}

function pictureOf(root) {
  const box = root.getBoundingClientRect();
  const page = getComputedStyle(document.body);
  const parts = [];
  gather(root, box, parts);
  return onPaper(
    "svg",
    { width: Math.ceil(box.width), height: Math.ceil(root.scrollHeight), viewBox: `0 0 ${Math.ceil(box.width)} ${Math.ceil(root.scrollHeight)}`, "font-family": page.fontFamily },
    onPaper("rect", { width: "100%", height: "100%", fill: page.backgroundColor }),
    ...parts,
  );
}

function gather(node, origin, parts) {
  if (node.nodeType === Node.TEXT_NODE) {
    writeText(node, origin, parts);
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE) return;
  const style = getComputedStyle(node);
  const box = node.getBoundingClientRect();
  // Buttons and sliders are for the page, not for the figure.
  if (node.matches(".chip, input, .zoom")) return;
  if (style.display === "none" || style.visibility === "hidden" || Number(style.opacity) === 0 || (!box.width && !box.height)) return;
  if (Number(style.opacity) < 1 && !node.dataset.opaque) {
    const faint = [];
    node.dataset.opaque = "1";
    gather(node, origin, faint);
    delete node.dataset.opaque;
    parts.push(onPaper("g", { opacity: style.opacity }, ...faint));
    return;
  }
  const at = { x: box.left - origin.left, y: box.top - origin.top, width: box.width, height: box.height };
  if (node instanceof HTMLCanvasElement) {
    const large = drawnLarge(node, at);
    parts.push(onPaper("image", { ...at, href: large.toDataURL("image/png"), preserveAspectRatio: "none" }));
    return;
  }
  if (node instanceof SVGSVGElement) {
    const copy = copied(node);
    for (const [name, value] of Object.entries(at)) copy.setAttribute(name, value);
    copy.setAttribute("overflow", "visible");
    parts.push(copy);
    return;
  }
  const [seen, border] = [style.backgroundColor, Number.parseFloat(style.borderTopWidth)];
  const clear = seen === "rgba(0, 0, 0, 0)" || seen === "transparent";
  const framed = border > 0 && style.borderTopStyle !== "none";
  if (!clear || framed) {
    parts.push(onPaper("rect", { ...at, rx: Number.parseFloat(style.borderTopLeftRadius) || 0, fill: clear ? "none" : seen, stroke: framed ? style.borderTopColor : "none", "stroke-width": framed ? border : 0 }));
  }
  if (node instanceof HTMLSelectElement) {
    parts.push(onPaper("text", { x: at.x + 6, y: at.y + at.height / 2, "dominant-baseline": "central", "font-size": style.fontSize, fill: style.color }, node.selectedOptions[0]?.textContent ?? ""));
    return;
  }
  for (const child of node.childNodes) gather(child, origin, parts);
}

// A canvas of a few pixels, drawn at the size it is shown in: not every reader of SVG keeps pixels sharp.
function drawnLarge(canvas, { width, height }) {
  if (canvas.width >= width) return canvas;
  const large = document.createElement("canvas");
  large.width = Math.ceil(width * 2);
  large.height = Math.ceil(height * 2);
  const context = large.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, 0, large.width, large.height);
  return large;
}

// A drawing with the style sheet's colours and sizes written into it.
function copied(node) {
  const copy = PAPER.importNode(node, true);
  const pairs = [[node, copy], ...[...node.querySelectorAll("*")].map((one, index) => [one, copy.querySelectorAll("*")[index]])];
  for (const [from, to] of pairs) {
    const style = getComputedStyle(from);
    for (const name of SVG_STYLE) to.setAttribute(name, style.getPropertyValue(name));
    to.removeAttribute("class");
    to.removeAttribute("style");
  }
  return copy;
}

// A text node line by line, since it may have been broken over several.
function writeText(node, origin, parts) {
  const text = node.textContent;
  if (!text.trim()) return;
  const style = getComputedStyle(node.parentElement);
  const range = document.createRange();
  let line = null;
  const flush = () => {
    if (line?.text.trim()) {
      parts.push(onPaper("text", { x: line.left - origin.left, y: line.top - origin.top + line.height / 2, "dominant-baseline": "central", "font-size": style.fontSize, "font-weight": style.fontWeight, fill: style.color, "xml:space": "preserve" }, line.text));
    }
  };
  for (let index = 0; index < text.length; index += 1) {
    range.setStart(node, index);
    range.setEnd(node, index + 1);
    const box = range.getBoundingClientRect();
    if (!box.width && !box.height) continue;
    if (line && Math.abs(box.top - line.top) < 2) line.text += text[index];
    else {
      flush();
      line = { text: text[index], left: box.left, top: box.top, height: box.height };
    }
  }
  flush();
}

function save(name, kind, content) {
  const link = element("a", { download: name });
  link.href = URL.createObjectURL(new Blob([content], { type: kind }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function fileName(state, ending) {
  return `${state.view}-${attentionOf(state)?.name ?? "recurrence"}-${state.sentence + 1}.${ending}`.replaceAll(/[^\w.-]+/g, "_");
}

function drawnView() {
  const drawing = pictureOf(document.getElementById("view"));
  return { width: Number(drawing.getAttribute("width")), height: Number(drawing.getAttribute("height")), text: new XMLSerializer().serializeToString(drawing) };
}

function saveSvg(state) {
  save(fileName(state, "svg"), "image/svg+xml", drawnView().text);
}

const [FINE, LONGEST] = [2, 16_000]; // pixels to a point, and the longest side that a canvas may have

// The same drawing as pixels.
async function savePng(state) {
  const { width, height, text } = drawnView();
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await picture.decode();
  const scale = Math.min(FINE, LONGEST / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.floor(width * scale);
  canvas.height = Math.floor(height * scale);
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  const pixels = await new Promise((done) => canvas.toBlob(done, "image/png"));
  save(fileName(state, "png"), "image/png", pixels);
}
