/* A frame that is clicked fills the width; what is not above or below it is hidden. */
(() => {
  const frames = [...document.querySelectorAll(".flame button")];
  const place = (frame) => [Number(frame.dataset.left), Number(frame.dataset.width)];
  const slack = 1e-6;  // the places are rounded

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
  document.documentElement.dataset.drawn = "yes";
})();
