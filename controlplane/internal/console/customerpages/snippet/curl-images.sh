curl -sS --fail-with-body https://HOST/v1/images/generations -H "Authorization: Bearer $MGW_API_KEY" \
  -H 'Content-Type: application/json' -d '{"model": "IMAGE_MODEL", "prompt": "A boat"}' -o image.json
