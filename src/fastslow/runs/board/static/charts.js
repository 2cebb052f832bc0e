"use strict";
// Charts with uPlot: several runs on one axis, intervals as bands, stacked areas, cycles and stages as marks.
// The palette of Okabe and Ito, which is safe for every kind of colour vision, and a brighter one for a dark page.
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7d7d7d"];
const DARK = ["#56b4e9", "#f08a45", "#2cc196", "#e09cc3", "#f0c04a", "#9fb8ff", "#a9a9a9"];
Board.colour = (index) => (matchMedia("(prefers-color-scheme: dark)").matches ? DARK : LIGHT)[index % LIGHT.length];
Board.DASHES = [null, [7, 4], [2, 3], [9, 3, 2, 3]];
Board.style = (index) => ({ stroke: Board.colour(index), dash: Board.DASHES[Math.floor(index / LIGHT.length) % 4] || undefined });
Board.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
Board.faded = (colour, share) => colour + Math.round(share * 255).toString(16).padStart(2, "0");

const CHART_HEIGHT = 210;

// options: title, words, x (label), format, lines: [{label, xs, ys, low, high, stroke, dash, points, width}], marks, stages, stacked, wide, zero
Board.chart = (options) => {
  const holder = Board.h("div", { class: "plot" });
  const card = Board.h("section", { class: "card" + (options.wide ? " wide" : ""), "data-chart": options.title },
    Board.h("button", { class: "plain small png", "aria-label": `PNG of ${options.title}`, onclick: () => plot && drawn(plot, options.title).toBlob((blob) => Board.download(`${options.title}.png`, blob)) }, "PNG"),
    Board.h("h3", {}, options.title), options.words ? Board.h("p", {}, options.words) : null, holder);
  let plot = null;
  const build = (given) => {
    const made = given.stacked ? stackedData(given.lines) : joinedData(given.lines);
    if (!made) {
      holder.replaceChildren(Board.h("p", { class: "quiet small" }, given.missing || "Nothing was measured yet."));
      plot = null;
      return;
    }
    const quiet = Board.css("--quiet"), line = Board.css("--line");
    const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui, sans-serif" };
    plot = new uPlot({
      width: Math.max(200, holder.clientWidth || 380), height: given.wide ? 300 : CHART_HEIGHT,
      padding: [8, 10, 0, 0],
      cursor: { y: false, sync: { key: "board", scales: ["x", null] }, drag: { x: true, y: false } },
      legend: { live: true, markers: { width: 0, fill: (self, index) => made.series[index - 1].stroke } },
      scales: { x: { time: false }, y: { range: (_, low, high) => room(low, high, given.zero || given.stacked) } },
      axes: [
        { ...axis, size: 30, space: 55, values: (_, ticks) => ticks.map(given.xFormat || tick) },
        { ...axis, size: besideLabels, space: 28, values: (_, ticks) => ticks.map(tick) },
      ],
      series: [{ label: given.x, value: (_, value) => (value === null ? "–" : (given.xFormat || Board.short)(value)) }, ...made.series],
      bands: made.bands,
      hooks: { draw: [(self) => drawMarks(self, given.marks || [], given.stages || [])] },
    }, made.data, holder);
    plot.shape = made.shape;
    // The edges of an interval are shown beside its mean.
    const rows = holder.querySelectorAll(".u-legend .u-series");
    made.series.forEach((each, index) => { if (each.edge) rows[index + 1].hidden = true; });
  };
  requestAnimationFrame(() => build(options));
  new ResizeObserver(() => {
    if (plot && holder.clientWidth && Math.abs(plot.width - holder.clientWidth) > 1) plot.setSize({ width: holder.clientWidth, height: plot.height });
  }).observe(holder);
  card.update = (changed) => {
    options = { ...options, ...changed };
    const made = options.stacked ? stackedData(options.lines) : joinedData(options.lines);
    if (plot && made && plot.shape === made.shape) {
      plot.marksNow = [options.marks || [], options.stages || []];
      plot.setData(made.data);
    } else {
      holder.replaceChildren();
      build(options);
    }
  };
  return card;
};

// uPlot chooses round ticks, so the shortest way to write them is exact.
const tick = (value) => (value === null ? "" : Math.abs(value) >= 1e4 ? Board.short(value) : String(Number(value.toPrecision(6))));

// As wide as the longest label of the axis, so that none is clipped.
function besideLabels(plot, labels, index) {
  const axis = plot.axes[index];
  plot.ctx.font = axis.font[0]; // uPlot has put it in pixels of the device
  const widest = Math.max(0, ...(labels || []).map((label) => plot.ctx.measureText(label).width / devicePixelRatio));
  return Math.max(46, Math.ceil(widest) + axis.ticks.size + axis.gap + 1);
}

function room(low, high, zero) {
  if (low === null || low === undefined) return [0, 1];
  if (zero && low > 0) low = 0;
  const pad = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1 || 0.5;
  return [zero && low >= 0 ? 0 : low - pad, high + pad];
}

function joinedData(lines) {
  const tables = [], series = [], bands = [];
  for (const line of lines) {
    const kept = line.xs.map((x, index) => index).filter((index) => line.xs[index] !== null && line.xs[index] !== undefined);
    const unique = kept.filter((index, place) => place === 0 || line.xs[index] > line.xs[kept[place - 1]]);
    if (!unique.some((index) => line.ys[index] !== null)) continue;
    const take = (values) => unique.map((index) => (values[index] === undefined ? null : values[index]));
    const columns = [take(line.xs), take(line.ys)];
    const at = series.length + 1;
    series.push({ label: line.label, stroke: line.stroke, dash: line.dash, width: line.width || 1.8, points: { show: line.points || unique.length < 2, size: 5, fill: line.stroke }, value: (_, value) => Board.short(value), spanGaps: false });
    if (line.low && line.low.some((value) => value !== null)) {
      columns.push(take(line.high), take(line.low));
      const edge = { edge: true, stroke: "transparent", width: 0, points: { show: false } };
      series.push({ ...edge, label: "high" }, { ...edge, label: "low" });
      series[at - 1].value = (self, value, _, place) => (value === null || value === undefined || place === null ? "–" : `${Board.short(value)} [${Board.short(self.data[at + 2][place])}, ${Board.short(self.data[at + 1][place])}]`);
      bands.push({ series: [at + 1, at + 2], fill: Board.faded(line.stroke, 0.16) });
    }
    tables.push(columns);
  }
  if (!tables.length) return null;
  return { data: uPlot.join(tables), series, bands, shape: JSON.stringify(series.map((each) => [each.label, each.stroke])) };
}

function stackedData(lines) {
  const used = lines.filter((line) => line.ys.some((value) => value));
  if (!used.length) return null;
  const xs = used[0].xs, series = [], bands = [], columns = [];
  let below = xs.map(() => 0);
  used.forEach((line, index) => {
    below = below.map((value, place) => value + (line.ys[place] || 0));
    columns.push(below);
    series.push({
      label: line.label, stroke: line.stroke, width: 1, fill: Board.faded(line.stroke, 0.55), points: { show: xs.length < 2 },
      value: (_, value, at, place) => (place === null || place === undefined ? "–" : Board.short(line.ys[place] || 0)),
    });
    if (index) bands.push({ series: [index + 1, index], fill: Board.faded(line.stroke, 0.55) });
  });
  const fills = series.map((each, index) => (index ? { ...each, fill: undefined } : each));
  // uPlot fills each band between neighbours, so only the lowest area has a fill of its own.
  return { data: [xs, ...columns], series: fills, bands, shape: JSON.stringify(fills.map((each) => [each.label, each.stroke])) };
}

// The chart as it is seen, with its title, its legend and the colour of the page.
function drawn(plot, title) {
  const from = plot.ctx.canvas, unit = devicePixelRatio, canvas = Board.h("canvas"), ctx = canvas.getContext("2d");
  const font = (weight, size) => (ctx.font = `${weight} ${size * unit}px system-ui, sans-serif`);
  font(400, 12);
  let left = 12 * unit, top = 44 * unit;
  const entries = plot.series.slice(1).filter((each) => each.show && !each.edge).map((each) => {
    const words = Board.line(each.label), width = ctx.measureText(words).width + 36 * unit;
    if (left > 12 * unit && left + width > from.width) { left = 12 * unit; top += 18 * unit; }
    left += width;
    return { words, colour: each.stroke(), left: left - width, top };
  });
  canvas.width = from.width;
  canvas.height = from.height + top + 12 * unit;
  ctx.fillStyle = Board.css("--page");
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = Board.css("--ink");
  font(650, 14);
  ctx.fillText(`${title} against ${plot.series[0].label}`, 12 * unit, 22 * unit);
  font(400, 12);
  for (const entry of entries) {
    ctx.fillStyle = entry.colour;
    ctx.fillRect(entry.left, entry.top - 9 * unit, 10 * unit, 10 * unit);
    ctx.fillStyle = Board.css("--ink");
    ctx.fillText(entry.words, entry.left + 16 * unit, entry.top);
  }
  ctx.drawImage(from, 0, top + 12 * unit);
  return canvas;
}

function drawMarks(plot, marks, stages) {
  if (plot.marksNow) [marks, stages] = plot.marksNow;
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  const draw = (list, colour, dash, prefix, top) => {
    let free = -Infinity;
    for (const [x, label] of list) {
      const left = plot.valToPos(x, "x", true);
      if (left < bbox.left || left > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = colour;
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(left, bbox.top);
      ctx.lineTo(left, bbox.top + bbox.height);
      ctx.stroke();
      const words = prefix + label;
      if (left > free) {
        ctx.fillText(words, left + 3 * devicePixelRatio, bbox.top + top * devicePixelRatio);
        free = left + ctx.measureText(words).width + 10 * devicePixelRatio;
      }
    }
  };
  if (marks.length <= 60) draw(marks, Board.css("--line-strong"), [2, 3], "cycle ", 9);
  draw(stages, Board.css("--quiet"), [], "", 21);
  ctx.restore();
}

Board.spark = (values, colour) => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 110 26");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", values.length ? `reward from ${values[0].toFixed(2)} to ${values[values.length - 1].toFixed(2)}` : "no reward yet");
  svg.style.color = colour;
  if (values.length > 1) {
    const low = Math.min(0, ...values), high = Math.max(...values, low + 1e-6);
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", values.map((value, index) => `${index ? "L" : "M"}${((index / (values.length - 1)) * 108 + 1).toFixed(1)} ${(24 - ((value - low) / (high - low)) * 22).toFixed(1)}`).join(""));
    svg.append(path);
  }
  return svg;
};
