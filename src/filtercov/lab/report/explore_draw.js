// Pictures of numbers on canvases, and the marks of two charts.
"use strict";

const GAP = 2; // pixels between tiles, half as many where there are hundreds of them in little room

// Draw tiles (each a k × k array of numbers) in rows; `limit(tile)` is what the ends of its colour scale stand for.
// Gaps stay transparent. Every number is a square, as large as fits `size` pixels across; or with Math.round for `fit`
// the nearest to it, and the page then shows the picture smaller.
function drawTiles(canvas, tiles, k, columns, size, limit, fit = Math.floor) {
  const fine = columns * k + GAP * (columns - 1) > size;
  const gap = fine ? GAP / 2 : GAP;
  const cell = Math.max(1, fit((size - gap * (columns - 1)) / (columns * k)));
  const side = k * cell;
  const rows = Math.ceil(tiles.length / columns);
  const width = columns * (side + gap) - gap;
  const height = rows * (side + gap) - gap;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  tiles.forEach((tile, index) => {
    const top = Math.floor(index / columns) * (side + gap);
    const left = (index % columns) * (side + gap);
    const scale = MIDDLE / limit(tile);
    for (let i = 0; i < k; i++) {
      const start = (top + i * cell) * width + left;
      for (let j = 0, x = start; j < k; j++) {
        const level = Math.min(Math.max(tile[i * k + j] * scale, -MIDDLE), MIDDLE);
        const colour = PALETTE[Math.round(MIDDLE + level)];
        for (const end = x + cell; x < end; x++) pixels[x] = colour;
      }
      for (let y = 1; y < cell; y++) pixels.copyWithin(start + y * width, start, start + side);
    }
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The block form: the row of the flat covariance that belongs to pixel (i, j) is the block at row i, column j. Large
// kernels are thinned out, around the centre, as inspect_pictures.py does it.
function drawCovariance(canvas, k, sigma, size) {
  const step = thinning(k);
  const first = Math.floor((k - 1) / 2) % step;
  const kept = Array.from({ length: Math.ceil((k - first) / step) }, (_, i) => first + i * step);
  const cov = covariance(k, sigma, kept);
  const n = kept.length ** 2;
  const blocks = Array.from({ length: n }, (_, p) => cov.subarray(p * n, (p + 1) * n));
  const limit = covarianceLimit(k, sigma);
  drawTiles(canvas, blocks, kept.length, kept.length, size, () => limit, Math.round);
  canvas.style.imageRendering = canvas.width > size ? "auto" : ""; // made smaller, pixels are mixed and none is lost
}

function thinning(k) {
  return Math.ceil(k / settings.finest);
}

function drawFilters(canvas, filters, k, columns, size) {
  drawTiles(canvas, filters, k, columns, size, (f) => f.reduce((most, x) => Math.max(most, Math.abs(x)), 0) || 1);
}

// The largest covariance between two pixels, or a quarter of the largest variance: see covariance_limit in style.py. Both
// are found at the centre.
function covarianceLimit(k, sigma) {
  const kept = middle(k, Math.min(k, k % 2 ? 7 : 8));
  const cov = covariance(k, sigma, kept);
  const n = kept.length ** 2;
  let between = 0;
  let largest = 0;
  for (let p = 0; p < n; p++) {
    for (let q = 0; q < n; q++) {
      const size = Math.abs(cov[p * n + q]);
      if (p !== q && size > between) between = size;
      if (size > largest) largest = size;
    }
  }
  return Math.max(between, largest / 4) || 1;
}

function drawSchedule(svg, state, sigmas) {
  const curve = Array.from({ length: 101 }, (_, i) => sigmaAt(state, i / 100));
  const at = openStage(svg, Math.max(...curve));
  const points = curve.map((sigma, i) => at(i / 100, sigma).map((p) => p.toFixed(1)).join(" "));
  const dots = sigmas.map((sigma, i) => {
    const chosen = i === state.layer;
    return circle(chosen ? "mark s1" : "mark s0", at(relativeDepth(i, sigmas.length), sigma), chosen ? 5 : 3.5);
  });
  const label = `σ over depth, from ${shortNumber(curve[0])} at the first layer to ${shortNumber(curve[100])} at the last`;
  fillStage(svg, label, [`<path class="line s0" d="M${points.join("L")}"/>`, ...dots]);
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
