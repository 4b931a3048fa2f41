// The library's mathematics for square k × k filters: the closed form, its spectrum, its symmetric root, and normal
// random numbers.
"use strict";

// Eigenvalues and eigenvectors of a symmetric matrix by Jacobi's rotations, each of which makes one number beside the
// diagonal vanish, until all have. Accurate to rounding of the largest eigenvalue.
// a: Float64Array (n × n, row by row), overwritten. Returns {values: (n), vectors: (n × n), one eigenvector per row}.
function eigen(a, n) {
  const vectors = new Float64Array(n * n);
  for (let i = 0; i < n; i++) vectors[i * n + i] = 1;
  const negligible = 1e-16 * a.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  for (let rotations = 1; rotations > 0;) {
    rotations = 0;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        const beside = a[p * n + q];
        if (Math.abs(beside) <= negligible) continue;
        const ratio = (a[q * n + q] - a[p * n + p]) / (2 * beside);
        const tan = (ratio < 0 ? -1 : 1) / (Math.abs(ratio) + Math.hypot(ratio, 1));
        const cos = 1 / Math.hypot(tan, 1);
        const diagonal = [a[p * n + p] - tan * beside, a[q * n + q] + tan * beside];
        turnRows(a, p, q, n, cos, tan * cos);
        for (let i = 0; i < n; i++) [a[i * n + p], a[i * n + q]] = [a[p * n + i], a[q * n + i]];
        [a[p * n + p], a[q * n + q]] = diagonal;
        a[p * n + q] = a[q * n + p] = 0;
        turnRows(vectors, p, q, n, cos, tan * cos);
        rotations++;
      }
    }
  }
  return { values: Float64Array.from({ length: n }, (_, i) => a[i * n + i]), vectors };
}

// Turn rows p and q of a matrix with n columns into one another.
function turnRows(a, p, q, n, cos, sin) {
  for (let i = p * n, j = q * n; i < (p + 1) * n; i++, j++) {
    const x = a[i];
    const y = a[j];
    a[i] = cos * x - sin * y;
    a[j] = cos * y + sin * x;
  }
}

// Σ x[xStart + i] y[yStart + i] for i from `from` to before `to`.
function dot(x, y, xStart, yStart, from, to) {
  let sum = 0;
  for (let i = from; i < to; i++) sum += x[xStart + i] * y[yStart + i];
  return sum;
}

// Σ′ = ½ (D C + C D − z zᵀ) in flat form, row by row, between the pixels at `kept` along both axes, by default all: the
// same expression as filtercov.gaussian_covariance.
function covariance(k, sigma, kept = middle(k, k)) {
  const m = kept.length;
  const n = m * m;
  const gaussian = (distance) => Math.exp(-(distance ** 2) / (2 * sigma));
  const g = kept.map((i) => gaussian(i - (k - 1) / 2));
  const around = kept.map((i) => kept.map((l) => gaussian(Math.min(Math.abs(i - l), k - Math.abs(i - l)))));
  const z = Float64Array.from({ length: n }, (_, p) => g[Math.floor(p / m)] * g[p % m]);
  const result = new Float64Array(n * n);
  for (let p = 0, at = 0; p < n; p++) {
    const rows = around[Math.floor(p / m)];
    const columns = around[p % m];
    for (let l = 0, q = 0; l < m; l++) {
      for (let j = 0; j < m; j++, q++, at++) {
        result[at] = 0.5 * ((z[p] + z[q]) * rows[l] * columns[j] - z[p] * z[q]);
      }
    }
  }
  return result;
}

// The positions of the `width` pixels in the middle of an axis of length k.
function middle(k, width) {
  return Array.from({ length: width }, (_, i) => i + (k - width) / 2);
}

// How many pixels in the middle of an axis carry the closed form: support_window in covariance/root.py.
function supportWindow(k, sigma) {
  const { error, decay } = settings.window;
  const radius = Math.ceil(Math.sqrt((sigma * Math.log(1 / error)) / decay));
  return Math.min(k, 2 * radius + (k % 2 ? 1 : 2));
}

// The covariance is the same after a flip of either axis and after swapping them. So in a basis of functions that are
// even or odd under each of these it falls apart into five small blocks, "sectors", one of which (even along one axis,
// odd along the other) counts twice, the second time transposed. A basis function is a list of [pixel, weight].
const sectorsOf = new Map();

function sectors(k) {
  if (!sectorsOf.has(k)) sectorsOf.set(k, makeSectors(k));
  return sectorsOf.get(k);
}

function makeSectors(k) {
  const even = [];
  const odd = [];
  for (let i = Math.floor(k / 2); i < k; i++) {
    const mirrored = k - 1 - i;
    if (i === mirrored) {
      even.push([[i, 1]]);
    } else {
      even.push([[i, Math.SQRT1_2], [mirrored, Math.SQRT1_2]]);
      odd.push([[i, Math.SQRT1_2], [mirrored, -Math.SQRT1_2]]);
    }
  }
  const product = (rows, columns) => rows.flatMap(([i, u]) => columns.map(([j, v]) => [i * k + j, u * v]));
  const transposed = (f) => f.map(([pixel, w]) => [(pixel % k) * k + Math.floor(pixel / k), w]);
  const found = [];
  for (const parts of [even, odd]) {
    const symmetric = parts.map((u) => product(u, u));
    const antisymmetric = [];
    for (let a = 0; a < parts.length; a++) {
      for (let b = a + 1; b < parts.length; b++) {
        const f = product(parts[a], parts[b]).map(([pixel, w]) => [pixel, w * Math.SQRT1_2]);
        symmetric.push([...f, ...transposed(f)]);
        antisymmetric.push([...f, ...transposed(f).map(([pixel, w]) => [pixel, -w])]);
      }
    }
    found.push({ bases: [symmetric] }, { bases: [antisymmetric] });
  }
  const mixed = even.flatMap((u) => odd.map((v) => product(u, v)));
  found.push({ bases: [mixed, mixed.map(transposed)] });
  return found.filter((sector) => sector.bases[0].length > 0);
}

// The eigenvalues and eigenvectors of the closed form by sector, and all eigenvalues from the largest down. Only the
// window that carries it is decomposed; the others of its k² eigenvalues are zero to rounding.
function decompose(k, sigma) {
  const width = supportWindow(k, sigma);
  const n = width * width;
  const cov = covariance(k, sigma, middle(k, width));
  const parts = sectors(width).map(({ bases }) => {
    const basis = bases[0];
    const m = basis.length;
    const matrix = new Float64Array(m * m);
    for (let a = 0; a < m; a++) {
      // Σ′ carries a basis function to one of the same symmetry, which is known once it is known at one pixel.
      const [pixel, weight] = basis[a][0];
      for (let b = 0; b < m; b++) {
        let sum = 0;
        for (const [q, w] of basis[b]) sum += w * cov[pixel * n + q];
        matrix[a * m + b] = sum / weight;
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
  let negative = 0;
  let total = 0;
  for (const value of eigenvalues) {
    total += Math.abs(value);
    if (value < 0) negative -= value;
  }
  return total > 0 ? negative / total : 0;
}

// z @ R for the symmetric root R, which is V √λ Vᵀ: one filter from one vector of normal numbers.
function timesRoot(z, { k, width, parts }, negative) {
  const result = new Float64Array(k * k);
  const offset = (k - width) / 2;
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
function sigmaAt({ sigma0, v, a }, d) {
  return sigma0 + v * d + 0.5 * a * d * d;
}

// The depth in [0, 1] where σ is least; the library needs it to be positive there.
function lowestDepth(schedule) {
  const turning = schedule.a === 0 ? 0 : Math.min(Math.max(-schedule.v / schedule.a, 0), 1);
  return [0, turning, 1].reduce((best, d) => (sigmaAt(schedule, d) < sigmaAt(schedule, best) ? d : best));
}

// Relative depth of layer i of `count`, from 0 to 1; a single layer is at the start.
function relativeDepth(i, count) {
  return count > 1 ? i / (count - 1) : 0;
}

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
