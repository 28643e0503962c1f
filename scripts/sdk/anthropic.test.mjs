import assert from 'node:assert/strict'
import { test } from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import { failure, gateway } from './gateway.mjs'

const client = (more = {}) => new Anthropic({ baseURL: gateway.url, apiKey: gateway.key, maxRetries: 0, ...more })
const body = { model: 'demo-messages', max_tokens: 100, messages: [{ role: 'user', content: 'hi' }] }

test('messages, as JSON and as a stream', async () => {
  for (const keyed of [{}, { apiKey: null, authToken: gateway.key }]) {
    const whole = await client(keyed).messages.create(body)
    assert.equal(whole.model, 'demo-messages')
    assert.ok(whole.content[0].text)
    const final = await client(keyed).messages.stream(body).finalMessage()
    assert.deepEqual(final.content, whole.content)
    assert.equal(final.stop_reason, whole.stop_reason)
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens)
  }
})

test('messages call tools', async () => {
  const asking = {
    ...body, tools: [{ name: 'weather', input_schema: { type: 'object', properties: { city: { type: 'string' } } } }], tool_choice: { type: 'tool', name: 'weather' },
  }
  const whole = await client().messages.create(asking)
  const call = whole.content.find((block) => block.type === 'tool_use')
  assert.equal(call.name, 'weather')
  const final = await client().messages.stream(asking).finalMessage()
  assert.deepEqual(final.content.find((block) => block.type === 'tool_use').input, call.input)
  await client().messages.create({
    ...asking, tool_choice: { type: 'auto' },
    messages: [...body.messages, { role: 'assistant', content: whole.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'sunny' }] }],
  })
})

test('models', async () => {
  const names = []
  for await (const model of client().models.list()) names.push(model.display_name)
  assert.ok(names.includes('Demo Messages'))
})

test('errors', async () => {
  for (const [options, model, status, kind] of [
    [{ apiKey: 'mgw_no' }, body.model, 401, 'authentication_error'],
    [{ apiKey: gateway.poor_key }, body.model, 402, 'billing_error'],
    [{}, 'no-such-model', 404, 'not_found_error'],
    [{}, gateway.limited.messages, 429, 'rate_limit_error'],
  ]) {
    const error = await failure(client(options).messages.create({ ...body, model }))
    assert.ok(error instanceof Anthropic.APIError, `${error}`)
    assert.equal(error.status, status)
    assert.equal(error.error.error.type, kind)
    assert.match(error.requestID, /^req_/)
  }
})

test('an error inside a stream', async () => {
  let events = 0
  const error = await failure((async () => {
    for await (const _ of await client().messages.create({ ...body, model: gateway.failing.messages, stream: true })) events++
  })())
  assert.ok(events > 0)
  assert.ok(error instanceof Anthropic.APIError, `${error}`)
})

test('counting tokens is answered with an error', async () => {
  const { max_tokens, ...counted } = body
  const error = await failure(client().messages.countTokens(counted))
  assert.equal(error.status, 404)
  assert.equal(error.error.error.type, 'not_found_error')
})
