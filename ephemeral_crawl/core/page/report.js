"use strict";
// Tables sort by a click on a column's name; cells without a number come last.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const rows = [...body.rows];
    const numeric = rows.some((row) => "number" in row.cells[column].dataset);
    const before = head.getAttribute("aria-sort");
    const up = before ? before === "descending" : !numeric; // numbers: largest first
    const key = (row) => {
      const cell = row.cells[column];
      return numeric ? cell.dataset.number : cell.textContent.trim();
    };
    const empty = (k) => k === undefined || k === "";
    rows.sort((a, b) => {
      const x = key(a), y = key(b);
      if (empty(x) || empty(y)) return empty(x) - empty(y);
      const order = numeric ? x - y : x.localeCompare(y, undefined, { numeric: true });
      return up ? order : -order;
    });
    body.append(...rows);
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  }));
}
// Hovering over an entry of a legend highlights its curve; a click keeps it highlighted.
for (const svg of document.querySelectorAll(".several svg")) {
  let kept = null;
  const show = (series) => {
    svg.classList.toggle("focus", series !== null);
    for (const part of svg.querySelectorAll("[data-series]"))
      part.classList.toggle("on", part.dataset.series === series);
  };
  for (const entry of svg.querySelectorAll(".entry")) {
    const series = entry.dataset.series, toggle = () => {
      kept = kept === series ? null : series;
      for (const other of svg.querySelectorAll(".entry[role]"))
        other.setAttribute("aria-pressed", other.dataset.series === kept);
      show(kept);
    };
    if (entry.querySelector("text")) { // one of the parts of an entry is reached by the keyboard
      entry.setAttribute("tabindex", "0");
      entry.setAttribute("role", "button");
      entry.setAttribute("aria-pressed", "false");
    }
    entry.addEventListener("mouseenter", () => show(series));
    entry.addEventListener("mouseleave", () => show(kept));
    entry.addEventListener("click", toggle);
    entry.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle();
    });
  }
}
// Boxes that are wider than the page say so.
const mark = () => {
  for (const box of document.querySelectorAll(".scroll"))
    box.classList.toggle("over", box.scrollWidth > box.clientWidth + 1);
};
mark();
addEventListener("resize", mark);
document.querySelectorAll("details").forEach((box) => box.addEventListener("toggle", mark));
addEventListener("beforeprint", () => {
  for (const box of document.querySelectorAll("details")) box.open = true;
});
