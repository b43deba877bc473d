// What every view shares: the document, the state, and how elements are made.
"use strict";

const regard = { views: [], document: null, state: null };

// The drawing namespace is taken from an element the browser parsed.
const DRAWING = document.getElementById("drawing").namespaceURI;

// Makes an element. Children are elements or strings; strings become text, never markup.
function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

function drawn(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(DRAWING, tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// A view is { name, title, help, draw(root, state) }; views are listed in the order they were added. `shown(sentence)`
// says whether there is anything for it to show, by default wherever there is attention; `needs(state)` what it must have
// read: pairs of attention and heads. Title and help may be functions of the sentence. `opens(heads)` says which of the
// heads it shows until some are chosen. `joins` says that it can join pieces to words. `step(state, by)` goes on by one step, or back, and `steps` says in words by what;
// without them a presenter's arrow keys go from token to token.
function addView(view) {
  regard.views.push(view);
}

function viewsOf(sentence) {
  return regard.views.filter((view) => view.shown?.(sentence) ?? sentence.attentions.length > 0);
}

function viewOf(state) {
  return regard.views.find((view) => view.name === state.view);
}

function said(words, sentence) {
  return worded(typeof words === "function" ? words(sentence) : words);
}

// Where nothing hovers and there are no keys, words say what a finger does: what it taps it also keeps.
function worded(text) {
  if (!TOUCH.matches) return text;
  text = text.replace("; click to keep", " and keep").replace(", or move with Shift and the arrow keys", "");
  const fingers = { "Point at": "Tap", "point at": "tap", "pointed at": "tapped", "Click": "Tap", "click": "tap", "Rest on": "Tap" };
  return text.replace(/Point at|point at|pointed at|Click|click|Rest on/g, (one) => fingers[one]);
}

function sentenceOf(state) {
  return regard.document.sentences[state.sentence];
}

function attentionOf(state) {
  return sentenceOf(state).attentions[state.attention];
}

// A recurrent model may have no attention, and then no heads.
function headsOf(attention) {
  return Array.from({ length: attention?.weights.shape[0] ?? 0 }, (_, head) => head);
}

// The number a head has in the model; a page may hold some of them only.
function headName(attention, head) {
  return String(attention.heads?.[head] ?? head);
}

// A sentence without a target is no one's source.
function sideTitle(sentence, name) {
  return { source: sentence.target ? "Source" : sentence.picture ? "Image" : "Text", target: "Target", prefix: "Target so far" }[name];
}

// Whether every side of the attention knows its words, so that pieces can be merged.
function hasWords(sentence, attention) {
  return Boolean(attention && sentence[attention.rows].words && sentence[attention.columns].words);
}

// Whether any word was cut into pieces: then whole words are what a reader wants to see first.
function cutsWords() {
  const sides = regard.document.sentences.flatMap((one) => [one.source, one.target]).filter((side) => side?.words);
  return sides.some((side) => side.word_of.some((word, piece) => piece > 0 && word !== null && word === side.word_of[piece - 1]));
}

// Brings a state back into what the document offers: after another sentence or layer is chosen, and for old links.
function fitted(state) {
  const within = (value, count) => Math.min(Math.max(Math.trunc(value) || 0, 0), count - 1);
  const sentence = within(state.sentence, regard.document.sentences.length);
  const attention = within(state.attention, regard.document.sentences[sentence].attentions.length);
  const known = headsOf(regard.document.sentences[sentence].attentions[attention]);
  const wanted = state.heads === "all" ? known : known.filter((head) => state.heads?.includes(head));
  const offered = viewsOf(regard.document.sentences[sentence]);
  const view = offered.some((one) => one.name === state.view) ? state.view : offered[0].name;
  const pieces = regard.document.sentences[sentence][state.pin?.side]?.pieces ?? [];
  const pin = pieces[state.pin?.piece] === undefined ? null : state.pin;
  const chosen = wanted.length > 0 && state.chosen;
  const heads = chosen ? wanted : openedWith(regard.document.sentences[sentence].attentions[attention], viewOf({ view }));
  return { ...state, sentence, attention, view, pin, heads, chosen };
}

// The heads that a view shows before any is chosen. Those of a long text are read one by one, so it opens with one.
function openedWith(attention, view) {
  const known = headsOf(attention);
  if (!attention) return known;
  return attention.weights.squeezed ? known.slice(0, 1) : (view.opens?.(known) ?? known);
}

// The pinned piece as a row of an attention, or -1. What the decoder reads lies one piece behind what it predicts, so
// a pinned piece of the one is found in the other.
function pinnedPiece(state, side) {
  const { pin } = state;
  if (!pin) return -1;
  if (pin.side === side) return pin.piece;
  const pair = `${pin.side}-${side}`;
  const piece = pair === "target-prefix" ? pin.piece + 1 : pair === "prefix-target" ? pin.piece - 1 : -1;
  return sentenceOf(state)[side]?.pieces[piece] === undefined ? -1 : piece;
}

// Pins a piece for every view, or lets go of it when it is pinned already.
function pin(side, piece, part = {}) {
  const here = regard.state.pin;
  change({ ...part, pin: here?.side === side && here.piece === piece ? null : { side, piece } });
}

function change(part) {
  regard.state = fitted({ ...regard.state, ...(part.heads ? { chosen: true } : {}), ...part });
  remember(regard.state);
  tellOthers(regard.state);
  redraw();
}

// Pages side by side show the same: each tells the page around it where it is, which tells the others.
function tellOthers({ view, sentence, attention, heads, chosen, words, pin: kept }) {
  if (regard.document.beside) parent.postMessage({ regard: { view, sentence, attention, heads, chosen, words, pin: kept } }, "*");
}

function hearOthers(event) {
  if (!regard.document.beside || event.source !== parent || !event.data?.regard) return;
  regard.state = fitted({ ...regard.state, ...event.data.regard });
  redraw();
}

// The state lives in the address, so that a link opens the page where it was left.
function remember(state) {
  const all = state.heads.length === headsOf(attentionOf(state)).length;
  const hash = new URLSearchParams({
    view: state.view,
    sentence: state.sentence,
    attention: state.attention,
    ...(state.chosen ? { heads: all ? "all" : state.heads.join(".") } : {}),
    words: state.words ? 1 : 0,
    ...(state.present ? { present: 1 } : {}),
    ...(state.pin ? { pin: `${state.pin.side}.${state.pin.piece}` } : {}),
  });
  try {
    history.replaceState(null, "", `#${hash}`);
  } catch {
    // A page inside a notebook may have no address of its own; it works without.
  }
}

function recalled() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const attention = hash.has("attention") ? Number(hash.get("attention")) : lastCross();
  return {
    view: hash.get("view") ?? opening(regard.document.sentences[0]),
    sentence: Number(hash.get("sentence")),
    attention,
    heads: hash.get("heads") === "all" ? "all" : (hash.get("heads") ?? "").split(".").filter(Boolean).map(Number),
    chosen: hash.has("heads"),
    words: hash.has("words") ? hash.get("words") === "1" : cutsWords(),
    present: hash.get("present") === "1",
    pin: recalledPin(hash.get("pin")),
  };
}

// The view that a page opens with: what is looked at itself, where it is a sound or an image; else the first.
function opening({ worked, sound, picture }) {
  if (worked) return "neurons";
  if (sound) return "sound";
  return picture ? "patches" : null;
}

function recalledPin(text) {
  const [side, piece] = (text ?? "").split(".");
  return ["source", "target", "prefix"].includes(side) && /^\d+$/.test(piece ?? "") ? { side, piece: Number(piece) } : null;
}

// Where the target looks at the source is what most people come to see.
function lastCross() {
  return Math.max(regard.document.sentences[0].attentions.findLastIndex((one) => one.kind === "cross"), 0);
}

// A side's pieces as labels. Pieces of text show their white space; names, such as "item 1: 4", are written as they are.
function labelsOf(side) {
  return side.names ? side.pieces : side.pieces.map(visible);
}

// The label of a piece that a step gave or could have given.
function stepLabel(sentence, piece) {
  return (sentence.target ?? sentence.source).names ? piece : visible(piece);
}

// A piece as it can be seen: white space has marks.
function visible(piece) {
  return piece.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
}
