"use strict";
// All about one bin, and the parameters of all bins over q: Bokeh draws what people zoom into.
const plotting = Bokeh.Plotting;

function figure(options) {
  const made = plotting.figure({ sizing_mode: "stretch_width", tools: "pan,box_zoom,wheel_zoom,reset,save", toolbar_location: "above", ...options });
  const soft = ink("--soft"), line = ink("--grid");
  made.background_fill_color = null;
  made.border_fill_color = null;
  made.outline_line_color = ink("--line");
  for (const axis of [made.xaxis, made.yaxis].flat()) {
    Object.assign(axis, { axis_label_text_color: soft, major_label_text_color: soft, axis_line_color: soft, major_tick_line_color: soft, minor_tick_line_color: null, axis_label_text_font_style: "normal", major_label_policy: new Bokeh.NoOverlap({ min_distance: 6 }) });
  }
  for (const grid of [made.xgrid, made.ygrid].flat()) grid.grid_line_color = line;
  made.toolbar.logo = null;
  return made;
}

function show(figures, target) {
  const place = document.createElement("div"); // of its own, since Bokeh draws a little later
  target.replaceChildren(place);
  plotting.show(figures, place);
}

function curves(bin, target) {
  const places = drawn(bin).filter((place) => !page.log_tau || page.tau[place] > 0);
  const at = (list, values) => list.map((place) => values[place]), colour = look(bin.verdict).colour;
  const axis = page.log_tau ? "log" : "linear", soft = ink("--soft");
  const times = page.tau.filter((t) => !page.log_tau || t > 0), first = times[0], last = times[times.length - 1];
  const margin = 0.04 * (last - first), x_range = page.log_tau ? [first / 1.5, last * 1.5] : [first - margin, last + margin];
  const above = figure({ height: 330, x_axis_type: axis, x_range, y_range: bin.limits, y_axis_label: page.labels[1], x_axis_label: page.labels[0] });
  const band = places.filter((place) => bin.lower[place] !== null);
  if (band.length) {
    const x = at(band, page.tau);
    above.varea({ x, y1: at(band, bin.lower), y2: at(band, bin.upper), fill_color: colour, fill_alpha: 0.3 });
    above.line({ x, y: at(band, bin.mean), line_color: colour, line_width: 2 });
  }
  const used = places.filter((place) => bin.valid[place]), masked = places.filter((place) => !bin.valid[place]);
  const x = at(used, page.tau), y = at(used, bin.g2), e = used.map((place) => error(bin, place));
  above.segment({ x0: x, x1: x, y0: y.map((v, i) => v - e[i]), y1: y.map((v, i) => v + e[i]), line_color: soft });
  above.scatter({ x, y, size: 4.5, fill_color: soft, line_color: null });
  above.scatter({ x: at(masked, page.tau), y: at(masked, bin.g2), size: 5, fill_color: null, line_color: soft, line_alpha: 0.4 });
  if (!band.length) return show(above, target);
  const residuals = figure({ height: 170, x_axis_type: axis, x_range: above.x_range, y_axis_label: "residual [sd]", x_axis_label: page.labels[0] });
  const ends = [x[0], x[x.length - 1]];
  residuals.varea({ x: ends, y1: [-2, -2], y2: [2, 2], fill_color: soft, fill_alpha: 0.15 });
  residuals.line({ x: ends, y: [0, 0], line_color: colour });
  residuals.scatter({ x, y: used.map((place) => residual(bin, place)), size: 4.5, fill_color: soft, line_color: null });
  show(plotting.gridplot([[above], [residuals]], { sizing_mode: "stretch_width", merge_tools: true, toolbar_location: "above" }), target);
}

function numbers(bin, place, target) {
  const table = element(target, "table"), head = element(table, "tr");
  for (const name of ["parameter", "median", "68 %", "95 %"]) element(head, "th", {}, name);
  for (const parameter of page.parameters) {
    const row = element(table, "tr", bin.known[parameter.name] === false ? { class: "vague", title: "the data hardly determine it" } : {});
    const inner = parameter.interval["0.68"][place], outer = parameter.interval["0.95"][place];
    element(row, "td", { title: parameter.about }, parameter.name + (parameter.unit ? ` [${parameter.unit}]` : ""));
    element(row, "td", {}, shown(outer[1]));
    element(row, "td", {}, outer[1] === null ? "–" : `${shown(inner[0])} to ${shown(inner[2])}`);
    element(row, "td", {}, outer[1] === null ? "–" : `${shown(outer[0])} to ${shown(outer[2])}`);
  }
}

function noise(bin, target) {
  const ratio = bin.checks.error_ratio;
  const words = ratio === null || ratio === undefined ? "" : `The noise is ${shown(ratio, 3)} times the stated errors, from neighbouring delays alone. `;
  const valid = bin.valid.reduce((sum, each) => sum + each, 0);
  element(target, "p", {}, `${words}${valid} of ${bin.valid.length} points are used.`);
  const table = element(target, "table");
  const meaning = { r_hat: "R-hat", ess_bulk: "ESS, bulk", ess_tail: "ESS, tail", divergences: "divergent transitions", p_chi2: "p of the size of residuals", p_correlation: "p of correlated neighbours", p_tails: "p of outliers", p_trend: "p of a trend of the noise" };
  for (const [name, words] of Object.entries(meaning)) {
    const row = element(table, "tr");
    element(row, "th", {}, words);
    element(row, "td", {}, shown(bin.checks[name], 3));
  }
}

function chains(bin, target) {
  const names = page.parameters.map((each) => each.name).filter((name) => bin.known[name] !== undefined);
  const colours = ["#0072B2", "#E69F00", "#009E73", "#CC79A7"];
  for (const name of names) {
    const draws = bin.draws[name];
    const flat = draws.flat().filter((value) => value !== null);
    if (!flat.length) continue;
    const svg = element(target, "svg", { viewBox: "0 0 400 62", role: "img", "aria-label": `chains of ${name}` });
    const x = scale(0, draws[0].length - 1, 4, 396), y = scale(Math.min(...flat), Math.max(...flat), 58, 14);
    element(svg, "text", { x: 4, y: 10 }, `${name}: chains`);
    draws.forEach((chain, number) => element(svg, "path", { d: path(chain.map((_, i) => i).filter((i) => chain[i] !== null), x, (i) => y(chain[i])), fill: "none", stroke: colours[number % colours.length], "stroke-width": 0.8, opacity: 0.8 }));
  }
}

function pairs(bin, target) {
  const names = page.parameters.map((each) => each.name).filter((name) => bin.known[name] !== undefined && bin.draws[name].flat().some((value) => value !== null));
  const size = 100, room = size * names.length + 16;
  if (names.length < 2) return;
  const svg = element(target, "svg", { viewBox: `0 0 ${room} ${room}`, role: "img", "aria-label": "pairs of parameters" });
  const colour = look(bin.verdict).colour;
  names.forEach((below, row) => names.slice(0, row + 1).forEach((across, column) => {
    const left = 14 + column * size, top = row * size;
    element(svg, "rect", { x: left, y: top, width: size - 6, height: size - 6, class: "frame" });
    const xs = bin.draws[across].flat(), ys = bin.draws[below].flat();
    const x = scale(Math.min(...xs), Math.max(...xs), left + 3, left + size - 9);
    if (row === column) {
      const counts = new Array(16).fill(0), low = Math.min(...xs), span = Math.max(...xs) - low || 1;
      xs.forEach((value) => { counts[Math.min(15, Math.floor((16 * (value - low)) / span))] += 1; });
      const most = Math.max(...counts), wide = (size - 12) / 16;
      counts.forEach((count, i) => element(svg, "rect", { x: left + 3 + i * wide, y: top + size - 8 - (count / most) * (size - 26), width: wide, height: (count / most) * (size - 26), fill: colour, opacity: 0.7 }));
      element(svg, "text", { x: left + 4, y: top + 10 }, across);
      return;
    }
    const y = scale(Math.min(...ys), Math.max(...ys), top + size - 9, top + 3);
    xs.forEach((value, i) => element(svg, "circle", { cx: x(value).toFixed(1), cy: y(ys[i]).toFixed(1), r: 1.2, fill: colour, opacity: 0.5 }));
  }));
}

function detail(place) {
  const bin = page.bins[place], dialog = document.getElementById("detail");
  dialog.replaceChildren();
  const head = element(dialog, "header");
  element(head, "h2", { id: "who" }, named(bin));
  const steps = { "← previous": place - 1, "next →": place + 1 };
  for (const [words, to] of Object.entries(steps)) {
    const button = element(head, "button", to < 0 || to >= page.bins.length ? { disabled: "" } : {}, words);
    button.addEventListener("click", () => detail(to));
  }
  element(head, "button", { autofocus: "" }, "close").addEventListener("click", () => dialog.close());
  const why = element(dialog, "p", { style: `--c:${look(bin.verdict).colour}` });
  element(why, "span", { class: "sign" }, `${look(bin.verdict).sign} `);
  element(why, "b", {}, bin.verdict);
  element(why, "span", {}, `: ${bin.reason}`);
  const two = element(dialog, "div", { class: "two" }), left = element(two, "div"), right = element(two, "div");
  const chart = element(left, "div", { class: "chart" });
  numbers(bin, place, element(left, "div", { class: "scroll" }));
  pairs(bin, right);
  chains(bin, right);
  noise(bin, right);
  if (!dialog.open) dialog.showModal();
  curves(bin, chart);
  dialog.scrollTop = 0;
}

function over() {
  const parameter = page.parameters[+document.getElementById("parameter").value];
  const mass = document.getElementById("mass").value, intervals = parameter.interval[mass], law = page.laws[parameter.name];
  const there = page.bins.map((_, place) => place).filter((place) => intervals[place][1] !== null);
  const by_q = there.length > 0 && there.every((place) => page.bins[place].q > 0);
  const x = (place) => (by_q ? page.bins[place].q : page.bins[place].bin);
  const middles = there.map((place) => intervals[place][1]);
  const many = Math.min(...middles) > 0 && Math.max(...middles) > 5 * Math.min(...middles);
  const made = figure({ height: 360, x_axis_type: by_q ? "log" : "linear", y_axis_type: many ? "log" : "linear", x_axis_label: by_q ? "q [1/Å]" : "bin", y_axis_label: parameter.name + (parameter.unit ? ` [${parameter.unit}]` : "") });
  if (law && by_q) {
    law.mean.forEach((mean, group) => {
      made.varea({ x: law.q, y1: law.lower[group], y2: law.upper[group], fill_color: ink("--accent"), fill_alpha: 0.25 });
      made.line({ x: law.q, y: mean, line_color: ink("--accent"), line_width: 2, legend_label: "what the bins have in common" });
    });
  }
  for (const verdict of Object.keys(page.verdicts)) {
    const own = there.filter((place) => page.bins[place].verdict === verdict);
    if (!own.length) continue;
    const colour = look(verdict).colour, xs = own.map(x), part = (end) => own.map((place) => Math.max(intervals[place][end], many ? 1e-300 : -Infinity));
    const alpha = own.map((place) => (page.bins[place].known[parameter.name] === false ? 0.35 : 1));
    const source = new Bokeh.ColumnDataSource({ data: { x: xs, low: part(0), y: part(1), high: part(2), alpha } });
    made.segment({ x0: { field: "x" }, x1: { field: "x" }, y0: { field: "low" }, y1: { field: "high" }, source, line_color: colour, line_width: 1.5, line_alpha: { field: "alpha" } });
    made.scatter({ x: { field: "x" }, y: { field: "y" }, source, size: 7, fill_color: colour, line_color: null, fill_alpha: { field: "alpha" }, legend_label: verdict });
  }
  if (made.legend) Object.assign(made.legend, { location: "top_left", background_fill_alpha: 0.6, background_fill_color: ink("--paper"), label_text_color: ink("--ink"), border_line_color: null });
  show(made, document.getElementById("over"));
}

function choices() {
  const select = document.getElementById("parameter");
  page.parameters.forEach((parameter, place) => element(select, "option", { value: place }, parameter.name));
  for (const id of ["parameter", "mass"]) document.getElementById(id).addEventListener("change", over);
  if (page.parameters.length) over();
}

cards();
filters();
choices();
addEventListener("keydown", (event) => {
  const dialog = document.getElementById("detail");
  const names = { ArrowLeft: 2, ArrowRight: 3 };
  if (dialog.open && event.key in names) dialog.querySelector(`header :nth-child(${names[event.key]})`).click();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (page.parameters.length) over(); });
