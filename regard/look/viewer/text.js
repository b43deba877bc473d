// The text view: the sentence itself, every word shaded by the weight that the chosen one gives it.
addView({
  name: "text",
  title: "Text",
  help: "The text, shaded by where the chosen token looks. Point at another token to choose it; click to keep it.",
  draw: drawText,
  joins: true,
});

const MANY = 24; // lines shown at a time
const settings = { text: "one", from: 0 };

function drawText(root, state) {
  const sentence = sentenceOf(state);
  const attention = attentionOf(state);
  const matrix = matrixOf(sentence, attention, state.heads, state.words);
  const kept = pinnedPlace(state, sentence, attention, matrix);
  const row = kept?.side === "rows" ? kept.index : firstWord(sentence, attention, matrix);
  const mode = (name, label, title) =>
    element(
      "button",
      {
        type: "button",
        class: "chip",
        title,
        "aria-pressed": String(settings.text === name),
        "data-key": `text-${name}`,
        onclick: () => {
          settings.text = name;
          settings.from = 0;
          change({});
        },
      },
      label,
    );
  root.append(
    element(
      "div",
      { class: "caption" },
      element(
        "span",
        { class: "modes", role: "group", "aria-label": "Lines" },
        mode("one", "One token", "The chosen token, all chosen heads together"),
        mode("heads", "A line per head", "The chosen token, each head on a line of its own"),
        mode("rows", "A line per token", "Every token that looks, each on a line of its own"),
      ),
      legend(),
    ),
  );
  if (settings.text === "rows") drawTextRows(root, sentence, attention, matrix, kept);
  else drawTextOf(root, sentence, attention, matrix, row);
}

// Where to begin: a word of the middle shows more than the first, which can only look at itself.
function firstWord(sentence, attention, matrix) {
  return Math.min(Math.floor(matrix.rows.length / 2), matrix.rows.length - 1);
}

function drawTextOf(root, sentence, attention, matrix, row) {
  const asker = element("div", { class: "chooser", role: "group", "aria-label": "Chosen token" });
  const below = element("div", { class: "shaded-lines" });
  const show = (chosen) => {
    for (const [index, token] of [...asker.querySelectorAll(".word")].entries()) {
      token.setAttribute("aria-pressed", String(index === chosen));
    }
    const lines =
      settings.text === "heads"
        ? matrix.heads.map((head, order) => [`head ${headName(attention, head)}`, matrix.values[order], lookOf(attention, head)])
        : [[headPhrase(attention, matrix), matrix.mean, ""]];
    below.replaceChildren(
      ...lines.map(([name, values, kind]) =>
        element(
          "div",
          { class: `shaded-line ${kind}` },
          element("span", { class: "line-name" }, name),
          shadedText(matrix, values, chosen, attention.rows === attention.columns ? chosen : -1),
        ),
      ),
    );
  };
  asker.append(
    ...matrix.rows.map((label, index) =>
      element(
        "button",
        {
          type: "button",
          class: "word",
          "data-key": `word-${index}`,
          onmouseenter: () => show(index),
          onmouseleave: () => show(row),
          onfocus: () => show(index),
          onclick: () => pinPlace(sentence, attention, matrix, { side: "rows", index }),
        },
        element("bdi", {}, label),
      ),
    ),
  );
  root.append(
    element("h3", {}, `${sideTitle(sentence, attention.rows)}: the token that looks`),
    asker,
    element("h3", {}, `${sideTitle(sentence, attention.columns)}: where it looks`),
    below,
  );
  show(row);
}

// Many lines are shown a page at a time: one line per token of a long text would be a million words.
function drawTextRows(root, sentence, attention, matrix, kept) {
  const count = matrix.rows.length;
  const from = Math.min(settings.from, Math.max(0, count - 1));
  const turn = (label, to) =>
    element(
      "button",
      { type: "button", class: "chip", "data-key": `turn-${label}`, disabled: to < 0 || to >= count, onclick: () => ((settings.from = to), change({})) },
      label,
    );
  const lines = matrix.rows.slice(from, from + MANY).map((label, step) => {
    const row = from + step;
    return element(
      "div",
      { class: kept?.side === "rows" && kept.index === row ? "shaded-line chosen" : "shaded-line" },
      element(
        "button",
        { type: "button", class: "line-name", "data-key": `line-${row}`, onclick: () => pinPlace(sentence, attention, matrix, { side: "rows", index: row }) },
        element("bdi", {}, label),
      ),
      shadedText(matrix, matrix.mean, row, attention.rows === attention.columns ? row : -1),
    );
  });
  if (count > MANY) {
    root.append(
      element("p", { class: "turns" }, turn("earlier", from - MANY), ` ${from + 1} to ${Math.min(from + MANY, count)} of ${count} `, turn("later", from + MANY)),
    );
  }
  root.append(element("div", { class: "shaded-lines" }, ...lines));
}

// A line of words on the colour of their weight. The page says a weight where the pointer rests.
function shadedText(matrix, values, row, itself) {
  const width = matrix.columns.length;
  return element(
    "p",
    { class: "shaded", dir: "auto" },
    ...matrix.columns.map((label, column) => {
      const weight = values[row * width + column];
      return element(
        "span",
        {
          class: column === itself ? "shade itself" : "shade",
          title: `${weight.toFixed(3)}`,
          "data-weight": weight.toFixed(3),
          style: { background: colour(weight), color: ink(weight) },
        },
        element("bdi", {}, label),
      );
    }),
  );
}
