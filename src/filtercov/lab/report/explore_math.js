// The library's mathematics for square k × k filters: closed form, spectrum, symmetric root, and normal random numbers.
"use strict";

// Eigenvalues and eigenvectors of a symmetric matrix: Householder's reflections make it tridiagonal, and QR steps with
// Wilkinson's shift, each a chain of rotations of neighbouring rows, then make what is beside the diagonal vanish.
// Accurate to rounding of the largest eigenvalue.
// a: Float64Array (n × n, row by row), overwritten. Returns {values: (n), vectors: (n × n), one eigenvector per row}.
function eigen(a, n) {
  const vectors = tridiagonalise(a, n);
  const values = Float64Array.from({ length: n }, (_, i) => a[i * n + i]);
  const beside = Float64Array.from({ length: n - 1 }, (_, i) => a[(i + 1) * n + i]);
  const size = values.reduce((most, x, i) => Math.max(most, Math.abs(x), Math.abs(beside[i] ?? 0)), 0);
  const negligible = (i) => Math.abs(beside[i]) <= 1e-16 * size;
  for (let high = n - 1; high > 0;) {
    let low = high;
    while (low > 0 && !negligible(low - 1)) low--;
    if (low === high) high--;
    else qrStep(values, beside, low, high, vectors);
  }
  return { values, vectors };
}

// Replace `a` by Qᵀ A Q, tridiagonal, and return Qᵀ. Q is the product of reflections H = I − 2 u uᵀ.
function tridiagonalise(a, n) {
  const [mirrors, w] = [[], new Float64Array(n)];
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
      for (let j = k, at = i * n + k; j < n; j++, at++) a[at] -= u[i] * w[j] + w[i] * u[j];
    }
  }
  const q = new Float64Array(n * n);
  for (let i = 0; i < n; i++) q[i * n + i] = 1;
  for (const [k, u] of [...mirrors.entries()].reverse()) { // Qᵀ H, where rows before k + 1 are still untouched
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
  let [x, outside] = [d[low] - shift, e[low]];
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
    for (let p = i * d.length, q = p + d.length; p < (i + 1) * d.length; p++, q++) { // turn rows i and i + 1
      [vectors[p], vectors[q]] = [cos * vectors[p] + sin * vectors[q], cos * vectors[q] - sin * vectors[p]];
    }
  }
}

// Σ′ = ½ (D C + C D − z zᵀ) in flat form, row by row, between the pixels at `kept` along both axes, by default all: the
// same expression as filtercov.gaussian_covariance.
function covariance(k, sigma, kept = middle(k, k)) {
  const [m, n] = [kept.length, kept.length ** 2];
  const gaussian = (distance) => Math.exp(-(distance ** 2) / (2 * sigma));
  const g = kept.map((i) => gaussian(i - (k - 1) / 2));
  const around = kept.map((i) => kept.map((l) => gaussian(Math.min(Math.abs(i - l), k - Math.abs(i - l)))));
  const z = Float64Array.from({ length: n }, (_, p) => g[Math.floor(p / m)] * g[p % m]);
  const result = new Float64Array(n * n);
  for (let p = 0, at = 0; p < n; p++) {
    const [rows, columns] = [around[Math.floor(p / m)], around[p % m]];
    for (let l = 0, q = 0; l < m; l++) {
      for (let j = 0; j < m; j++, q++, at++) {
        result[at] = 0.5 * ((z[p] + z[q]) * rows[l] * columns[j] - z[p] * z[q]);
      }
    }
  }
  return result;
}

// The positions of the `width` pixels in the middle of an axis of length k.
const middle = (k, width) => Array.from({ length: width }, (_, i) => i + (k - width) / 2);

// How many pixels in the middle of an axis carry the closed form: support_window in covariance/root.py.
function supportWindow(k, sigma) {
  const { error, decay } = settings.window;
  const radius = Math.ceil(Math.sqrt((sigma * Math.log(1 / error)) / decay));
  return Math.min(k, 2 * radius + (k % 2 ? 1 : 2));
}

// The covariance is the same after a flip of either axis. So in a basis of functions that are even or odd along each axis
// it falls apart into blocks. Functions even along one axis and odd along the other count twice, the second time
// transposed. A basis function is a list of [pixel, weight].
function parityBases(k) {
  const [even, odd] = [[], []];
  for (let i = Math.floor(k / 2); i < k; i++) {
    const [mirrored, w] = [k - 1 - i, Math.SQRT1_2];
    even.push(i === mirrored ? [[i, 1]] : [[i, w], [mirrored, w]]);
    if (i !== mirrored) odd.push([[i, w], [mirrored, -w]]);
  }
  const outer = (row, column) => row.flatMap(([i, u]) => column.map(([j, v]) => [i * k + j, u * v]));
  const pairs = (first, second, join) => first.flatMap((a) => second.map((b) => join(a, b)));
  return [
    [pairs(even, even, outer)], [pairs(odd, odd, outer)],
    [pairs(even, odd, outer), pairs(even, odd, (a, b) => outer(b, a))],
  ];
}

// The eigenvalues and eigenvectors of the closed form by parity, and all eigenvalues from the largest down. Only the
// window that carries it is decomposed; the others of its k² eigenvalues are zero to rounding.
function decompose(k, sigma) {
  const width = supportWindow(k, sigma);
  const n = width ** 2;
  const cov = covariance(k, sigma, middle(k, width));
  const parts = parityBases(width).map((bases) => {
    const [basis, m] = [bases[0], bases[0].length];
    const matrix = new Float64Array(m * m);
    for (let a = 0; a < m; a++) {
      // Σ′ carries a basis function to one of the same symmetry, which is known once it is known at one pixel.
      const [pixel, weight] = basis[a][0];
      for (let b = 0; b < m; b++) {
        for (const [q, w] of basis[b]) matrix[a * m + b] += (w * cov[pixel * n + q]) / weight;
      }
    }
    return { bases, size: m, ...eigen(matrix, m) };
  });
  const eigenvalues = new Float64Array(k * k);
  eigenvalues.set(parts.flatMap((part) => part.bases.flatMap(() => [...part.values])));
  eigenvalues.sort().reverse();
  return { k, width, parts, eigenvalues };
}

// Σ|λ| over negative eigenvalues as a share of Σ|λ| over all.
function negativeMass(eigenvalues) {
  const total = eigenvalues.reduce((sum, value) => sum + Math.abs(value), 0);
  return eigenvalues.reduce((sum, value) => sum - Math.min(value, 0), 0) / total;
}

// z @ R for the symmetric root R, which is V √λ Vᵀ: one filter from one vector of normal numbers.
function timesRoot(z, { k, width, parts }, negative) {
  const [result, offset] = [new Float64Array(k * k), (k - width) / 2];
  const inFilter = (pixel) => (Math.floor(pixel / width) + offset) * k + (pixel % width) + offset;
  for (const { bases, size, values, vectors } of parts) {
    const roots = values.map((value) => Math.sqrt(negative === "abs" ? Math.abs(value) : Math.max(value, 0)));
    for (const basis of bases) {
      const inside = Float64Array.from(basis, (f) => f.reduce((sum, [pixel, w]) => sum + w * z[inFilter(pixel)], 0));
      const turned = new Float64Array(size);
      for (let e = 0; e < size; e++) {
        const along = roots[e] * dot(vectors, inside, e * size, 0, 0, size);
        for (let a = 0; a < size; a++) turned[a] += vectors[e * size + a] * along;
      }
      basis.forEach((f, a) => f.forEach(([pixel, w]) => { result[inFilter(pixel)] += w * turned[a]; }));
    }
  }
  return result;
}

// σ(d) = σ₀ + v d + ½ a d²
const sigmaAt = ({ sigma0, v, a }, d) => sigma0 + v * d + 0.5 * a * d * d;

// The depth in [0, 1] where σ is least; the library needs it to be positive there.
function lowestDepth(schedule) {
  const turning = schedule.a === 0 ? 0 : Math.min(Math.max(-schedule.v / schedule.a, 0), 1);
  return [0, turning, 1].reduce((best, d) => (sigmaAt(schedule, d) < sigmaAt(schedule, best) ? d : best));
}

// Relative depth of layer i of `count`, from 0 to 1; a single layer is at the start.
const relativeDepth = (i, count) => (count > 1 ? i / (count - 1) : 0);

// Normal random numbers from a seed: mulberry32 for the bits, and Box and Muller's transform. The numbers are not
// torch's: a page shows what filters look like, init_ draws the ones a network gets.
function normals(seed, count) {
  let state = Math.imul(seed + 1, 0x9e3779b9);
  const uniform = () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return (((bits ^ (bits >>> 14)) >>> 0) + 0.5) / 2 ** 32;
  };
  const result = new Float64Array(count);
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    const angle = 2 * Math.PI * uniform();
    result.set([radius * Math.cos(angle), radius * Math.sin(angle)].slice(0, count - i), i);
  }
  return result;
}
