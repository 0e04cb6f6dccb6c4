"use strict";
// The small pictures of all bins, and their filters.
const page = JSON.parse(document.getElementById("page").textContent);
const SVG = "http://www.w3.org/2000/svg";
const look = (verdict) => page.looks[verdict] || page.looks.poor_mixing;
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const shown = (value, digits = 5) => (value === null || value === undefined ? "–" : String(+value.toPrecision(digits)));
const error = (bin, place) => bin.sigma[place] ?? bin.stated[place];
const residual = (bin, place) => (bin.g2[place] - bin.mean[place]) / error(bin, place);
const drawn = (bin) => page.tau.map((_, place) => place).filter((place) => bin.g2[place] !== null);

function element(parent, name, attributes = {}, text = null) {
  const made = parent.namespaceURI === SVG || name === "svg" ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

function scale(low, high, from, to, log) {
  const f = log ? Math.log : (x) => x;
  const width = f(high) - f(low) || 1;
  return (value) => from + ((f(value) - f(low)) / width) * (to - from);
}

function path(places, x, y) {
  return places.map((place, number) => `${number ? "L" : "M"}${x(place).toFixed(1)},${y(place).toFixed(1)}`).join("");
}

function picture(card, bin) {
  const svg = element(card, "svg", { viewBox: "0 0 220 140", "aria-hidden": "true" });
  const times = page.tau.filter((t) => !page.log_tau || t > 0);
  const x = scale(times[0], times[times.length - 1], 6, 214, page.log_tau);
  const [low, high] = bin.limits, y = scale(low, high, 98, 4, false);
  const clipped = (value) => Math.min(Math.max(y(value), 3), 99);
  element(svg, "rect", { x: 2, y: 2, width: 216, height: 98, class: "frame", rx: 4 });
  const places = drawn(bin).filter((place) => !page.log_tau || page.tau[place] > 0);
  const band = places.filter((place) => bin.lower[place] !== null);
  const colour = look(bin.verdict).colour;
  for (const place of places) {
    const at = x(page.tau[place]), value = bin.g2[place];
    if (!bin.valid[place]) { element(svg, "circle", { cx: at, cy: clipped(value), r: 1.4, class: "masked" }); continue; }
    if (value < low || value > high) {
      const top = value > high, tip = top ? 4 : 98, foot = top ? 8 : 94;
      element(svg, "path", { d: `M${at - 2.2},${foot}L${at + 2.2},${foot}L${at},${tip}Z`, class: "data" });
      continue;
    }
    element(svg, "path", { d: `M${at},${clipped(value - error(bin, place))}V${clipped(value + error(bin, place))}`, class: "data" });
    element(svg, "circle", { cx: at, cy: y(value), r: 1.1, class: "data" });
  }
  if (band.length > 1) {
    const to = (values) => (place) => clipped(values[place]), across = (place) => x(page.tau[place]);
    const back = [...band].reverse();
    element(svg, "path", { d: path(band, across, to(bin.lower)) + path(back, across, to(bin.upper)).replace("M", "L") + "Z", fill: colour, opacity: 0.3 });
    element(svg, "path", { d: path(band, across, to(bin.mean)), fill: "none", stroke: colour, "stroke-width": 1.6 });
    const r = scale(-4, 4, 138, 104, false);
    element(svg, "rect", { x: 2, y: r(2), width: 216, height: r(-2) - r(2), fill: "var(--grid)" });
    for (const place of band.filter((each) => bin.valid[each])) {
      const value = Math.max(-4, Math.min(4, residual(bin, place)));
      element(svg, "circle", { cx: x(page.tau[place]), cy: r(value), r: 1.1, class: "data" });
    }
  }
}

function named(bin) {
  return `bin ${bin.bin}` + (bin.q === null ? "" : `, q ${shown(bin.q, 3)}`) + (bin.angle === null ? "" : `, ${shown(bin.angle, 4)}°`) + (bin.phi === null || !page.bins.some((each) => each.phi !== bin.phi) ? "" : `, φ ${shown(bin.phi, 3)}°`);
}

function cards() {
  const grid = document.getElementById("bins");
  const later = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      later.unobserve(entry.target);
      picture(entry.target, page.bins[+entry.target.dataset.place]);
    }
  }, { rootMargin: "400px" });
  page.bins.forEach((bin, place) => {
    const card = element(grid, "button", { class: "card", "data-place": place, "data-verdict": bin.verdict, style: `--c:${look(bin.verdict).colour}`, title: bin.reason });
    const line = element(card, "span");
    element(line, "span", { class: "sign" }, `${look(bin.verdict).sign} `);
    element(line, "b", {}, named(bin));
    element(card, "small", {}, bin.verdict === "ok" ? "ok" : `${bin.verdict}: ${bin.reason}`);
    card.addEventListener("click", () => detail(place));
    later.observe(card);
  });
  addEventListener("beforeprint", () => {
    for (const card of grid.children) if (!card.querySelector("svg")) picture(card, page.bins[+card.dataset.place]);
  });
}

function filters() {
  const buttons = [...document.querySelectorAll("#filters button")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const wanted = button.dataset.verdict;
      buttons.forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
      for (const card of document.querySelectorAll(".card")) card.hidden = Boolean(wanted) && card.dataset.verdict !== wanted;
    });
  }
}
