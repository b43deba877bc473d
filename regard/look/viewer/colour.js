// From a weight to a colour: one hue, lightness rising or falling evenly, in both schemes.
const DARK = matchMedia("(prefers-color-scheme: dark)");

// From nothing, which is the page's own colour, to all.
const RAMPS = {
  light: ["#f4f7fb", "#d3e2f3", "#a3c4e6", "#6c9fd4", "#3a78bb", "#16549b", "#0a336b"],
  dark: ["#1b212b", "#1f3a5c", "#265a92", "#3b80c4", "#69a8e4", "#a7cff6", "#e6f3ff"],
};
const LEVELS = 256;
const tables = {};

function channels(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}

function table() {
  const scheme = DARK.matches ? "dark" : "light";
  if (!tables[scheme]) {
    const stops = RAMPS[scheme].map(channels);
    tables[scheme] = Array.from({ length: LEVELS }, (_, level) => {
      const place = (level / (LEVELS - 1)) * (stops.length - 1);
      const low = Math.min(Math.floor(place), stops.length - 2);
      return stops[low].map((from, channel) => Math.round(from + (stops[low + 1][channel] - from) * (place - low)));
    });
  }
  return tables[scheme];
}

function shade(weight) {
  return table()[Math.round(Math.min(Math.max(weight, 0), 1) * (LEVELS - 1))];
}

function colour(weight) {
  return `rgb(${shade(weight).join(" ")})`;
}

// Paints a matrix one pixel a weight; the style sheet makes it larger without blurring.
function paint(canvas, matrix, values) {
  canvas.width = matrix.columns.length;
  canvas.height = matrix.rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  values.forEach((weight, index) => image.data.set([...shade(weight), 255], index * 4));
  context.putImageData(image, 0, 0);
}

// Black or white, whichever can be read on the colour of this weight.
function ink(weight) {
  const [red, green, blue] = shade(weight).map((channel) => (channel / 255) ** 2.2);
  // Above this luminance black has more contrast than white.
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000" : "#fff";
}

function legend() {
  const bar = element("canvas", { class: "ramp", "aria-hidden": "true" });
  paint(bar, { rows: [0], columns: { length: LEVELS } }, Float64Array.from({ length: LEVELS }, (_, i) => i / (LEVELS - 1)));
  return element("span", { class: "legend" }, "0", bar, "1");
}
