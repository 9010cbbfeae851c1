// turns.mjs BASE_URL MODEL MODE [BLANKS]: openai-node and @anthropic-ai/sdk hold conversations of several turns. As turns.py beside it.
// It must lie beside (or below) a node_modules folder that has both packages.
import { readFileSync } from 'node:fs'
import OpenAI from 'openai'
import Anthropic from '@anthropic-ai/sdk'

const [base, model, mode, blanks] = process.argv.slice(2)
const version = name => JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url))).version
const bias = blanks && Object.fromEntries(JSON.parse(readFileSync(blanks)).map(i => [i, -100]))
const client = new OpenAI({ baseURL: base + '/v1', apiKey: 'sk-local', maxRetries: 0, timeout: 60000 })
const claude = new Anthropic({ baseURL: base, apiKey: 'sk-local', maxRetries: 0, timeout: 60000 })
const shell = { type: 'function', function: { name: 'shell', description: 'Run a command.', strict: true, parameters: {
  type: 'object', properties: { command: { type: 'string', enum: ['ls', 'pwd'] } }, required: ['command'], additionalProperties: false } } }
const system = 'You are a careful agent in JavaScript. ' + 'Look at the files before you say what is in them. '.repeat(40)

function tell (api, turn, headers, text, usage, tool = null) {
  let prompt = usage?.prompt_tokens ?? usage?.input_tokens ?? null
  let cached = usage?.prompt_tokens_details?.cached_tokens ?? usage?.input_tokens_details?.cached_tokens ?? null
  if (usage?.cache_read_input_tokens != null) {
    cached = usage.cache_read_input_tokens
    prompt = usage.input_tokens + cached + (usage.cache_creation_input_tokens ?? 0)
  }
  console.log(JSON.stringify({ client: api === 'messages' ? 'anthropic-node ' + version('@anthropic-ai/sdk') : 'openai-node ' + version('openai'),
    api, turn, engine: headers.get('x-warmring-engine') ?? '', session: headers.get('x-warmring-session') ?? '', text, tool, prompt, cached }))
}

async function chat (messages, turn, stream, more) {
  const body = { model, messages, max_tokens: more.tool_choice === 'none' ? 12 : 200, ...more }
  let text = ''; let calls = []; let usage = null; let headers
  if (stream) {
    const { data, response } = await client.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }).withResponse()
    headers = response.headers
    for await (const chunk of data) {
      usage = chunk.usage ?? usage
      for (const choice of chunk.choices) {
        text += choice.delta.content ?? ''
        for (const c of choice.delta.tool_calls ?? []) {
          const call = calls[c.index] ??= { id: '', type: 'function', function: { name: '', arguments: '' } }
          call.id = c.id || call.id
          call.function.name += c.function?.name ?? ''
          call.function.arguments += c.function?.arguments ?? ''
        }
      }
    }
  } else {
    const { data, response } = await client.chat.completions.create(body).withResponse()
    headers = response.headers; usage = data.usage
    text = data.choices[0].message.content ?? ''; calls = data.choices[0].message.tool_calls ?? []
  }
  tell('chat', turn, headers, text, usage, calls.map(c => c.function))
  return { role: 'assistant', content: text, ...(calls.length ? { tool_calls: calls } : {}) }
}

async function chatTurns () {
  const messages = [{ role: 'system', content: system }]; let turn = 0
  for (let question = 0; question < 3; question++) {
    let ask = `Question ${question + 1}: what is here?`; let more = {}
    if (question === 1 && mode === 'directive') {
      ask += ' [[call shell {"command":"ls"}]]'; more = { tools: [shell] }
    } else more = { tools: [shell], tool_choice: 'none' }
    if (question === 1 && mode === 'forced') more = { tools: [shell], tool_choice: { type: 'function', function: { name: 'shell' } }, logit_bias: bias, seed: 1 }
    messages.push({ role: 'user', content: ask })
    for (let i = 0; i < 4; i++) {
      turn++
      const message = await chat(messages, turn, turn % 2 === 0, more)
      messages.push(message)
      for (const call of message.tool_calls ?? []) {
        if (call.function.name !== 'shell' || !['ls', 'pwd'].includes(JSON.parse(call.function.arguments).command)) throw new Error(JSON.stringify(call))
        messages.push({ role: 'tool', tool_call_id: call.id, content: 'a.txt b.txt' })
      }
      if (!message.tool_calls) break
      if (mode === 'forced') more = { tools: [shell], tool_choice: 'none' }
    }
  }
}

async function responsesTurns () {
  const items = []
  for (let turn = 1; turn <= 3; turn++) {
    items.push({ role: 'user', content: `Question ${turn}: ` + 'tell me more about the files. '.repeat(20) })
    const { data, response } = await client.responses.create({ model, instructions: system, input: items, max_output_tokens: 12, stream: turn % 2 === 0 }).withResponse()
    let text = ''; let usage = null
    if (turn % 2 === 0) {
      for await (const event of data) {
        if (event.type === 'response.output_text.delta') text += event.delta
        else if (event.type === 'response.completed' || event.type === 'response.incomplete') usage = event.response.usage
      }
    } else { text = data.output_text; usage = data.usage }
    tell('responses', turn, response.headers, text, usage)
    items.push({ role: 'assistant', content: text })
  }
}

async function messagesTurns () {
  const messages = []
  for (let turn = 1; turn <= 3; turn++) {
    messages.push({ role: 'user', content: `Question ${turn}: ` + 'tell me more about these files. '.repeat(20) })
    const body = { model, system, messages, max_tokens: 12 }
    let answer, headers
    if (turn % 2 === 0) {
      const { data, response } = await claude.messages.stream(body).withResponse()
      headers = response.headers; answer = await data.finalMessage()
    } else {
      const { data, response } = await claude.messages.create(body).withResponse()
      headers = response.headers; answer = data
    }
    const text = answer.content.filter(p => p.type === 'text').map(p => p.text).join('')
    tell('messages', turn, headers, text, answer.usage)
    messages.push({ role: 'assistant', content: text })
  }
}

await chatTurns()
await responsesTurns()
await messagesTurns()
