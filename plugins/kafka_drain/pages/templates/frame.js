// Refresh the page without losing what is read: focus, opened details, ranges of charts.
// If embedded in Airflow: use its colours, also in nested frames, and open links to other pages
// outside this frame, which may not leave it by itself.
const page = (() => {
  const key = "kafka-drain " + location.pathname;
  let kept = {};
  try {
    kept = JSON.parse(sessionStorage.getItem(key)) || {};
    sessionStorage.removeItem(key);
  } catch { /* This browser keeps nothing for this page. */ }
  const all = (what) => [...document.querySelectorAll(what)];
  const controls = () => all("a, summary, button, [tabindex]");
  const reload = () => {
    kept.open = all("details").map((one) => one.open);
    kept.focus = controls().indexOf(document.activeElement);
    try { sessionStorage.setItem(key, JSON.stringify(kept)); } catch { /* as above */ }
    location.reload();
  };
  document.addEventListener("DOMContentLoaded", () => {
    all("details").forEach((one, number) => { one.open = (kept.open || [])[number] || one.open; });
    setTimeout(() => controls()[kept.focus]?.focus({preventScroll: true}));
    const every = Number(document.body.dataset.refresh);
    if (every) setTimeout(reload, every * 1000);
  });
  return kept;
})();
(() => {
  if (window.parent === window) return;
  const around = window.parent.document;
  const dark = () => {
    const colours = around.documentElement.classList.contains("dark") ? "dark" : "light";
    document.documentElement.className = colours;
    for (const inner of document.querySelectorAll("iframe"))
      inner.src = inner.src.split("?")[0] + "?embedded=true&colours=" + colours;
    // A report has no script of its own.
    for (const link of document.querySelectorAll("a[data-report]"))
      link.href = link.href.split("?")[0] + "?colours=" + colours;
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
