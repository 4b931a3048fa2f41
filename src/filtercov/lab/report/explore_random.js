// Normal random numbers from a seed: xoshiro128** for the bits, its state filled by splitmix32, and Box and Muller's
// transform. The numbers are not torch's: a page shows what filters look like, init_ draws the ones a network gets.
"use strict";

function randomBits(seed) {
  let mixed = seed | 0;
  const state = Uint32Array.from({ length: 4 }, () => {
    mixed = (mixed + 0x9e3779b9) | 0;
    let x = mixed ^ (mixed >>> 16);
    x = Math.imul(x, 0x85ebca6b);
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
    return x ^ (x >>> 16);
  });
  const turned = (x, by) => (x << by) | (x >>> (32 - by));
  return () => {
    const bits = Math.imul(turned(Math.imul(state[1], 5), 7), 9) >>> 0;
    const shifted = state[1] << 9;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= shifted;
    state[3] = turned(state[3], 11);
    return bits;
  };
}

function normals(seed, count) {
  const next = randomBits(seed);
  const uniform = () => (next() + 0.5) / 2 ** 32;
  const result = new Float64Array(count);
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(uniform()));
    const angle = 2 * Math.PI * uniform();
    result[i] = radius * Math.cos(angle);
    if (i + 1 < count) result[i + 1] = radius * Math.sin(angle);
  }
  return result;
}
