// Charts draw a table of the page: the column with data-axis gives the days, the one with data-series the values. The
// table stays, for those who cannot see the chart. Values become floats for drawing only.
import uPlot from "./vendor/uPlot.esm.js";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const charts = new Set();

function column(table, attribute) {
  return [...table.querySelectorAll("thead th")].findIndex((th) => th.hasAttribute(attribute));
}

function draw(figure) {
  const table = document.getElementById(figure.dataset.chart);
  if (!table) return;
  const axis = column(table, "data-axis"), series = column(table, "data-series");
  if (axis < 0 || series < 0) return;
  const rows = [...table.tBodies[0].rows].map((row) => [
    Date.parse(row.cells[axis].textContent.trim() + "T00:00:00Z") / 1000, Number(row.cells[series].textContent.trim()), row.cells[series].textContent.trim(),
  ]).sort((a, b) => a[0] - b[0]);
  const legend = document.createElement("p");
  legend.className = "chart-legend soft";
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const grid = { stroke: style("--line"), width: 1 }, ticks = { show: false };
  const axes = [
    { stroke: style("--soft"), font, grid: { show: false }, ticks, values: (_, days) => days.map((d) => new Date(d * 1000).toISOString().slice(5, 10)), size: 30, incrs: [86400, 2 * 86400, 5 * 86400, 7 * 86400, 14 * 86400, 30 * 86400] },
    { stroke: style("--soft"), font, grid, ticks, size: 64 },
  ];
  const bars = uPlot.paths.bars({ size: [0.7, 40], radius: 0.15 });
  const plot = new uPlot({
    width: figure.clientWidth - 32, height: 200, tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"), legend: { show: false },
    cursor: { y: false, points: { show: false } }, axes,
    scales: { x: { range: (_, from, to) => [from - 43200, to + 43200] }, y: { range: (_, low, high) => [Math.min(0, low), high * 1.08 || 1] } },
    series: [{}, { stroke: style("--accent"), fill: style("--accent"), width: 0, paths: bars, points: { show: false } }],
    hooks: {
      setCursor: [(u) => {
        const at = u.cursor.idx;
        legend.textContent = at == null ? "" : `${new Date(rows[at][0] * 1000).toISOString().slice(0, 10)}: ${rows[at][2]} ${figure.dataset.unit}`;
      }],
      // Dragging over days shows those days only: the address has them, so that it can be sent to others.
      setSelect: [(u) => {
        if (u.select.width < 5) return;
        const day = (x) => new Date(u.posToVal(x, "x") * 1000).toISOString().slice(0, 10);
        const to = new URL(location.href);
        to.searchParams.set("from", day(u.select.left));
        to.searchParams.set("to", day(u.select.left + u.select.width));
        to.searchParams.delete("cursor");
        location.href = to.href;
      }],
    },
  }, [rows.map((r) => r[0]), rows.map((r) => r[1])], figure);
  figure.append(legend);
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

addEventListener("resize", () => { for (const { figure, plot } of charts) plot.setSize({ width: figure.clientWidth - 32, height: 200 }); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts());
drawCharts();
