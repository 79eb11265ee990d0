// Requests to the server of this page. Every refusal becomes an Error that says why.

const token = document.querySelector("meta[name=page-token]").content;

async function answer(response) {
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? `${response.status} ${response.statusText}`);
  return body;
}

export async function get(path, query = {}) {
  const text = new URLSearchParams(query).toString();
  return answer(await fetch(`/api/${path}${text ? `?${text}` : ""}`));
}

export async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Stream-RL-Token": token };
  return answer(await fetch(`/api/${path}`, { method: "POST", headers, body: JSON.stringify(body) }));
}
