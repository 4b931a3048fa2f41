// What pages that redraw share: the colours of numbers, and marks in axes that are there already.
"use strict";

const settings = JSON.parse(document.getElementById("settings").textContent);
const element = (id) => document.getElementById(id);

// The palette as pixels in the byte order of an image's data.
const PALETTE = Uint32Array.from(settings.palette, ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r);

// The axes are there: charts.py drew them, a frame for every range of y. Show the first frame that reaches `most`, and
// return where a share of the width and a value lie in it.
function openStage(svg, most) {
  const [left, right, top, bottom] = svg.dataset.box.split(" ").map(Number);
  const frames = [...svg.querySelectorAll(".frame")];
  const frame = frames.find((f) => most <= Number(f.dataset.high)) ?? frames.at(-1);
  for (const f of frames) f.classList.toggle("shown", f === frame);
  const [low, high] = [Number(frame.dataset.low), Number(frame.dataset.high)];
  const along = "log" in frame.dataset
    ? (value) => Math.log(value / low) / Math.log(high / low)
    : (value) => (value - low) / (high - low);
  return (share, value) => [left + share * (right - left), bottom - along(value) * (bottom - top)];
}

function fillStage(svg, label, marks) {
  svg.setAttribute("aria-label", label);
  svg.querySelector(".marks").innerHTML = marks.join("");
}

const shortNumber = (x) => String(Number(x.toPrecision(3)));
const circle = (kind, [x, y], radius) => `<circle class="${kind}" cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="${radius}"/>`;

function path(kind, points) {
  const drawn = points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
  return points.length ? `<path class="line ${kind}" d="M${drawn}"/>` : "";
}
