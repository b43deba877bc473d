// The view of interventions: what becomes of the output when a head is changed, for every head in turn.
addView({
  name: "edits",
  title: "Edits",
  help: "Each square is the model with that head changed: the darker orange, the less likely it finds its own output. Choose one to see.",
  draw: drawEdits,
  shown: (sentence) => Boolean(sentence.edited?.length),
  needs: () => [],
  bare: true,
});

const editState = { kind: "masked", chosen: null };

// What is done to a head, said before and after its name.
function editNames({ edited, picture }) {
  const other = edited.find((one) => one.edit === "swapped")?.other;
  const what = picture ? "image" : "sentence";
  return {
    masked: { button: "Masked", title: "The head gives nothing", before: "Without" },
    even: { button: "Looking evenly", title: "The head looks evenly at all that it sees", before: "Looking evenly:" },
    swapped: { button: `As on ${what} ${other + 1}`, title: `The head looks where it looks on the other ${what}`, before: `As on ${what} ${other + 1}:` },
  };
}

function drawEdits(root, state) {
  const sentence = sentenceOf(state);
  const side = stepSide(sentence);
  const whole = wholeProbabilities(sentence, side);
  // Of answers the first is what the model says; of pieces all of them together are.
  const output = sentence.answers ? whole.slice(0, 1) : whole;
  const total = output.reduce((sum, p) => sum + Math.log(Math.max(p, 1e-30)), 0);
  const names = editNames(sentence);
  const kinds = Object.keys(names).filter((kind) => sentence.edited.some((one) => one.edit === kind));
  const kind = kinds.includes(editState.kind) ? editState.kind : kinds[0];
  const here = sentence.edited.filter((one) => one.edit === kind);
  const costs = here.map((one) => one.log_prob - total);
  const extent = Math.max(...sentence.edited.map((one) => Math.abs(one.log_prob - total)), 1e-6);
  const chosen = here[editState.chosen] ? editState.chosen : costs.indexOf(Math.min(...costs));
  const choose = (part) => {
    Object.assign(editState, part);
    change({});
  };
  const square = (one, index) =>
    element(
      "button",
      {
        type: "button",
        class: index === chosen ? "square chosen" : "square",
        "data-key": `edit-${index}`,
        title: `${one.attention}, head ${one.head}: ${costs[index].toFixed(3)}`,
        style: { background: signedColour(costs[index], extent), color: inkOn(signedShade(costs[index], extent)) },
        onclick: () => choose({ chosen: index }),
      },
      element("b", {}, String(one.head)),
      element("small", {}, costs[index].toFixed(2)),
    );
  const rows = [...new Set(here.map((one) => one.attention))].map((name) =>
    element(
      "div",
      { class: "layer" },
      element("h3", {}, element("bdi", {}, name)),
      element("div", { class: "pictures" }, ...here.flatMap((one, index) => (one.attention === name ? [square(one, index)] : []))),
    ),
  );
  const modes = kinds.map((one) =>
    element("button", { type: "button", class: "chip", title: names[one].title, "aria-pressed": String(one === kind), "data-key": `kind-${one}`, onclick: () => choose({ kind: one, chosen: null }) }, names[one].button),
  );
  root.append(
    element("div", { class: "caption" }, element("span", { class: "modes", role: "group", "aria-label": "What is done to a head" }, ...modes), legend(`−${extent.toFixed(2)}`, `+${extent.toFixed(2)}`, "signed")),
    element("p", { class: "muted edit-note" }, "Under a head: by how much the log-probability of the output changes, in nats."),
    ...rows,
    editedOne(sentence, side, whole, here[chosen], costs[chosen], names[kind].before),
  );
}

// How likely the whole model finds each piece of the output, or each answer.
function wholeProbabilities(sentence, side) {
  if (sentence.answers) return sentence.answers.map((one) => one.probability);
  return sentence[side].pieces.map((_, step) => {
    const wanted = wantedPiece(sentence, side, step);
    return wanted === undefined ? 1 : (sentence.candidates?.[step].find((one) => one.piece === wanted)?.probability ?? 1);
  });
}

function editedOne(sentence, side, whole, one, cost, before) {
  const whatItSaid = sentence.answers?.[0].piece ?? sentence[side].text;
  const changed = one.text !== undefined && one.text !== null && one.text !== whatItSaid;
  const said = one.text === undefined || one.text === null ? [] : [
    element("dt", {}, "as it is"),
    element("dd", { dir: "auto" }, ...marked(whatItSaid, one.text)),
    element("dt", {}, "changed"),
    element("dd", { dir: "auto", class: "said-changed" }, ...marked(one.text, whatItSaid)),
  ];
  const lines = (sentence.answers ?? sentence[side].pieces).flatMap((_, step) => {
    const wanted = sentence.answers?.[step].piece ?? wantedPiece(sentence, side, step);
    if (wanted === undefined) return [];
    const bar = (share, kind) => element("span", { class: `share ${kind}` }, element("span", { class: "fill", style: { width: `${(share * 100).toFixed(1)}%` } }), element("span", { class: "number" }, share.toFixed(3)));
    return [element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, sentence.answers ? wanted : stepLabel(sentence, wanted))), element("td", {}, bar(whole[step], "model")), element("td", {}, bar(one.probabilities[step], "target")))];
  });
  return element(
    "div",
    { class: "edited" },
    element("h3", {}, `${before} ${one.attention}, head ${one.head}`),
    element("p", {}, `The output's log-probability changes by ${cost.toFixed(3)}. `, one.text === undefined || one.text === null ? "" : changed ? "The model then says something else:" : "The model still says the same."),
    said.length ? element("dl", { class: "said" }, ...said) : "",
    element("div", { class: "distribution" }, element("table", {}, element("thead", {}, element("tr", {}, element("th", {}, sentence.answers ? "answer" : "piece"), element("th", {}, "as it is"), element("th", {}, "changed"))), element("tbody", {}, ...lines))),
  );
}

// The words of a text, those marked that the other has not in this order: the longest common part is found first.
function marked(text, other) {
  const [words, others] = [text, other].map((one) => one.split(/\s+/).filter(Boolean));
  const longest = Array.from({ length: words.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let i = words.length - 1; i >= 0; i -= 1) {
    for (let j = others.length - 1; j >= 0; j -= 1) {
      longest[i][j] = words[i] === others[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const parts = [];
  let [i, j] = [0, 0];
  while (i < words.length) {
    if (j < others.length && words[i] === others[j]) {
      parts.push(`${words[i]} `);
      i += 1;
      j += 1;
    } else if (j < others.length && longest[i][j + 1] >= longest[i + 1][j]) j += 1;
    else {
      parts.push(element("mark", {}, words[i]), " ");
      i += 1;
    }
  }
  return parts;
}
