// Seconds as people say them, like everywhere else: 40 ms, 3.2 s, 12 s, 3m05s, 2h10m, 3d04h.
export function seconds(amount) {
  if (amount === null) return "never";
  if (amount < 0.0995) return `${Math.round(Math.max(0, amount) * 1000)} ms`;
  if (amount < 9.95) return `${amount.toFixed(1)} s`;
  if (amount < 99.5) return `${amount.toFixed(0)} s`;
  const whole = Math.round(amount);
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor((whole % 86400) / 3600))}h`;
}
