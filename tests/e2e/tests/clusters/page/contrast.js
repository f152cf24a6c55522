// Every text that is shown: its colour, what is behind it, and the contrast of both as WCAG 2 defines it.
const parse = (text) => {
  const [red, green, blue, alpha = 1] = text.match(/[\d.]+/g).map(Number);
  return { parts: [red, green, blue], alpha };
};
const blend = (above, below) => above.parts.map((part, at) => part * above.alpha + below[at] * (1 - above.alpha));
const backgroundOf = (element) => {
  const parent = element.parentElement ? backgroundOf(element.parentElement) : [255, 255, 255];
  return blend(parse(getComputedStyle(element).backgroundColor), parent);
};
const luminance = (parts) => {
  const [red, green, blue] = parts.map((part) => {
    const value = part / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const isText = (element) =>
  [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()) &&
  element.checkVisibility();
const measure = (element) => {
  const background = backgroundOf(element);
  const text = blend(parse(getComputedStyle(element).color), background);
  const [dark, light] = [luminance(text), luminance(background)].sort((a, b) => a - b);
  const name = `${element.tagName}.${element.className}`;
  return { name, shown: element.innerText, colour: text, background, contrast: (light + 0.05) / (dark + 0.05) };
};
return [...document.body.querySelectorAll("*")].filter(isText).map(measure);
