// The view of sounds: waveform and spectrogram, lit where the step of a written piece listened; a click plays a stretch.
addView({
  name: "sound",
  title: "Sound",
  help: () =>
    "The waveform and the spectrogram, lit where the chosen piece's step listened. Point at a word to choose it; click to keep it and hear it. Click into the sound to hear it from there.",
  draw: drawSound,
  shown: (sentence) => Boolean(sentence.sound),
  needs: (state) => [[litAttention(state), headsOf(litAttention(state))]],
});

const player = { audio: null, source: "", stop: 0, timer: 0 };

// Plays from one moment to another; what was playing stops.
function playStretch(sound, start, end, follow) {
  if (player.source !== sound.audio) {
    player.audio?.pause();
    player.audio = new Audio(sound.audio);
    player.source = sound.audio;
  }
  const { audio } = player;
  cancelAnimationFrame(player.timer);
  audio.currentTime = start;
  const watch = () => {
    follow(audio.currentTime);
    if (audio.currentTime >= end || audio.ended) {
      audio.pause();
      follow(null);
    } else {
      player.timer = requestAnimationFrame(watch);
    }
  };
  // A browser that may not play says so here; the rest of the view goes on.
  audio.play().then(watch, () => follow(null));
}

function drawSound(root, state) {
  const sentence = sentenceOf(state);
  const attention = litAttention(state);
  const { sound } = sentence;
  if (attention.columns !== "source") {
    root.append(element("p", { class: "muted" }, "The attentions of this page look at what was written, not at the sound."));
    return;
  }
  const count = sentence.source.pieces.length;
  const heads = attention === attentionOf(state) ? state.heads : headsOf(attention);
  const matrix = matrixOf(sentence, attention, heads, false);
  const side = sentence[attention.rows];
  const pinned = pinnedPiece(state, attention.rows);
  const row = pinned >= 0 ? pinned : 0;
  const weightsAt = (values, at) => values.subarray(at * count, (at + 1) * count);
  const large = soundTrack(sound, count, true);
  const small = matrix.heads.map((head, order) => ({ head, track: soundTrack(sound, count, false), values: matrix.values[order] }));
  const say = element("p", { class: "readout", role: "status" });
  const show = (at) => {
    const weights = weightsAt(matrix.mean, at);
    large.light(weights);
    for (const one of small) one.track.light(weightsAt(one.values, at));
    say.replaceChildren(...saySound(sound, weights, side.pieces[at], at));
  };
  const within = attention.rows === "source";
  const wordOf = (at) => side.word_of?.[at] ?? null;
  const spanOf = (at) => {
    const word = within ? null : wordOf(at);
    if (word !== null && sound.words?.[word]) return sound.words[word];
    const weights = weightsAt(matrix.mean, at);
    const most = weights.indexOf(Math.max(...weights));
    return [Math.max(0, (most - 2) * sound.step), (most + 3) * sound.step];
  };
  const hear = (at) => {
    const [start, end] = spanOf(at);
    playStretch(sound, start, end, large.follow);
  };
  const buttons = within
    ? []
    : side.pieces.map((label, index) =>
        element("button", { type: "button", class: "word", "aria-pressed": String(index === row), "data-key": `piece-${index}`, onmouseenter: () => show(index), onmouseleave: () => show(row), onclick: () => (pin(attention.rows, index), hear(index)) }, element("bdi", {}, visible(label))),
      );
  const hearSpan = (span) => playStretch(sound, ...span, large.follow);
  const whole = element("button", { type: "button", "data-key": "play", onclick: () => playStretch(sound, 0, sound.seconds, large.follow) }, "play all");
  large.node.addEventListener("click", (event) => {
    const box = large.node.getBoundingClientRect();
    playStretch(sound, ((event.clientX - box.left) / box.width) * sound.seconds, sound.seconds, large.follow);
  });
  const words = (sentence.target?.words ?? []).map((word, index) => [word, sound.words?.[index]]).filter(([, span]) => span);
  // Where the step of each piece listened most: the alignment of this attention, to be held beside CTC's.
  const peaks = within ? [] : side.pieces.map((_, at) => {
    const weights = weightsAt(matrix.mean, at);
    return weights.indexOf(Math.max(...weights)) * sound.step;
  });
  const listened = peaks.map((start, at) => {
    const room = Math.min(...peaks.filter((other) => other > start), sound.seconds); // for its label, up to the next one
    return [side.pieces[at], [start, Math.min(sound.seconds, start + sound.step)], room];
  });
  const aligned = (sound.aligned ?? []).map((span, index) => [sentence.target.pieces[index], span]).filter(([, [start, end]]) => end > start);
  root.append(
    element("div", { class: "caption" }, element("span", { class: "modes" }, ...buttons, whole), glowLegend()),
    say,
    large.node,
    timeRow(sound, words, hearSpan, "words by time"),
    ...(aligned.length ? [element("p", { class: "muted" }, "Where CTC writes each piece:"), timeRow(sound, aligned, hearSpan, "pieces by CTC")] : []),
    ...(aligned.length && listened.length ? [element("p", { class: "muted" }, "Where the step of each piece listened most, by the chosen heads:"), timeRow(sound, listened, hearSpan, "pieces by attention")] : []),
    element("div", { class: "small-tracks" }, ...small.map(({ head, track }) => element("figure", { class: lookOf(attention, head) }, track.node, element("figcaption", {}, `head ${headName(attention, head)}`)))),
  );
  show(row);
}

// Texts under the sound, each where it was said.
function timeRow(sound, texts, hear, label) {
  const share = (seconds) => `${(100 * seconds) / sound.seconds}%`;
  const spans = texts.map(([text, span, room = span[1]]) =>
    element("span", { style: { left: share(span[0]), width: share(room - span[0]) }, title: `${span[0].toFixed(2)} to ${span[1].toFixed(2)} s`, onclick: () => hear(span) }, element("bdi", {}, visible(text))),
  );
  return element("div", { class: "times", "aria-label": label }, ...spans);
}

function soundTrack(sound, count, full) {
  const sheet = element("canvas", { class: "sheet" });
  const head = element("span", { class: "playhead", hidden: true });
  const image = element("img", { src: sound.spectrogram, alt: "", draggable: "false" });
  const node = element("div", { class: "track" }, ...(full ? [waveform(sound)] : []), image, sheet, head);
  if (full) {
    node.setAttribute("role", "img");
    node.setAttribute("aria-label", "Waveform and spectrogram, lit where the chosen piece listened");
  }
  // The last position may reach beyond the sound's end.
  const covered = (count * sound.step) / sound.seconds;
  sheet.style.setProperty("width", `${100 * covered}%`);
  const light = (weights) => {
    const most = Math.max(...weights, 1e-9);
    sheet.width = count;
    sheet.height = 1;
    const context = sheet.getContext("2d");
    const pixels = context.createImageData(count, 1);
    weights.forEach((weight, index) => pixels.data.set([...GLOW, Math.round((OPAQUE * 255 * weight) / most)], index * 4));
    context.putImageData(pixels, 0, 0);
    node.dataset.weights = Array.from(weights, (weight) => weight.toFixed(3)).join(" ");
  };
  const follow = (time) => {
    head.hidden = time === null;
    if (time !== null) head.style.setProperty("left", `${(100 * time) / sound.seconds}%`);
  };
  return { node, light, follow };
}

function waveform(sound) {
  const canvas = element("canvas", { class: "wave", width: sound.wave.length, height: 64, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  context.fillStyle = "#6b7f99";
  sound.wave.forEach((loud, index) => context.fillRect(index, 32 - 31 * loud, 1, Math.max(1, 62 * loud)));
  return canvas;
}

function saySound(sound, weights, name) {
  const most = weights.indexOf(Math.max(...weights));
  const from = (most * sound.step).toFixed(2);
  const to = Math.min(sound.seconds, (most + 1) * sound.step).toFixed(2);
  return ["“", element("bdi", {}, visible(name)), `” listens most from ${from} to ${to} seconds, with weight ${weights[most].toFixed(3)}.`];
}
