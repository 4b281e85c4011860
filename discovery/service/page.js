"use strict";
// Fetches the page again and again and changes only what differs: nothing loses focus, scroll or an open detail, and a
// screen reader hears a new sentence, not the same one every two seconds.
const rest = (seconds) => new Promise((resume) => setTimeout(resume, seconds * 1000));
const note = document.getElementById("connection");

function same(old, fresh) {
  return old.nodeName === fresh.nodeName && (old.id || "") === (fresh.id || "");
}

function alike(old, fresh) {
  for (const name of old.getAttributeNames()) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const name of fresh.getAttributeNames()) {
    if (old.getAttribute(name) !== fresh.getAttribute(name)) old.setAttribute(name, fresh.getAttribute(name));
  }
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  const changed = old.dataset.state !== undefined && old.dataset.state !== fresh.dataset.state;
  alike(old, fresh);
  if (changed) glow(old);
  const known = new Map([...old.children].filter((one) => one.id).map((one) => [one.id, one]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const held = next.id ? known.get(next.id) : at && same(at, next) ? at : null;
    if (!held) {
      old.insertBefore(next, at);
      if (next.dataset && next.dataset.state !== undefined) glow(next);
      continue;
    }
    if (held === at) at = at.nextSibling;
    else old.insertBefore(held, at);
    morph(held, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function glow(row) {
  row.classList.remove("changed");
  void row.offsetWidth; // else a second glow would not begin
  row.classList.add("changed");
}

async function renew() {
  const answer = await fetch("/", { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.statusText);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  morph(document.querySelector("main"), fresh.querySelector("main"));
  document.title = fresh.title;
}

function say(text, kind) {
  if (note.textContent === text) return;
  note.textContent = text;
  note.className = kind;
}

async function follow() {
  for (;;) {
    await rest(2);
    while (document.hidden) await rest(0.5);
    try {
      await renew();
      say("updates itself", "soft");
    } catch (error) {
      say("the service does not answer; showing what was last known", "bad");
    }
  }
}

say("updates itself", "soft");
follow();
