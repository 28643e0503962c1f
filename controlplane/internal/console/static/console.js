// Every page uses this in the browser: relative times that stay true, the switch to local times, copying, and Ctrl-K.
// Pages work without it.

const minute = 60, hour = 3600, day = 86400;

export function ago(at) {
  const seconds = (Date.now() - at) / 1000;
  const s = Math.abs(seconds);
  const span = s < minute ? `${Math.floor(s)} s` : s < hour ? `${Math.floor(s / minute)} min` : s < 2 * day ? `${Math.floor(s / hour)} h` : `${Math.floor(s / day)} d`;
  return seconds < 0 ? `in ${span}` : s < 1 ? "now" : `${span} ago`;
}

// A local time has its zone beside it.
const zoned = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" };

const local = () => localStorage.getItem("local-time") === "yes";

export function showTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    time.dataset.utc ??= time.title || time.textContent;
    const exact = local() ? at.toLocaleString(undefined, zoned) : time.dataset.utc;
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
  if (event.target.closest("[data-print]")) print();
  const open = event.target.closest("a[data-dialog]");
  if (open && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    openForm(open);
  }
  const close = event.target.closest("dialog [data-close]");
  if (close) {
    event.preventDefault();
    close.closest("dialog").close();
  }
});

async function openPalette() {
  const palette = await import("./palette.js");
  palette.open();
}

// The filters of accounts, projects and keys suggest those that the search finds.
let suggestion;
addEventListener("input", (event) => {
  const input = event.target.closest("input[data-suggest]");
  if (!input || input.value.trim().length < 2) return;
  clearTimeout(suggestion);
  suggestion = setTimeout(async () => {
    const { find } = await import("./palette.js");
    const list = input.list ?? document.body.appendChild(document.createElement("datalist"));
    list.id ||= `suggest-${input.name}`;
    input.setAttribute("list", list.id);
    find(input.value, (page) => {
      const path = `/console/${input.dataset.suggest}/`;
      list.replaceChildren(...[...page?.querySelectorAll(`.found a[href^="${path}"]`) ?? []].map((link) => {
        const option = document.createElement("option");
        option.value = `${link.textContent.split(" · ")[0]} · ${link.getAttribute("href").slice(path.length)}`;
        return option;
      }));
    });
  }, 150);
});

document.getElementById("search")?.addEventListener("click", openPalette);

// openForm shows the form of a page in a dialog. A page without a form is opened instead.
function openForm(link) {
  const request = new XMLHttpRequest();
  request.open("GET", link.href);
  request.responseType = "document";
  request.onload = () => {
    const form = request.response?.querySelector("form.edit");
    if (!form || request.responseURL !== link.href) {
      location.href = link.href;
      return;
    }
    const dialog = document.createElement("dialog");
    dialog.append(request.response.querySelector("h1"), form);
    dialog.firstChild.id = "dialog-title";
    dialog.setAttribute("aria-labelledby", "dialog-title");
    dialog.addEventListener("close", () => { dialog.remove(); link.focus(); });
    document.body.append(dialog);
    showTimes(dialog);
    dialog.showModal();
  };
  request.onerror = () => { location.href = link.href; };
  request.send();
}

// A form is sent once, however often its button is pressed. Back shows the page with the buttons as they were.
addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || form.matches(".search")) return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    event.preventDefault();
    openPalette();
  }
});

// On a small screen the menu begins folded.
const sidebar = document.querySelector(".sidebar");
if (sidebar && matchMedia("(max-width: 52rem)").matches) sidebar.open = false;

// A part with data-follow shows a state that changes by itself: it is read again after as many seconds. When it is gone,
// the whole page is loaded, which has the result; the live view, which keeps its rows, takes the banners only.
function follow(part) {
  setTimeout(() => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.onload = () => {
      const page = request.response, next = page?.querySelector("[data-follow]");
      if (!next && request.status >= 500) return follow(part);
      if (!next && page?.getElementById("live")) return document.getElementById("banners")?.replaceChildren(...page.getElementById("banners").childNodes);
      if (!next) return location.reload();
      part.replaceWith(next);
      showTimes(next);
      follow(next);
    };
    request.onerror = () => follow(part);
    request.send();
  }, Number(part.dataset.follow) * 1000);
}
document.querySelectorAll("[data-follow]").forEach(follow);

// Charts are loaded by the pages that have one.
if (document.querySelector("[data-chart]")) import("./chart.js");

showTimes();
setInterval(() => { if (!document.hidden) showTimes(); }, 5000);
