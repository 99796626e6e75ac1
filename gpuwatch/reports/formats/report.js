for (const button of document.querySelectorAll("button.copy")) {
  const text = button.previousElementSibling;
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    let copied = true;
    try {
      await navigator.clipboard.writeText(button.dataset.copy || text.textContent);
    } catch {
      const range = document.createRange();
      const codes = [...text.querySelectorAll("code")];
      range.selectNodeContents(codes.find((code) => code.textContent === button.dataset.copy) || text);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}
const open = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
};
addEventListener("hashchange", open);
open();
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
});
