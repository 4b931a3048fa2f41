// Pictures of numbers on canvases, and two charts as SVG. Red is positive, blue negative, white zero.
"use strict";

// The palette as pixels in the byte order of an image's data.
const PALETTE = Uint32Array.from(settings.palette, ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r);
const MIDDLE = (PALETTE.length - 1) / 2;
const GAP = 2; // pixels between tiles, half as many where there are hundreds of them in little room

// Draw tiles (each a k × k array of numbers) in rows; `limit(tile)` is what the ends of its colour scale stand for.
// Gaps stay transparent. Every number is a square, as large as fits `size` pixels across.
function drawTiles(canvas, tiles, k, columns, size, limit) {
  const fine = columns * k + GAP * (columns - 1) > size;
  const gap = fine ? GAP / 2 : GAP;
  const cell = Math.max(1, Math.floor((size - gap * (columns - 1)) / (columns * k)));
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

// The block form: the row of the flat covariance that belongs to pixel (i, j) is the block at row i, column j.
function drawCovariance(canvas, cov, k, size) {
  const n = k * k;
  const blocks = Array.from({ length: n }, (_, p) => cov.subarray(p * n, (p + 1) * n));
  const limit = covarianceLimit(cov, n);
  drawTiles(canvas, blocks, k, k, size, () => limit);
}

function drawFilters(canvas, filters, k, columns, size) {
  drawTiles(canvas, filters, k, columns, size, (f) => f.reduce((most, x) => Math.max(most, Math.abs(x)), 0) || 1);
}

// The largest covariance between two pixels, or a quarter of the largest variance: see covariance_limit in style.py.
function covarianceLimit(cov, n) {
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

// A chart is a list of SVG elements in a box with room for labels.
const BOX = { left: 44, right: 12, top: 24, bottom: 36 };

function chart(svg, label, xTitle, yTitle, elements) {
  const { width, height } = svg.viewBox.baseVal;
  svg.setAttribute("aria-label", label);
  svg.innerHTML = `${elements.join("")}<text x="4" y="11">${yTitle}</text>` +
    `<text x="${(BOX.left + width) / 2}" y="${height - 4}" text-anchor="middle">${xTitle}</text>`;
}

function plotArea(svg) {
  const { width, height } = svg.viewBox.baseVal;
  const x = (share) => BOX.left + share * (width - BOX.left - BOX.right);
  const y = (share) => height - BOX.bottom - share * (height - BOX.top - BOX.bottom);
  const lineAt = (share, name) => `<path class="axis" d="M${BOX.left} ${y(share)}H${width - BOX.right}"/>` +
    `<text x="${BOX.left - 5}" y="${y(share)}" text-anchor="end" dominant-baseline="middle">${name}</text>`;
  const tick = (share, name) => `<text x="${x(share)}" y="${height - 20}" text-anchor="middle">${name}</text>`;
  return { x, y, lineAt, tick };
}

function drawSchedule(svg, state, sigmas) {
  const { x, y, lineAt, tick } = plotArea(svg);
  const curve = Array.from({ length: 101 }, (_, i) => sigmaAt(state, i / 100));
  const step = niceStep(Math.max(...curve, 0.01) / 4);
  const top = step * Math.ceil(Math.max(...curve) / step);
  const lines = Array.from({ length: Math.round(top / step) + 1 }, (_, i) => lineAt((i * step) / top, shortNumber(i * step)));
  const points = curve.map((sigma, i) => `${x(i / 100)} ${y(sigma / top)}`);
  const dots = sigmas.map((sigma, i) => {
    const chosen = i === state.layer;
    const at = `cx="${x(relativeDepth(i, sigmas.length))}" cy="${y(sigma / top)}"`;
    return `<circle class="${chosen ? "dot2" : "dot"}" ${at} r="${chosen ? 6 : 4}"/>`;
  });
  const label = `σ over depth, from ${shortNumber(curve[0])} at the first layer to ${shortNumber(curve[100])} at the last`;
  chart(svg, label, "relative depth d", "σ", [
    ...lines, ...[0, 0.5, 1].map((d) => tick(d, d)), `<path class="first" d="M${points.join("L")}"/>`, ...dots,
  ]);
}

// Eigenvalues over the largest one, by rank, on a logarithmic scale; negative ones by size, in the second colour.
function drawSpectrum(svg, eigenvalues, negative) {
  const decades = 6;
  const { x, y, lineAt, tick } = plotArea(svg);
  const most = eigenvalues[0];
  const n = eigenvalues.length;
  const lines = Array.from({ length: decades / 2 + 1 }, (_, i) => lineAt(1 - (2 * i) / decades, i ? `1e−${2 * i}` : "1"));
  const dots = [];
  let below = 0;
  eigenvalues.forEach((value, i) => {
    const share = 1 + Math.log10(Math.abs(value) / most) / decades;
    if (value < 0 && share > 0) below++;
    if (!(share > 0)) return;
    const at = `cx="${x(n > 1 ? i / (n - 1) : 0)}" cy="${y(share)}"`;
    const hollow = value < 0 && negative === "clip";
    dots.push(`<circle class="${value < 0 ? (hollow ? "ring" : "dot2") : "dot"}" ${at} r="2.5"/>`);
  });
  const label = `spectrum of ${n} eigenvalues, ${below} of them negative and larger than a millionth of the first`;
  chart(svg, label, "rank of the eigenvalue", "|λ| / λ₁", [...lines, tick(0, 1), tick(1, n), ...dots]);
}

// 1, 2 or 5 times a power of ten, at least x.
function niceStep(x) {
  const power = 10 ** Math.floor(Math.log10(x));
  return power * [1, 2, 5, 10].find((m) => m * power >= x * 0.999);
}

function shortNumber(x) {
  return String(Number(x.toPrecision(3)));
}
