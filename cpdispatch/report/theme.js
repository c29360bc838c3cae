// Light or dark: as the reader's system is, until the button says otherwise.
let themeChanged = () => {};
const isDark = () => document.documentElement.dataset.theme === "dark";

function theme(name) {
  document.documentElement.dataset.theme = name;
  themeChanged();
}

function themed(repaint) {
  const prefers = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => theme(prefers.matches ? "dark" : "light");
  themeChanged = repaint;
  follow();
  prefers.addEventListener("change", follow);
  document.getElementById("theme").addEventListener("click", () => theme(isDark() ? "light" : "dark"));
}
