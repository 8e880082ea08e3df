// Draws each canvas when it becomes visible: Chart.js cannot measure one inside a closed <details>.
(function () {
  "use strict";
  var data = JSON.parse(document.getElementById("charts").textContent);
  var style = getComputedStyle(document.body);
  function color(name) { return style.getPropertyValue(name).trim(); }
  var blue = color("--link"), red = color("--bad"), gray = color("--quiet");
  Chart.defaults.color = color("--quiet");
  Chart.defaults.borderColor = color("--line");
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.plugins.legend.labels.boxWidth = 12;

  function title(text) { return { display: true, text: text }; }
  function short(value) { return Number(value).toPrecision(4).replace(/\.?0+($|e)/, "$1"); }

  var configs = {
    histogram: function (d) {
      return {
        type: "bar",
        data: {
          labels: d.histogram.centers.map(short),
          datasets: [
            { label: "reference", data: d.histogram.reference, backgroundColor: gray + "99", barPercentage: 1, categoryPercentage: 1, grouped: false },
            { label: "candidate", data: d.histogram.candidate, backgroundColor: blue + "80", barPercentage: 1, categoryPercentage: 1, grouped: false }
          ]
        },
        options: { scales: { x: { title: title("value"), ticks: { maxTicksLimit: 6 } }, y: { title: title("elements") } } }
      };
    },
    scatter: function (d) {
      var ends = d.scatter.ends.map(function (v) { return { x: v, y: v }; });
      return {
        data: {
          datasets: [
            { type: "scatter", label: "element", data: d.scatter.points, backgroundColor: blue + "99", pointRadius: 2 },
            { type: "line", label: "equal", data: ends, borderColor: gray, borderWidth: 1, pointRadius: 0 }
          ]
        },
        options: { scales: { x: { type: "linear", title: title("reference"), ticks: { maxTicksLimit: 6 } }, y: { title: title("candidate") } } }
      };
    },
    error: function (d) {
      var sets = [{ type: "scatter", label: "error", data: d.error.points, backgroundColor: blue + "99", pointRadius: 2 }];
      if (d.error.allowed.length) {
        sets.push({ type: "line", label: "allowed", data: d.error.allowed, borderColor: red, borderWidth: 1.5, pointRadius: 0 });
      }
      return {
        data: { datasets: sets },
        options: { scales: { x: { type: "linear", title: title("reference"), ticks: { maxTicksLimit: 6 } }, y: { beginAtZero: true, title: title("|candidate - reference|") } } }
      };
    },
    layers: function (d) {
      return {
        type: "line",
        data: {
          labels: d.titles,
          datasets: [
            { label: "candidate", data: d.error, borderColor: blue, backgroundColor: blue, borderWidth: 1.5, pointRadius: d.error.length > 200 ? 0 : 2 },
            { label: "rounding", data: d.rounding, borderColor: gray, backgroundColor: gray, borderWidth: 1, pointRadius: 0 }
          ]
        },
        options: {
          interaction: { mode: "index", intersect: false },
          plugins: { tooltip: { callbacks: { afterTitle: function (items) { return d.locations[items[0].dataIndex]; } } } },
          scales: {
            x: { ticks: { display: false }, grid: { display: false }, title: title("layers, in the order of execution") },
            y: { type: "logarithmic", title: title("error"), ticks: { callback: function (v) { return Number.isInteger(Math.log10(v)) ? v.toExponential() : null; } } }
          }
        }
      };
    }
  };

  function draw(canvas) {
    if (canvas.dataset.drawn || canvas.closest("details:not([open])")) { return; }
    canvas.dataset.drawn = "yes";
    new Chart(canvas, configs[canvas.dataset.kind](data[canvas.dataset.chart]));
  }
  function drawAll() { document.querySelectorAll("canvas[data-chart]").forEach(draw); }
  document.addEventListener("toggle", drawAll, true);
  drawAll();
})();
