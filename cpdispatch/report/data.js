"use strict";
// Columns that columns.py packed: name -> Float64Array.
async function unpackColumns(directory, text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const flat = new Uint8Array(await new Response(stream).arrayBuffer());
  const columns = {};
  let at = 0;
  for (const [name, length, width] of directory) {
    const column = new Float64Array(length);
    let sum = 0;
    for (let k = 0; k < length; k++) {
      let coded = 0;
      for (let plane = width - 1; plane >= 0; plane--) coded = coded * 256 + flat[at + plane * length + k];
      sum += coded % 2 ? -(coded + 1) / 2 : coded / 2;
      column[k] = sum;
    }
    at += length * width;
    columns[name] = column;
  }
  return columns;
}

// Mean over each bin of a sum of steps: weight(k) from `from[k]` to `to[k]`, exact for any bins.
function coverage(from, to, weight, begin, end, bins) {
  const change = new Float64Array(bins + 2), scale = bins / (end - begin);
  const edge = (time, w) => {
    const place = Math.min(Math.max((time - begin) * scale, 0), bins), whole = Math.floor(place);
    change[whole] += w * (1 - place + whole);
    change[whole + 1] += w * (place - whole);
  };
  for (let k = 0; k < from.length; k++) {
    if (!(weight[k] > 0) || to[k] <= begin || from[k] >= end || to[k] <= from[k]) continue;
    edge(from[k], weight[k]);
    edge(to[k], -weight[k]);
  }
  const found = new Float64Array(bins);
  let sum = 0;
  for (let k = 0; k < bins; k++) found[k] = sum += change[k];
  return found;
}

// Value below which a share of the sorted values lies, linear between them.
function quantile(sorted, share) {
  const place = (sorted.length - 1) * share, low = Math.floor(place), high = Math.ceil(place);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
}

function shownDuration(s) {
  if (s < 120) return `${Math.round(s)} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")}`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const STEPS_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800,
  432000, 864000, 1728000, 2592000, 5184000, 15552000, 31536000, 63072000];
function timeTicks(begin, end, most) {
  const step = STEPS_S.find((s) => (end - begin) / s <= most) || Math.ceil((end - begin) / most);
  const found = [];
  for (let time = Math.ceil(begin / step) * step; time <= end; time += step) found.push(time);
  return [found, step];
}
// Time since the first submission, as the day and the time of day.
function shownTime(time, step) {
  const day = Math.floor(time / 86400), rest = time - day * 86400, two = (n) => String(n).padStart(2, "0");
  const name = `day ${day.toLocaleString("en")}`;
  if (step >= 86400) return name;
  const clock = `${two(Math.floor(rest / 3600))}:${two(Math.floor(rest / 60) % 60)}`;
  if (step >= 60) return rest === 0 ? name : clock;
  return `${clock}:${two(Math.floor(rest) % 60)}`;
}
