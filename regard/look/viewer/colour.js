// From a number to a colour, in both schemes. Weights have one hue whose lightness rises or falls evenly; signed numbers
// are blue above zero and orange below, which every kind of colour blindness tells apart.
const DARK = matchMedia("(prefers-color-scheme: dark)");

// From nothing, which is the page's own colour, to all.
const RAMPS = {
  weight: {
    light: ["#f4f7fb", "#d3e2f3", "#a3c4e6", "#6c9fd4", "#3a78bb", "#16549b", "#0a336b"],
    dark: ["#1b212b", "#1f3a5c", "#265a92", "#3b80c4", "#69a8e4", "#a7cff6", "#e6f3ff"],
  },
  signed: {
    light: ["#8a3800", "#c65a0c", "#ec9a52", "#fad3ae", "#f6f7f9", "#b9d5ef", "#6ca6da", "#2271bb", "#0a3f7d"],
    dark: ["#ffc58a", "#ee8c3a", "#b75a14", "#6a3a1a", "#1f242d", "#1d456f", "#2a70b0", "#5aa4e6", "#b8dcff"],
  },
};
const LEVELS = 256;

// How lines of heads are told apart, by the head's number in the model: eight colours, which the style sheet has, and
// from the ninth head on dashes as well. The plots made without a browser have the same.
const HUES = 8;
const DASHES = 8;

function headLook(number) {
  return `head-${number % HUES} dash-${Math.floor(number / HUES) % DASHES}`;
}

function lookOf(attention, head) {
  return headLook(Number(headName(attention, head)));
}

// How strongly a line of a weight is drawn.
function lineStrength(weight) {
  return { opacity: 0.06 + 0.94 * weight, width: 1 + 2 * weight };
}

// A short stretch of a line, for keys and buttons.
function swatch(look, { weight = 0.8, length = 44 } = {}) {
  const { opacity, width } = lineStrength(weight);
  return drawn(
    "svg",
    { class: `swatch ${look}`, width: length, height: 4, viewBox: `0 0 ${length} 4`, "aria-hidden": "true" },
    drawn("line", { x1: 0, x2: length, y1: 2, y2: 2, "stroke-opacity": opacity.toFixed(3), "stroke-width": width.toFixed(2) }),
  );
}
const palettes = {};

function channels(colour) {
  return [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
}

// All levels of a ramp as [red, green, blue], and as whole pixels.
function palette(ramp) {
  const scheme = DARK.matches ? "dark" : "light";
  const key = `${ramp}-${scheme}`;
  if (!palettes[key]) {
    const stops = RAMPS[ramp][scheme].map(channels);
    const shades = Array.from({ length: LEVELS }, (_, level) => {
      const place = (level / (LEVELS - 1)) * (stops.length - 1);
      const low = Math.min(Math.floor(place), stops.length - 2);
      return stops[low].map((from, channel) => Math.round(from + (stops[low + 1][channel] - from) * (place - low)));
    });
    const pixels = new Uint32Array(shades.map(([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0));
    palettes[key] = { shades, pixels };
  }
  return palettes[key];
}

function level(share) {
  return Math.round(Math.min(Math.max(share, 0), 1) * (LEVELS - 1));
}

function shade(weight) {
  return palette("weight").shades[level(weight)];
}

function colour(weight) {
  return `rgb(${shade(weight).join(" ")})`;
}

// A number between -extent and extent.
function signedShade(value, extent) {
  return palette("signed").shades[level(0.5 + value / (2 * extent || 1))];
}

function signedColour(value, extent) {
  return `rgb(${signedShade(value, extent).join(" ")})`;
}

// Paints a matrix one pixel per number; the style sheet makes it larger without blurring.
function paint(canvas, width, height, values, { ramp = "weight", extent = 1 } = {}) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const known = palette(ramp).pixels;
  const [scale, shift] = ramp === "signed" ? [1 / (2 * extent || 1), 0.5] : [1 / extent, 0];
  for (let index = 0; index < width * height; index += 1) pixels[index] = known[level(values[index] * scale + shift)];
  context.putImageData(image, 0, 0);
  return canvas;
}

// Black or white, whichever can be read on a colour.
function ink(weight) {
  return inkOn(shade(weight));
}

function inkOn(channels) {
  const [red, green, blue] = channels.map((channel) => (channel / 255) ** 2.2);
  // Above this luminance black has more contrast than white.
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000" : "#fff";
}

function legend(from = "0", to = "1", ramp = "weight") {
  const bar = element("canvas", { class: "ramp", "aria-hidden": "true" });
  const levels = Float64Array.from({ length: LEVELS }, (_, index) => index / (LEVELS - 1));
  paint(bar, LEVELS, 1, ramp === "signed" ? levels.map((share) => 2 * share - 1) : levels, { ramp });
  return element("span", { class: "legend" }, from, bar, to);
}
