for (const button of document.querySelectorAll("button.copy")) {
  const text = button.previousElementSibling;
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    let copied = true;
    try {
      await navigator.clipboard.writeText(button.dataset.copy || text.textContent);
    } catch {
      const range = document.createRange();
      const codes = [...text.querySelectorAll("code")];
      range.selectNodeContents(codes.find((code) => code.textContent === button.dataset.copy) || text);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}
const open = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
};
addEventListener("hashchange", open);
open();
// On paper a folded part is one line, except where it tells what failed.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details[data-print]:not([open])")];
  for (const part of opened) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of opened) part.open = false;
});
const UNITS = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
const amount = (text) => {
  const found = text.match(/(-?\d+(?:\.\d+)?)\s*([KMGT]iB)?/);
  return found ? Number(found[1]) * (UNITS[found[2]] || 1) : NaN;
};
const cellText = (row, column) => row.cells[column].textContent.replace(/[★▽▲°✖●○•]/g, "").trim();
const sorted = (rows, column, numeric, sign) => {
  const known = rows.filter((row) => cellText(row, column) !== "–");
  const compare = numeric
    ? (one, other) => amount(cellText(one, column)) - amount(cellText(other, column))
    : (one, other) => cellText(one, column).localeCompare(cellText(other, column), "en", { numeric: true });
  known.sort((one, other) => sign * compare(one, other));
  return [...known, ...rows.filter((row) => !known.includes(row))];
};
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const rows = [...body.rows].filter((row) => !row.classList.contains("total"));
  const totals = [...body.rows].filter((row) => row.classList.contains("total"));
  const heads = [...table.tHead.rows[0].cells];
  for (const [column, head] of heads.entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const order = { ascending: "descending", descending: null }[head.getAttribute("aria-sort")];
      for (const other of heads) other.removeAttribute("aria-sort");
      const now = order === undefined ? "ascending" : order;
      if (now) head.setAttribute("aria-sort", now);
      const numeric = head.classList.contains("num");
      body.append(...(now ? sorted(rows, column, numeric, now === "ascending" ? 1 : -1) : rows), ...totals);
    });
  }
}
for (const svg of document.querySelectorAll(".chart svg")) {
  const columns = [...svg.querySelectorAll(".at")];
  if (!columns.length) continue;
  const values = svg.parentElement.querySelector(".values");
  let at = -1;
  const show = (index) => {
    if (at >= 0) columns[at].classList.remove("on");
    at = Math.min(Math.max(index, 0), columns.length - 1);
    columns[at].classList.add("on");
    values.textContent = columns[at].textContent;
    svg.setAttribute("aria-valuenow", at);
    svg.setAttribute("aria-valuetext", values.textContent);
  };
  values.textContent = "Values: point at a moment, or use ← and →.";
  values.hidden = false;
  svg.setAttribute("role", "slider");
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("aria-valuemin", 0);
  svg.setAttribute("aria-valuemax", columns.length - 1);
  svg.setAttribute("aria-valuenow", 0);
  svg.setAttribute("aria-valuetext", columns[0].textContent);
  svg.addEventListener("pointermove", (event) => {
    const index = columns.indexOf(event.target);
    if (index >= 0) show(index);
  });
  svg.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: columns.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
}
