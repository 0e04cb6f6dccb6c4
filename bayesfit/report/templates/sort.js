"use strict";
// Tables whose headings sort their rows, by number where there is one.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.querySelectorAll("th[data-sort]")];
  headings.forEach((heading, column) => heading.addEventListener("click", () => {
    const up = heading.dataset.sort !== "up";
    headings.forEach((each) => { each.dataset.sort = ""; });
    heading.dataset.sort = up ? "up" : "down";
    const body = table.tBodies[0];
    const value = (row) => {
      const text = row.cells[column].textContent.trim(), number = parseFloat(text);
      return Number.isNaN(number) ? text : number;
    };
    const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
    [...body.rows].sort((a, b) => (up ? 1 : -1) * compare(value(a), value(b))).forEach((row) => body.append(row));
  }));
}
