for (const button of document.querySelectorAll("button.copy")) {
  const text = button.previousElementSibling;
  button.hidden = false;
  button.addEventListener("click", async () => {
    let copied = true;
    try {
      await navigator.clipboard.writeText(text.textContent);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(text);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
