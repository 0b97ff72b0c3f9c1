// The map of a stage: points on a canvas, a line around some of them, and the picture that rows are to be like.
"use strict";

const NOT_SHOWN = 255;
const NO_VALUE = 254;
const OTHERS = 253;
const SHADES = 64;
const LARGEST = 65535;
const MARGIN = 12;
const MOST_CORNERS = 60;
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

function colour(name) {
  const box = document.createElement("canvas").getContext("2d");
  box.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888888";
  const hex = box.fillStyle;
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

function palette(head) {
  const table = new Array(256).fill([128, 128, 128]);
  if (head.low !== "") {
    for (let shade = 0; shade < SHADES; shade++) {
      const place = shade / (SHADES - 1) * (RAMP.length - 1);
      const low = Math.min(Math.floor(place), RAMP.length - 2);
      table[shade] = [0, 1, 2].map((at) => Math.round(RAMP[low][at] + (place - low) * (RAMP[low + 1][at] - RAMP[low][at])));
    }
  } else {
    for (let at = 0; at < Math.max(head.values.length, 1); at++) table[at] = colour(`--plot-s${at}`);
  }
  table[NO_VALUE] = table[OTHERS] = colour("--faint");
  return table;
}

function legend(list, head, table) {
  const add = (rgb, text) => {
    const item = document.createElement("li");
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.style.background = `rgb(${rgb})`;
    item.append(swatch, text);
    list.append(item);
  };
  if (head.low !== "") { add(table[0], head.low); add(table[SHADES >> 1], "to"); add(table[SHADES - 1], head.high); }
  head.values.forEach((value, at) => add(table[at], value));
  if (head.others) add(table[OTHERS], `${head.others.toLocaleString("en")} rows of other values`);
  if (head.missing) add(table[NO_VALUE], `${head.missing.toLocaleString("en")} rows without a value`);
}

async function read(box) {
  const answer = await fetch(box.dataset.map);
  if (!answer.ok) {
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    throw new Error((page.querySelector(".text") || page.body).textContent.trim());
  }
  const data = await answer.arrayBuffer();
  const size = new DataView(data).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, size)));
  const points = new Uint16Array(data, 4 + size, 2 * head.count);
  return { head, points, colours: new Uint8Array(data, 4 + size + 4 * head.count, head.count) };
}

function view(points, colours) {
  let [left, top, right, bottom, shown] = [LARGEST, LARGEST, 0, 0, 0];
  for (let at = 0; at < colours.length; at++) {
    if (colours[at] === NOT_SHOWN) continue;
    shown++;
    left = Math.min(left, points[2 * at]); right = Math.max(right, points[2 * at]);
    top = Math.min(top, points[2 * at + 1]); bottom = Math.max(bottom, points[2 * at + 1]);
  }
  return { left, top, right, bottom, shown };
}

async function drawMap(box) {
  const status = box.nextElementSibling;
  const { head, points, colours } = await read(box);
  const canvas = box.querySelector("canvas");
  const pen = canvas.getContext("2d");
  const seen = view(points, colours);
  const scale = Math.min((canvas.width - 2 * MARGIN) / Math.max(seen.right - seen.left, 1),
    (canvas.height - 2 * MARGIN) / Math.max(seen.bottom - seen.top, 1));
  const shift = [canvas.width / 2 - scale * (seen.left + seen.right) / 2, canvas.height / 2 - scale * (seen.top + seen.bottom) / 2];
  const table = palette(head);
  const picture = pen.createImageData(canvas.width, canvas.height);
  const reach = seen.shown > 50000 ? 0 : seen.shown > 5000 ? 1 : 2;
  for (let at = 0; at < head.count; at++) {
    if (colours[at] === NOT_SHOWN) continue;
    const x = Math.round(points[2 * at] * scale + shift[0]);
    const y = Math.round(points[2 * at + 1] * scale + shift[1]);
    for (let row = Math.max(y - reach, 0); row <= Math.min(y + reach, canvas.height - 1); row++) {
      for (let column = Math.max(x - reach, 0); column <= Math.min(x + reach, canvas.width - 1); column++) {
        const [red, green, blue] = table[colours[at]];
        picture.data.set([red, green, blue, 255], 4 * (row * canvas.width + column));
      }
    }
  }
  pen.putImageData(picture, 0, 0);
  legend(box.querySelector(".legend"), head, table);
  status.textContent = `${seen.shown.toLocaleString("en")} points` + (head.step > 1 ? `, one of every ${head.step} rows` : "") + ".";
  lasso(box, canvas, pen, picture, { points, colours, step: head.step, scale, shift });
}

function lasso(box, canvas, pen, picture, map) {
  let line = null;
  const place = (event) => {
    const edges = canvas.getBoundingClientRect();
    return [(event.clientX - edges.left) * canvas.width / edges.width, (event.clientY - edges.top) * canvas.height / edges.height];
  };
  canvas.addEventListener("pointerdown", (event) => { line = [place(event)]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!line) return;
    line.push(place(event));
    pen.putImageData(picture, 0, 0);
    pen.strokeStyle = getComputedStyle(document.body).color;
    pen.beginPath();
    line.forEach(([x, y]) => pen.lineTo(x, y));
    pen.closePath();
    pen.stroke();
  });
  canvas.addEventListener("pointerup", () => {
    const corners = line;
    line = null;
    const far = Math.max(...corners.map(([x, y]) => Math.hypot(x - corners[0][0], y - corners[0][1])));
    if (far < 5) { open(box, map, corners[0]); return; }
    const step = Math.ceil(corners.length / MOST_CORNERS);
    const side = Number(box.dataset.side);
    const within = (value) => Math.min(Math.max(Math.round(value), 0), side);
    const lasso = corners.filter((_, at) => at % step === 0)
      .map((corner) => [0, 1].map((axis) => within((corner[axis] - map.shift[axis]) / map.scale * side / LARGEST)).join("."));
    if (lasso.length < 3) { pen.putImageData(picture, 0, 0); return; }
    const there = new URL(box.dataset.here, location.href);
    there.searchParams.set("lasso", lasso.join("."));
    location.href = there.href;
  });
}

function open(box, map, [x, y]) {
  let [best, least] = [-1, 15 * 15];
  for (let at = 0; at < map.colours.length; at++) {
    if (map.colours[at] === NOT_SHOWN) continue;
    const far = (map.points[2 * at] * map.scale + map.shift[0] - x) ** 2 + (map.points[2 * at + 1] * map.scale + map.shift[1] - y) ** 2;
    if (far < least) [best, least] = [at, far];
  }
  if (best >= 0) location.href = `${box.dataset.row}?number=${best * map.step}`;
}

async function send(input) {
  const status = input.form.querySelector(".told");
  const file = input.files[0];
  if (!file) return;
  const answer = await fetch(input.dataset.picture, { method: "POST", body: file, headers: { "content-type": "application/octet-stream" } });
  const text = await answer.text();
  let found = {};
  try { found = JSON.parse(text); } catch { found = { message: text }; }
  if (!answer.ok) { status.textContent = found.message; return; }
  const there = new URL(input.form.action);
  for (const [name, value] of new FormData(input.form)) {
    if (typeof value === "string" && name !== "like") there.searchParams.append(name, value);
  }
  there.searchParams.set("picture", found.picture);
  location.href = there.href;
}

document.querySelectorAll("[data-map]").forEach((box) => drawMap(box).catch((error) => {
  box.nextElementSibling.textContent = error.message;
}));
document.querySelectorAll("[data-picture]").forEach((input) => input.addEventListener("change", () => send(input)));
