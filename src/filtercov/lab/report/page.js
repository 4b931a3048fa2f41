// What every page can do: copy code, and sort tables.
"use strict";

// A button marked data-copy copies the code beside it, or selects it where a page opened from a disk has no clipboard.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

// A table in .sortable sorts by the column whose heading is pressed, and the other way when it is pressed again.
for (const table of document.querySelectorAll(".sortable table")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const [body, descending] = [table.tBodies[0], heading.getAttribute("aria-sort") === "ascending"];
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const cell = (row) => row.cells[column].textContent;
      body.append(...[...body.rows].sort((a, b) => compare(cell(a), cell(b), descending)));
    });
  });
}

// Numbers go before words, and empty cells last, whichever way.
function compare(a, b, descending) {
  if (!a || !b) return (a ? 0 : 1) - (b ? 0 : 1);
  const number = (text) => Number(text.match(/^[a-z]?([+−-]?\d[\d,]*(\.\d+)?)/i)?.[1].replace("−", "-").replaceAll(",", "") ?? NaN);
  const [x, y] = [a, b].map(number);
  const order = Number.isNaN(x) - Number.isNaN(y) || x - y || a.localeCompare(b, undefined, { numeric: true });
  return descending ? -order : order;
}
