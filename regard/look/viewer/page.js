// The page around the views: title, text, controls and keys. Comes last and starts everything.
let turn = 0;
const TOUCH = matchMedia("(hover: none) and (pointer: coarse)");

// Draws the page anew. What a view needs may have to be read first; whoever has moved on meanwhile is not waited for.
async function redraw() {
  turn += 1;
  const mine = turn;
  const key = document.activeElement?.dataset?.key;
  const state = regard.state;
  const view = viewOf(state);
  document.documentElement.classList.toggle("presenting", state.present);
  const picture = element("section", { class: "view", id: "view", role: "tabpanel", "aria-label": said(view.title, sentenceOf(state)) });
  document
    .getElementById("page")
    .replaceChildren(...(state.present ? [lectern(state, view)] : [header(), text(state), controls(state), element("p", { class: "help" }, element("span", {}, said(view.help, sentenceOf(state))), keysHelp())]), picture);
  const wanted = view.needs?.(state) ?? (attentionOf(state) ? [[attentionOf(state), state.heads]] : []);
  if (!wanted.every(([attention, heads]) => isRead(attention, heads))) {
    picture.append(element("p", { class: "muted" }, "Reading…"));
    for (const [attention, heads] of wanted) await readWeights(attention, heads);
    if (mine !== turn) return;
    picture.replaceChildren();
  }
  if (state.present) drawLarge(picture, view, state);
  else view.draw(picture, state);
  // Everything was made anew: give the keyboard its place back.
  if (key) document.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  document.documentElement.dataset.drawn = mine;
  document.documentElement.dataset.after ??= Math.round(performance.now()); // milliseconds from asking to the first view
}

function header() {
  const note = regard.document.note;
  return element("header", {}, element("h1", {}, regard.document.title), note ? element("p", { class: "muted" }, note) : "");
}

function text(state) {
  const sentence = sentenceOf(state);
  const line = (name) =>
    sentence[name]?.text ? [element("dt", {}, sentence.worked ? "Example" : sideTitle(sentence, name)), element("dd", { dir: "auto" }, sentence[name].text)] : [];
  const scores = Object.entries(sentence.scores ?? {}).map(([name, value]) =>
    element("span", { class: "score" }, element("span", { class: "muted" }, name), " ", value),
  );
  return element(
    "section",
    { class: "text" },
    element("dl", {}, ...line("source"), ...line("target")),
    scores.length ? element("p", { class: "scores" }, ...scores) : "",
  );
}

function controls(state) {
  const tab = (view) =>
    element(
      "button",
      {
        type: "button",
        role: "tab",
        "aria-selected": String(view.name === state.view),
        "aria-controls": "view",
        "data-key": `tab-${view.name}`,
        onclick: () => change({ view: view.name }),
      },
      said(view.title, sentenceOf(state)),
    );
  const saver = (kind, how) =>
    element("button", { type: "button", class: "save", title: `Save this view as ${kind}`, "data-key": `save-${kind.toLowerCase()}`, onclick: () => how(regard.state) }, `Save ${kind}`);
  return element(
    "nav",
    { "aria-label": "What to show" },
    element(
      "div",
      { class: "bar-of-tabs" },
      element("div", { class: "tabs", role: "tablist" }, ...viewsOf(sentenceOf(state)).map(tab)),
      element(
        "div",
        { class: "savers" },
        element("button", { type: "button", class: "save", title: "One view, large, to be stepped through with the arrow keys", "data-key": "present", onclick: () => change({ present: true }) }, "Present"),
        saver("SVG", saveSvg),
        saver("PNG", savePng),
      ),
    ),
    ...(viewOf(state).bare || !attentionOf(state) || sentenceOf(state).worked ? sentencePicker(state) : choices(state)),
  );
}

function choices(state) {
  const names = sentenceOf(state).attentions.map((one) => one.name);
  return [...sentencePicker(state), picker("Layer", "attention", names, state.attention), headPicker(state), ...(viewOf(state).joins ? [wordSwitch(state)] : [])];
}

function sentencePicker(state) {
  const { sentences } = regard.document;
  if (sentences.length < 2) return [];
  const names = sentences.map((one, index) => `${index + 1}. ${one.source.text}`);
  return [picker(sentences[0].worked ? "Example" : "Sentence", "sentence", names, state.sentence)];
}

function picker(label, name, choices, chosen) {
  const options = choices.map((choice, index) => element("option", { value: index, selected: index === chosen }, choice));
  const onchange = (event) => change({ [name]: Number(event.target.value) });
  return element("label", {}, element("span", {}, label), element("select", { "data-key": name, onchange }, ...options));
}

function headPicker(state) {
  const known = headsOf(attentionOf(state));
  const all = state.heads.length === known.length;
  const chip = (label, pressed, heads, look, title) =>
    element(
      "button",
      {
        type: "button",
        class: look === null ? "chip" : "chip head-chip",
        title,
        "aria-pressed": String(pressed),
        "data-key": `head-${label}`,
        onclick: () => change({ heads }),
      },
      label,
      ...(look === null ? [] : [swatch(look, { length: 22 })]),
    );
  const toggled = (head) => {
    if (all) return [head];
    return state.heads.includes(head) ? state.heads.filter((one) => one !== head) : [...state.heads, head];
  };
  return element(
    "div",
    { class: "chips", role: "group", "aria-label": "Heads" },
    element("span", {}, "Heads"),
    chip("all", all, known, null, "Every head, together"),
    ...known.map((head) => {
      const name = headName(attentionOf(state), head);
      return chip(name, state.heads.includes(head), toggled(head), lookOf(attentionOf(state), head), `Head ${name}`);
    }),
    state.chosen || all ? "" : element("span", { class: "opened" }, openedNote(state, known)),
  );
}

// What a reader could not know: that there are more heads than the page opened with.
function openedNote(state, known) {
  const names = state.heads.map((head) => headName(attentionOf(state), head)).join(", ");
  return worded(`Opened with head ${names} of ${known.length}: click others to add them, or all.`);
}

function wordSwitch(state) {
  const possible = hasWords(sentenceOf(state), attentionOf(state));
  const without = possible && state.words ? leftOut(sentenceOf(state), attentionOf(state)) : "";
  const box = element("input", {
    type: "checkbox",
    checked: state.words && possible,
    disabled: !possible,
    "data-key": "words",
    onchange: (event) => change({ words: event.target.checked }),
  });
  return element("label", { class: possible ? "" : "off" }, box, element("span", {}, "Whole words", without ? element("span", { class: "muted" }, ` without ${without}`) : ""));
}

// The pieces that are part of no word, such as an end of sentence: weights on them are seen piece by piece alone.
function leftOut(sentence, attention) {
  const sides = [...new Set([attention.rows, attention.columns])].map((name) => sentence[name]);
  const names = new Set(sides.flatMap((side) => labelsOf(side).filter((_, piece) => side.word_of[piece] === null)));
  return [...names].slice(0, 3).join(", ") + (names.size > 3 ? ", …" : "");
}

// At a lectern: the view alone, its name, one sentence about it, and where to go from here.
function lectern(state, view) {
  const button = (key, label, title, part) => element("button", { type: "button", class: "chip", title, "data-key": key, onclick: () => change(part()) }, label);
  return element(
    "header",
    { class: "lectern" },
    element("h1", {}, said(view.title, sentenceOf(state))),
    element("p", { class: "idea" }, said(view.help, sentenceOf(state)).split(/(?<=\.) /)[0]),
    element(
      "nav",
      { "aria-label": "Presenting" },
      button("present-back", "‹", `Back by ${said(view.steps ?? "one token", sentenceOf(state))}`, () => present(regard.state, -1)),
      button("present-on", "›", `On by ${said(view.steps ?? "one token", sentenceOf(state))}`, () => present(regard.state, 1)),
      button("present-view", "next view", "The next view", () => stepView(regard.state, 1)),
      button("present-end", "leave", "Back to the whole page", () => ({ present: false })),
    ),
  );
}

// As large as the screen has room for, so that nothing is scrolled; what is too much at any size is readable and scrolls.
const SIZES = [2.6, 2.2, 1.9, 1.6, 1.35];
const largest = new Map();

function drawLarge(picture, view, state) {
  // A phone is held in the hand. Of a long text one layout takes long, and it scrolls at any size.
  const long = sentenceOf(state).attentions.some((one) => one.weights.squeezed);
  const sizes = innerWidth < 900 ? [1] : long ? [1.35] : SIZES;
  // The same size for all steps of a view: what stands still must not move.
  const same = [view.name, state.sentence, state.attention, state.heads.length, state.words, innerWidth, innerHeight].join(" ");
  const tried = largest.has(same) ? [largest.get(same)] : sizes;
  for (const size of tried) {
    largest.set(same, size);
    picture.style.setProperty("zoom", size);
    picture.replaceChildren();
    view.draw(picture, state);
    const page = document.documentElement;
    const wide = [picture, ...picture.querySelectorAll(".scroll")].some((part) => part.scrollWidth > part.clientWidth + 1);
    if (page.scrollHeight <= innerHeight && !wide) break;
  }
}

// One step of whatever the view steps by; where it has nothing of its own, the next token is kept.
function present(state, by) {
  const view = viewOf(state);
  if (view.step) return view.step(state, by) ?? {};
  const attention = attentionOf(state);
  if (!attention) return {};
  const side = sentenceOf(state)[attention.rows];
  const byWord = state.words && hasWords(sentenceOf(state), attention);
  const count = byWord ? side.words.length : side.pieces.length;
  const here = placeOf(side, pinnedPiece(state, attention.rows), byWord);
  const next = here < 0 ? (by > 0 ? 0 : count - 1) : Math.min(Math.max(here + by, 0), count - 1);
  return { pin: { side: attention.rows, piece: pieceAt(side, next, byWord) } };
}

function stepView(state, by) {
  const known = viewsOf(sentenceOf(state));
  const here = known.findIndex((view) => view.name === state.view);
  return { view: known[(here + by + known.length) % known.length].name };
}

function keysHelp() {
  // Only where something can be kept.
  if (TOUCH.matches) return element("span", { class: "keys-help" }, said(viewOf(regard.state).help, sentenceOf(regard.state)).includes(" keep ") ? "Tap it again to let go." : "");
  if (!attentionOf(regard.state)) return element("span", { class: "keys-help" });
  const key = (name) => element("kbd", {}, name);
  const chosen = !viewOf(regard.state).bare; // where a layer and heads are chosen
  const several = { heads: chosen && headsOf(attentionOf(regard.state)).length > 1, layers: chosen && sentenceOf(regard.state).attentions.length > 1 };
  return element(
    "span",
    { class: "keys-help" },
    ...(several.heads ? [key("←"), key("→"), " head "] : []), ...(several.layers ? [key("↑"), key("↓"), " layer "] : []), key("1"), "…", key(String(Math.min(9, viewsOf(sentenceOf(regard.state)).length))), " view ", ...(viewOf(regard.state).joins ? [key("w"), " words "] : []), key("p"), " present",
  );
}

// One step from head to head; between the last and the first come all of them together.
function stepHead(state, step) {
  if (!attentionOf(state)) return viewOf(state).step?.(state, step) ?? {};
  const known = headsOf(attentionOf(state));
  const here = state.heads.length === 1 && known.length > 1 ? state.heads[0] : known.length;
  const next = (here + step + known.length + 1) % (known.length + 1);
  return { heads: next === known.length ? known : [next] };
}

function stepLayer(state, step) {
  const count = sentenceOf(state).attentions.length;
  if (!count) return {};
  const all = state.heads.length === headsOf(attentionOf(state)).length;
  const attention = (state.attention + step + count) % count;
  if (!state.chosen) return { attention };
  return { attention, heads: all ? headsOf(sentenceOf(state).attentions[attention]) : state.heads };
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  if (event.target.matches?.("select, textarea, input[type=text], input[type=search]")) return;
  const state = regard.state;
  if (event.key === "Escape") document.activeElement?.blur();
  const presented = { Escape: () => ({ present: false }), ArrowLeft: () => present(state, -1), ArrowRight: () => present(state, 1), ArrowUp: () => stepView(state, -1), ArrowDown: () => stepView(state, 1) };
  const part = (state.present ? presented[event.key] : null) ?? {
    Escape: () => ({}),
    p: () => ({ present: !state.present }),
    ArrowLeft: () => stepHead(state, -1),
    ArrowRight: () => stepHead(state, 1),
    ArrowUp: () => stepLayer(state, -1),
    ArrowDown: () => stepLayer(state, 1),
    w: () => ({ words: !state.words }),
  }[event.key];
  const view = viewsOf(sentenceOf(state))[Number(event.key) - 1];
  if (!part && !view) return;
  event.preventDefault();
  change(part ? part() : { view: view.name });
}

function start() {
  regard.document = JSON.parse(document.getElementById("document").textContent);
  change(recalled());
  addEventListener("keydown", onKey);
  addEventListener("message", hearOthers);
  TOUCH.addEventListener("change", redraw);
  DARK.addEventListener("change", redraw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) redraw();
    width = innerWidth;
  });
}

start();
