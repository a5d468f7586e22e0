// What a page does by itself: asks for its parts anew when something happened, confirms, and listens to the keyboard.
"use strict";

const body = document.body;
const words = document.getElementById("words");
const SAID = "intentctl.said";

// -- parts that change ---------------------------------------------------------------------------------

/** Make one element like another, keeping what is the same: focus, typed words, what is unfolded. */
function morph(now, next) {
  if (now.nodeType !== next.nodeType || now.nodeName !== next.nodeName || now.id !== next.id) {
    now.replaceWith(next);
    return;
  }
  if (now.nodeType !== Node.ELEMENT_NODE) {
    if (now.nodeValue !== next.nodeValue) now.nodeValue = next.nodeValue;
    return;
  }
  if (now.matches("dialog[open], form[aria-busy]")) return;
  for (const { name } of [...now.attributes]) {
    if (!next.hasAttribute(name) && !(name === "open" && now.matches("details"))) now.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (name === "open" && now.matches("details")) continue;
    if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
  if (now.matches("[data-lazy]") && now.dataset.filled) return;
  morphChildren(now, next);
}

function morphChildren(now, next) {
  const coming = [...next.childNodes];
  coming.forEach((child, place) => {
    const present = now.childNodes[place];
    if (!present) now.append(child);
    else morph(present, child);
  });
  while (now.childNodes.length > coming.length) now.lastChild.remove();
}

const asked = new WeakMap();

/** Ask for a part anew; what happens meanwhile makes it be asked once more. */
async function refresh(part) {
  const state = asked.get(part) || {};
  asked.set(part, state);
  if (state.busy) { state.again = true; return; }
  state.busy = true;
  try {
    do {
      state.again = false;
      const answer = await fetch(part.dataset.part);
      if (answer.status === 401) return ended();
      trouble("console", false);
      trouble("service", answer.status === 503 || answer.status === 504);
      const template = document.createElement("template");
      template.innerHTML = await answer.text();
      if (answer.ok || answer.status >= 500 && part.matches("[data-lazy]")) {
        part.removeAttribute("data-filled");
        morphChildren(part, template.content);
        if (part.matches("[data-lazy]")) part.dataset.filled = "yes";
        dress(part);
      }
    } while (state.again && part.isConnected);
  } catch {
    trouble("console", true);
  } finally {
    state.busy = false;
  }
}

function changed(names) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const concerns = part.dataset.on.split(" ");
    if (!names.some((name) => concerns.includes(name))) continue;
    refresh(part);
  }
}

const troubles = { console: false, service: false };

/** What does not answer: what is shown may be old, and says so. */
function trouble(who, is) {
  const box = document.getElementById("lost");
  if (!box || troubles[who] === is || body.dataset.over) return;
  troubles[who] = is;
  box.textContent = troubles.console ? body.dataset.lost : troubles.service ? body.dataset.away : "";
  box.hidden = !box.textContent;
}

function ended() {
  const box = document.getElementById("lost");
  const link = document.createElement("a");
  link.href = `/login?to=${encodeURIComponent(location.pathname + location.search)}`;
  link.textContent = body.dataset.signin;
  box.replaceChildren(`${body.dataset.ended} `, link);
  box.hidden = false;
  body.dataset.over = "yes";
  hush();
  for (const button of document.querySelectorAll("button")) button.disabled = true;
}

let events = null;
let isLost = false;

/** Hear what happens. A page that nobody sees does not: browsers hold few connections to one place. */
function listen() {
  if (events || !body.dataset.live || body.dataset.over) return;
  events = new EventSource(body.dataset.live);
  events.onmessage = (event) => changed(JSON.parse(event.data));
  events.onopen = () => {
    if (!isLost) return;
    isLost = false;
    trouble("console", false);
    changed(["back", "look"]);
  };
  events.onerror = async () => {
    isLost = true;
    if (events && events.readyState !== EventSource.CLOSED) { trouble("console", true); return; }
    hush();
    const answer = await fetch("/parts/strip").catch(() => null);
    if (answer && answer.status === 401) { ended(); return; }
    trouble("service", Boolean(answer) && answer.status >= 500);
    setTimeout(listen, 2000);
  };
}

function hush() {
  if (events) events.close();
  events = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) { hush(); return; }
  listen();
  changed(["back", "look"]);
});
addEventListener("pagehide", hush);
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
listen();

/** What a part needs once it is there: parts of its own, countdowns. */
function dress(root) {
  for (const part of root.querySelectorAll("[data-lazy]:not([data-filled])")) refresh(part);
  countDown();
}

for (const part of document.querySelectorAll("[data-every]")) {
  setInterval(() => { if (!document.hidden && part.querySelector(".present")) refresh(part); }, Number(part.dataset.every));
}

function countDown() {
  for (const one of document.querySelectorAll("[data-until]")) {
    const left = Math.max(0, Number(one.dataset.until) - Date.now() / 1000);
    const minutes = Math.floor(left / 60);
    one.textContent = minutes >= 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes}:${String(Math.floor(left % 60)).padStart(2, "0")}`;
    one.append(` ${one.dataset.left}`);
  }
}
setInterval(countDown, 1000);

// -- forms and buttons ---------------------------------------------------------------------------------

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.getAttribute("aria-busy")) { event.preventDefault(); return; }
  form.setAttribute("aria-busy", "true");
  if (form.contains(words) && words.value.trim()) remember(words.value.trim());
  const button = event.submitter || form.querySelector("button");
  if (form.dataset.busy && button) button.textContent = form.dataset.busy;
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.opens) document.getElementById(button.dataset.opens).showModal();
  else if ("closes" in button.dataset) button.closest("dialog").close();
  else if (button.dataset.say) { words.value = button.dataset.say; words.focus(); }
  else if (button.dataset.copy) copy(button);
});

async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    getSelection().selectAllChildren(button.previousElementSibling);
  }
  button.textContent = button.dataset.done;
}

// -- keyboard ------------------------------------------------------------------------------------------

function remember(text) {
  const said = JSON.parse(sessionStorage.getItem(SAID) || "[]").filter((one) => one !== text);
  sessionStorage.setItem(SAID, JSON.stringify([...said, text].slice(-50)));
}

let back = 0;
if (words) {
  words.addEventListener("keydown", (event) => {
    const said = JSON.parse(sessionStorage.getItem(SAID) || "[]");
    if (event.key !== "ArrowUp" && event.key !== "ArrowDown" || !said.length) return;
    back = Math.min(Math.max(back + (event.key === "ArrowUp" ? 1 : -1), 0), said.length);
    words.value = back ? said[said.length - back] : "";
    event.preventDefault();
  });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key === "Escape" && isTyping) { event.target.blur(); return; }
  if (isTyping || document.querySelector("dialog[open]")) return;
  if (event.key === "/" && words) { words.focus(); event.preventDefault(); return; }
  if (event.key === "ArrowDown" || event.key === "ArrowUp") { step(event); return; }
  if (!/^[a-z]$/.test(event.key)) return;
  const button = document.querySelector(`main [data-key="${event.key}"], header [data-key="${event.key}"]`);
  if (button) { button.click(); event.preventDefault(); }
});

/** From entry to entry of a list: their links are what the focus goes to. */
function step(event) {
  const entries = [...document.querySelectorAll("main li a, main tbody a, main .card a")];
  if (!entries.length) return;
  const place = entries.indexOf(document.activeElement);
  if (place < 0 && scrollY > 0 && event.key === "ArrowUp") return;
  const next = entries[place + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) { next.focus(); event.preventDefault(); }
}

for (const form of document.querySelectorAll("form[aria-busy]")) form.removeAttribute("aria-busy");
dress(document);
