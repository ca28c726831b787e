"use strict";
// Films of particles: panels that draw one frame each, and a player that moves all of them.

const OUTSIDE = 65535;
const LARGEST = 65534;

// The codes of a packed film: 16 bits, little-endian, of frames × particles × scalars.
const unpack = (film) => {
  const bytes = Uint8Array.from(atob(film.codes), (c) => c.charCodeAt(0));
  return { ...film, codes: new Uint16Array(bytes.buffer) };
};

// Call `draw` when the page has another size or other colours.
const whenShownAnew = (draw) => {
  window.addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
};

class Panel {
  // background: an image that fills the axes; colour: the name of a CSS variable; note: an
  // element for the captions of the frames.
  constructor(canvas, { colour = "--point", background = null, axes = true, note = null } = {}) {
    Object.assign(this, { canvas, colour, background, axes, note, pen: canvas.getContext("2d") });
  }

  show(film, across, up) {
    Object.assign(this, { film, across, up });
  }

  css(name) {
    return getComputedStyle(this.canvas).getPropertyValue(name);
  }

  // One canvas pixel per device pixel keeps text sharp and of the same size on every screen.
  fit() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (width !== this.width || height !== this.height || ratio !== this.ratio) {
      Object.assign(this, { width, height, ratio });
      [this.canvas.width, this.canvas.height] = [width * ratio, height * ratio];
    }
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  draw(k) {
    this.fit();
    const { pen, film, width, height } = this;
    const [left, bottom, edge] = this.axes ? [48, 40, 10] : [1, 1, 1];
    const [inner, tall] = [width - left - edge, height - bottom - edge];
    pen.clearRect(0, 0, width, height);
    if (this.background?.complete) pen.drawImage(this.background, left, edge, inner, tall);
    if (this.axes) this.label(left, bottom, edge);
    if (this.note) this.note.textContent = film.captions[k] ?? "";
    pen.save();
    pen.beginPath();
    pen.rect(left, edge, inner, tall);
    pen.clip();
    pen.fillStyle = this.css(this.colour);
    pen.globalAlpha = 0.75;
    // Smaller dots in the small panels of a phone.
    const size = Math.min(2.8, 1.1 + width / 250);
    const [, number, scalars] = film.shape;
    for (let i = 0; i < number; i += 1) {
      const row = (k * number + i) * scalars;
      const x = film.codes[row + this.across];
      // With a single scalar, particles are spread over the height by their number.
      const y = scalars > 1 ? film.codes[row + this.up] : (LARGEST * i) / Math.max(number - 1, 1);
      if (x === OUTSIDE || y === OUTSIDE) continue;
      pen.beginPath();
      pen.arc(left + (x / LARGEST) * inner, edge + (1 - y / LARGEST) * tall, size, 0, 2 * Math.PI);
      pen.fill();
    }
    pen.restore();
  }

  // Names and ends of both axes.
  label(left, bottom, edge) {
    const { pen, film, width, height } = this;
    const end = (axis, side) => {
      const value = film.limits[axis][side];
      return (film.log[axis] ? 10 ** value : value).toPrecision(2).replace(/\.0+(?=e|$)/, "");
    };
    const name = (axis) => film.names[axis] + (film.log[axis] ? " (log)" : "");
    pen.strokeStyle = this.css("--line");
    pen.strokeRect(left, edge, width - left - edge, height - bottom - edge);
    pen.fillStyle = this.css("--soft");
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.fillText(end(this.across, 0), left, height - bottom + 16);
    pen.textAlign = "right";
    pen.fillText(end(this.across, 1), width - edge, height - bottom + 16);
    pen.textAlign = "center";
    pen.fillText(name(this.across), (width + left - edge) / 2, height - 8);
    if (film.names.length < 2) return;
    pen.textAlign = "right";
    pen.fillText(end(this.up, 1), left - 5, edge + 10);
    pen.fillText(end(this.up, 0), left - 5, height - bottom);
    pen.save();
    pen.translate(14, (height - bottom + edge) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(name(this.up), 0, 0);
    pen.restore();
  }
}

class Player {
  // Elements with the classes play, frame and step inside `root`.
  constructor(root, panels) {
    this.panels = panels;
    this.timer = null;
    [this.button, this.slider, this.output] = ["play", "frame", "step"].map((name) =>
      root.querySelector(`.${name}`),
    );
    this.button.addEventListener("click", () => (this.timer === null ? this.play() : this.stop()));
    this.slider.addEventListener("input", () => {
      this.stop();
      this.draw();
    });
    whenShownAnew(() => this.draw());
  }

  // Call after the panels show other films.
  load(frame) {
    this.stop();
    this.last = Math.max(...this.panels.map((panel) => panel.film.steps.length)) - 1;
    this.slider.max = String(this.last);
    this.slider.value = String(frame ?? this.last);
    this.draw();
  }

  // Films may have different lengths: the shorter ones wait at their last frame.
  draw() {
    const k = Number(this.slider.value);
    for (const panel of this.panels) {
      const { steps } = panel.film;
      panel.draw(Math.min(k, steps.length - 1));
      if (k < steps.length) this.output.textContent = `step ${steps[k]}`;
    }
  }

  play() {
    if (Number(this.slider.value) >= this.last) this.slider.value = "0";
    this.button.textContent = "Pause";
    this.draw();
    this.timer = setInterval(() => {
      if (Number(this.slider.value) >= this.last) return this.stop();
      this.slider.value = String(Number(this.slider.value) + 1);
      return this.draw();
    }, 90);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Play";
  }
}
