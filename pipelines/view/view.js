// Players, the slider of a pair, and pages of runs that are going on. Data come by fetch and are drawn: none is ever run as code.
"use strict";

const PERIOD_MS = 120;
const POLL_MS = 3000;

function player(box, count, show) {
  const button = box.querySelector("button");
  const range = box.querySelector("input[type=range]");
  let timer = 0;
  const go = (to) => { range.value = to; show(Number(range.value)); };
  range.addEventListener("input", () => show(Number(range.value)));
  button.addEventListener("click", () => {
    if (timer) { clearInterval(timer); timer = 0; button.textContent = "Play"; return; }
    timer = setInterval(() => go((Number(range.value) + 1) % count), PERIOD_MS);
    button.textContent = "Pause";
  });
  show(0);
}

async function skeleton(box) {
  const motion = await (await fetch(box.dataset.motion)).json();
  const canvas = box.querySelector("canvas");
  const pen = canvas.getContext("2d");
  const ink = getComputedStyle(document.body).color;
  const at = (joint) => [40 + joint[0] * (canvas.width - 80), 40 + joint[1] * (canvas.height - 80)];
  player(box, motion.frames.length, (frame) => {
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.strokeStyle = ink; pen.fillStyle = ink; pen.lineWidth = 3;
    for (const body of motion.frames[frame]) {
      for (const [one, other] of motion.edges) {
        pen.beginPath(); pen.moveTo(...at(body[one])); pen.lineTo(...at(body[other])); pen.stroke();
      }
      for (const joint of body) { pen.beginPath(); pen.arc(...at(joint), 4, 0, 7); pen.fill(); }
    }
  });
}

function frames(box) {
  const shown = box.querySelector("img.large");
  const places = [...box.querySelectorAll(".strip a")].map((one) => one.href);
  player(box, places.length, (frame) => { shown.src = places[frame]; });
}

function pair(box) {
  const over = box.querySelector(".over");
  const range = box.parentElement.querySelector(".slide");
  range.addEventListener("input", () => over.style.setProperty("--cut", `${range.value}%`));
}

async function again() {
  const main = document.querySelector("[data-live]");
  if (!main || main.contains(document.activeElement)) return;
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelector("main");
  const shapes = [page.querySelector(".shapes"), document.querySelector(".shapes")];
  if (!fresh) return;
  main.replaceWith(document.adoptNode(fresh));
  if (shapes[0] && shapes[1]) shapes[1].replaceWith(document.adoptNode(shapes[0]));
}

document.querySelectorAll("[data-motion]").forEach(skeleton);
document.querySelectorAll(".player.frames").forEach(frames);
document.querySelectorAll(".pair").forEach(pair);
function poll() { setTimeout(() => again().catch(() => {}).finally(poll), POLL_MS); }
if (document.querySelector("[data-live]")) poll();
