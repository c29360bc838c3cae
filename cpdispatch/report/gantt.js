"use strict";
// Nodes over time on a canvas. Many bars: how much of each pixel's lanes and time is used.
// Few bars: each by itself. `bars` are by start; bar k has the runs offset[k] to offset[k + 1].
class Gantt {
  constructor(canvas, lanes, spans, changed, picked) {
    Object.assign(this, { canvas, lanes, spans, changed, picked });
    this.left = 66; this.right = 14; this.bottom = 24;
    this.selected = -1; this.alone = 4000; this.mode = "";
    this.listen();
  }

  show(bars, begin, end) {
    this.bars = bars;
    if (this.limits === undefined) {
      this.limits = [begin, end];
      this.home();
    }
    this.limits = [Math.min(begin, this.limits[0]), Math.max(end, this.limits[1])];
    this.draw();
  }

  home() {
    [this.begin, this.end] = this.limits;
    [this.top, this.low] = [0, this.lanes];
    this.window(this.begin, this.end, 0, this.lanes);
  }

  window(begin, end, top, low) {
    const [first, last] = this.limits;
    const span = Math.min(Math.max(end - begin, 5), last - first);
    this.begin = Math.min(Math.max(begin, first), last - span);
    this.end = this.begin + span;
    const rows = Math.min(Math.max(low - top, Math.min(4, this.lanes)), this.lanes);
    this.top = Math.min(Math.max(top, 0), this.lanes - rows);
    this.low = this.top + rows;
    this.draw();
    this.changed();
  }

  // Zoom by a factor around a time and a lane; lanes only where asked for.
  zoom(factor, time = (this.begin + this.end) / 2, lane = null) {
    const [b, e, t, l] = [this.begin, this.end, this.top, this.low];
    const rows = lane === null ? [t, l] : [lane - (lane - t) * factor, lane + (l - lane) * factor];
    this.window(time - (time - b) * factor, time + (e - time) * factor, ...rows);
  }

  pan(time, lane) {
    const [dt, dl] = [time * (this.end - this.begin), lane * (this.low - this.top)];
    this.window(this.begin + dt, this.end + dt, this.top + dl, this.low + dl);
  }

  get size() { return [this.canvas.clientWidth - this.left - this.right, this.canvas.clientHeight - this.bottom]; }
  x(time) { return this.left + (time - this.begin) / (this.end - this.begin) * this.size[0]; }
  y(lane) { return (lane - this.top) / (this.low - this.top) * this.size[1]; }
  time(x) { return this.begin + (x - this.left) / this.size[0] * (this.end - this.begin); }
  lane(y) { return this.top + y / this.size[1] * (this.low - this.top); }

  // Bars from the first that may still be there at the left edge on to the last one before the right edge.
  *inside() {
    const { start, end, reach, block } = this.bars;
    for (let part = 0; part < reach.length; part++) {
      if (reach[part] < this.begin) continue;
      const last = Math.min((part + 1) * block, start.length);
      for (let k = part * block; k < last; k++) {
        if (start[k] > this.end) return;
        if (end[k] >= this.begin) yield k;
      }
    }
  }

  // Room for the names of the nodes: as much as they need, a sixth of the picture at most.
  fit() {
    const pen = this.canvas.getContext("2d");
    pen.font = "13px system-ui, sans-serif";
    const needed = [...this.spans(0, this.lanes, 24)].map(({ name }) => pen.measureText(name).width + 9);
    this.fitted = this.canvas.clientWidth;
    this.left = Math.ceil(Math.max(66, Math.min(Math.max(...needed), this.fitted / 6)));
  }

  draw() {
    if (!this.bars || this.canvas.clientWidth === 0) return;
    if (this.fitted !== this.canvas.clientWidth) this.fit();
    const scale = window.devicePixelRatio || 1, [width, height] = this.size;
    this.canvas.width = this.canvas.clientWidth * scale;
    this.canvas.height = this.canvas.clientHeight * scale;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const css = getComputedStyle(document.documentElement), ink = (name) => css.getPropertyValue(name).trim();
    pen.fillStyle = ink("--plot");
    pen.fillRect(this.left, 0, width, height);
    const seen = [];
    for (const k of this.inside()) if (seen.push(k) > this.alone) break;
    this.mode = seen.length > this.alone ? "raster" : "jobs";
    if (this.mode === "raster") this.raster(pen, ink, Math.round(width), Math.round(height));
    else this.jobs(pen, ink, seen);
    pen.clearRect(0, 0, this.left, this.canvas.clientHeight);
    pen.clearRect(this.left + width, 0, this.right, this.canvas.clientHeight);
    this.axes(pen, ink, width, height);
  }

  // Coverage of each pixel: four corners a run, each shared among four pixels; then sums along both axes.
  raster(pen, ink, width, height) {
    const { start, end, offset, first, length, faded } = this.bars;
    const stride = width + 2, all = new Float32Array(stride * (height + 2)), kept = faded ? new Float32Array(all.length) : all;
    const sx = width / (this.end - this.begin), sy = height / (this.low - this.top);
    const corner = (grid, x, y, w) => {
      const i = Math.floor(x), j = Math.floor(y), a = x - i, b = y - j, at = j * stride + i;
      grid[at] += w * (1 - a) * (1 - b); grid[at + 1] += w * a * (1 - b);
      grid[at + stride] += w * (1 - a) * b; grid[at + stride + 1] += w * a * b;
    };
    const add = (grid, x0, x1, y0, y1) => {
      corner(grid, x0, y0, 1); corner(grid, x1, y0, -1); corner(grid, x0, y1, -1); corner(grid, x1, y1, 1);
    };
    for (const k of this.inside()) {
      const x0 = Math.max((start[k] - this.begin) * sx, 0), x1 = Math.min((end[k] - this.begin) * sx, width);
      if (x1 <= x0) continue;
      for (let run = offset[k]; run < offset[k + 1]; run++) {
        const y0 = Math.max((first[run] - this.top) * sy, 0);
        const y1 = Math.min((first[run] + length[run] - this.top) * sy, height);
        if (y1 <= y0) continue;
        add(all, x0, x1, y0, y1);
        if (faded && !faded[k]) add(kept, x0, x1, y0, y1);
      }
    }
    const sums = (grid) => {
      for (let j = 0; j < height; j++) {
        let row = 0;
        for (let i = 0; i < width; i++) {
          row += grid[j * stride + i];
          grid[j * stride + i] = row + (j ? grid[(j - 1) * stride + i] : 0);
        }
      }
    };
    sums(all);
    if (faded) sums(kept);
    const rgb = (name) => ink(name).match(/\w\w/g).map((part) => parseInt(part, 16));
    const [back, full, other] = [rgb("--plot"), rgb("--use"), rgb("--faded")];
    const image = new ImageData(width, height);
    for (let j = 0; j < height; j++) for (let i = 0; i < width; i++) {
      const of = Math.min(Math.max(kept[j * stride + i], 0), 1);
      const rest = faded ? Math.min(Math.max(all[j * stride + i] - of, 0), 1 - of) : 0;
      const at = 4 * (j * width + i);
      for (let c = 0; c < 3; c++) image.data[at + c] = back[c] + of * (full[c] - back[c]) + rest * (other[c] - back[c]);
      image.data[at + 3] = 255;
    }
    const sheet = document.createElement("canvas");
    [sheet.width, sheet.height] = [width, height];
    sheet.getContext("2d").putImageData(image, 0, 0);
    pen.drawImage(sheet, this.left, 0);
    if (this.selected >= 0) this.jobs(pen, ink, [...this.inside()].filter((k) => this.bars.job[k] === this.selected), true);
  }

  jobs(pen, ink, seen, only = false) {
    const { start, end, offset, first, length, job, faded, lost } = this.bars;
    const colours = [0, 1, 2, 3].map((n) => ink(`--job${n}`)), [grey, edge, chosen] = [ink("--faded"), ink("--plot"), ink("--chosen")];
    for (const k of seen) {
      const x0 = Math.max(this.x(start[k]), this.left - 2), wide = Math.max(Math.min(this.x(end[k]), this.left + this.size[0] + 2) - x0, 1);
      const mine = job[k] === this.selected;
      if (only && !mine) continue;
      pen.fillStyle = mine ? chosen : faded && faded[k] ? grey : colours[job[k] % 4];
      pen.globalAlpha = lost[k] && !mine ? 0.45 : 1;
      for (let run = offset[k]; run < offset[k + 1]; run++) {
        const y0 = this.y(first[run]), tall = Math.max(this.y(first[run] + length[run]) - y0, mine ? 2 : 0.6);
        if (y0 > this.size[1] || y0 + tall < 0) continue;
        const high = Math.min(y0 + tall, this.size[1]) - Math.max(y0, 0);
        pen.fillRect(x0, Math.max(y0, 0), wide, high);
        if (wide > 4 && high > 4) {
          pen.strokeStyle = edge;
          pen.strokeRect(x0 + 0.5, Math.max(y0, 0) + 0.5, wide - 1, high - 1);
        }
        const name = wide > 50 && high > 14 ? this.bars.named(job[k]) : "";
        if (name && pen.measureText(name).width < wide - 8) {
          pen.fillStyle = ink("--on-job");
          pen.font = "12px system-ui, sans-serif";
          pen.fillText(name, x0 + 4, Math.max(y0, 0) + Math.min(high / 2 + 4, 16));
          pen.fillStyle = mine ? chosen : faded && faded[k] ? grey : colours[job[k] % 4];
        }
      }
    }
    pen.globalAlpha = 1;
  }

  axes(pen, ink, width, height) {
    pen.font = "13px system-ui, sans-serif";
    pen.fillStyle = ink("--ink");
    pen.strokeStyle = ink("--line");
    const [times, step] = timeTicks(this.begin, this.end, Math.max(width / 90, 3));
    pen.textAlign = "center";
    for (const time of times) {
      const x = this.x(time);
      pen.beginPath(); pen.moveTo(x, height); pen.lineTo(x, height + 5); pen.stroke();
      if (x > this.left + 18 && x < this.left + width - 22) pen.fillText(shownTime(time, step), x, height + 19);
    }
    pen.textAlign = "right";
    let last = -20;
    for (const { first, name } of this.spans(this.top, this.low, Math.max(height / 26, 2))) {
      const y = this.y(Math.max(first, this.top));
      if (y - last < 15 || y > height - 4) continue;
      pen.beginPath(); pen.moveTo(this.left - 4, y + 0.5); pen.lineTo(this.left, y + 0.5); pen.stroke();
      pen.fillText(name, this.left - 7, y + 11, this.left - 8);
      last = y;
    }
  }

  at(x, y) {
    const time = this.time(x), lane = this.lane(y), slack = 2 * (this.end - this.begin) / this.size[0];
    let found = -1;
    for (const k of this.inside()) {
      const { start, end, offset, first, length, job } = this.bars;
      if (time < start[k] - slack || time > end[k] + slack) continue;
      for (let run = offset[k]; run < offset[k + 1]; run++) {
        if (lane < first[run] || lane >= first[run] + length[run]) continue;
        if (time >= start[k] && time < end[k]) return job[k];
        found = job[k];
      }
    }
    return found;
  }

  listen() {
    const canvas = this.canvas, fingers = new Map();
    let moved = 0;
    const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      const [x, y] = place(event), factor = Math.exp(Math.sign(event.deltaY) * 0.35);
      this.zoom(factor, this.time(x), event.shiftKey ? this.lane(y) : null);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); fingers.set(event.pointerId, place(event)); moved = 0; });
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const now = place(event), others = [...fingers.entries()].filter(([id]) => id !== event.pointerId);
      moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
      if (others.length) {
        const x = others[0][1][0], was = Math.abs(before[0] - x), is = Math.abs(now[0] - x);
        if (was > 8 && is > 8) this.zoom(was / is, this.time((x + now[0]) / 2));
      } else if (moved > 4) this.pan((before[0] - now[0]) / this.size[0], event.pointerType === "touch" ? 0 : (before[1] - now[1]) / this.size[1]);
      fingers.set(event.pointerId, now);
    });
    const up = (event) => {
      if (fingers.delete(event.pointerId) && event.type === "pointerup" && moved <= 4 && !fingers.size) {
        const job = this.at(...place(event));
        if (job >= 0) this.picked(job);
      }
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("dblclick", (event) => { const [x, y] = place(event); this.zoom(0.25, this.time(x), this.lane(y)); });
    const keys = {
      ArrowLeft: () => this.pan(-0.2, 0), ArrowRight: () => this.pan(0.2, 0),
      ArrowUp: () => this.pan(0, -0.2), ArrowDown: () => this.pan(0, 0.2),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      "]": () => this.zoom(0.5, undefined, (this.top + this.low) / 2), "[": () => this.zoom(2, undefined, (this.top + this.low) / 2),
      Home: () => this.home(),
    };
    canvas.addEventListener("keydown", (event) => { const act = keys[event.key]; if (act) { event.preventDefault(); act(); } });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }
}
