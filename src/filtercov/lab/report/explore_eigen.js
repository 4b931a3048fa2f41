// Eigenvalues and eigenvectors of a small symmetric matrix, by Jacobi's rotations: each one sets an off-diagonal pair to
// zero, and going through all pairs a few times leaves nothing but the diagonal. Accurate to rounding, and plain.
"use strict";

// a: Float64Array (n × n, row by row), overwritten. Returns {values: (n), vectors: (n × n), one eigenvector per column}.
function eigen(a, n) {
  const vectors = new Float64Array(n * n);
  for (let i = 0; i < n; i++) vectors[i * n + i] = 1;
  const size = Math.sqrt(a.reduce((sum, x) => sum + x * x, 0));
  for (let sweep = 0; sweep < 50; sweep++) {
    let largest = 0;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        const off = Math.abs(a[p * n + q]);
        largest = Math.max(largest, off);
        if (off > 1e-18 * size) rotate(a, vectors, n, p, q);
      }
    }
    if (largest <= 1e-15 * size) break;
  }
  return { values: Float64Array.from({ length: n }, (_, i) => a[i * n + i]), vectors };
}

function rotate(a, vectors, n, p, q) {
  const cotangent2 = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
  const t = (cotangent2 < 0 ? -1 : 1) / (Math.abs(cotangent2) + Math.sqrt(cotangent2 * cotangent2 + 1));
  const cos = 1 / Math.sqrt(t * t + 1);
  const sin = t * cos;
  for (let i = 0; i < n; i++) turn(a, i * n + p, i * n + q, cos, sin);
  for (let i = 0; i < n; i++) turn(a, p * n + i, q * n + i, cos, sin);
  for (let i = 0; i < n; i++) turn(vectors, i * n + p, i * n + q, cos, sin);
}

function turn(a, first, second, cos, sin) {
  const x = a[first];
  const y = a[second];
  a[first] = cos * x - sin * y;
  a[second] = sin * x + cos * y;
}
