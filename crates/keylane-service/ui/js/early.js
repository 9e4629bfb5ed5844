// Sets the theme before anything is drawn, so that a dark page does not begin with a flash. Not a module: those wait.

(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("keylane-theme");
  } catch {
    // Without storage the system's theme holds.
  }
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
})();
