// Eigenvalues and eigenvectors of a symmetric matrix: Householder's reflections make it tridiagonal, and QR steps with
// Wilkinson's shift, each a chain of rotations of neighbouring rows, then make what is beside the diagonal vanish.
// Accurate to rounding of the largest eigenvalue.
"use strict";

// a: Float64Array (n × n, row by row), overwritten. Returns {values: (n), vectors: (n × n), one eigenvector per row}.
function eigen(a, n) {
  const vectors = tridiagonalise(a, n);
  const values = Float64Array.from({ length: n }, (_, i) => a[i * n + i]);
  const beside = Float64Array.from({ length: n - 1 }, (_, i) => a[(i + 1) * n + i]);
  const size = values.reduce((most, x, i) => Math.max(most, Math.abs(x), Math.abs(beside[i] ?? 0)), 0);
  const negligible = (i) => Math.abs(beside[i]) <= 1e-16 * size;
  for (let high = n - 1; high > 0;) {
    if (negligible(high - 1)) {
      high--;
      continue;
    }
    let low = high - 1;
    while (low > 0 && !negligible(low - 1)) low--;
    qrStep(values, beside, low, high, vectors);
  }
  return { values, vectors };
}

// Replace `a` by Qᵀ A Q, tridiagonal, and return Qᵀ. Q is the product of reflections H = I − 2 u uᵀ.
function tridiagonalise(a, n) {
  const mirrors = [];
  const w = new Float64Array(n);
  for (let k = 0; k + 2 < n; k++) {
    const u = new Float64Array(n);
    for (let i = k + 1; i < n; i++) u[i] = a[i * n + k];
    const length = Math.sqrt(dot(u, u, 0, 0, k + 1, n));
    u[k + 1] += u[k + 1] < 0 ? -length : length; // the reflection that does not cancel
    const scale = Math.sqrt(dot(u, u, 0, 0, k + 1, n));
    if (scale > 0) for (let i = k + 1; i < n; i++) u[i] /= scale;
    mirrors.push(u);
    // H A H = A − u wᵀ − w uᵀ with w = 2 (A u − (uᵀ A u) u), from row k on
    for (let i = k; i < n; i++) w[i] = 2 * dot(a, u, i * n, 0, k + 1, n);
    const along = dot(u, w, 0, 0, k + 1, n) / 2;
    for (let i = k; i < n; i++) w[i] -= 2 * along * u[i];
    for (let i = k; i < n; i++) {
      const ui = u[i];
      const wi = w[i];
      for (let j = k, at = i * n + k; j < n; j++, at++) a[at] -= ui * w[j] + wi * u[j];
    }
  }
  const q = new Float64Array(n * n);
  for (let i = 0; i < n; i++) q[i * n + i] = 1;
  for (let k = mirrors.length - 1; k >= 0; k--) { // Qᵀ H from the last on, where rows before k + 1 are still untouched
    const u = mirrors[k];
    for (let i = k + 1; i < n; i++) {
      const twice = 2 * dot(q, u, i * n, 0, k + 1, n);
      for (let j = k + 1, at = i * n + k + 1; j < n; j++, at++) q[at] -= twice * u[j];
    }
  }
  return q;
}

// Σ x[xStart + i] y[yStart + i] for i from `from` to before `to`.
function dot(x, y, xStart, yStart, from, to) {
  let sum = 0;
  for (let i = from; i < to; i++) sum += x[xStart + i] * y[yStart + i];
  return sum;
}

// One step on rows low to high of the tridiagonal matrix with diagonal d and e beside it. The first rotation is that of
// a QR decomposition of the shifted matrix; it leaves one number outside the three diagonals, which the others chase out.
function qrStep(d, e, low, high, vectors) {
  const last = e[high - 1];
  const ratio = (d[high - 1] - d[high]) / (2 * last);
  const shift = d[high] - last / (ratio + (ratio < 0 ? -1 : 1) * Math.hypot(ratio, 1)); // no square underflows
  let x = d[low] - shift;
  let outside = e[low];
  for (let i = low; i < high; i++) {
    const r = Math.hypot(x, outside);
    const [cos, sin] = r > 0 ? [x / r, outside / r] : [1, 0];
    if (i > low) e[i - 1] = r;
    const [first, second, between] = [d[i], d[i + 1], e[i]];
    d[i] = cos * cos * first + 2 * cos * sin * between + sin * sin * second;
    d[i + 1] = sin * sin * first - 2 * cos * sin * between + cos * cos * second;
    e[i] = cos * sin * (second - first) + (cos * cos - sin * sin) * between;
    if (i + 1 < high) {
      x = e[i];
      outside = sin * e[i + 1];
      e[i + 1] *= cos;
    }
    turnRows(vectors, i, d.length, cos, sin);
  }
}

// Turn rows i and i + 1 of an n × n matrix into one another.
function turnRows(a, i, n, cos, sin) {
  for (let p = i * n, q = p + n; p < (i + 1) * n; p++, q++) {
    const x = a[p];
    const y = a[q];
    a[p] = cos * x + sin * y;
    a[q] = cos * y - sin * x;
  }
}
