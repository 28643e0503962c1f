// Renews the part of a page with the attribute data-refresh, its number of seconds, while the page can be seen. The part
// is asked for without charts. If it cannot be had, the page says since when its figures are old.
import { showTimes } from "./console.js";

const part = document.querySelector("[data-refresh]");
const seconds = Number(part.dataset.refresh);
const old = document.createElement("p");
old.className = "notice warn";
old.setAttribute("role", "status");
let last = Date.now(), running = false;

function failed() {
  old.textContent = `These figures are ${Math.round((Date.now() - last) / 1000)} seconds old: the control plane does not answer. Trying again.`;
  if (!old.isConnected) part.before(old);
}

function renew() {
  if (running || document.hidden || part.contains(document.activeElement) && document.activeElement.matches("summary")) return;
  running = true;
  const address = new URL(location.href);
  address.search = "?charts=none";
  const request = new XMLHttpRequest();
  request.open("GET", address);
  request.responseType = "document";
  request.timeout = 10_000;
  request.onload = () => {
    const next = request.status === 200 ? request.response?.getElementById(part.id) : null;
    if (next) {
      const focus = [...part.querySelectorAll("a")].indexOf(document.activeElement);
      part.replaceChildren(...next.childNodes);
      if (focus >= 0) part.querySelectorAll("a")[focus]?.focus();
      showTimes(part);
      for (const id of ["health", "banners"]) { // they are of the same list as the part
        const shown = document.getElementById(id), renewed = request.response.getElementById(id);
        if (!shown || !renewed) continue;
        shown.replaceChildren(...renewed.childNodes);
        showTimes(shown);
      }
      last = Date.now();
      old.remove();
    } else if (new URL(request.responseURL || location.href).pathname.endsWith("/sign-in")) {
      location.reload();
    } else {
      failed();
    }
  };
  request.onerror = request.ontimeout = failed;
  request.onloadend = () => { running = false; };
  request.send();
}

setInterval(renew, seconds * 1000);
document.addEventListener("visibilitychange", renew);
