// The state of the page: what the controls say, kept in the address bar so that it can be shared, and written as Python.
"use strict";

const settings = JSON.parse(document.getElementById("settings").textContent);
const LEFT_ALONE = 5; // init_ leaves kernels smaller than this as they are, unless it is told not to
const NUMBERS = ["k", "depth", "sigma0", "v", "a", "seed"];

const preset = (name) => ({ ...settings.presets[name] });

function defaultState() {
  const { preset: name, negative, k, depth } = settings.start;
  return { k, depth, ...preset(name), seed: 0, negative, layer: Math.floor(depth / 2) };
}

// Read a state out of an address's fragment; whatever is missing or makes no sense keeps its default.
function parseState(fragment) {
  const state = defaultState();
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  for (const name of NUMBERS) {
    const value = Number(given.get(name));
    if (given.get(name) && Number.isFinite(value)) state[name] = withinControl(name, value);
  }
  if (["clip", "abs"].includes(given.get("negative"))) state.negative = given.get("negative");
  const layer = Number.parseInt(given.get("layer"), 10);
  state.layer = within(Number.isInteger(layer) ? layer - 1 : state.layer, 0, state.depth - 1);
  return state;
}

function formatState(state) {
  const given = new URLSearchParams();
  for (const name of NUMBERS) given.set(name, state[name]);
  given.set("negative", state.negative);
  given.set("layer", state.layer + 1);
  return `#${given}`;
}

// Hold a value to the range of its control, and whole numbers whole.
function withinControl(name, value) {
  const control = document.getElementById(name);
  const held = within(value, Number(control.min), Number(control.max));
  return control.step === "1" ? Math.round(held) : held;
}

function within(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

function presetOf(state) {
  const same = ({ sigma0, v, a }) => sigma0 === state.sigma0 && v === state.v && a === state.a;
  return Object.keys(settings.presets).find((name) => same(settings.presets[name]));
}

function pythonLine(state) {
  const name = presetOf(state);
  const source = name ? `"${name}"` : `filtercov.QuadraticSchedule(${state.sigma0}, ${state.v}, ${state.a})`;
  const smaller = state.k < LEFT_ALONE ? `, min_kernel_size=${state.k}` : "";
  return `filtercov.init_(model, ${source}${smaller}, negative="${state.negative}", seed=${state.seed})`;
}
