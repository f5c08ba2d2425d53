"use strict";
/* What every page with figures shares. */
const plots = (() => {
  /* The page's figures: {"$": N} stands for entry N of what they share. */
  const read = () => {
    const { shared, ...figures } = JSON.parse(document.getElementById("figures").textContent);
    const whole = (value) => {
      if (value === null || typeof value !== "object") return value;
      if (Array.isArray(value)) return value.map(whole);
      if ("$" in value) return whole(shared[value.$]);
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, whole(item)]));
    };
    return whole(figures);
  };

  /* A copy of a figure in which every "var(--name)" is the colour that the page has for it. */
  const resolved = (value, style) => {
    if (typeof value === "string") {
      const name = /^var\((--[a-z0-9-]+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => resolved(item, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, resolved(item, style)]));
  };

  const config = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false,
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["zoom2d", "pan2d", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d",
      "autoScale2d", "resetScale2d", "sendChartToCloud"],
    toImageButtonOptions: { format: "svg", filename: "vtax-figure" },
  };

  /* Draws every figure now and whenever its colours or its width change; paper is light and as wide
     as it is, whatever the screen. Returns what draws them again. */
  const keepDrawn = (draw) => {
    let printing = false;
    const all = () =>
      Promise.all([...document.querySelectorAll(".plot")].map((each) => draw(each, printing)));
    const print = (now) => {
      printing = now;
      document.documentElement.classList.toggle("printing", now);
      all();
    };
    window.addEventListener("beforeprint", () => print(true));
    window.addEventListener("afterprint", () => print(false));
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
    all().then(() => { document.documentElement.dataset.drawn = "yes"; });
    return all;
  };

  return { read, resolved, config, keepDrawn };
})();
