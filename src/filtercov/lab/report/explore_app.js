// The page: controls change the state, and the state is drawn at the next frame. What is cheap (schedule, covariances)
// is drawn at once for all layers; eigenvectors are found layer by layer, the chosen one first, giving way to the screen
// when a frame's time is up. So a slider moves smoothly even where all layers together take longer than a frame.
"use strict";

const FILTERS = 24;
const LARGE = 424; // pixels across
const FRAME = 30; // milliseconds
const REMEMBERED = 4e6; // numbers of eigenvectors, the worth of 24 layers of 31 × 31 filters
const element = (id) => document.getElementById(id);
const decompositions = new Map();
let held = 0; // numbers in them
let state = parseState(location.hash);
let asked = false; // a drawing is asked for at the next frame
let drawing = 0; // the number of the current drawing: older ones stop
let finished = -1; // the number of the last drawing that was completed

function change(values) {
  state = { ...state, ...values };
  state.layer = within(state.layer, 0, state.depth - 1);
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}

function draw() {
  const start = performance.now();
  const current = ++drawing;
  showControls();
  const lowest = lowestDepth(state);
  const usable = sigmaAt(state, lowest) >= 1e-4;
  element("problem").hidden = usable;
  element("views").classList.toggle("stale", !usable);
  if (!usable) {
    element("problem").textContent =
      `σ must be at least 0.0001 at every depth, but σ(${shortNumber(lowest)}) = ${shortNumber(sigmaAt(state, lowest))}.`;
    finished = current;
    return;
  }
  const sigmas = Array.from({ length: state.depth }, (_, i) => sigmaAt(state, relativeDepth(i, state.depth)));
  drawSchedule(element("schedule"), state, sigmas);
  showStrip(sigmas);
  drawCovariance(element("covariance"), state.k, sigmas[state.layer], LARGE);
  const step = thinning(state.k);
  element("thinned").textContent = step > 1 ? ` One pixel in ${step} along each axis is drawn.` : "";
  const others = sigmas.map((_, i) => i).filter((i) => i !== state.layer);
  const z = normals(state.seed, FILTERS * state.k ** 2);
  work(current, start, [state.layer, ...others], (i) => {
    const found = decomposition(state.k, sigmas[i]);
    const count = i === state.layer ? FILTERS : STRIP_FILTERS;
    const filters = Array.from({ length: count }, (_, f) =>
      timesRoot(z.subarray(f * state.k ** 2, (f + 1) * state.k ** 2), found, state.negative));
    showStripFilters(i, sigmas[i], filters.slice(0, STRIP_FILTERS), negativeMass(found.eigenvalues));
    if (i === state.layer) showLayer(sigmas[i], found, filters);
  });
}

// Do the jobs one after another; after a frame's time let the screen be drawn, and stop if a new drawing has begun.
function work(current, start, jobs, perform) {
  while (jobs.length > 0) {
    if (current !== drawing) return;
    if (performance.now() - start > FRAME) {
      requestAnimationFrame(() => work(current, performance.now(), jobs, perform));
      return;
    }
    perform(jobs.shift());
  }
  finished = current;
}

function decomposition(k, sigma) {
  const key = `${k} ${sigma}`;
  if (!decompositions.has(key)) {
    const found = decompose(k, sigma);
    held += found.parts.reduce((sum, { vectors }) => sum + vectors.length, 0);
    if (held > REMEMBERED) {
      decompositions.clear();
      held = 0;
    }
    decompositions.set(key, found);
  }
  return decompositions.get(key);
}

function showLayer(sigma, { eigenvalues }, filters) {
  const { k, layer, depth, negative } = state;
  const mass = `${(100 * negativeMass(eigenvalues)).toFixed(2)} %`;
  element("layer-title").textContent = `Layer ${layer + 1} of ${depth}`;
  element("layer-facts").textContent =
    `σ = ${shortNumber(sigma)}, depth d = ${shortNumber(relativeDepth(layer, depth))}, negative mass ${mass}`;
  element("covariance").setAttribute("aria-label", `covariance of layer ${layer + 1} in ${k} by ${k} blocks`);
  drawSpectrum(element("spectrum"), eigenvalues, negative);
  drawFilters(element("filters"), filters, k, 6, LARGE);
  element("filters").setAttribute("aria-label", `${FILTERS} filters drawn for layer ${layer + 1}`);
}

function showControls() {
  for (const name of NUMBERS) {
    for (const input of [element(name), element(`${name}-number`)]) {
      if (input && (input.value === "" || Number(input.value) !== state[name])) input.value = state[name];
    }
  }
  for (const choice of document.querySelectorAll("[name=negative]")) choice.checked = choice.value === state.negative;
  const chosen = presetOf(state);
  for (const button of document.querySelectorAll("[data-preset]")) {
    button.setAttribute("aria-pressed", String(button.dataset.preset === chosen));
  }
  element("python").textContent = pythonLine(state);
  saveState();
}

// Browsers allow the address to change only so often; a drag along a slider is written once, when it pauses.
let saving = 0;
function saveState() {
  clearTimeout(saving);
  saving = setTimeout(() => history.replaceState(null, "", formatState(state)), 150);
}

function connect() {
  for (const name of NUMBERS) {
    for (const input of [element(name), element(`${name}-number`)]) {
      input?.addEventListener("input", () => {
        if (input.value !== "" && input.validity.valid) change({ [name]: withinControl(name, Number(input.value)) });
      });
      input?.addEventListener("change", showControls); // what cannot be used is put back
    }
  }
  for (const choice of document.querySelectorAll("[name=negative]")) {
    choice.addEventListener("change", () => change({ negative: choice.value }));
  }
  for (const button of document.querySelectorAll("[data-preset]")) {
    button.addEventListener("click", () => change(preset(button.dataset.preset)));
  }
  element("again").addEventListener("click", () => change({ seed: (state.seed + 1) % 1000000 }));
  addEventListener("hashchange", () => change(parseState(location.hash)));
}

connect();
draw();
