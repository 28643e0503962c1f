import assert from 'node:assert/strict'
import { test } from 'node:test'
import OpenAI, { toFile } from 'openai'
import { failure, gateway } from './gateway.mjs'

const client = (more = {}) => new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.key, maxRetries: 0, ...more })
const messages = [{ role: 'user', content: 'hi' }]
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false }

test('chat, as JSON and as a stream', async () => {
  const whole = await client().chat.completions.create({ model: 'demo-chat', messages })
  assert.equal(whole.model, 'demo-chat')
  assert.ok(whole.choices[0].message.content)
  let text = ''
  for await (const chunk of await client().chat.completions.create({ model: 'demo-chat', messages, stream: true })) {
    assert.equal(chunk.usage, undefined, 'usage without include_usage')
    text += chunk.choices[0].delta.content ?? ''
  }
  assert.equal(text, whole.choices[0].message.content)
  const runner = client().chat.completions.stream({ model: 'demo-chat', messages, stream_options: { include_usage: true } })
  assert.equal((await runner.totalUsage()).completion_tokens, whole.usage.completion_tokens)
})

test('chat calls tools', async () => {
  const body = {
    model: 'demo-chat', messages, tools: [{ type: 'function', function: { name: 'weather', parameters } }],
    tool_choice: { type: 'function', function: { name: 'weather' } },
  }
  const whole = await client().chat.completions.create(body)
  const [call] = whole.choices[0].message.tool_calls
  assert.equal(call.function.name, 'weather')
  const streamed = await client().chat.completions.stream(body).finalChatCompletion()
  assert.equal(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments)
  await client().chat.completions.create({
    ...body, tool_choice: 'none', messages: [...messages, whole.choices[0].message, { role: 'tool', tool_call_id: call.id, content: 'sunny' }],
  })
})

test('responses, as JSON and as a stream', async () => {
  const body = { model: 'demo-responses', input: 'hi', instructions: 'Be brief.' }
  const whole = await client().responses.create(body)
  assert.equal(whole.model, 'demo-responses')
  assert.equal(whole.status, 'completed')
  assert.ok(whole.output_text)
  const final = await client().responses.stream(body).finalResponse()
  assert.equal(final.output_text, whole.output_text)
  assert.deepEqual(final.usage, whole.usage)
})

test('responses call tools', async () => {
  const body = {
    model: 'demo-responses', input: 'hi', tools: [{ type: 'function', name: 'weather', parameters, strict: true }],
    tool_choice: { type: 'function', name: 'weather' },
  }
  const whole = await client().responses.create(body)
  const final = await client().responses.stream(body).finalResponse()
  for (const response of [whole, final]) {
    assert.equal(response.output[0].type, 'function_call')
    assert.equal(response.output[0].name, 'weather')
  }
  await client().responses.create({
    ...body, tool_choice: 'none',
    input: [{ role: 'user', content: 'hi' }, ...whole.output, { type: 'function_call_output', call_id: whole.output[0].call_id, output: 'sunny' }],
  })
})

test('images', async () => {
  const list = await client().images.generate({ model: 'demo-image', prompt: 'a boat', n: 2 })
  assert.equal(list.data.length, 2)
})

test('videos', async () => {
  let video = await client().videos.create({
    model: 'demo-video', prompt: 'a boat', seconds: '4', size: '1280x720', input_reference: await toFile(Buffer.from('\x89PNG'), 'boat.png', { type: 'image/png' }),
  })
  assert.match(video.id, /^video_/)
  while (video.status === 'queued' || video.status === 'in_progress') {
    video = await client().videos.retrieve(video.id)
  }
  assert.equal(video.status, 'completed')
  assert.equal(video.seconds, '4')
  const content = await client().videos.downloadContent(video.id)
  assert.equal((await content.arrayBuffer()).byteLength, 64 << 10)
  const missing = await failure(client().videos.retrieve('video_none'))
  assert.equal(missing.status, 404)
})

test('models', async () => {
  const ids = []
  for await (const model of client().models.list()) ids.push(model.id)
  assert.ok(ids.includes('demo-chat'))
})

test('errors', async () => {
  for (const [options, model, status, code, type] of [
    [{ apiKey: 'mgw_no' }, 'demo-chat', 401, 'invalid_api_key', OpenAI.AuthenticationError],
    [{ apiKey: gateway.poor_key }, 'demo-chat', 402, 'insufficient_quota', OpenAI.APIError],
    [{}, 'no-such-model', 404, 'model_not_found', OpenAI.NotFoundError],
    [{}, gateway.limited.chat, 429, 'rate_limit_exceeded', OpenAI.RateLimitError],
  ]) {
    const error = await failure(client(options).chat.completions.create({ model, messages }))
    assert.ok(error instanceof type, `${error}`)
    assert.equal(error.status, status)
    assert.equal(error.code, code)
    assert.match(error.requestID, /^req_/)
  }
  const unsupported = await failure(client().chat.completions.create({ model: 'demo-chat', messages, warp_factor: 9 }))
  assert.equal(unsupported.code, 'unsupported_parameter')
  assert.equal(unsupported.param, 'warp_factor')
})

test('errors that a retry cannot fix are not retried', async () => {
  let calls = 0
  const counting = (...args) => { calls++; return fetch(...args) }
  await failure(client({ maxRetries: 2, fetch: counting, apiKey: gateway.poor_key }).chat.completions.create({ model: 'demo-chat', messages }))
  assert.equal(calls, 1)
})

test('an error inside a stream', async () => {
  let chunks = 0
  const error = await failure((async () => {
    for await (const _ of await client().chat.completions.create({ model: gateway.failing.chat, messages, stream: true })) chunks++
  })())
  assert.ok(chunks > 0)
  assert.ok(error instanceof OpenAI.APIError, `${error}`)
  assert.equal(error.code, 'upstream_unavailable')
  const events = []
  const broken = await failure((async () => {
    for await (const event of await client().responses.create({ model: gateway.failing.responses, input: 'hi', stream: true })) events.push(event.type)
  })())
  assert.ok(events.includes('response.created'))
  assert.ok(broken instanceof OpenAI.APIError, `${broken}`)
})

test('the client aborts a stream', async () => {
  const stream = await client().chat.completions.create({ model: gateway.endless, messages, stream: true })
  for await (const chunk of stream) {
    if (chunk.choices[0].delta.content) break
  }
  assert.ok(stream.controller.signal.aborted)
})
