// Questions to the server. What goes wrong is an answer with an error, in words.

const silent = {error: 'the dashboard does not answer; try again'};

async function answer(reply) {
  try {
    return await (await reply).json();
  } catch {
    return silent;
  }
}

// fetched asks with words, of which empty ones are left out.
export function fetched(path, words) {
  return answer(fetch(`${path}?${new URLSearchParams(Object.entries(words).filter(([, word]) => word))}`));
}

// send asks for something to be done.
export function send(path, body) {
  return answer(fetch(path, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)}));
}
