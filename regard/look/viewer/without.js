// The view of interventions: what becomes of the output when a head is masked, for every head in turn.
addView({
  name: "without",
  title: "Without a head",
  help: "Each square is the model without that head: the darker orange, the less likely it finds its own output. Choose one to see.",
  draw: drawWithout,
  shown: (sentence) => Boolean(sentence.without?.length),
  needs: () => [],
  bare: true,
});

const withoutState = { chosen: null };

function drawWithout(root, state) {
  const sentence = sentenceOf(state);
  const side = stepSide(sentence);
  const whole = wholeProbabilities(sentence, side);
  const total = whole.reduce((sum, p) => sum + Math.log(Math.max(p, 1e-30)), 0);
  const costs = sentence.without.map((one) => one.log_prob - total);
  const extent = Math.max(...costs.map(Math.abs), 1e-6);
  const worst = costs.indexOf(Math.min(...costs));
  const chosen = sentence.without[withoutState.chosen] ? withoutState.chosen : worst;
  const square = (one, index) =>
    element(
      "button",
      {
        type: "button",
        class: index === chosen ? "square chosen" : "square",
        "data-key": `without-${index}`,
        title: `${one.attention}, head ${one.head}: ${costs[index].toFixed(3)}`,
        style: { background: signedColour(costs[index], extent), color: inkOn(signedShade(costs[index], extent)) },
        onclick: () => ((withoutState.chosen = index), change({})),
      },
      element("b", {}, String(one.head)),
      element("small", {}, costs[index].toFixed(2)),
    );
  const names = [...new Set(sentence.without.map((one) => one.attention))];
  const rows = names.map((name) =>
    element(
      "div",
      { class: "layer" },
      element("h3", {}, element("bdi", {}, name)),
      element("div", { class: "pictures" }, ...sentence.without.flatMap((one, index) => (one.attention === name ? [square(one, index)] : []))),
    ),
  );
  root.append(
    element("div", { class: "caption" }, element("span", { class: "muted" }, "Under a head: by how much the log-probability of the output changes without it, in nats."), legend(`−${extent.toFixed(2)}`, `+${extent.toFixed(2)}`, "signed")),
    ...rows,
    withoutOne(sentence, side, whole, sentence.without[chosen], costs[chosen]),
  );
}

// How likely the whole model finds each piece of the output.
function wholeProbabilities(sentence, side) {
  return sentence[side].pieces.map((_, step) => {
    const wanted = wantedPiece(sentence, side, step);
    return wanted === undefined ? 1 : (sentence.candidates?.[step].find((one) => one.piece === wanted)?.probability ?? 1);
  });
}

function withoutOne(sentence, side, whole, one, cost) {
  const changed = one.text !== undefined && one.text !== null && one.text !== sentence[side].text;
  const said = one.text === undefined || one.text === null ? [] : [
    element("dt", {}, "with it"),
    element("dd", { dir: "auto" }, ...marked(sentence[side].text, one.text)),
    element("dt", {}, "without it"),
    element("dd", { dir: "auto", class: "said-without" }, ...marked(one.text, sentence[side].text)),
  ];
  const lines = sentence[side].pieces.flatMap((_, step) => {
    const wanted = wantedPiece(sentence, side, step);
    if (wanted === undefined) return [];
    const bar = (share, kind) => element("span", { class: `share ${kind}` }, element("span", { class: "fill", style: { width: `${(share * 100).toFixed(1)}%` } }), element("span", { class: "number" }, share.toFixed(3)));
    return [element("tr", {}, element("th", { scope: "row" }, element("bdi", {}, visible(wanted))), element("td", {}, bar(whole[step], "model")), element("td", {}, bar(one.probabilities[step], "target")))];
  });
  return element(
    "div",
    { class: "without" },
    element("h3", {}, `Without ${one.attention}, head ${one.head}`),
    element("p", {}, `The output's log-probability changes by ${cost.toFixed(3)}. `, one.text === undefined || one.text === null ? "" : changed ? "The model then says something else:" : "The model still says the same."),
    said.length ? element("dl", { class: "said" }, ...said) : "",
    element("div", { class: "distribution" }, element("table", {}, element("thead", {}, element("tr", {}, element("th", {}, "piece"), element("th", {}, "with it"), element("th", {}, "without it"))), element("tbody", {}, ...lines))),
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
