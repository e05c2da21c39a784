// A classic script in the head, so that a chosen theme is there before the first paint.
(() => {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be forbidden: the system's theme it is.
  }
})();
