// What a route says line by line: each line is a piece of JSON, the last has `end`.

// Gives each piece as it comes. Throws the words of an error that ends it.
export async function* lines(path, options = {}) {
  let reply;
  try {
    reply = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") return;
    throw new Error("the server does not answer; try again");
  }
  if (!reply.ok) throw new Error(await refusal(reply));
  yield* split(reply.body.getReader());
}

async function* split(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  let ended = false;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = parts.pop();
      for (const part of parts) {
        const said = JSON.parse(part);
        if ("end" in said) {
          ended = true;
          if (said.end !== null) throw new Error(said.end);
        } else yield said;
      }
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error instanceof TypeError) throw new Error("the connection was lost; try again");
    throw error;
  }
  if (!ended) throw new Error("the answer broke off; try again");
}

async function refusal(reply) {
  try {
    const { error } = await reply.json();
    return error.remedy ? `${error.message}; ${error.remedy}` : error.message;
  } catch {
    return `the server refused it (${reply.status}); load the page again`;
  }
}
