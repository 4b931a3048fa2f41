// What the page has of its runs. Colours of covariances, filters and spectra are bytes, moment after moment.
"use strict";

const settings = JSON.parse(document.getElementById("watched").textContent);

function bytesOf(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

for (const run of settings.runs) {
  for (const layer of run.layers) {
    for (const name of ["covariances", "filters", "spectra"]) layer[name] = bytesOf(layer[name]);
  }
}

// The bytes of a kind at a place in time, which may lie between two moments: then they are mixed.
function mixed(bytes, moments, place) {
  const size = bytes.length / moments;
  const before = Math.floor(place);
  const share = place - before;
  const early = bytes.subarray(before * size, (before + 1) * size);
  if (share === 0) return early;
  const late = bytes.subarray((before + 1) * size, (before + 2) * size);
  const result = new Float32Array(size);
  for (let i = 0; i < size; i++) result[i] = early[i] + share * (late[i] - early[i]);
  return result;
}
