// The view of training: every head's measures at the run's checkpoints, so that one sees a head take up its role.
addView({
  name: "history",
  title: "Training",
  help: "Each line is a head, over the run's checkpoints, on these sentences. Choose a measure; choose a head by its name.",
  draw: drawHistory,
  shown: () => Boolean(regard.document.history),
  needs: () => [],
});

const historyState = { measure: null };

function drawHistory(root, state) {
  const { steps, heads } = regard.document.history;
  const attention = attentionOf(state);
  const here = heads.filter((one) => one.attention === attention.name);
  const measures = [...new Set(here.flatMap((one) => Object.keys(one.measures)))];
  if (!measures.length) {
    root.append(element("p", { class: "muted" }, "This layer has no history. Choose another."));
    return;
  }
  const measure = measures.includes(historyState.measure) ? historyState.measure : measures[0];
  const chosen = new Set(state.heads.map((head) => headName(attention, head)));
  const series = here
    .filter((one) => one.measures[measure])
    .map((one) => ({
      name: `head ${one.head}`,
      kind: headLook(one.head),
      faint: !chosen.has(String(one.head)),
      points: steps.map((step, index) => [step, one.measures[measure][index]]),
      onclick: () => {
        const head = headsOf(attention).find((index) => headName(attention, index) === String(one.head));
        if (head !== undefined) change({ heads: [head] });
      },
    }));
  const share = measure.startsWith("weight") || measure.startsWith("largest");
  root.append(
    element(
      "p",
      { class: "neuron-choice" },
      element(
        "label",
        {},
        element("span", { class: "muted" }, "Measure "),
        element("select", { "data-key": "measure", onchange: (event) => ((historyState.measure = event.target.value), change({})) }, ...measures.map((name) => element("option", { value: name, selected: name === measure }, name))),
      ),
      element("span", { class: "muted" }, attention.name),
    ),
    lineChart(series, { x: "training step", low: 0, ...(share ? { high: 1 } : {}) }),
    historyTable(steps, series),
  );
}

function historyTable(steps, series) {
  const rows = series.map((one) => element("tr", {}, element("th", { scope: "row" }, one.name), ...one.points.map(([, value]) => element("td", { class: "figure" }, value.toFixed(3)))));
  return element(
    "div",
    { class: "scroll" },
    element("table", { class: "neurons history" }, element("thead", {}, element("tr", {}, element("th", {}, "step"), ...steps.map((step) => element("th", { class: "figure" }, step.toLocaleString("en"))))), element("tbody", {}, ...rows)),
  );
}
