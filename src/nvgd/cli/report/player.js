"use strict";
// Animates the particles: each frame holds their first two scalars, drawn as (x, y).
(() => {
  const animation = JSON.parse(document.getElementById("animation").textContent);
  const canvas = document.getElementById("canvas");
  const slider = document.getElementById("frame");
  const button = document.getElementById("play");
  const label = document.getElementById("step");
  const pen = canvas.getContext("2d");
  const last = animation.steps.length - 1;
  const [pad, edge] = [44, 12];
  let [width, height] = [0, 0];

  // With a single scalar, y is the index of the particle, scaled to [0, 1].
  const point = (row, i, n) => [row[0], row.length > 1 ? row[1] : i / Math.max(n - 1, 1)];
  const points = animation.positions.map((rows) => rows.map((row, i) => point(row, i, rows.length)));

  // Axis limits: the 1st and 99th percentiles over all frames, with a margin.
  const range = (axis) => {
    const values = points.flat().map((p) => p[axis]).sort((a, b) => a - b);
    const at = (share) => values[Math.round(share * (values.length - 1))];
    const [low, high] = [at(0.01), at(0.99)];
    const margin = 0.08 * (high - low) || 1;
    return [low - margin, high + margin];
  };
  const [xs, ys] = [range(0), range(1)];
  const place = ([x, y]) => [
    pad + ((x - xs[0]) / (xs[1] - xs[0])) * (width - pad - edge),
    height - pad - ((y - ys[0]) / (ys[1] - ys[0])) * (height - pad - edge),
  ];

  // One canvas pixel per device pixel keeps text sharp and of the same size on every screen.
  const fit = () => {
    const ratio = window.devicePixelRatio || 1;
    [width, height] = [canvas.clientWidth, canvas.clientHeight];
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  };

  const draw = (k) => {
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = "#5b6675";
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.fillText(xs[0].toPrecision(3), pad, height - 24);
    pen.textAlign = "right";
    pen.fillText(xs[1].toPrecision(3), width - edge, height - 24);
    pen.textAlign = "center";
    pen.fillText(animation.names[0], (width + pad) / 2, height - 6);
    if (animation.names.length > 1) {
      pen.save();
      pen.translate(16, (height - pad) / 2);
      pen.rotate(-Math.PI / 2);
      pen.fillText(animation.names[1], 0, 0);
      pen.restore();
      pen.textAlign = "left";
      pen.fillText(ys[1].toPrecision(3), 4, 20);
      pen.fillText(ys[0].toPrecision(3), 4, height - pad);
    }
    pen.strokeStyle = "#d9dee5";
    pen.strokeRect(pad, edge, width - pad - edge, height - pad - edge);
    pen.save();
    pen.beginPath();
    pen.rect(pad, edge, width - pad - edge, height - pad - edge);
    pen.clip();
    pen.fillStyle = "rgba(59, 110, 168, 0.7)";
    for (const p of points[k]) {
      const [x, y] = place(p);
      pen.beginPath();
      pen.arc(x, y, 3, 0, 2 * Math.PI);
      pen.fill();
    }
    pen.restore();
    label.textContent = `step ${animation.steps[k]}`;
    slider.value = String(k);
  };

  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
  };
  button.addEventListener("click", () => {
    if (timer !== null) {
      stop();
      return;
    }
    let k = Number(slider.value) >= last ? 0 : Number(slider.value);
    button.textContent = "Pause";
    timer = setInterval(() => {
      draw(k);
      if (k >= last) stop();
      k += 1;
    }, 90);
  });
  slider.max = String(last);
  slider.addEventListener("input", () => {
    stop();
    draw(Number(slider.value));
  });
  window.addEventListener("resize", () => {
    fit();
    draw(Number(slider.value));
  });
  fit();
  draw(last);
})();
