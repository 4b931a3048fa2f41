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

function key(text) {
  return { text, number: number(text) };
}

// Times, as in 1:01:11, 12 min and 2.3 h, count as seconds; other cells as the number that they begin with, after a
// letter as in k9.
function number(text) {
  if (/^\d+(:\d\d)+$/.test(text)) return text.split(":").reduce((sum, part) => 60 * sum + Number(part), 0);
  const found = text.match(/^[a-z]?([+−-]?\d[\d,]*(?:\.\d+)?)(?: (min|h)\b)?/i);
  return found && Number(found[1].replace("−", "-").replaceAll(",", "")) * ({ min: 60, h: 3600 }[found[2]] ?? 1);
}

// Cells with a number go before those with words alone; cells without anything go last, whichever way.
function compare(a, b, descending) {
  if (!a.text || !b.text) return (a.text ? 0 : 1) - (b.text ? 0 : 1);
  const words = (a.number === null) - (b.number === null);
  const order = words || a.number - b.number || a.text.localeCompare(b.text, undefined, { numeric: true });
  return descending ? -order : order;
}
