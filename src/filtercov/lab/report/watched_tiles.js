// Covariances and filters as tiles on canvases, a pixel for each number; the page enlarges them.
"use strict";

const GAP = 1;

// Where each pixel of a filter lies on paper: a row, a picture, or slices side by side.
function paper(sides) {
  const [width, height, depth] = [sides.at(-1), sides.at(-2) ?? 1, sides.at(-3) ?? 1];
  const count = width * height * depth;
  const across = width * depth;
  const places = Array.from({ length: count }, (_, p) => {
    const [x, y, z] = [p % width, Math.floor(p / width) % height, Math.floor(p / (width * height))];
    return [y, z * width + x];
  });
  return { count, across, down: height, places };
}

// Where each pixel of every tile lies on a canvas, tile after tile.
function layout(sides, tiles, columns) {
  const { count, across, down, places } = paper(sides);
  const width = columns * (across + GAP) - GAP;
  const height = Math.ceil(tiles / columns) * (down + GAP) - GAP;
  const offsets = new Uint32Array(tiles * count);
  for (let tile = 0; tile < tiles; tile++) {
    const top = Math.floor(tile / columns) * (down + GAP);
    const left = (tile % columns) * (across + GAP);
    places.forEach(([y, x], p) => { offsets[tile * count + p] = (top + y) * width + left + x; });
  }
  return { width, height, offsets };
}

// The block form: the row of the covariance that belongs to pixel (i, j) is the block at row i, column j.
function covarianceLayout(sides) {
  const n = sides.reduce((product, side) => product * side, 1);
  return { n, ...layout(sides, n, sides.length === 1 ? 1 : sides.at(-1)) };
}

function filtersLayout(sides, bytes) {
  const n = sides.reduce((product, side) => product * side, 1);
  return layout(sides, bytes / n, { 1: 2, 2: 4, 3: 2 }[sides.length]);
}

// Make a canvas as large as its layout, shown about `shown` pixels across, every number a whole number of pixels.
function prepare(canvas, { width, height }, shown) {
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const scale = Math.max(1, Math.round(shown / width));
  canvas.style.width = `${width * scale}px`;
}

// The upper triangle of a symmetric matrix, each colour at both of its places.
function drawTriangle(canvas, { n, width, height, offsets }, levels) {
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let row = 0, k = 0; row < n; row++) {
    for (let column = row; column < n; column++, k++) {
      const colour = PALETTE[Math.round(levels[k])];
      pixels[offsets[row * n + column]] = colour;
      pixels[offsets[column * n + row]] = colour;
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawAll(canvas, { width, height, offsets }, levels) {
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < offsets.length; i++) pixels[offsets[i]] = PALETTE[Math.round(levels[i])];
  canvas.getContext("2d").putImageData(image, 0, 0);
}
