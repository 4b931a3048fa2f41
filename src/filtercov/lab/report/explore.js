// The explorer: controls change the state, and the state is drawn at the next frame. Schedule and covariances are drawn
// at once for all layers; eigenvectors are found layer by layer, the chosen one first, giving way to the screen when a
// frame's time is up. So a slider moves smoothly even where all layers together take longer than a frame.
"use strict";

const LEFT_ALONE = 5; // init_ leaves kernels smaller than this as they are, unless it is told not to
const NUMBERS = ["k", "depth", "sigma0", "v", "a", "seed"];
const INPUTS = NUMBERS.flatMap((name) => [name, `${name}-number`].map((id) => [name, element(id)])).filter(([, x]) => x);
const NEGATIVE = [...document.querySelectorAll("[name=negative]")];
const PRESETS = [...document.querySelectorAll("[data-preset]")];
const MIDDLE = (PALETTE.length - 1) / 2;
const GAP = 2; // pixels between tiles
const [FILTERS, STRIP_FILTERS] = [24, 6];
const [LARGE, SMALL] = [424, 194]; // pixels across
const FRAME = 30; // milliseconds
const REMEMBERED = 48; // decompositions, of a megabyte each for 31 × 31 filters
const decompositions = new Map();
const within = (value, low, high) => Math.min(Math.max(value, low), high);
const largest = (filter) => filter.reduce((most, x) => Math.max(most, Math.abs(x)), 0) || 1;
let state = parseState(location.hash);
let asked = false; // for a drawing at the next frame
let drawing = 0; // the number of the current drawing: older ones stop
let finished = -1; // the number of the last completed drawing
let saving = 0; // the timer that will write the address

// Hold a value to the range of its control, and whole numbers whole.
function withinControl(name, value) {
  const control = element(name);
  const inside = within(value, Number(control.min), Number(control.max));
  return control.step === "1" ? Math.round(inside) : inside;
}

// Read a state out of an address's fragment; whatever is missing or makes no sense keeps its default.
function parseState(fragment) {
  const { preset, ...start } = settings.start;
  const read = { ...start, ...settings.presets[preset], seed: 0, layer: Math.floor(start.depth / 2) };
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  for (const name of NUMBERS) {
    const value = Number(given.get(name));
    if (given.get(name) && Number.isFinite(value)) read[name] = withinControl(name, value);
  }
  if (["clip", "abs"].includes(given.get("negative"))) read.negative = given.get("negative");
  const layer = Number.parseInt(given.get("layer"), 10);
  return { ...read, layer: within(Number.isInteger(layer) ? layer - 1 : read.layer, 0, read.depth - 1) };
}

const formatState = ({ negative, layer, ...numbers }) =>
  `#${new URLSearchParams({ ...numbers, negative, layer: layer + 1 })}`;

const presetOf = ({ sigma0, v, a }) =>
  Object.entries(settings.presets).find(([, p]) => p.sigma0 === sigma0 && p.v === v && p.a === a)?.[0];

function pythonLine({ k, sigma0, v, a, negative, seed }) {
  const name = presetOf({ sigma0, v, a });
  const source = name ? `"${name}"` : `filtercov.QuadraticSchedule(${sigma0}, ${v}, ${a})`;
  const smaller = k < LEFT_ALONE ? `, min_kernel_size=${k}` : "";
  return `filtercov.init_(model, ${source}${smaller}, negative="${negative}", seed=${seed})`;
}

// Draw tiles (each a k × k array of numbers) in rows, about `size` pixels across; `limit(tile)` is what the ends of its
// colour scale stand for. Gaps stay transparent, and every number is a square.
function drawTiles(canvas, tiles, k, columns, size, limit) {
  const cell = Math.max(1, Math.round((size - GAP * (columns - 1)) / (columns * k)));
  const side = k * cell;
  const width = columns * (side + GAP) - GAP;
  const height = Math.ceil(tiles.length / columns) * (side + GAP) - GAP;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  tiles.forEach((tile, index) => {
    const [row, column, scale] = [Math.floor(index / columns), index % columns, MIDDLE / limit(tile)];
    for (let i = 0; i < k; i++) {
      const start = (row * (side + GAP) + i * cell) * width + column * (side + GAP);
      for (let j = 0, x = start; j < k; j++) {
        const colour = PALETTE[Math.round(MIDDLE + within(tile[i * k + j] * scale, -MIDDLE, MIDDLE))];
        for (const end = x + cell; x < end; x++) pixels[x] = colour;
      }
      for (let y = 1; y < cell; y++) pixels.copyWithin(start + y * width, start, start + side);
    }
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The pixels along an axis that a covariance's picture has: borders of little variance cut off but for a ring, large
// kernels thinned out around the centre, as pictures.py does it.
function shownPixels(k, sigma) {
  const [half, centre] = [Math.floor(k / 2), (k - 1) / 2];
  const z = (i) => Math.exp(-((i - centre) ** 2 + (half - centre) ** 2) / (2 * sigma));
  const variance = (i) => z(i) - z(i) ** 2 / 2;
  let seen = 0;
  while (variance(seen) < settings.support * variance(half)) seen++;
  const margin = Math.max(0, seen - 1);
  const wide = k - 2 * margin;
  const step = Math.ceil(wide / settings.finest);
  const first = margin + (Math.floor((wide - 1) / 2) % step);
  return Array.from({ length: Math.ceil((k - margin - first) / step) }, (_, i) => first + i * step);
}

// The block form: the row of the flat covariance that belongs to pixel (i, j) is the block at row i, column j.
function drawCovariance(canvas, k, sigma, size) {
  const [limit, kept] = [covarianceLimit(k, sigma), shownPixels(k, sigma)];
  const [cov, n] = [covariance(k, sigma, kept), kept.length ** 2];
  const blocks = Array.from({ length: n }, (_, p) => cov.subarray(p * n, (p + 1) * n));
  drawTiles(canvas, blocks, kept.length, kept.length, size, () => limit);
  return kept;
}

// The largest covariance between two pixels, or a sixteenth of the largest variance: see covariance_limit in pictures.py.
// Both are found at the centre.
function covarianceLimit(k, sigma) {
  const kept = middle(k, Math.min(k, k % 2 ? 7 : 8));
  const cov = covariance(k, sigma, kept);
  const between = cov.filter((_, at) => at % (kept.length ** 2 + 1));
  return Math.max(largest(between), largest(cov) / 16);
}

function drawSchedule(svg, sigmas) {
  const curve = Array.from({ length: 101 }, (_, i) => sigmaAt(state, i / 100));
  const at = openStage(svg, Math.max(...curve));
  const dots = sigmas.map((sigma, i) => circle(i === state.layer ? "mark s1" : "mark s0",
    at(relativeDepth(i, sigmas.length), sigma), i === state.layer ? 5 : 3.5));
  const label = `σ over depth, from ${shortNumber(curve[0])} at the first layer to ${shortNumber(curve[100])} at the last`;
  fillStage(svg, label, [path("s0", curve.map((sigma, i) => at(i / 100, sigma))), ...dots]);
}

// Eigenvalues over the largest one, in their order; negative ones by size, in the second colour.
function drawSpectrum(svg, eigenvalues, negative) {
  const [most, n] = [eigenvalues[0], eigenvalues.length];
  const at = openStage(svg, 1);
  const least = Number(svg.querySelector(".frame").dataset.low);
  const shown = [...eigenvalues.entries()].filter(([, value]) => Math.abs(value) > least * most);
  const dots = shown.map(([i, value]) => {
    const kind = value > 0 ? "mark s0" : negative === "clip" ? "ring s1" : "mark s1";
    return circle(kind, at(n > 1 ? i / (n - 1) : 0, Math.abs(value) / most), 2.2);
  });
  const below = shown.filter(([, value]) => value < 0).length;
  fillStage(svg, `spectrum of ${n} eigenvalues, ${below} of them negative and larger than a millionth of the first`, dots);
}

function change(values) {
  state = { ...state, ...values };
  state.layer = within(state.layer, 0, state.depth - 1);
  if (!asked) requestAnimationFrame(() => { asked = false; draw(); });
  asked = true;
}

function draw() {
  const current = ++drawing;
  showControls();
  const lowest = lowestDepth(state);
  const usable = sigmaAt(state, lowest) >= 1e-4;
  element("problem").hidden = usable;
  element("views").classList.toggle("stale", !usable);
  element("problem").textContent =
    `σ must be at least 0.0001 at every depth, but σ(${shortNumber(lowest)}) = ${shortNumber(sigmaAt(state, lowest))}.`;
  if (!usable) {
    finished = current;
    return;
  }
  const sigmas = Array.from({ length: state.depth }, (_, i) => sigmaAt(state, relativeDepth(i, state.depth)));
  drawSchedule(element("schedule"), sigmas);
  showStrip(sigmas);
  const kept = drawCovariance(element("covariance"), state.k, sigmas[state.layer], LARGE);
  const [step, wide] = [kept[1] - kept[0], kept.length];
  element("cut").textContent = step > 1 ? ` One pixel in ${step} along each axis is drawn.`
    : wide < state.k ? ` The middle ${wide}×${wide} of ${state.k}×${state.k} pixels.` : "";
  const others = sigmas.map((_, i) => i).filter((i) => i !== state.layer);
  const z = normals(state.seed, FILTERS * state.k ** 2);
  work(current, [state.layer, ...others], (i) => {
    const found = decomposition(state.k, sigmas[i]);
    const count = i === state.layer ? FILTERS : STRIP_FILTERS;
    const filters = Array.from({ length: count }, (_, f) =>
      timesRoot(z.subarray(f * state.k ** 2, (f + 1) * state.k ** 2), found, state.negative));
    showStripFilters(i, sigmas[i], filters.slice(0, STRIP_FILTERS), negativeMass(found.eigenvalues));
    if (i === state.layer) showLayer(sigmas[i], found, filters);
  });
}

// Do the jobs one after another; after a frame's time let the screen be drawn, and stop if a new drawing has begun.
function work(current, jobs, perform) {
  const end = performance.now() + FRAME;
  while (jobs.length > 0 && performance.now() < end) perform(jobs.shift());
  if (jobs.length === 0) finished = current;
  else requestAnimationFrame(() => { if (current === drawing) work(current, jobs, perform); });
}

function decomposition(k, sigma) {
  const key = `${k} ${sigma}`;
  if (decompositions.size > REMEMBERED) decompositions.clear();
  if (!decompositions.has(key)) decompositions.set(key, decompose(k, sigma));
  return decompositions.get(key);
}

// The strip of layers: one button for each, with its covariance, a few of its filters, its σ and negative mass.
function showStrip(sigmas) {
  const strip = element("strip");
  const pictures = '<canvas class="cov pixels"></canvas><canvas class="samples pixels"></canvas><span></span>';
  if (strip.children.length !== sigmas.length) {
    strip.innerHTML = sigmas.map(() => `<button type="button">${pictures}</button>`).join("");
    [...strip.children].forEach((button, i) => button.addEventListener("click", () => change({ layer: i })));
  }
  sigmas.forEach((sigma, i) => {
    strip.children[i].setAttribute("aria-pressed", String(i === state.layer));
    drawCovariance(strip.children[i].querySelector(".cov"), state.k, sigma, SMALL);
  });
}

function showStripFilters(i, sigma, filters, mass) {
  const button = element("strip").children[i];
  const percent = `${(100 * mass).toFixed(1)} %`;
  drawTiles(button.querySelector(".samples"), filters, state.k, 3, SMALL, largest);
  button.querySelector("span").textContent = `σ ${shortNumber(sigma)} · ${percent.replace(" ", "\u00a0")}`;
  button.setAttribute("aria-label", `layer ${i + 1}, σ ${shortNumber(sigma)}, negative mass ${percent}`);
}

function showLayer(sigma, { eigenvalues }, filters) {
  const { k, layer, depth, negative } = state;
  const mass = `${(100 * negativeMass(eigenvalues)).toFixed(2)} %`;
  element("layer-title").textContent = `Layer ${layer + 1} of ${depth}`;
  element("layer-facts").textContent =
    `σ = ${shortNumber(sigma)}, depth d = ${shortNumber(relativeDepth(layer, depth))}, negative mass ${mass}`;
  element("covariance").setAttribute("aria-label", `covariance of layer ${layer + 1} in ${k} by ${k} blocks`);
  drawSpectrum(element("spectrum"), eigenvalues, negative);
  drawTiles(element("filters"), filters, k, 6, LARGE, largest);
  element("filters").setAttribute("aria-label", `${FILTERS} filters drawn for layer ${layer + 1}`);
}

function showControls() {
  for (const [name, input] of INPUTS) {
    if (input.value === "" || Number(input.value) !== state[name]) input.value = state[name];
  }
  for (const choice of NEGATIVE) choice.checked = choice.value === state.negative;
  for (const button of PRESETS) button.setAttribute("aria-pressed", button.dataset.preset === presetOf(state));
  element("python").textContent = pythonLine(state);
  // Browsers allow the address to change only so often; a drag along a slider is written once, when it pauses.
  clearTimeout(saving);
  saving = setTimeout(() => history.replaceState(null, "", formatState(state)), 150);
}

for (const [name, input] of INPUTS) {
  input.addEventListener("input", () => {
    if (input.value !== "" && input.validity.valid) change({ [name]: withinControl(name, Number(input.value)) });
  });
  input.addEventListener("change", showControls); // what cannot be used is put back
}
for (const choice of NEGATIVE) choice.addEventListener("change", () => change({ negative: choice.value }));
for (const button of PRESETS) button.addEventListener("click", () => change(settings.presets[button.dataset.preset]));
element("again").addEventListener("click", () => change({ seed: (state.seed + 1) % 1000000 }));
addEventListener("hashchange", () => change(parseState(location.hash)));
draw();
