// If embedded in Airflow: use its colours, also in nested frames, and open links to other pages
// outside this frame, which may not leave it by itself.
(() => {
  if (window.parent === window) return;
  const around = window.parent.document;
  const dark = () => {
    const colours = around.documentElement.classList.contains("dark") ? "dark" : "light";
    document.documentElement.className = colours;
    for (const inner of document.querySelectorAll("iframe"))
      inner.src = inner.src.split("?")[0] + "?colours=" + colours;
  };
  dark();
  document.addEventListener("DOMContentLoaded", dark);
  new MutationObserver(dark).observe(around.documentElement, {attributeFilter: ["class"]});
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-outside]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const copy = around.createElement("a");
    copy.href = link.href;
    copy.click();
  });
})();
