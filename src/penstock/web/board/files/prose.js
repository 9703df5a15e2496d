// A sentence with the commands in it, which stand between backticks, as code.
const { h } = Vue;

export const prose = (text) =>
  String(text ?? "").split(/`([^`]+)`/).map((piece, place) => (place % 2 ? h("code", piece) : piece));
