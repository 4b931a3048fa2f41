// What a place in time looks like: the strip of layers, σ by depth, the chosen layer, and cursors in the charts over time.
"use strict";

const SMALL = 92; // pixels across
const LARGE = 280;
const element = (id) => document.getElementById(id);
const moments = settings.steps.length;
const layouts = settings.layers.map((layer, i) => ({
  covariance: covarianceLayout(layer.kept),
  filters: filtersLayout(layer.size, settings.runs[0].layers[i].filters.length / moments),
}));
const thumbs = [...document.querySelectorAll("#strip button")].map((button) => [...button.querySelectorAll("canvas")]);
const cursors = [...document.querySelectorAll(".cursor")];
const lines = [...document.querySelectorAll("[data-layer]")];
const sigmas = settings.runs.flatMap((run) => run.layers.flatMap((layer) => layer.sigma)).filter((s) => s !== null);
const highest = sigmas.reduce((most, sigma) => Math.max(most, sigma), 0);
let shown = {}; // the moment and the layer whose numbers are shown

thumbs.forEach((canvases, i) => canvases.forEach((canvas) => prepare(canvas, layouts[i].covariance, SMALL)));

// Numbers are those of the moment that was last; pictures between two moments are mixed.
function showPlace(place, layer) {
  const moment = Math.floor(place);
  thumbs.forEach((canvases, i) => canvases.forEach((canvas, run) => showCovariance(canvas, run, i, place)));
  for (const cursor of cursors) moveCursor(cursor, stepAt(place));
  settings.runs.forEach((_, run) => {
    showCovariance(element(`covariance-${run}`), run, layer, place);
    showFilters(element(`filters-${run}`), run, layer, place);
  });
  if (moment === shown.moment && layer === shown.layer) return;
  shown = { moment, layer };
  showDepths(moment, layer);
  showSpectrum(moment, layer);
  settings.runs.forEach((_, run) => showFacts(run, layer, moment));
}

function showCovariance(canvas, run, layer, place) {
  const levels = mixed(settings.runs[run].layers[layer].covariances, moments, place);
  drawTriangle(canvas, layouts[layer].covariance, levels);
}

function chooseLayer(layer) {
  document.querySelectorAll("#strip button").forEach((button, i) => button.setAttribute("aria-pressed", i === layer));
  for (const line of lines) line.classList.toggle("chosen", Number(line.dataset.layer) === layer);
  element("layer-title").textContent = `Layer ${layer + 1} of ${settings.layers.length}: ${settings.layers[layer].name}`;
  settings.runs.forEach((_, run) => {
    prepare(element(`covariance-${run}`), layouts[layer].covariance, LARGE);
    prepare(element(`filters-${run}`), layouts[layer].filters, LARGE);
  });
}

function showFilters(canvas, run, layer, place) {
  drawAll(canvas, layouts[layer].filters, mixed(settings.runs[run].layers[layer].filters, moments, place));
}

function showFacts(run, layer, moment) {
  const data = settings.runs[run].layers[layer];
  const of = settings.runs.length > 1 ? ` of ${settings.runs[run].label}` : "";
  element(`facts-${run}`).textContent = layerFacts(data, moment);
  element(`limit-${run}`).textContent = `±${shortNumber(data.limits[moment])}`;
  const when = `layer ${layer + 1}${of} at step ${settings.runs[run].steps[moment]}`;
  element(`covariance-${run}`).setAttribute("aria-label", `covariance of ${when}`);
  element(`filters-${run}`).setAttribute("aria-label", `filters of ${when}`);
}

function layerFacts(data, moment) {
  const [sigma, likeness, chance] = [data.sigma[moment], data.likeness[moment], data.chance[moment]];
  const moved = data.moved[moment] === null ? "" : ` · moved by ${data.moved[moment].toFixed(2)} of their size`;
  if (sigma === null) return `no σ: its filters do not vary${moved}`;
  const like = `likeness ${likeness.toFixed(2)}, by chance ${chance === null ? "–" : chance.toFixed(2)}`;
  return (data.beyond[moment] ? `σ ${shortNumber(sigma)} · ${like}` : `no structure beyond chance: ${like}`) + moved;
}

// σ of every layer over depth: a dot where it is more than chance, a ring where it is not.
function showDepths(moment, layer) {
  const svg = element("depths");
  const at = openStage(svg, highest);
  const least = Number(svg.querySelector(".frame.shown").dataset.low);
  const marks = settings.runs.flatMap((run, colour) => run.layers.map((data, i) => {
    const sigma = data.sigma[moment];
    if (sigma === null) return "";
    const kind = data.beyond[moment] ? "mark" : "ring";
    return circle(`${kind} s${colour}`, at(settings.layers[i].depth, Math.max(sigma, least)), i === layer ? 5.5 : 3.5);
  }));
  const beyond = settings.runs[0].layers.filter((data) => data.beyond[moment]).length;
  fillStage(svg, `σ over depth at step ${settings.steps[moment]}, ${beyond} layers beyond chance`, marks);
}

// The spectrum of the chosen layer, and where it began.
function showSpectrum(moment, layer) {
  const svg = element("spectrum");
  const at = openStage(svg, 1);
  const marks = settings.runs.flatMap((run, colour) => [
    spectrumLine(at, mixed(run.layers[layer].spectra, moments, 0), `dashed s${colour}`),
    spectrumLine(at, mixed(run.layers[layer].spectra, moments, moment), `s${colour}`),
  ]);
  fillStage(svg, `spectrum of layer ${layer + 1} at step ${settings.steps[moment]}, and at the beginning`, marks);
}

function spectrumLine(at, levels, kind) {
  const last = Math.max(levels.length - 1, 1);
  const shown = [...levels.entries()].filter(([, level]) => level > 0);
  const points = shown.map(([rank, level]) => at(rank / last, 10 ** (settings.decades * (level / 255 - 1))));
  return points.length ? `<path class="line ${kind}" d="M${points.map((p) => p.map((x) => x.toFixed(1)).join(" ")).join("L")}"/>` : "";
}

function stepAt(place) {
  const before = Math.floor(place);
  const early = settings.steps[before];
  return early + (place - before) * ((settings.steps[before + 1] ?? early) - early);
}

function moveCursor(cursor, step) {
  const { low, high, width } = cursor.dataset;
  const share = high === low ? 0 : (step - low) / (high - low);
  cursor.setAttribute("transform", `translate(${(share * width).toFixed(2)} 0)`);
}
