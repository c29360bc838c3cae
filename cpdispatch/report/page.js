"use strict";
const element = (id) => document.getElementById(id);
const about = JSON.parse(element("about").textContent);
const runs = about.names.map((name, number) => ({ name, number }));
const count = (n) => Math.round(n).toLocaleString("en");
const countJobs = (n) => `${count(n)} job${Math.round(n) === 1 ? "" : "s"}`;
let columns, gantt, chosen, job = -1;
const documents = {};

function escaped(text) {
  const made = document.createElement("span");
  made.textContent = text;
  return made.innerHTML.replaceAll('"', "&quot;");
}

// ---------------------------------------------------------------- data
function prepare() {
  const jobs = columns.id.length;
  for (const run of runs) {
    const of = (name) => columns[`${run.number}/${name}`];
    Object.assign(run, { wait: of("wait"), runtime: of("runtime"), reason: of("reason") });
    const saved = of("saved"), failed = of("failed");
    run.start = new Float64Array(jobs); run.end = new Float64Array(jobs); run.slow = new Float64Array(jobs);
    run.queued = new Float64Array(jobs); run.used = new Float64Array(jobs); run.length = new Uint8Array(jobs);
    let last = 0;
    for (let k = 0; k < jobs; k++) {
      const started = run.wait[k] >= 0;
      // What checkpoints kept of earlier attempts is no wait, and counts as runtime.
      const kept = saved ? saved[k] : 0;
      run.start[k] = started ? columns.submit[k] + run.wait[k] + kept : NaN;
      run.end[k] = started ? run.start[k] + run.runtime[k] - kept : NaN;
      // One that was refused did not wait.
      const refused = ["rejected", "never_fits"].includes(about.reasons[run.reason[k]]);
      run.queued[k] = started ? run.start[k] : refused ? columns.submit[k] : Infinity;
      run.used[k] = !started ? run.queued[k] : failed && failed[k] ? run.start[k] : run.end[k];
      run.slow[k] = Math.max(1, (run.wait[k] + run.runtime[k]) / Math.max(run.runtime[k], about.tau));
      run.length[k] = about.length_limits.reduce((found, low, n) => run.runtime[k] >= low ? n : found, 0);
      last = Math.max(last, started ? run.end[k] : 0);
    }
    run.last = last;
    run.bars = barsOf(run, of);
  }
}

function barsOf(run, of) {
  const owner = [];
  for (let k = 0; k < run.wait.length; k++) if (run.wait[k] >= 0) owner.push(k);
  const own = owner.length, extra = of("attempt_job") || [];
  const starts = new Float64Array(own + extra.length), ends = new Float64Array(starts.length), job = new Int32Array(starts.length);
  for (let k = 0; k < own; k++) { job[k] = owner[k]; starts[k] = run.start[owner[k]]; ends[k] = run.end[owner[k]]; }
  for (let k = 0; k < extra.length; k++) {
    job[own + k] = extra[k]; starts[own + k] = of("attempt_start")[k]; ends[own + k] = starts[own + k] + of("attempt_runtime")[k];
  }
  const order = Uint32Array.from(starts, (_, k) => k).sort((a, b) => starts[a] - starts[b] || a - b);
  const bars = { start: new Float64Array(order.length), end: new Float64Array(order.length), job: new Int32Array(order.length),
    lost: new Uint8Array(order.length), offset: new Uint32Array(order.length + 1), first: of("run_first"), length: of("run_length"),
    block: 256, named: (k) => `${columns.id[k]}` };
  bars.reach = new Float64Array(Math.ceil(order.length / bars.block)).fill(-Infinity);
  order.forEach((k, place) => {
    bars.start[place] = starts[k]; bars.end[place] = ends[k]; bars.job[place] = job[k]; bars.lost[place] = k >= own;
    bars.offset[place + 1] = bars.offset[place] + of("run_count")[place];
    const part = Math.floor(place / bars.block);
    bars.reach[part] = Math.max(bars.reach[part], ends[k]);
  });
  return bars;
}

// ---------------------------------------------------------------- plots
async function drawPlots() {
  for (const figure of document.querySelectorAll("figure[data-plot]")) {
    const name = figure.dataset.plot, { item, told } = about.plots[name];
    if (item) {
      const place = document.createElement("div");
      place.id = `plot-${name}`;
      figure.append(place);
      item.target_id = place.id;
      await Bokeh.embed.embed_item(item, place.id);
      documents[name] = Bokeh.documents[Bokeh.documents.length - 1];
      paint(documents[name]);
    }
    if (told) {
      const caption = document.createElement("figcaption");
      caption.textContent = told;
      figure.append(caption);
    }
    if (!item) figure.removeAttribute("aria-label");
    if (name === "use") drawTimes();
    await new Promise((done) => setTimeout(done));
  }
  drawWaits();
  document.documentElement.dataset.drawn = "yes";
}

function paint(of) {
  const css = getComputedStyle(document.documentElement), ink = (name) => css.getPropertyValue(name).trim();
  const colours = about.colours[isDark() ? "dark" : "light"];
  for (const model of of.all_models) {
    if (model.type === "Figure") model.setv({ background_fill_color: ink("--plot") });
    else if (model.type.endsWith("Axis")) model.setv({ axis_label_text_color: ink("--ink"), major_label_text_color: ink("--ink"),
      axis_line_color: ink("--line"), major_tick_line_color: ink("--line") });
    else if (model.type === "Grid") { if (model.grid_line_color?.value !== null && model.grid_line_color !== null) model.grid_line_color = ink("--grid"); }
    else if (model.type === "GlyphRenderer") {
      const glyph = model.glyph, tag = glyph.tags[0], colour = tag === "ink" ? ink("--line") : colours[tag];
      glyph.setv({ line_color: colour });
      if ("fill_color" in glyph.properties) glyph.setv({ fill_color: colour });
    }
  }
}

const source = (plot, name) => documents[plot]?.get_model_by_name(name);

function drawTimes() {
  const { begin, end } = gantt, bins = Math.max(60, Math.min(300, Math.round(gantt.size[0] / 4)));
  const x = Array.from({ length: bins }, (_, k) => begin + (k + 0.5) * (end - begin) / bins);
  const [ticks, step] = timeTicks(begin, end, Math.max(gantt.size[0] / 90, 3));
  const [resource, group] = element("resource").value.split("/").map(Number);
  const name = about.resources[resource], request = columns[`request_${name}`];
  const groups = group < 0 ? about.groups : [about.groups[group]];
  const capacity = groups.reduce((sum, of) => sum + of.nodes * of.capacity[resource], 0);
  for (const plot of ["queue", "use"]) {
    const of = documents[plot];
    if (!of) continue;
    for (const run of runs) {
      let y;
      if (plot === "queue") y = coverage(columns.submit, run.queued, chosen || ones(), begin, end, bins);
      else {
        const units = group < 0 || about.groups.length === 1 ? columns.units : columns[`${run.number}/group_${group}`];
        const held = units.map((n, k) => n * request[k] * (chosen ? chosen[k] : 1));
        y = coverage(run.queued, run.used, held, begin, end, bins).map((v) => v / capacity);
      }
      source(plot, `${plot}-${run.number}`).data = { x, y: Array.from(y, (v) => Math.max(0, v)) };
    }
    of.get_model_by_name("time").setv({ start: begin, end });
    for (const model of of.all_models) if (model.type.endsWith("Axis") && model.name === "times") {
      model.ticker.ticks = ticks;
      model.major_label_overrides = new Map(ticks.map((t) => [t, shownTime(t, step)]));
    }
  }
}

const ones = () => (ones.kept ||= new Float64Array(columns.id.length).fill(1));

// Values of the chosen jobs that started, sorted: of all of them, of each length, of each width.
function sortedValues(run, values) {
  const lengths = about.lengths.length, classes = 1 + lengths + about.widths.length, sizes = new Array(classes).fill(0);
  const each = (act) => {
    for (let k = 0; k < values.length; k++) {
      if (run.wait[k] < 0 || (chosen && !chosen[k])) continue;
      act(0, k); act(1 + run.length[k], k); act(1 + lengths + columns.width[k], k);
    }
  };
  each((of) => { sizes[of]++; });
  const found = sizes.map((size) => new Float64Array(size)), places = new Array(classes).fill(0);
  each((of, k) => { found[of][places[of]++] = values[k]; });
  return found.map((of) => of.sort());
}

function meansOfChosen(run) {
  let jobs = 0, wait = 0, slow = 0;
  for (let k = 0; k < run.wait.length; k++) if (run.wait[k] >= 0 && (!chosen || chosen[k])) { jobs++; wait += run.wait[k]; slow += run.slow[k]; }
  return { jobs, wait: wait / jobs, slow: slow / jobs };
}
const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;
const SHARES = [0.05, 0.25, 0.5, 0.75, 0.95];

function drawWaits() {
  if (!documents.box_slowdown) return;
  const names = ["all", ...about.lengths, ...about.widths].map((name) => name.split(" ")[0]), rows = [];
  for (const run of runs) {
    for (const [kind, values] of [["wait", run.wait], ["slowdown", run.slow]]) {
      const classes = sortedValues(run, values), sorted = classes[0], points = Math.min(sorted.length, 600), x = [], y = [];
      if (points) { x.push(Math.max(sorted[0], 1)); y.push(0); }
      for (let k = 0; k < points; k++) {
        const place = points === 1 ? 0 : Math.round(k * (sorted.length - 1) / (points - 1));
        x.push(Math.max(sorted[place], 1));
        y.push((place + 1) / sorted.length);
      }
      const of = source(`ecdf_${kind}`, `ecdf_${kind}-${run.number}`);
      if (of) of.data = { x, y };
      const strips = { x: [], p5: [], p25: [], p50: [], p75: [], p95: [], mean: [] };
      names.forEach((name, n) => {
        const of = classes[n];
        if (!of.length) return;
        const found = SHARES.map((share) => quantile(of, share));
        rows.push([run.name, kind, name, of.length, ...found, mean(of)]);
        strips.x.push(name);
        ["p5", "p25", "p50", "p75", "p95"].forEach((p, k) => strips[p].push(Math.max(found[k], 1)));
        strips.mean.push(Math.max(mean(of), 1));
      });
      const box = source(`box_${kind}`, `box_${kind}-${run.number}`);
      if (box) box.data = strips;
    }
  }
  const head = ["run", "of", "jobs of class", "jobs", "5 %", "25 %", "median", "75 %", "95 %", "mean"];
  const shown = (row, v, k) => k < 3 ? escaped(v) : k === 3 ? count(v) : row[1] === "wait" ? shownDuration(v) : v.toFixed(2);
  element("percentiles").innerHTML = `<div class="wide" tabindex="0" role="region" aria-label="Percentiles"><table><thead><tr>${
    head.map((h) => `<th scope="col">${h}</th>`).join("")}</tr></thead><tbody>${
    rows.map((row) => `<tr>${row.map((v, k) => k ? `<td>${shown(row, v, k)}</td>` : `<th scope="row">${shown(row, v, k)}</th>`).join("")}</tr>`).join("")}</tbody></table></div>`;
}

// ---------------------------------------------------------------- filters
function filter() {
  const [length, width] = ["length", "width"].map((id) => Number(element(id).value));
  const typed = (element("user")?.value ?? "").trim(), user = typed === "" ? -1 : about.users.indexOf(typed);
  const unknown = typed !== "" && user < 0, jobs = columns.id.length, shown = runs[Number(element("run").value)];
  chosen = null;
  if (length >= 0 || width >= 0 || user >= 0) {
    chosen = new Float64Array(jobs);
    for (let k = 0; k < jobs; k++) {
      chosen[k] = (length < 0 || shown.length[k] === length) && (width < 0 || columns.width[k] === width) && (user < 0 || columns.user[k] === user) ? 1 : 0;
    }
  }
  const lines = runs.map((run) => {
    const { jobs, wait, slow } = meansOfChosen(run);
    return jobs ? `<li>${escaped(run.name)}: ${countJobs(jobs)}, mean wait ${shownDuration(wait)}, mean bounded slowdown ${slow.toFixed(2)}</li>` : `<li>${escaped(run.name)}: no job started</li>`;
  });
  element("chosen").innerHTML = (unknown ? `<p>The log has no user ${escaped(typed)}: all users are shown.</p>` : "") + (chosen ? `<ul>${lines.join("")}</ul>` : "<p>All jobs are shown.</p>");
  showRun();
  drawWaits();
}

// ---------------------------------------------------------------- nodes over time
function spans(top, low, most) {
  const found = [], rows = low - top;
  let lane = 0, node = 0;
  const resource = about.resources.indexOf(about.lane);
  const perNode = about.groups.map((group) => group.capacity[resource]);
  const several = about.groups.length > 1;
  about.groups.forEach((group, number) => {
    const each = perNode[number], inside = group.nodes * each;
    if (each && lane + inside > top && lane < low) {
      const single = group.nodes === 1 && about.groups.length === 1;
      const unit = single ? 1 : each, steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000];
      const step = steps.find((s) => rows / (s * unit) <= most) || 100000;
      const from = Math.max(0, Math.floor((top - lane) / unit / step) * step);
      for (let k = from; k * unit < Math.min(inside, low - lane); k += step) {
        const name = single ? `${about.lane} ${k}` : several ? `${group.name} ${node + k}` : `node ${node + k}`;
        found.push({ first: lane + k * unit, name });
      }
    }
    lane += inside; node += group.nodes;
  });
  return found;
}

function showRun() {
  const run = runs[Number(element("run").value)];
  run.bars.faded = chosen ? Uint8Array.from(run.bars.job, (k) => chosen[k] ? 0 : 1) : null;
  gantt.show(run.bars, 0, Math.max(...runs.map((of) => of.last), 1));
  drawTimes();
}

let waiting = 0;
function changed() {
  const { begin, end } = gantt, step = end - begin > 20 * 86400 ? 86400 : end - begin > 7200 ? 60 : 1, name = (time) => {
    const text = shownTime(time, step), day = shownTime(time, 86400);
    return text.startsWith("day") ? text : `${day} ${text}`;
  };
  element("window").textContent = `Shown: ${name(begin)} to ${name(end)} (${shownDuration(end - begin)}), counted from the first submission.`;
  const raster = gantt.mode === "raster";
  element("gantt-told").textContent = (raster ? "The stronger the colour, the more of these nodes is in use. Zoom in to see single jobs." : "Each bar is a job. Click one to see its life.")
    + (chosen ? " Grey: jobs that are not chosen." : "") + " Drag to move, pinch, or click here and turn the wheel (with Shift: nodes, too), or double-click to zoom."
    + ` Within a node, a job is drawn in the lowest rows that are free, one row a ${about.lane}: which of them it really had is not recorded.`;
  clearTimeout(waiting);
  waiting = setTimeout(drawTimes, 60);
}

// ---------------------------------------------------------------- a job's life
const total = () => about.resources.map((_, r) => about.groups.reduce((sum, g) => sum + g.nodes * g.capacity[r], 0));
const asked = (k) => about.resources.map((name) => columns.units[k] * columns[`request_${name}`][k]);

// The first stretch of a job's wait in which what it asks for was free in all nodes together, beside
// what the others held: [begin, end], or null where there was none.
function firstRoom(run, k) {
  const { start, end, job } = run.bars, came = columns.submit[k], left = run.start[k], free = total(), wants = asked(k), changes = [];
  for (let bar = 0; bar < start.length && start[bar] < left; bar++) {
    if (job[bar] === k || end[bar] <= came || end[bar] === start[bar]) continue;
    changes.push([Math.max(start[bar], came), -1, job[bar]]);
    if (end[bar] < left) changes.push([end[bar], 1, job[bar]]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  let begin = -1;
  for (let at = 0, time = came; time < left; ) {
    for (; at < changes.length && changes[at][0] <= time; at++) {
      const [, sign, j] = changes[at];
      asked(j).forEach((held, r) => { free[r] += sign * held; });
    }
    const fits = wants.every((n, r) => n <= free[r]);
    if (fits && begin < 0) begin = time;
    if (!fits && begin >= 0) return [begin, time];
    time = at < changes.length ? changes[at][0] : left;
  }
  return begin < 0 ? null : [begin, left];
}

function fact(run, k) {
  const of = (reason) => ({ started: "in its turn", backfilled: "ahead of a job that waited (backfilled)",
    late: "in front of the others, because it had waited too long", unknown: "for a reason that is not recorded", rejected: "never: the dispatcher refused it", never_fits: "never: it asks for more than the system has, or than a limit or the power cap ever leaves" })[reason] || reason.replaceAll("_", " ");
  const clock = (time) => `${shownTime(time, 86400)} ${shownTime(time, 1).replace(/^day .*/, "00:00:00")}`;
  const reason = about.reasons[run.reason[k]];
  if (run.wait[k] < 0) return [["started", of(reason) === reason ? "never" : of(reason)]];
  const found = [["submitted", clock(columns.submit[k])], ["started", `${clock(run.start[k])}, ${of(reason)}`], ["ended", clock(run.end[k])],
    ["wait", shownDuration(run.wait[k])], ["runtime", shownDuration(run.runtime[k])], ["bounded slowdown", run.slow[k].toFixed(2)]];
  const now = columns.submit[k], free = total(), wants = asked(k), { start, end, job } = run.bars;
  // Whatever ran then, attempts that were lost later included; bars are in the order of their starts.
  for (let bar = 0; bar < start.length && start[bar] <= now; bar++) {
    if (job[bar] !== k && end[bar] > now && (start[bar] < now || job[bar] < k)) asked(job[bar]).forEach((held, r) => { free[r] -= held; });
  }
  let before = 0, passed = 0;
  for (let j = 0; j < columns.id.length; j++) {
    if (j === k || run.wait[j] < 0) continue;
    if (columns.submit[j] <= now && run.start[j] > now && j < k) before++;
    if (j > k && run.start[j] < run.start[k]) passed++;
  }
  const told = about.resources.map((name, r) => wants[r] ? `${name}: ${count(Math.max(free[r], 0))} free, ${count(wants[r])} asked for` : "").filter(Boolean).join("; ");
  found.push(["at its submission", `${told}; ${countJobs(before)} waited already`]);
  if (run.wait[k] > 0) {
    const short = about.resources.filter((_, r) => wants[r] > free[r]);
    found.push(["why it waited", short.length ? `not enough ${short.join(" and ")} was free when it came` : before ? "enough was free in all when it came, but others had come before it, or the free part was on other nodes" : "enough was free in all when it came, but not where and for as long as it asked"]);
    const room = firstRoom(run, k);
    found.push(["enough was free in all", room ? `first from ${clock(room[0])} on, for ${shownDuration(room[1] - room[0])}` : "not before it started"]);
    found.push(["later jobs that started before it", count(passed)]);
  }
  const attempts = [];
  run.bars.job.forEach((owner, place) => { if (owner === k && run.bars.lost[place]) attempts.push(`${clock(run.bars.start[place])} to ${clock(run.bars.end[place])}`); });
  if (attempts.length) found.push(["stopped before", attempts.join("; ")]);
  return found;
}

function showJob(k, goThere) {
  job = k;
  gantt.selected = k;
  const unit = about.resources.map((name) => [columns[`request_${name}`][k], name]).filter(([n]) => n).map(([n, name]) => `${count(n)} ${name}`).join(", ");
  const user = columns.user && columns.user[k] >= 0 ? `, user ${about.users[columns.user[k]]}` : "";
  const lives = runs.map((run) => new Map(fact(run, k)));
  const keys = [...new Set(lives.flatMap((life) => [...life.keys()]))];
  element("life").innerHTML = `<h3>Job ${columns.id[k]}${escaped(user)}</h3><p>Requested: ${count(columns.units[k])} &times; (${escaped(unit)}) for ${shownDuration(columns.requested[k])}.</p>
<div class="wide" tabindex="0" role="region" aria-label="Life of job ${columns.id[k]}"><table><thead><tr><th></th>${runs.map((run) => `<th scope="col">${escaped(run.name)}</th>`).join("")}</tr></thead><tbody>${
    keys.map((key) => `<tr><th scope="row">${key}</th>${lives.map((life) => `<td>${escaped(life.get(key) ?? "-")}</td>`).join("")}</tr>`).join("")}</tbody></table></div>`;
  const run = runs[Number(element("run").value)];
  if (goThere && run.wait[k] >= 0) {
    const around = Math.max(run.runtime[k] * 2, 600);
    gantt.window(run.start[k] - around / 2, run.end[k] + around / 2, 0, gantt.lanes);
  } else gantt.draw();
}

function find(event) {
  event.preventDefault();
  const typed = element("job").value.trim(), k = typed === "" ? -1 : columns.id.indexOf(Number(typed));
  if (k < 0) { element("life").innerHTML = `<p>The log has no job ${escaped(typed)}.</p>`; return; }
  showJob(k, true);
}

// ---------------------------------------------------------------- start
function legend() {
  const colours = about.colours[isDark() ? "dark" : "light"], dashes = ["", "6 3", "2 2", "8 3 2 3", "10 4", "1 4"];
  const line = (run) => `<span><svg width="34" height="10" aria-hidden="true"><line x1="0" y1="5" x2="34" y2="5" stroke="${colours[run.number]}" stroke-width="3" stroke-dasharray="${dashes[run.number]}"/></svg>${escaped(run.name)}</span>`;
  for (const place of document.querySelectorAll(".legend")) place.innerHTML = runs.map(line).join("");
}

function repaint() {
  legend();
  for (const of of Object.values(documents)) paint(of);
  gantt?.draw();
}

function options() {
  const add = (id, entries) => { for (const [value, name] of entries) element(id).append(new Option(name, value)); };
  add("length", about.lengths.map((name, k) => [k, name]));
  add("width", about.widths.map((name, k) => [k, `${name} of the system`]));
  add("run", runs.map((run) => [run.number, run.name]));
  const all = about.resources.map((name, r) => [`${r}/-1`, `${name}, all nodes`]);
  const parts = about.groups.length < 2 ? [] : about.resources.flatMap((name, r) => about.groups.map((g, n) => [`${r}/${n}`, `${name}, nodes of ${g.name}`, g.capacity[r]]));
  add("resource", [...all, ...parts.filter(([, , capacity]) => capacity)]);
  if (!columns.user || !about.users.length) element("user-label").remove();
  else for (const name of about.users) element("users").append(new Option(name));
}

async function start() {
  themed(repaint);
  columns = await unpackColumns(about.columns, element("data").textContent);
  element("data").remove();
  prepare();
  options();
  const resource = about.resources.indexOf(about.lane);
  const lanes = about.groups.reduce((sum, group) => sum + group.nodes * group.capacity[resource], 0);
  gantt = new Gantt(element("gantt"), lanes, spans, changed, (k) => showJob(k, false));
  filter();
  changed();
  element("filters").addEventListener("input", filter);
  element("filters").addEventListener("submit", (event) => event.preventDefault());
  element("filters").addEventListener("reset", () => setTimeout(filter));
  element("run").addEventListener("input", filter);
  element("resource").addEventListener("input", drawTimes);
  element("find").addEventListener("submit", find);
  const acts = { in: () => gantt.zoom(0.5), out: () => gantt.zoom(2), left: () => gantt.pan(-0.3, 0), right: () => gantt.pan(0.3, 0), home: () => gantt.home() };
  for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", acts[button.dataset.act]);
  document.documentElement.dataset.ready = "yes";
  await drawPlots();
}

start().catch((error) => {
  element("window").textContent = `The page cannot be drawn: ${error.message}. It needs a browser of 2023 or later.`;
  throw error;
});
