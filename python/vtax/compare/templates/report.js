/* Draws the figures in the page's own colours, and makes the table sort and filter. */
(() => {
  const figures = plots.read();
  const hidden = new Set();
  const paperWidths = { bill: 690, ratio: 335, order: 690 };  // CSS pixels; A4 and Letter have room for both
  let scale = "linear";

  const draw = (element, printing) => {
    const source = figures[element.dataset.figure][Number(element.dataset.index)];
    const { data, layout, scales } = plots.resolved(source, getComputedStyle(document.documentElement));
    for (const trace of data) trace.visible = !hidden.has(trace.meta?.env);
    if (printing) layout.width = paperWidths[element.dataset.figure];
    if (scales) Object.assign(layout.xaxis, scales[scale]);
    element.style.minHeight = `${layout.height}px`;
    return Plotly.react(element, data, layout, plots.config);
  };
  const drawAll = plots.keepDrawn(draw);

  const showEnvironment = (env, shown) => {
    if (shown) hidden.delete(Number(env));
    else hidden.add(Number(env));
    for (const box of document.querySelectorAll(`input[data-env="${env}"]`)) box.checked = shown;
    for (const row of document.querySelectorAll(`tr[data-env="${env}"]`)) row.hidden = !shown;
    drawAll();
  };

  /* Rows without a value stay at the end, whichever way the table is sorted. */
  const compare = (kind, sign) => (a, b) => {
    if (a.key === "" || b.key === "") return (a.key === "") - (b.key === "");
    const order = kind === "number" ? Number(a.key) - Number(b.key) : a.key.localeCompare(b.key);
    return sign * order;
  };

  const sortBy = (button) => {
    const head = button.closest("th");
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentElement.children) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const keyed = [...body.rows].map((row) => {
      const cell = row.cells[head.cellIndex];
      return { row, key: cell.dataset.sort ?? cell.textContent.trim() };
    });
    keyed.sort(compare(button.dataset.kind, ascending ? 1 : -1));
    body.append(...keyed.map((item) => item.row));
  };

  for (const box of document.querySelectorAll("input[data-env]")) {
    box.addEventListener("change", () => showEnvironment(box.dataset.env, box.checked));
  }
  for (const radio of document.querySelectorAll("input[name=scale]")) {
    radio.addEventListener("change", () => { scale = radio.value; drawAll(); });
  }
  for (const button of document.querySelectorAll("#results-table thead button")) {
    button.addEventListener("click", () => sortBy(button));
  }
  document.getElementById("order-metric")?.addEventListener("change", (event) => {
    const plot = document.getElementById("order-plot");
    plot.dataset.index = event.target.value;
    plot.setAttribute("aria-label", figures.orderAlternatives[Number(event.target.value)]);
    draw(plot, false);
  });
  document.getElementById("only-differences").addEventListener("change", (event) => {
    document.getElementById("facts-table")
      .classList.toggle("only-differences", event.target.checked);
  });
})();
