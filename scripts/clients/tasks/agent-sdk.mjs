import { createSdkMcpServer, tool } from '@anthropic-ai/claude-agent-sdk'
import { z } from 'zod'
import { check, count, finish, model, prompt, weather } from './task.mjs'

const text = async (city) => ({ content: [{ type: 'text', text: weather(city) }] })
const server = createSdkMcpServer({ name: 'mgw', tools: [tool('weather', 'Tells the weather.', { city: z.string() }, text)] })
// A tool of the agent, and one of the program.
for (const more of [{ allowedTools: ['Bash'] }, { tools: [], mcpServers: { mgw: server }, allowedTools: ['mcp__mgw__weather'] }]) {
  for await (const message of query({ prompt, options: { model, env, ...more } })) {
    if (message.type !== 'result') continue
    check(message.result)
    for (const usage of Object.values(message.modelUsage)) count(usage.inputTokens, usage.outputTokens)
  }
}
finish()
