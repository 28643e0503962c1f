curl -sS --fail-with-body https://HOST/v1/chat/completions -H "Authorization: Bearer $MGW_API_KEY" \
  -H 'Content-Type: application/json' -d '{"model": "MODEL", "messages": [{"role": "user", "content": "Hello"}]}'
