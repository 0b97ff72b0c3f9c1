// Answers without a new page: what the server answers takes the place of what is shown. Without this script all works as plain forms.
"use strict";

const LONGEST_WAIT_MS = 2000;
const WANTED = "benchwright-keys";
const pictures = [];
let sending = false;
let byKeys = remembered();

const told = document.getElementById("told");
const first = (what) => document.querySelector(what);

function tell(text, said = false) {
  told.textContent = text;
  told.classList.toggle("said", said);
}

function remembered() {
  try { return localStorage.getItem(WANTED) !== "no"; } catch { return true; }
}

// ------------------------------------------------------------------------------------------------------------ what is shown

function prepare() {
  const main = first("main");
  for (const address of (main.dataset.ahead || "").split(" ").filter(Boolean)) {
    const picture = new Image();
    picture.src = address;
    pictures.push(picture);
  }
  pictures.splice(0, Math.max(0, pictures.length - 12));
  const keys = first("#keys");
  if (keys) {
    keys.checked = byKeys;
    keys.parentElement.hidden = false;
  }
  document.body.classList.toggle("no-keys", !byKeys);
  for (const find of document.querySelectorAll(".find")) find.hidden = false;
}

function show(html, what) {
  const main = new DOMParser().parseFromString(html, "text/html").querySelector("main");
  if (!main) return false;
  first("main").replaceWith(document.adoptNode(main));
  prepare();
  const problem = first("#problem");
  first("#title").focus({preventScroll: true});
  window.scrollTo(0, 0);
  tell(problem ? "" : `${what} ${first("#title").textContent}`, true);
  return true;
}

// ------------------------------------------------------------------------------------------------------------------ sending

async function send(form) {
  if (sending) return;
  sending = true;
  document.body.classList.add("sending");
  const body = new URLSearchParams(new FormData(form));
  for (let wait = 250; sending; wait = Math.min(2 * wait, LONGEST_WAIT_MS)) {
    try {
      const answer = await fetch(form.action, {method: "POST", body, headers: {"x-part": "main"}});
      const text = await answer.text();
      if (answer.status < 500) {
        if (!show(text, form.dataset.send)) tell(text);
        break;
      }
      tell("Not saved yet: the server cannot write. Trying again…");
    } catch {
      tell("Not saved yet: the server does not answer. Trying again…");
    }
    await new Promise((after) => setTimeout(after, wait));
  }
  sending = false;
  document.body.classList.remove("sending");
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-send]")) return;
  event.preventDefault();
  send(event.target);
});

// ---------------------------------------------------------------------------------------------------------------- answering

document.addEventListener("change", (event) => {
  const changed = event.target;
  if (changed.id === "keys") {
    byKeys = changed.checked;
    try { localStorage.setItem(WANTED, byKeys ? "yes" : "no"); } catch { /* until the page is closed */ }
    document.body.classList.toggle("no-keys", !byKeys);
  }
  if (!changed.checked || !["label", "none"].includes(changed.name)) return;
  const other = changed.name === "none" ? "label" : "none";
  for (const box of changed.form.querySelectorAll(`[name=${other}]`)) box.checked = false;
});

// Of many options those are shown that have the text, and those that are chosen.
document.addEventListener("input", (event) => {
  if (!event.target.matches(".find input")) return;
  const text = event.target.value.trim().toLowerCase();
  for (const option of event.target.form.querySelectorAll(".option:has([name=label])")) {
    option.hidden = !option.querySelector("span").textContent.toLowerCase().includes(text) && !option.querySelector("input").checked;
  }
});

// After a choice by pointer the space bar means "next" again, and does not take the choice back.
document.addEventListener("click", (event) => {
  if (byKeys && event.detail > 0 && event.target.matches(".option input")) first("#title").focus({preventScroll: true});
});

document.addEventListener("keydown", (event) => {
  if (!byKeys || event.ctrlKey || event.metaKey || event.altKey || event.repeat || sending) return;
  const at = event.target;
  if (at.matches("[type=search]")) {
    if (event.key === "Enter") event.preventDefault();  // it would send the form
    return;
  }
  const control = at.matches("input, button, a, select, textarea, summary");
  if ((event.key === " " || event.key === "Enter") && !control) {
    const form = first(".answer");
    if (form) { event.preventDefault(); form.requestSubmit(); }
    return;
  }
  const meant = /^[a-z0-9]$/i.test(event.key) && first(`[data-key="${event.key.toLowerCase()}"]`);
  if (meant && !meant.disabled) { event.preventDefault(); meant.click(); }
});

prepare();
