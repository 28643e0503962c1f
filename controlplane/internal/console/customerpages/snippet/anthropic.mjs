import Anthropic from '@anthropic-ai/sdk'

const client = new Anthropic({ baseURL: 'https://HOST', apiKey: process.env.MGW_API_KEY })
const answer = await client.messages.create({ model: 'MODEL', max_tokens: 1000, messages: [{ role: 'user', content: 'Hello' }] })
console.log(answer.content)
