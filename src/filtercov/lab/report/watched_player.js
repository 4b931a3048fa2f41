// The player: a slider over moments, a button that plays them, and keys: arrows go from moment to moment, space plays.
"use strict";

const WHOLE = 9000; // milliseconds from the first moment to the last, but no moment takes longer than LONGEST
const LONGEST = 400;
const last = moments - 1;
let place = last; // between 0 and the last moment; between two moments only while it plays
let layer = 0;
let playing = null; // { place, time } where and when playing began
let asked = false; // a drawing is asked for at the next frame

function draw() {
  asked = false;
  showPlace(place, layer);
  const moment = Math.floor(place);
  const slider = element("moment");
  slider.value = moment;
  slider.setAttribute("aria-valuetext", `step ${settings.steps[moment]}, moment ${moment + 1} of ${moments}`);
  element("now").textContent = `step ${settings.steps[moment]}`;
}

function askToDraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(draw);
}

function goTo(moment) {
  pause();
  place = Math.min(Math.max(Math.round(moment), 0), last);
  askToDraw();
}

function play() {
  playing = { place: place >= last ? 0 : place, time: performance.now() };
  showButton();
  requestAnimationFrame(advance);
}

function pause() {
  if (playing) place = Math.floor(place);
  playing = null;
  showButton();
}

function advance(time) {
  if (!playing) return;
  const each = Math.min(LONGEST, WHOLE / Math.max(last, 1));
  place = Math.min(playing.place + Math.max(time - playing.time, 0) / each, last);
  if (place === last) pause();
  draw();
  if (playing) requestAnimationFrame(advance);
}

function toggle() {
  if (!playing) return play();
  pause();
  askToDraw();
}

function showButton() {
  element("play").textContent = playing ? "Pause" : "Play";
}

function choose(index) {
  layer = index;
  chooseLayer(layer);
  askToDraw();
}

// Space on a button presses it, and arrows on the slider move it already; where a table scrolls, arrows are the table's.
function takeKey(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const { target } = event;
  const inside = element("player").contains(target);
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step && target.id !== "moment" && (inside || target === document.body)) goTo(Math.floor(place) + step);
  else if (event.key === " " && inside && target.tagName !== "BUTTON") toggle();
  else return;
  event.preventDefault();
}

element("moment").addEventListener("input", (event) => goTo(Number(event.target.value)));
element("play").addEventListener("click", toggle);
document.querySelectorAll("#strip button").forEach((button, i) => button.addEventListener("click", () => choose(i)));
document.addEventListener("keydown", takeKey);
element("play").disabled = last === 0;
element("moment").disabled = last === 0;
choose(0);
draw();
