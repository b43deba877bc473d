"use strict";
// The page at /: choose a model, type, see the answer. It asks the server it came from and nobody else.
const at = (id) => document.getElementById(id);
const NAMES = { generate: "prompt", classify: "input", point: "problems" };
// Tasks whose input is a file: what the request calls it, which kind of file it is, and what the page calls it.
const FILES = {
  caption: { field: "image", kind: "image/", name: "An image: choose one, or drop it here" },
  transcribe: { field: "sound", kind: "audio/", name: "A sound: choose one, or drop it here" },
};
let models = [], asking = null, answered = null, file = null;

const headers = () => ({ "Content-Type": "application/json", ...(at("key").value ? { Authorization: `Bearer ${at("key").value}` } : {}) });

async function failure(response) {
  const said = await response.json().catch(() => ({}));
  if (response.status === 401) { at("key-label").hidden = false; at("key").focus(); }
  return new Error(said.error ? said.error.message : `the server answered ${response.status}`);
}

async function load() {
  const response = await fetch("v1/models", { headers: headers() });
  if (!response.ok) throw await failure(response);
  models = (await response.json()).data;
  at("model").replaceChildren(...models.map((one) => new Option(`${one.id} (${one.task})`, one.id)));
  chosen();
}

function chosen() {
  const model = models.find((one) => one.id === at("model").value);
  const tasks = model ? model.does.filter((name) => !["look", "completions", "chat/completions", "embeddings"].includes(name)) : [];
  at("task").replaceChildren(...tasks.map((name) => new Option(name, name)));
  at("look").hidden = !model || !model.does.includes("look");
  fitted();
}

function fitted() {
  const task = at("task").value;
  const wanted = FILES[task];
  at("question-label").hidden = task !== "answer";
  at("text-label").hidden = Boolean(wanted);
  at("file-label").hidden = !wanted;
  if (!wanted) return named(task);
  at("file-name").textContent = wanted.name;
  at("file").accept = `${wanted.kind}*`;
  if (file && !file.type.startsWith(wanted.kind)) forget();
}

function named(task) {
  at("text-name").textContent = { generate: "Prompt", point: "Problem, as JSON", fill: "Text with [MASK]", classify: "Text; of a pair, one per line" }[task] || "Text";
}

function forget() {
  file = null;
  at("file").value = "";
  at("preview").hidden = true;
}

// Read a file that was chosen or dropped, unless it is of another kind or larger than the server takes.
async function taken(given) {
  const wanted = FILES[at("task").value];
  at("problem").textContent = "";
  at("answer").replaceChildren();
  forget();
  try {
    if (!given.type.startsWith(wanted.kind)) throw new Error(`${given.name} is no ${wanted.kind.slice(0, -1)} but ${given.type || "of a kind that is not known"}`);
    // Base64 has 4 characters for 3 bytes; what else a request holds is small.
    const most = Math.floor((Number(at("form").dataset.most) - 1024) * 3 / 4);
    if (given.size > most) throw new Error(`${given.name} has ${given.size.toLocaleString("en")} bytes; this server takes ${most.toLocaleString("en")} (regard serve --max-body)`);
    const address = await new Promise((done, failed) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.onerror = () => failed(new Error(`${given.name} cannot be read`));
      reader.readAsDataURL(given);
    });
    file = { type: given.type, address };
    at("preview").hidden = wanted.kind !== "image/";
    if (!at("preview").hidden) at("preview").src = address;
    await go();
  } catch (error) { complain(error); }
}

function json(text, name, example) {
  try { return JSON.parse(text); } catch { throw new Error(`${name} must be JSON, such as ${example}`); }
}

function settings() {
  const text = at("settings").value.trim();
  const found = text ? json(text, "Settings", '{"beam": 5}') : {};
  if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Error('Settings must be names and values, such as {"beam": 5}');
  return found;
}

function body() {
  const task = at("task").value, text = at("text").value;
  const asked = { model: at("model").value, ...settings() };
  if (FILES[task]) {
    if (!file) throw new Error("choose a file first, or drop one here");
    return { ...asked, [FILES[task].field]: file.address };
  }
  if (task === "point") asked.problems = [json(text, "The problem", "[3, 1, 2]")];
  else if (task === "classify") asked.input = text.includes("\n") ? text.split("\n").filter((line) => line.trim()) : text;
  else asked[NAMES[task] || "text"] = text;
  if (task === "answer") asked.question = at("question").value;
  if (task === "generate" && !(asked.beam > 1)) asked.stream = true;
  return asked;
}

function table(rows) {
  const made = document.createElement("table");
  for (const row of rows) {
    const line = made.insertRow();
    for (const cell of row) line.insertCell().textContent = typeof cell === "number" ? cell.toFixed(4) : cell;
  }
  return made;
}

function shown(result) {
  if (result.translations) return table(result.translations.map((one) => [one.text, one.score]));
  if (result.captions) return table(result.captions.map((one) => [one.text, one.score]));
  if (result.transcripts) return table(result.transcripts.map((one) => [one.text, one.score]));
  if (result.classes) return table(result.classes.map((one) => [one.label, one.probability]));
  if (result.words) return table(result.words.map((one) => [one.word, one.tag, one.probability]));
  if (result.masks) return table(result.masks.flatMap((mask) => mask.map((one) => [one.token, one.probability, one.text])));
  if ("answer" in result) return table([[result.answer || "(no answer in the text)", result.score]]);
  if (result.vector) return document.createTextNode(JSON.stringify(result.vector.map((one) => Number(one.toFixed(4)))));
  if (result.order) return document.createTextNode(result.order.join(" "));
  return document.createTextNode(result.text);
}

async function streamed(response, prompt) {
  const texts = [], reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const said = JSON.parse(event.slice(event.indexOf("data: ") + 6));
      if (said.error) throw new Error(said.error.message);
      if (said.done) continue;
      texts[said.sample] = (texts[said.sample] || prompt) + said.text;
      at("answer").textContent = texts.join("\n---\n");
    }
  }
}

async function post(path, asked) {
  asking = new AbortController();
  at("stop").hidden = false;
  at("problem").textContent = "";
  at("seen").replaceChildren();
  try {
    const response = await fetch(path, { method: "POST", headers: headers(), body: JSON.stringify(asked), signal: asking.signal });
    if (!response.ok) throw await failure(response);
    return response;
  } catch (error) { ended(); throw error; }
}

function ended() { asking = null; at("stop").hidden = true; }

function complain(error) {
  if (error.name !== "AbortError") at("problem").textContent = error.message;
}

async function go() {
  if (!models.length) return load().catch(complain);
  try {
    answered = null;
    const asked = body(), task = at("task").value;
    const response = await post(`v1/${task}`, asked);
    at("answer").textContent = asked.stream ? asked.prompt : "";
    if (asked.stream) await streamed(response, asked.chat ? "" : asked.prompt);
    else {
      const { results } = await response.json();
      at("answer").replaceChildren(...results.map(shown));
      // What "Look inside" is to show: the best of what was answered.
      answered = { model: asked.model, task, text: given(task), settings: at("settings").value, result: results[0] };
    }
  } catch (error) { complain(error); } finally { ended(); }
}

const given = (task) => (FILES[task] ? file && file.address : at("text").value);

function sought() {
  const task = at("task").value, text = given(task), model = at("model").value;
  if (FILES[task] && !file) throw new Error("choose a file first, or drop one here");
  const asked = { model, document: false, text: task === "point" ? json(text, "The problem", "[3, 1, 2]") : text };
  const current = answered && answered.model === model && answered.task === task && answered.text === text && answered.settings === at("settings").value;
  const best = current && (answered.result.translations || answered.result.captions || answered.result.transcripts);
  if (best) asked.target = best[0].text;
  const { beam } = settings();
  if (["translate", "point", "caption", "transcribe"].includes(task) && beam !== undefined) asked.beam = beam;
  return asked;
}

async function look() {
  try {
    // A translation or a caption is looked into as it was answered, so it is asked for first.
    if (["translate", "caption", "transcribe"].includes(at("task").value) && !("target" in sought())) {
      await go();
      if (!answered) return;
    }
    const asked = sought();
    const found = await (await post("v1/look", asked)).json();
    const link = document.createElement("a");
    link.href = `look/${found.url.split("/").pop()}`;
    link.target = "_blank";
    link.rel = "noopener";
    link.textContent = "Where the model looked";
    at("seen").replaceChildren(link);
    link.focus();
  } catch (error) { complain(error); } finally { ended(); }
}

at("model").addEventListener("change", chosen);
at("task").addEventListener("change", fitted);
at("form").addEventListener("submit", (event) => { event.preventDefault(); go(); });
at("look").addEventListener("click", look);
at("file").addEventListener("change", () => at("file").files.length && taken(at("file").files[0]));
for (const [name, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  document.addEventListener(name, (event) => {
    if (!FILES[at("task").value]) return;
    event.preventDefault();
    at("file-label").classList.toggle("over", over);
    if (name === "drop" && event.dataTransfer.files.length) taken(event.dataTransfer.files[0]);
  });
}
at("stop").addEventListener("click", () => asking && asking.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); go(); }
  if (event.key === "Escape" && asking) asking.abort();
});
load().catch(complain);
