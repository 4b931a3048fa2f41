// Tables inside .sortable sort by the column whose heading is pressed, and the other way when it is pressed again.
"use strict";

for (const table of document.querySelectorAll(".sortable table")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => sort(table, headings, column));
  });
}

function sort(table, headings, column) {
  const descending = headings[column].getAttribute("aria-sort") === "ascending";
  headings.forEach((heading) => heading.removeAttribute("aria-sort"));
  headings[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  const keys = new Map(rows.map((row) => [row, key(row.cells[column].textContent)]));
  rows.sort((a, b) => compare(keys.get(a), keys.get(b), descending));
  table.tBodies[0].append(...rows);
}

// A cell counts as a number if it begins with one, after letters as in k9; cells without anything go last.
function key(text) {
  const number = text.match(/^[a-z]?([+−-]?\d+(\.\d+)?)/i);
  return { text, number: number ? Number(number[1].replace("−", "-")) : null };
}

function compare(a, b, descending) {
  if (!a.text || !b.text) return (a.text ? 0 : 1) - (b.text ? 0 : 1);
  const order = a.number !== null && b.number !== null ? a.number - b.number : a.text.localeCompare(b.text);
  return descending ? -order : order;
}
