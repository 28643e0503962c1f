// The live view: one row for each request that ends, newest on top. At most 500 rows are kept. While it is paused, rows
// wait; those beyond 500 are counted as left out.
import { ago, showTimes } from "./console.js";

const most = 500, longest = 14 * 60_000; // a view lasts for 15 minutes
const view = document.getElementById("live");
const body = view.querySelector("tbody"), state = view.querySelector("[data-state]"), pause = view.querySelector("[data-pause]"), none = view.querySelector("[data-none]");
let waiting = [], paused = false, dropped = 0, coverage = null, note = "Connecting.";

function tell() {
  const parts = [paused ? `Paused, ${waiting.length} wait.` : note];
  if (coverage) parts.push(covered(coverage));
  if (dropped) parts.push(`${dropped} were left out.`);
  state.textContent = parts.join(" ");
}

function covered(c) {
  if (!c.silent) return `All ${c.heard} proxies are heard.`;
  const unheard = (c.unheard ?? []).map((p) => `; ${p.name} was ${p.heard_at ? `heard ${ago(new Date(p.heard_at))}` : "never heard"}`);
  return `${c.heard} of ${c.heard + c.silent} proxies are heard${unheard.join("")}.`;
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

// A refused request has no receipt. What explains it is the list of the refusals of its account, key and code, with what
// was short.
function refusals(r) {
  const query = new URLSearchParams();
  for (const name of ["account_id", "project_id", "key_id", "code"]) if (r[name]) query.set(name, r[name]);
  return `/console/refusals?${query}`;
}

function show(r) {
  const row = document.createElement("tr");
  const time = element("time", r.at, { dateTime: r.at, title: r.at.replace("T", " ").replace("Z", " UTC") });
  cell(row, "At", time);
  const kind = r.status < 400 ? "good" : r.status < 500 ? "warn" : "bad";
  cell(row, "Status", [element("span", String(r.status), { className: `badge ${kind}` }), r.code ? ` ${r.code}` : "",
    r.short ? element("small", ` ${r.short.pool.replaceAll("_", " ")}: wanted ${r.short.wanted}, had ${r.short.available}`, { className: "soft" }) : null]);
  cell(row, "Request", code(r.request_id, r.outcome === "refused" ? refusals(r) : `/console/requests/${encodeURIComponent(r.request_id)}`));
  cell(row, "Model", r.model ?? "");
  cell(row, "Account", r.account_id ? code(r.account_id, `/console/accounts/${encodeURIComponent(r.account_id)}`) : "");
  cell(row, "Project", r.project_id ? code(r.project_id, `/console/projects/${encodeURIComponent(r.project_id)}`) : "");
  cell(row, "Route", r.route_id ? code(r.route_id) : "");
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
    none.hidden = true;
    showTimes(body);
  }
  tell();
}

// Rows are drawn four times in a second at most, however many arrive.
setInterval(() => { if (!paused && waiting.length && !document.hidden) draw(); }, 250);

body.parentElement.hidden = pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Continue" : "Pause";
  pause.setAttribute("aria-pressed", String(paused));
  if (paused) tell(); else draw();
});

let source;

function connect() {
  const began = Date.now();
  source = new EventSource(view.dataset.stream);
  source.onopen = () => { note = "Live. Requests appear when they end."; tell(); };
  source.onerror = () => {
    note = "Not connected. Trying again.";
    tell();
    if (source.readyState === EventSource.CLOSED) setTimeout(ask, 3000); // it does not try again by itself
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
  source.addEventListener("coverage", (event) => { coverage = JSON.parse(event.data); tell(); });
  source.addEventListener("end", () => {
    source.close();
    const over = Date.now() - began > longest;
    note = over ? "The view has ended after 15 minutes. Reload the page." : "Not connected. Trying again.";
    tell();
    if (!over) setTimeout(ask, 1000); // the control plane stops, or the person was signed out
  });
}

// ask connects again after a refusal, unless the person was signed out.
function ask() {
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  request.onload = () => {
    if (new URL(request.responseURL).pathname.endsWith("/sign-in")) location.reload();
    else connect();
  };
  request.onerror = () => setTimeout(ask, 3000);
  request.send();
}

connect();
tell();
