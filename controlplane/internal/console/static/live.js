// The live view: one row for each request that ends, newest on top. At most 500 rows are kept. While it is paused, rows
// wait; those beyond 500 are counted as left out.
import { showTimes } from "./console.js";

const most = 500;
const view = document.getElementById("live");
const body = view.querySelector("tbody"), state = view.querySelector("[data-state]"), pause = view.querySelector("[data-pause]");
let waiting = [], paused = false, dropped = 0, coverage = "", note = "Connecting.";

function tell() {
  const parts = [paused ? `Paused, ${waiting.length} wait.` : note];
  if (coverage) parts.push(coverage);
  if (dropped) parts.push(`${dropped} were left out.`);
  state.textContent = parts.join(" ");
}

const short = (id) => id.length > 20 ? `${id.slice(0, 10)}…${id.slice(-4)}` : id;
const took = (us) => us == null ? "" : us < 1e6 ? `${Math.round(us / 1e3)} ms` : `${(us / 1e6).toFixed(1)} s`;

function cell(row, label, content, number) {
  const td = row.insertCell();
  td.dataset.label = label;
  if (number) td.className = "number";
  td.append(...[content].flat().filter((c) => c != null && c !== ""));
}

function element(name, text, properties = {}) {
  const e = document.createElement(name);
  e.textContent = text;
  return Object.assign(e, properties);
}

function code(text, href) {
  const c = element("code", short(text));
  if (!href) return c;
  const a = element("a", "", { href });
  a.append(c);
  return a;
}

function show(r) {
  const row = document.createElement("tr");
  const time = element("time", r.at, { dateTime: r.at, title: r.at.replace("T", " ").replace("Z", " UTC") });
  cell(row, "At", time);
  const kind = r.status < 400 ? "good" : r.status < 500 ? "warn" : "bad";
  cell(row, "Status", [element("span", String(r.status), { className: `badge ${kind}` }), r.code ? ` ${r.code}` : "",
    r.short ? element("small", ` ${r.short.pool.replaceAll("_", " ")}: wanted ${r.short.wanted}, had ${r.short.available}`, { className: "soft" }) : null]);
  cell(row, "Request", code(r.request_id, r.outcome === "refused" ? "" : `/console/requests/${encodeURIComponent(r.request_id)}`));
  cell(row, "Model", r.model ?? "");
  cell(row, "Account", r.account_id ? code(r.account_id, `/console/accounts/${encodeURIComponent(r.account_id)}`) : "");
  cell(row, "Route", r.route_id ?? "");
  cell(row, "First byte", took(r.first_byte_us), true);
  cell(row, "Took", took(r.duration_us), true);
  cell(row, "Cost", r.cost ?? "", true);
  return row;
}

function draw() {
  const rows = waiting.slice(-most).reverse().map(show);
  dropped += Math.max(waiting.length - most, 0);
  waiting = [];
  if (rows.length) {
    body.prepend(...rows);
    while (body.rows.length > most) body.lastElementChild.remove();
    body.parentElement.hidden = false;
    showTimes(body);
  }
  tell();
}

// Rows are drawn four times in a second at most, however many arrive.
setInterval(() => { if (!paused && waiting.length && !document.hidden) draw(); }, 250);

pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Continue" : "Pause";
  pause.setAttribute("aria-pressed", String(paused));
  if (paused) tell(); else draw();
});

const source = new EventSource(view.dataset.stream);
source.onopen = () => { note = "Live. Requests appear when they end."; tell(); };
source.onerror = () => {
  note = source.readyState === EventSource.CLOSED ? "The view has ended: too many are open, or you were signed out. Reload the page." : "Not connected. Trying again.";
  tell();
};
source.addEventListener("request", (event) => {
  waiting.push(JSON.parse(event.data).request);
  if (waiting.length > 2 * most) {
    dropped += waiting.length - most;
    waiting = waiting.slice(-most);
  }
  if (paused) tell();
});
source.addEventListener("dropped", (event) => { dropped += JSON.parse(event.data).dropped; tell(); });
source.addEventListener("coverage", (event) => {
  const c = JSON.parse(event.data);
  coverage = c.silent ? `${c.heard} of ${c.heard + c.silent} proxies are heard.` : `All ${c.heard} proxies are heard.`;
  tell();
});
source.addEventListener("end", () => {
  source.close();
  note = "The view has ended after 15 minutes. Reload the page.";
  tell();
});
tell();
