// The page for operators works without this. It keeps times and parts of the page up to date.
"use strict";

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// The two largest units, as the server writes them.
function words(seconds) {
  const parts = [];
  let rest = Math.floor(Math.abs(seconds));
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    rest %= size;
    if (count || parts.length) parts.push([count, unit]);
  }
  const said = parts.slice(0, 2).filter(([count]) => count).map((part) => part.join(" ")).join(" ");
  if (!said) return "now";
  return seconds > 0 ? `in ${said}` : `${said} ago`;
}

function tick() {
  for (const each of document.querySelectorAll("time[data-ago]")) {
    const text = words((Date.parse(each.dateTime) - Date.now()) / 1000);
    if (each.textContent !== text) each.textContent = text;
  }
}

// --- parts that change ---

function place(part) {
  const here = document.getElementById(part.id);
  if (!here || here.dataset.seen === part.innerHTML) return;
  const first = here.dataset.seen === undefined;
  here.dataset.seen = part.innerHTML;
  if (first && plain(here) === plain(part)) return;
  if (isBusy(here)) {
    delete here.dataset.seen; // again with the next part
    return;
  }
  const focused = here.contains(document.activeElement) ? pathOf(here, document.activeElement) : null;
  const opened = [...here.querySelectorAll("details[open]")].map((each) => pathOf(here, each));
  here.innerHTML = part.innerHTML;
  for (const path of opened) at(here, path)?.setAttribute("open", "");
  if (focused) at(here, focused)?.focus({ preventScroll: true });
}

// Without the words about time, which pass by themselves.
function plain(part) {
  const copy = part.cloneNode(true);
  for (const each of copy.querySelectorAll("time[data-ago]")) each.textContent = "";
  return copy.innerHTML;
}

function isBusy(part) {
  const typed = [...part.querySelectorAll("input:not([type=hidden]), textarea")].some((each) => each.value !== each.defaultValue);
  return typed || !getSelection().isCollapsed && part.contains(getSelection().anchorNode);
}

function pathOf(root, node) {
  const path = [];
  for (let each = node; each !== root; each = each.parentElement) {
    path.unshift([...each.parentElement.children].indexOf(each));
  }
  return path;
}

function at(root, path) {
  return path.reduce((each, number) => each?.children[number], root);
}

let stream = null;
let failures = 0;

function said(text, away) {
  const pulse = document.getElementById("pulse");
  if (!pulse || pulse.textContent === text) return;
  pulse.textContent = text;
  pulse.classList.toggle("away", away);
}

function follow() {
  if (stream || document.hidden) return;
  stream = new EventSource(location.href);
  stream.addEventListener("open", () => { failures = 0; said("live", false); });
  stream.addEventListener("away", (event) => said(event.data, true));
  stream.addEventListener("part", (event) => {
    said("live", false);
    const parsed = new DOMParser().parseFromString(event.data, "text/html");
    for (const part of parsed.querySelectorAll("[data-part][id]")) place(part);
    tick();
  });
  stream.addEventListener("error", () => {
    said("not connected", true);
    failures += 1;
    if (failures > 20) leave();
  });
}

function leave() {
  stream?.close();
  stream = null;
}

if (document.body.dataset.live) {
  follow();
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", follow);
}
setInterval(tick, 1000);

// --- forms ---

for (const form of document.querySelectorAll("form.filter")) {
  form.addEventListener("change", (event) => {
    if (event.target.matches("select")) form.requestSubmit();
  });
  form.addEventListener("submit", () => {
    for (const field of form.elements) if (!field.value && field.name) field.disabled = true;
  });
}

// An opened form has the focus; Escape closes it.
for (const action of document.querySelectorAll(".actions details")) {
  action.addEventListener("toggle", () => {
    if (action.open) action.querySelector("input:not([type=hidden]), select, textarea")?.focus();
  });
  action.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !action.open) return;
    action.open = false;
    action.querySelector("summary").focus();
  });
}
