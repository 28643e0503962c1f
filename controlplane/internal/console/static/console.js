// Every page uses this in the browser: relative times that stay true, the switch to local times, copying, and Ctrl-K.
// Pages work without it.

const minute = 60, hour = 3600, day = 86400;

function ago(at) {
  const seconds = (Date.now() - at) / 1000;
  const s = Math.abs(seconds);
  const span = s < minute ? `${Math.floor(s)} s` : s < hour ? `${Math.floor(s / minute)} min` : s < 2 * day ? `${Math.floor(s / hour)} h` : `${Math.floor(s / day)} d`;
  return seconds < 0 ? `in ${span}` : s < 1 ? "now" : `${span} ago`;
}

const local = () => localStorage.getItem("local-time") === "yes";

export function showTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    time.dataset.utc ??= time.title || time.textContent;
    const exact = local() ? at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : time.dataset.utc;
    time.title = exact;
    time.textContent = "exact" in time.dataset || time.closest("footer") ? exact : ago(at);
  }
  for (const button of document.querySelectorAll("[data-local-time]")) button.textContent = local() ? "Show UTC" : "Show local times";
}

// Another tab may have fetched the page in front of this one: a page from the browser's memory is read again, so that
// Back shows nothing after signing out.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(copy.dataset.copy);
    copy.textContent = "copied";
    setTimeout(() => { copy.textContent = "copy"; }, 1500);
  }
  if (event.target.closest("[data-local-time]")) {
    localStorage.setItem("local-time", local() ? "no" : "yes");
    showTimes();
  }
  const open = event.target.closest("[data-dialog]");
  if (open) document.getElementById(open.dataset.dialog).showModal();
  if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
});

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    event.preventDefault();
    document.getElementById("search")?.focus();
  }
});

// On a small screen the menu begins folded.
const sidebar = document.querySelector(".sidebar");
if (sidebar && matchMedia("(max-width: 52rem)").matches) sidebar.open = false;

showTimes();
setInterval(() => { if (!document.hidden) showTimes(); }, 5000);
