"use strict";
// Waits for a change of any cluster and puts the page's new content in place: no reload, no lost scroll or open detail.
const rest = (seconds) => new Promise((resume) => setTimeout(resume, seconds * 1000));
const note = document.getElementById("connection");

async function renew() {
  const answer = await fetch("/", { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.statusText);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const open = new Set([...document.querySelectorAll("details[open]")].map((one) => one.id));
  const before = new Map([...document.querySelectorAll("tr[id]")].map((row) => [row.id, row.dataset.state]));
  for (const section of fresh.querySelectorAll("section[id]")) {
    for (const one of section.querySelectorAll("details[id]")) one.open = open.has(one.id);
    for (const row of section.querySelectorAll("tr[id]")) {
      if (before.size && before.get(row.id) !== row.dataset.state) row.classList.add("changed");
    }
    const old = document.getElementById(section.id);
    const focused = old && document.activeElement && old.contains(document.activeElement)
      ? document.activeElement.id : "";
    if (old) old.replaceWith(section); else document.querySelector("main").append(section);
    if (focused) document.getElementById(focused)?.focus();
  }
  for (const old of document.querySelectorAll("section[id]")) {
    if (!fresh.getElementById(old.id)) old.remove();
  }
}

async function follow() {
  for (;;) {
    try {
      await rest(2);
      await renew();
      note.textContent = "updates itself";
      note.className = "soft";
    } catch (error) {
      note.textContent = "the service does not answer; showing what was last known";
      note.className = "bad";
    }
    while (document.hidden) await rest(1);
  }
}

note.textContent = "updates itself";
follow();
