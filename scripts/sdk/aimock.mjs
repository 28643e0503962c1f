// A provider simulator that others maintain. It prints its address and runs until its
// input ends.
import { LLMock } from '@copilotkit/aimock'

const usage = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18, input_tokens: 11, output_tokens: 7 }
const mock = new LLMock({ host: '127.0.0.1', port: 0 })
mock.onMessage('hello', { content: 'Hi there, how are you?', usage })
mock.onMessage('weather', { toolCalls: [{ name: 'weather', arguments: '{"city":"Oslo"}' }], usage })
mock.onImage('a boat', { image: { b64Json: 'iVBORw0KGgo=' } })
mock.onVideo('waves', { video: { id: 'waves', status: 'completed', b64: 'AAAA' } })
await mock.start()
process.stdout.write(`${mock.url}\n`)
process.stdin.resume()
process.stdin.on('end', () => mock.stop())
