package classify

import "strings"

// refusesForeignItem reports whether an answer refuses encrypted reasoning, or a signature, that the account of the call
// cannot verify: another account or provider has made it. Words of a client that the answer repeats can only lead to a
// further attempt.
func refusesForeignItem(u unwrapped) bool {
	if strings.Contains(strings.Join(u.hints, "\n"), "invalid_encrypted_content") {
		return true
	}
	for _, l := range u.levels {
		text := strings.ToLower(l.text)
		has := func(words ...string) bool {
			for _, word := range words {
				if strings.Contains(text, word) {
					return true
				}
			}
			return false
		}
		encrypted := has("encrypted content", "encrypted_content", "encrypted reasoning", "encrypted item")
		if encrypted && has("verif", "decrypt", "decod", "pars", "another", "different", "invalid", "not valid") {
			return true
		}
		signature := has("signature") && has("thinking", "thought", "reasoning")
		if signature && has("invalid", "not valid", "verif", "mismatch", "corrupt") && !has("missing") {
			return true
		}
	}
	return false
}
