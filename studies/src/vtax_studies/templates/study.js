/* Draws every panel in the page's own colours. */
(() => {
  const sources = plots.read().plots;
  const paperWidths = { "columns-1": 690, "columns-2": 335, "columns-3": 335 };  // CSS pixels on A4
  let printing = false;

  const draw = (element) => {
    const style = getComputedStyle(document.documentElement);
    const { data, layout } = plots.resolved(sources[Number(element.dataset.index)], style);
    if (printing) layout.width = paperWidths[element.closest(".grid").classList[1]];
    return Plotly.react(element, data, layout, plots.config);
  };
  const drawAll = () => Promise.all([...document.querySelectorAll(".plot")].map(draw));

  /* Paper is light and as wide as it is, whatever the screen. */
  const print = (now) => {
    printing = now;
    document.documentElement.classList.toggle("printing", now);
    drawAll();
  };
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll().then(() => { document.documentElement.dataset.drawn = "yes"; });
})();
