// The player of a watched run: a slider over moments, a button that plays them, and keys: arrows go from moment to
// moment, space plays. Colours of covariances, filters and spectra are bytes, moment after moment.
"use strict";

const [WHOLE, LONGEST] = [9000, 400]; // milliseconds from the first moment to the last, and at most between two
const GAP = 1;
const [moments, last] = [settings.steps.length, settings.steps.length - 1];
const product = (sides) => sides.reduce((whole, side) => whole * side);
for (const data of settings.layers) {
  for (const name of ["covariances", "filters", "spectra"]) data[name] = Uint8Array.from(atob(data[name]), (c) => c.charCodeAt(0));
}
const layouts = settings.layers.map(({ kept, size, filters }) => ({
  // The block form: the row of the covariance that belongs to pixel (i, j) is the block at row i, column j.
  covariance: layout(kept, product(kept), kept.length === 1 ? 1 : kept.at(-1)),
  filters: layout(size, filters.length / moments / product(size), { 1: 2, 2: 4, 3: 2 }[size.length]),
}));
const buttons = [...document.querySelectorAll("#strip button")];
const cursors = [...document.querySelectorAll(".cursor")];
const highest = Math.max(0, ...settings.layers.flatMap(({ sigma }) => sigma));
let place = last; // the moment that is shown
let layer = 0;
let playing = null; // { place, time } where and when playing began

// The pixel of a canvas for each number of every tile: 3-D filters are slices side by side.
function layout(sides, tiles, columns) {
  const [width, height, depth] = [sides.at(-1), sides.at(-2) ?? 1, sides.at(-3) ?? 1];
  const [n, across] = [width * height * depth, columns * (width * depth + GAP) - GAP];
  const offsets = Uint32Array.from({ length: tiles * n }, (_, k) => {
    const [tile, p] = [Math.floor(k / n), k % n];
    const [x, y, z] = [p % width, Math.floor(p / width) % height, Math.floor(p / (width * height))];
    const [top, left] = [Math.floor(tile / columns) * (height + GAP), (tile % columns) * (width * depth + GAP)];
    return (top + y) * across + left + z * width + x;
  });
  return { n, width: across, height: Math.ceil(tiles / columns) * (height + GAP) - GAP, offsets };
}

// The bytes of a kind at a moment.
const ofMoment = (bytes, at) => bytes.subarray((at * bytes.length) / moments, ((at + 1) * bytes.length) / moments);

// Colour a canvas: of a symmetric matrix (n is given) the upper triangle is there, each colour for both of its places.
function paint(canvas, { n, width, height, offsets }, levels, symmetric) {
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  if (!symmetric) offsets.forEach((offset, i) => { pixels[offset] = PALETTE[levels[i]]; });
  for (let row = 0, k = 0; symmetric && row < n; row++) {
    for (let column = row; column < n; column++, k++) {
      pixels[offsets[row * n + column]] = pixels[offsets[column * n + row]] = PALETTE[levels[k]];
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function draw() {
  const [step, data] = [settings.steps[place], settings.layers[layer]];
  const covariance = (canvas, i) => paint(canvas, layouts[i].covariance, ofMoment(settings.layers[i].covariances, place), true);
  buttons.forEach((button, i) => covariance(button.firstChild, i));
  covariance(element("covariance"), layer);
  paint(element("filters"), layouts[layer].filters, ofMoment(data.filters, place), false);
  for (const cursor of cursors) {
    const { low, high, width } = cursor.dataset;
    cursor.setAttribute("transform", `translate(${(high === low ? 0 : ((step - low) / (high - low)) * width).toFixed(2)} 0)`);
  }
  element("moment").value = place;
  element("moment").setAttribute("aria-valuetext", `step ${step}, moment ${place + 1} of ${moments}`);
  element("now").textContent = `step ${step}`;
  element("facts").textContent = facts(data, place);
  element("limit").textContent = `, ±${shortNumber(data.limits[place])}`;
  for (const kind of ["covariance", "filters"]) element(kind).setAttribute("aria-label", `${kind} of layer ${layer + 1} at step ${step}`);
  showDepths(step);
  showSpectrum(data, step);
}

function facts({ sigma, likeness, likeness_chance: chance, likeness_beyond_chance: beyond, relative_distance: moved }, at) {
  const drift = moved[at] === null ? "" : ` · moved by ${moved[at].toFixed(2)} of their size`;
  if (sigma[at] === null) return `no σ: its filters do not vary${drift}`;
  const like = `likeness ${likeness[at].toFixed(2)}, by chance ${chance[at] === null ? "–" : chance[at].toFixed(2)}`;
  return (beyond[at] ? `σ ${shortNumber(sigma[at])} · ${like}` : `no structure beyond chance: ${like}`) + drift;
}

// σ of every layer over depth: a dot where it is more than chance, a ring where it is not.
function showDepths(step) {
  const at = openStage(element("depths"), highest);
  const marks = settings.layers.map(({ sigma, likeness_beyond_chance: beyond, depth }, i) => (sigma[place] === null ? ""
    : circle(`${beyond[place] ? "mark" : "ring"} s0`, at(depth, sigma[place]), i === layer ? 5.5 : 3.5)));
  fillStage(element("depths"), `σ over depth at step ${step}`, marks);
}

// The spectrum of the chosen layer, and where it began.
function showSpectrum({ spectra }, step) {
  const at = openStage(element("spectrum"), 1);
  const line = (levels, kind) => path(kind, [...levels.entries()].filter(([, level]) => level > 0)
    .map(([rank, level]) => at(rank / Math.max(levels.length - 1, 1), 10 ** (settings.decades * (level / 255 - 1)))));
  const label = `spectrum of layer ${layer + 1} at step ${step}, and at the beginning`;
  fillStage(element("spectrum"), label, [line(ofMoment(spectra, 0), "dashed s0"), line(ofMoment(spectra, place), "s0")]);
}

function goTo(moment) {
  pause();
  place = Math.min(Math.max(moment, 0), last);
  draw();
}

function play() {
  playing = { place: place >= last ? 0 : place, time: performance.now() };
  element("play").textContent = "Pause";
  requestAnimationFrame(advance);
}

function pause() {
  playing = null;
  element("play").textContent = "Play";
}

function advance(time) {
  if (!playing) return;
  const each = Math.min(LONGEST, WHOLE / Math.max(last, 1));
  place = Math.min(playing.place + Math.floor(Math.max(time - playing.time, 0) / each), last);
  if (place === last) pause();
  draw();
  if (playing) requestAnimationFrame(advance);
}

const toggle = () => (playing ? goTo(place) : play());

function choose(index) {
  layer = index;
  buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === layer));
  for (const line of document.querySelectorAll("[data-layer]")) line.classList.toggle("chosen", Number(line.dataset.layer) === layer);
  element("layer-title").textContent = `Layer ${layer + 1} of ${settings.layers.length}: ${settings.layers[layer].name}`;
  draw();
}

// Space on a button presses it, and arrows on the slider move it already; where a table scrolls, arrows are the table's.
function takeKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const { target, key } = event;
  const [inside, step] = [element("player").contains(target), { ArrowLeft: -1, ArrowRight: 1 }[key]];
  if (step && target.id !== "moment" && (inside || target === document.body)) goTo(place + step);
  else if (key === " " && inside && target.tagName !== "BUTTON") toggle();
  else return;
  event.preventDefault();
}

element("moment").addEventListener("input", (event) => goTo(Number(event.target.value)));
element("play").addEventListener("click", toggle);
buttons.forEach((button, i) => button.addEventListener("click", () => choose(i)));
document.addEventListener("keydown", takeKey);
element("play").disabled = element("moment").disabled = last === 0;
choose(0);
