// Draw each chart of the page with uPlot, in place of its drawing: values under the pointer, and a
// range to look at. By keyboard: arrows move along the bars, plus and minus change the range.
(() => {
  const DAY = 86400, RANGES = [["Day", DAY], ["Week", 7 * DAY], ["Month", 31 * DAY], ["All", 0]];
  const plots = [];
  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || "gray";
  const number = (value) => value.toLocaleString("en-US", {maximumFractionDigits: 1});
  const size = (value) => {
    for (const [unit, factor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
      if (Math.abs(value) >= factor) return number(value / factor) + " " + unit;
    return number(value) + " bytes";
  };

  // Times as the rest of the page writes them; a day's name where it begins.
  const clock = (u, splits, axis, space, step) => splits.map((seconds, i) => {
    const text = new Date(seconds * 1000).toISOString(), day = text.slice(5, 10);
    if (step >= 28 * DAY) return text.slice(0, 7);
    if (step >= DAY) return day;
    const before = i && new Date(splits[i - 1] * 1000).toISOString().slice(5, 10);
    return text.slice(11, step >= 60 ? 16 : 19) + (day === before ? "" : "\n" + day);
  });

  const draw = (place, index) => {
    const it = JSON.parse(place.dataset.chart);
    const write = it.unit === "bytes" ? size : number;
    let at = it.start;
    const times = it.steps.map((step) => (at += step));
    const kinds = it.kinds.map(([name, words], kind) => ({
      name, words, values: it.values.map((value, i) => (it.kind[i] === kind ? value : null)),
    }));
    const ends = () => [times[0], times[times.length - 1]];
    const room = Math.max((ends()[1] - ends()[0]) / times.length / 2, 60);
    const full = () => ({min: ends()[0] - room, max: ends()[1] + room});
    place.textContent = "";
    const plot = new uPlot({
      width: place.clientWidth, height: 240,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: {
        x: {range: (u, min, max) => {
          const isAll = min === ends()[0] && max === ends()[1];
          const isPart = min < max && min >= full().min && max <= full().max;
          return isPart && !isAll ? [min, max] : [full().min, full().max];
        }},
        y: {range: (u, min, max) => [0, Math.max(max, 1) * 1.05]},
      },
      axes: [
        {stroke: () => colour("quiet"), grid: {stroke: () => colour("line"), width: 1},
          ticks: {stroke: () => colour("line"), width: 1}, values: clock},
        {stroke: () => colour("quiet"), grid: {stroke: () => colour("line"), width: 1},
          ticks: {show: false}, size: 84, values: (u, values) => values.map(write)},
      ],
      cursor: {drag: {x: true, y: false}, points: {show: false}},
      series: [
        {label: "UTC", value: "{YYYY}-{MM}-{DD} {HH}:{mm}"},
        ...kinds.map(({name, words}) => ({
          label: words, stroke: () => colour(name), fill: () => colour(name), width: 0,
          points: {show: false}, paths: uPlot.paths.bars({size: [0.8, 40, times.length > 300 ? 1 : 4]}),
          value: (u, value) => (value == null ? "" : write(value)),
        })),
      ],
      hooks: {
        setScale: [(u, scale) => {
          if (scale !== "x") return;
          page.ranges = page.ranges || {};
          page.ranges[index] = [u.scales.x.min, u.scales.x.max];
        }],
      },
    }, [times, ...kinds.map((kind) => kind.values)], place);
    const show = ({min, max}) => plot.setScale("x", {min, max});

    const buttons = document.createElement("p");
    buttons.className = "ranges";
    for (const [words, seconds] of RANGES) {
      if (seconds && seconds > ends()[1] - ends()[0]) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = words;
      button.setAttribute("aria-label", words + ": range of the chart " + it.label);
      button.addEventListener("click", () =>
        show(seconds ? {min: full().max - seconds, max: full().max} : full()));
      buttons.append(button);
    }
    if (buttons.childElementCount > 1) place.after(buttons);

    place.addEventListener("keydown", (event) => {
      const {min, max} = plot.scales.x, middle = (min + max) / 2, half = (max - min) / 2;
      const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      const factor = {"+": 0.5, "-": 2}[event.key];
      if (step) {
        const next = Math.min(Math.max((plot.cursor.idx ?? (step > 0 ? -1 : times.length)) + step, 0), times.length - 1);
        plot.setCursor({left: plot.valToPos(times[next], "x"), top: 10});
      } else if (factor) {
        show({min: Math.max(middle - half * factor, full().min), max: Math.min(middle + half * factor, full().max)});
      } else return;
      event.preventDefault();
    });
    const range = (page.ranges || {})[index];
    if (range) show({min: range[0], max: range[1]});
    new ResizeObserver(() => plot.setSize({width: place.clientWidth, height: 240})).observe(place);
    plots.push(plot);
  };
  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-chart]").forEach(draw);
    const again = () => plots.forEach((plot) => plot.redraw(false));
    new MutationObserver(again).observe(document.documentElement, {attributeFilter: ["class"]});
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  });
})();
