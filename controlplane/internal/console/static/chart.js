// Charts draw a table of the page: the column with data-axis gives the times or days, those with data-series the values,
// by a colour of the style sheet. The table stays, for those who cannot see the chart. Values become floats for drawing
// only. A figure has data-kind "stack" for bars on top of each other (the default), or "lines".
import uPlot from "./vendor/uPlot.esm.js";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (name) => style(`--${name || "accent"}`) || style("--accent");
const charts = new Set();
const height = 180;
const daily = [1, 2, 5, 7, 14, 30, 60, 90, 180, 365].map((n) => n * 86400);

function widthOf(figure) {
  const { paddingLeft, paddingRight } = getComputedStyle(figure);
  return figure.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
}

// read returns the columns of a table, with times in seconds, oldest first. A value that is unknown is null.
function read(table) {
  const heads = [...table.tHead.rows[0].cells];
  const axis = heads.findIndex((th) => th.hasAttribute("data-axis"));
  const series = heads.flatMap((th, i) => th.hasAttribute("data-series") ? [{ i, name: th.textContent.trim(), colour: th.dataset.series }] : []);
  if (axis < 0 || series.length === 0) return null;
  const days = !table.tBodies[0].querySelector("time");
  const rows = [...table.tBodies[0].rows].map((row) => {
    const cell = row.cells[axis];
    // Of an amount of money, the title has the digits without groups.
    const texts = series.map((s) => row.cells[s.i].querySelector(".money")?.title ?? row.cells[s.i].textContent.trim());
    return {
      at: Date.parse(cell.querySelector("time")?.dateTime ?? `${cell.textContent.trim()}T00:00:00Z`) / 1000, texts,
      values: texts.map((t) => t === "" || Number.isNaN(Number(t)) ? null : Number(t)),
    };
  }).sort((a, b) => a.at - b.at);
  const step = rows.length > 1 ? Math.min(...rows.slice(1).map((r, i) => r.at - rows[i].at)) : 86400;
  return { series, rows, step, days };
}

const utc = (at, days) => new Date(at * 1000).toISOString().slice(0, days ? 10 : 16).replace("T", " ");

// stacked returns the sums from the top of the stack down: the first series is drawn first, and the others over it.
function stacked(rows, count) {
  const sums = [];
  for (let i = 0; i < count; i++) sums.push(rows.map((r) => r.values.every((v) => v == null) ? null : r.values.slice(i).reduce((a, v) => a + (v ?? 0), 0)));
  return sums;
}

function legendOf({ series, rows, days }, figure) {
  const legend = document.createElement("ul"), at = document.createElement("li");
  legend.className = "chart-legend";
  at.className = "soft";
  const values = series.map((s) => {
    const item = document.createElement("li"), mark = document.createElement("i"), value = document.createElement("b");
    mark.style.background = colour(s.colour);
    item.append(mark, `${s.name} `, value);
    legend.append(item);
    return value;
  });
  legend.append(at);
  const unit = figure.dataset.unit ? ` ${figure.dataset.unit}` : "";
  return {
    legend,
    show(index) {
      at.textContent = index == null ? "" : utc(rows[index].at, days);
      values.forEach((value, i) => { value.textContent = index == null ? "" : `${rows[index].texts[i]}${series.length > 1 ? "" : unit}`; });
    },
  };
}

function axes(days) {
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const grid = { stroke: style("--line"), width: 1 }, ticks = { show: false };
  const label = (at, wide) => days || wide ? utc(at, true).slice(5) : utc(at).slice(11);
  return [
    {
      stroke: style("--soft"), font, grid: { show: false }, ticks, size: 30, space: 60,
      incrs: days ? daily : [60, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, ...daily],
      values: (_, times, _axis, _space, step) => times.map((t) => label(t, step >= 86400)),
    },
    { stroke: style("--soft"), font, grid, ticks, size: 56, values: (_, values) => values.map((v) => Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(v)) },
  ];
}

// Dragging over a chart shows that time only: the address has it, so that it can be sent to others.
function zoom(u, { days }) {
  if (u.select.width < 5) return;
  const text = (x) => {
    const at = new Date(u.posToVal(x, "x") * 1000).toISOString();
    return days ? at.slice(0, 10) : `${at.slice(0, 16)}:00Z`;
  };
  const to = new URL(location.href);
  to.searchParams.set("from", text(u.select.left));
  to.searchParams.set("to", text(u.select.left + u.select.width));
  to.searchParams.delete("cursor");
  to.searchParams.delete("range");
  location.href = to.href;
}

function draw(figure) {
  const table = document.getElementById(figure.dataset.chart);
  const data = table && read(table);
  if (!data || data.rows.length === 0) return;
  const { series, rows, step, days } = data, lines = figure.dataset.kind === "lines";
  const legend = legendOf(data, figure);
  const bars = uPlot.paths.bars({ size: [days ? 0.7 : 0.85, 40], radius: days ? 0.15 : 0 });
  const values = lines ? series.map((_, i) => rows.map((r) => r.values[i])) : stacked(rows, series.length);
  const plot = new uPlot({
    width: widthOf(figure), height, tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"), legend: { show: false },
    cursor: { y: false, points: { show: lines }, sync: { key: "page" } }, axes: axes(days),
    scales: { x: { range: (_, from, to) => [from - step / 2, to + step / 2] }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) * 1.08 || 1] } },
    series: [{}, ...series.map((s) => lines
      ? { stroke: colour(s.colour), width: 2, points: { show: rows.length < 90, size: 4 } }
      : { stroke: colour(s.colour), fill: colour(s.colour), width: 0, paths: bars, points: { show: false } })],
    hooks: { setCursor: [(u) => legend.show(u.cursor.idx)], setSelect: [(u) => zoom(u, data)] },
  }, [rows.map((r) => r.at), ...values], figure);
  figure.append(legend.legend);
  charts.add({ figure, plot });
}

export function drawCharts(root = document) {
  for (const { figure, plot } of charts) {
    plot.destroy();
    figure.querySelector(".chart-legend")?.remove();
  }
  charts.clear();
  root.querySelectorAll("figure[data-chart]").forEach(draw);
}

addEventListener("resize", () => { for (const { figure, plot } of charts) plot.setSize({ width: widthOf(figure), height }); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts());
drawCharts();
