"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (v) => (v == null ? "–" : v !== 0 && Math.abs(v) < 0.001 ? v.toExponential(1) : String(Number(v.toPrecision(4))));
  const value = (_, v) => short(v);
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  charts.forEach(({ series }, number) => {
    const place = document.getElementById(`chart-${number}`);
    const lines = series.map((s) => ({ label: s.label, stroke: color(`--s${s.run}`), width: 2, spanGaps: true, value }));
    const axes = [{ ...axis, size: 28 }, { ...axis, size: 62, values: (_, marks) => marks.map(short) }];
    const data = series.length > 1 ? uPlot.join(series.map((s) => [s.x, s.y])) : [series[0].x, series[0].y];
    const look = { width: place.clientWidth, height: 210, scales: { x: { time: false } }, cursor: { y: false }, axes };
    new uPlot({ ...look, series: [{ label: "step", value }, ...lines] }, data, place);
  });
})();
