// A classic script in the head, so that the chosen theme applies before the first paint.
(() => {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage is forbidden: keep the system's theme.
  }
})();
