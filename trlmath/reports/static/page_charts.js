// The curves: one uPlot a panel, drawn when it comes into view, drawn again when the colours change.
const HEIGHT = 200;
const STEPS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap((ten) => [ten, 2 * ten, 5 * ten]);  // whole steps only
// greens are right, ambers a wrong answer in the right form, the rest a broken form
const CATEGORY = {
  both: [155, 55], right: [155, 55], answer_only: [185, 48], format_only: [38, 75], wrong_answer: [28, 75],
  unparseable_answer: [52, 65], several_answers: [45, 60], truncated: [215, 12], empty: [215, 6],
  generate: [225, 60], grade: [300, 35], update: [28, 70], sync: [170, 45], old_logprobs: [265, 40],
  reference: [345, 40], optimizer: [200, 50], data: [55, 45],
};
const HUES = [345, 265, 205, 320, 15, 285, 240, 75, 130, 358];

function stackColour(name, place) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const [hue, full] = CATEGORY[name] || [HUES[place % HUES.length], 38];
  return `hsl(${hue} ${full}% ${dark ? 48 : 58}%)`;
}

function smoothed(values, window) {
  if (!window) return values;
  const keep = 1 - 1 / window;
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    sum = keep * sum + value;
    weight = keep * weight + 1;
    return sum / weight;
  });
}

const over = document.getElementById("over");

function axisName() {
  return over ? over.value : "step";
}

function axis(extra) {
  return {
    stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false },
    font: "11px system-ui, sans-serif", gap: 4, ...extra,
  };
}

// where a step of a run lies on the chosen axis: steps themselves, or what was spent until then
function spent(run, step) {
  const axis = over && over.value !== "step" ? DATA.axes[over.value][run] : null;
  if (!axis) return step;
  let low = 0, high = axis.x.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (axis.x[middle] <= step) low = middle; else high = middle - 1;
  }
  return axis.y[low];
}

function moved(line) {
  return { ...line, x: line.x.map((step) => spent(line.run, step)) };
}

// several lines on one axis; a line without a value at a place is drawn through
function aligned(lines) {
  const steps = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const columns = lines.map((line) => {
    const at = new Map(line.x.map((x, i) => [x, line.y[i]]));
    return steps.map((step) => (at.has(step) ? at.get(step) : null));
  });
  return [steps, ...columns];
}

function name(parts) {
  return parts.filter(Boolean).join(", ") || "training";
}

function lineChart(chart, box, window) {
  const many = DATA.runs.length > 1;
  chart = { ...chart, lines: chart.lines.map(moved), points: (chart.points || []).map(moved) };
  const settings = [...new Set((chart.points || []).map((point) => point.setting))];
  // beside several runs one setting is enough
  const points = (chart.points || []).filter((point) => !many || point.setting === settings[0]);
  const data = aligned([...chart.lines, ...points]);
  const dashes = [[], [5, 4], [2, 3]];
  const labels = [...new Set(chart.lines.map((line) => line.name))];
  const series = [{ label: axisName(), value: (_, v) => (v === null ? "" : short(v)) }];
  chart.lines.forEach((line, i) => {
    const place = labels.indexOf(line.name);
    series.push({
      label: name([many && DATA.runs[line.run], line.name]),
      stroke: many || labels.length === 1 ? runColour(line.run) : runColour(place === 0 ? 2 : 1),
      width: 1.8, dash: many ? dashes[place % 3] : [], spanGaps: true, value: (_, v) => short(v),
      points: { show: line.x.length < 3 },
    });
  });
  points.forEach((line) => {
    const place = settings.indexOf(line.setting);
    const stroke = many ? runColour(line.run) : runColour(place + 1);
    series.push({
      label: name([many && DATA.runs[line.run], "eval " + line.setting]), stroke, width: 1.2, dash: [2, 4],
      spanGaps: true, value: (_, v) => short(v), bars: line,
      points: { show: true, size: 8, fill: place === 0 ? stroke : colour("--card"), stroke, width: 1.6 },
    });
  });
  if (window) {  // the line as it was, faint, under each smoothed one
    chart.lines.forEach((line, i) => {
      series.push({ ...series[i + 1], label: "as logged", class: "raw", alpha: 0.28, width: 1, under: i + 1 });
      data.push(data[i + 1]);
      data[i + 1] = smoothed(data[i + 1], window);
    });
  }
  const together = (plot, at, options) => plot.series.forEach((other, i) => {
    if (other.under === at && options.show !== undefined && other.show !== options.show) plot.setSeries(i, { show: options.show });
  });
  return draw(chart, box, data, series, { hooks: { draw: [whiskers], setSeries: [together] } });
}

// the interval of each evaluation, as a thin upright line
function whiskers(plot) {
  const pen = plot.ctx;
  pen.save();
  plot.series.forEach((series) => {
    if (!series.bars || !series.show) return;
    pen.strokeStyle = series.points.stroke();
    pen.lineWidth = 1.2 * devicePixelRatio;
    pen.globalAlpha = 0.55;
    series.bars.x.forEach((x, i) => {
      const left = plot.valToPos(x, "x", true);
      if (left < plot.bbox.left - 1 || left > plot.bbox.left + plot.bbox.width + 1) return;
      pen.beginPath();
      pen.moveTo(left, plot.valToPos(series.bars.low[i], "y", true));
      pen.lineTo(left, plot.valToPos(series.bars.high[i], "y", true));
      pen.stroke();
    });
  });
  pen.restore();
}

function stackChart(chart, box, lines) {
  const told = aligned(lines.map(moved));
  const sums = told[0].map(() => 0);
  const series = [{ label: axisName(), value: (_, v) => (v === null ? "" : short(v)) }];
  const layers = lines.map((line, i) => {
    const own = told[i + 1];
    const top = own.map((value, at) => (sums[at] += value || 0));
    const fill = stackColour(line.name, i);
    series.push({ label: line.name, stroke: fill, fill, width: 0.5, points: { show: false }, value: (plot, v, s, at) => short(at === null ? null : own[at]) });
    return top;
  });
  // the highest layer is drawn first, each further one over it
  return draw(chart, box, [told[0], ...layers.reverse()], [series[0], ...series.slice(1).reverse()], { zero: true });
}

function draw(chart, box, data, series, { hooks = {}, zero = false } = {}) {
  hooks.setCursor = [(plot) => plot.root.classList.toggle("live", plot.cursor.idx !== null && plot.cursor.idx !== undefined && plot.cursor.left >= 0)];
  const ends = data.slice(1).flatMap((column, i) => (series[i + 1].bars ? [...series[i + 1].bars.low, ...series[i + 1].bars.high] : column))
    .filter((value) => value !== null && value !== undefined);
  const low = Math.min(...ends), high = Math.max(...ends);
  const share = chart.unit.startsWith("share");
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  const range = [zero || (low >= 0 && low < high * 0.5) ? 0 : low - pad, share && zero ? Math.max(1, high) : share ? Math.min(1, high + pad) : high + pad];
  const last = data[0][data[0].length - 1], first = data[0][0];
  return new uPlot({
    width: Math.max(box.clientWidth, 200), height: HEIGHT, hooks, series, legend: { live: true },
    cursor: { y: false, points: { size: 7 }, drag: { x: true, y: false }, sync: { key: "step" } },
    scales: {
      x: { time: false, range: (u, min, max) => (min === max || first === last ? [first - 1, last + 1] : [min, max]) },
      y: { range: () => (range[0] === range[1] ? [range[0] - 1, range[1] + 1] : range) },
    },
    axes: [axis({ size: 24, space: 60, values: (u, ticks) => ticks.map(short), ...(axisName() === "step" ? { incrs: STEPS } : {}) }),
      axis({ size: 46, space: 34, values: (u, ticks) => ticks.map(short) })],
  }, data, box);
}

function card(chart, title, unit) {
  const element = make("div", "chart");
  const heading = make("h3", "", title);
  if (unit) heading.append(make("small", "", unit));
  const box = make("div", "plot");
  box.style.minHeight = HEIGHT + "px";
  element.append(heading, box);
  if (chart.note) {
    const note = make("p");
    chart.note.split("`").forEach((piece, i) => note.append(i % 2 ? make("code", "", piece) : piece));
    element.append(note);
  }
  return [element, box];
}

const drawn = [];  // {box, plot, paint}

function place(chart, parent, title, paint) {
  const [element, box] = card(chart, title, chart.unit.replace(", 0 to 1", ""));
  parent.append(element);
  const entry = { box, plot: null, paint: () => { if (entry.plot) entry.plot.destroy(); entry.plot = paint(box); } };
  drawn.push(entry);
  watcher.observe(box);
}

const watcher = new IntersectionObserver((seen) => {
  for (const one of seen) {
    const entry = drawn.find((other) => other.box === one.target);
    if (one.isIntersecting && entry && !entry.plot) entry.paint();
  }
}, { rootMargin: "500px" });

function paintAll() {
  for (const entry of drawn) if (entry.plot) entry.paint();
}

const smoothing = document.getElementById("smoothing");
const longest = Math.max(0, ...DATA.charts.flatMap((chart) => chart.lines.map((line) => line.x.length)));
smoothing.value = longest >= 150 ? "10" : longest >= 30 ? "5" : "0";
smoothing.addEventListener("change", paintAll);
if (over) over.addEventListener("change", paintAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);

for (const chart of DATA.charts) {
  const parent = document.getElementById(chart.more ? "morecharts" : "charts");
  if (chart.more) document.getElementById("more").hidden = false;
  if (chart.kind === "stack") {
    for (const run of new Set(chart.lines.map((line) => line.run))) {
      const title = DATA.runs.length > 1 ? `${chart.title}: ${DATA.runs[run]}` : chart.title;
      place(chart, parent, title, (box) => stackChart(chart, box, chart.lines.filter((line) => line.run === run)));
    }
  } else {
    place(chart, parent, chart.title, (box) => lineChart(chart, box, Number(smoothing.value)));
  }
}

let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    for (const { box, plot } of drawn) if (plot && box.clientWidth) plot.setSize({ width: box.clientWidth, height: HEIGHT });
  }, 120);
});
