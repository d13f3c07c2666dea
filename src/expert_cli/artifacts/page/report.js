"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const drawn = [];
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (value) => {
    if (value == null) return "";
    const size = Math.abs(value);
    if (size !== 0 && size < 0.001) return value.toExponential(1);
    return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 6 });
  };
  const draw = (place, chart) => {
    const data = chart.series.length > 1 ? uPlot.join(chart.series.map((s) => [s.x, s.y])) : [chart.series[0].x, chart.series[0].y];
    const axis = { stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const series = chart.series.map((s) => ({
      label: s.label, stroke: color(s.color), width: 2, spanGaps: true, points: { show: s.x.length < 30, size: 5 },
      value: (_, v) => (v == null ? "–" : `${short(v)} ${chart.unit}`.trim()),
    }));
    const floor = chart.zero ? { y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.08 : 1] } } : {};
    return new uPlot({
      width: place.clientWidth, height: 210, scales: { x: { time: false }, ...floor },
      legend: { markers: { width: 2 } }, cursor: { y: false },
      axes: [{ ...axis, size: 28 }, { ...axis, size: 62, values: (_, marks) => marks.map(short) }],
      series: [{ label: "step", value: (_, v) => (v == null ? "–" : short(v)) }, ...series],
    }, data, place);
  };
  const all = () => {
    while (drawn.length) drawn.pop().destroy();
    for (const chart of charts) drawn.push(draw(document.getElementById(chart.id), chart));
  };
  all();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) { width = innerWidth; all(); }
  });
})();
