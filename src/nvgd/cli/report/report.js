// Panels of the report, whose two scalars are chosen: pairs of draws, and the film of the particles.
(() => {
  const read = (id) => unpack(JSON.parse(document.getElementById(id).textContent));

  // Fill the two choices in `root`; `draw` follows every choice.
  const choose = (root, panel, film, draw) => {
    const selects = ["across", "up"].map((name) => root.querySelector(`.${name}`));
    const show = () => panel.show(film, ...selects.map((select) => Number(select.value)));
    selects.forEach((select, i) => {
      film.names.forEach((name, k) => select.add(new Option(name, String(k))));
      select.value = String(film.first[i]);
      select.addEventListener("change", () => {
        show();
        draw();
      });
    });
    root.querySelector(".chooser").hidden = film.names.length < 2;
    show();
  };

  const pair = document.getElementById("pair");
  if (pair) {
    const panel = new Panel(pair.querySelector("canvas"));
    const draw = () => panel.draw(0);
    choose(pair, panel, read("draws"), draw);
    whenShownAnew(draw);
    draw();
  }

  const root = document.getElementById("film");
  const panel = new Panel(root.querySelector("canvas"), { note: root.querySelector(".note") });
  const player = new Player(root, [panel]);
  choose(root, panel, read("animation"), () => player.draw());
  player.load();
})();
