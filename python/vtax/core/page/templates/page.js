/* Draws every figure in the page's own colours; timelines can be zoomed by dragging. */
(() => {
  const sources = plots.read().plots;
  const paperWidth = 690;  // CSS pixels on A4

  plots.keepDrawn((element, printing) => {
    const style = getComputedStyle(document.documentElement);
    const { data, layout } = plots.resolved(sources[Number(element.dataset.index)], style);
    if (printing) layout.width = paperWidth;
    return Plotly.react(element, data, layout, plots.config);
  });
})();

/* In a flame graph, a frame that is clicked fills the width; what is not above or below it is
   hidden. */
(() => {
  const place = (frame) => [Number(frame.dataset.left), Number(frame.dataset.width)];
  const slack = 1e-6;  // the places are rounded

  for (const graph of document.querySelectorAll(".flame")) {
    const frames = [...graph.querySelectorAll("button")];
    const show = (chosen) => {
      const [from, whole] = place(chosen);
      for (const frame of frames) {
        const [left, width] = place(frame);
        const start = Math.max(left, from);
        const end = Math.min(left + width, from + whole);
        frame.hidden = end - start < slack;
        frame.style.left = `${100 * (start - from) / whole}%`;
        frame.style.width = `${100 * (end - start) / whole}%`;
      }
    };
    for (const frame of frames) frame.addEventListener("click", () => show(frame));
  }
})();
