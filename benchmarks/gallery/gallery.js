// One panel per method, all driven by one player; buttons choose the target.
(() => {
  const targets = JSON.parse(document.getElementById("gallery").textContent);
  const panels = [...document.querySelectorAll(".tiles canvas")].map(
    (canvas) =>
      new Panel(canvas, {
        colour: canvas.dataset.colour,
        axes: false,
        note: canvas.parentElement.querySelector(".note"),
      }),
  );
  const player = new Player(document.getElementById("film"), panels);
  const buttons = [...document.querySelectorAll("#targets button")];
  const choose = (i) => {
    const target = targets[i];
    buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(k === i)));
    document.getElementById("sentence").textContent = target.sentence;
    const background = new Image();
    background.addEventListener("load", () => player.draw());
    background.src = target.background;
    panels.forEach((panel, k) => {
      panel.background = background;
      panel.show(unpack(target.films[k]), 0, 1);
    });
    player.load();
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => choose(i)));
  choose(0);
})();
