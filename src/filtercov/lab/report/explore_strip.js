// The strip of layers: one button for each, with its covariance, its σ and negative mass, and a few of its filters.
"use strict";

const STRIP_FILTERS = 6;
const SMALL = 194; // pixels across, shown at half that size

function showStrip(sigmas) {
  const strip = element("strip");
  while (strip.children.length > sigmas.length) strip.lastElementChild.remove();
  while (strip.children.length < sigmas.length) strip.append(stripButton(strip.children.length));
  sigmas.forEach((sigma, i) => {
    const button = strip.children[i];
    button.setAttribute("aria-pressed", String(i === state.layer));
    drawCovariance(button.querySelector(".cov"), state.k, sigma, SMALL);
  });
}

function stripButton(i) {
  const button = document.createElement("button");
  button.type = "button";
  button.innerHTML = '<canvas class="cov pixels"></canvas><canvas class="samples pixels"></canvas><span></span>';
  button.addEventListener("click", () => change({ layer: i }));
  return button;
}

function showStripFilters(i, sigma, filters, mass) {
  const button = element("strip").children[i];
  const percent = `${(100 * mass).toFixed(1)} %`;
  drawFilters(button.querySelector(".samples"), filters, state.k, 3, SMALL);
  button.querySelector("span").textContent = `σ ${shortNumber(sigma)} · ${percent}`;
  button.setAttribute("aria-label", `layer ${i + 1}, σ ${shortNumber(sigma)}, negative mass ${percent}`);
}
