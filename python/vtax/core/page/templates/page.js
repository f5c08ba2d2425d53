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
