// The film of the report: one panel, whose two scalars are chosen.
(() => {
  const film = unpack(JSON.parse(document.getElementById("animation").textContent));
  const panel = new Panel(document.getElementById("canvas"), {
    note: document.querySelector("#film .note"),
  });
  const player = new Player(document.getElementById("film"), [panel]);
  const [across, up] = ["across", "up"].map((id) => document.getElementById(id));
  const show = () => panel.show(film, Number(across.value), Number(up.value));
  [across, up].forEach((select, i) => {
    film.names.forEach((name, k) => select.add(new Option(name, String(k))));
    select.value = String(film.first[i]);
    select.addEventListener("change", () => {
      show();
      player.draw();
    });
  });
  document.querySelector(".chooser").hidden = film.names.length < 2;
  show();
  player.load();
})();
