// The palette: Ctrl-K opens it, typing searches, arrows and Enter go to a result. Without JavaScript the form of the top
// bar leads to the page of the search.
const form = document.querySelector("form.search");
let dialog, input, list, timer, serial = 0;

function links() { return [...list.querySelectorAll("a")]; }

function choose(step) {
  const all = links();
  if (!all.length) return;
  const at = all.findIndex((a) => a.classList.contains("chosen"));
  all[at]?.classList.remove("chosen");
  const next = all[(at + step + all.length) % all.length];
  next.classList.add("chosen");
  next.scrollIntoView({ block: "nearest" });
}

// search shows the results of the page of the search. A late response of an earlier text is dropped.
function search() {
  const mine = ++serial;
  find(input.value, (page, request) => {
    if (mine !== serial) return;
    const found = page?.querySelector(".found");
    if (found) list.replaceChildren(...found.childNodes);
    else if (request.responseURL && !request.responseURL.endsWith("/search")) {
      // A whole id leads to its page.
      const link = document.createElement("a");
      link.href = request.responseURL;
      link.textContent = input.value.trim();
      list.replaceChildren(link);
    }
    choose(1);
  });
}

// find calls back with the page of the search for a text. A POST, because the text may be a secret.
export function find(text, then) {
  const request = new XMLHttpRequest();
  request.open("POST", form.action);
  request.setRequestHeader("Content-Type", "application/x-www-form-urlencoded");
  request.responseType = "document";
  request.onload = () => then(request.response, request);
  request.send(new URLSearchParams({ q: text }).toString());
}

export function open() {
  if (!form) return;
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.className = "palette";
    dialog.setAttribute("aria-label", "Search");
    input = document.createElement("input");
    input.placeholder = "Accounts, keys, projects, requests, models, pages";
    input.setAttribute("aria-label", "Search");
    input.spellcheck = false;
    input.autocomplete = "off";
    list = document.createElement("div");
    list.className = "found";
    dialog.append(input, list);
    document.body.append(dialog);
    input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, 120); });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        choose(event.key === "ArrowDown" ? 1 : -1);
      }
      if (event.key === "Enter") {
        event.preventDefault();
        (list.querySelector("a.chosen") ?? list.querySelector("a"))?.click();
      }
    });
  }
  input.value = "";
  dialog.showModal();
  search();
}
