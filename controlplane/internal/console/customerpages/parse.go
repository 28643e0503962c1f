package customerpages

import (
	"fmt"
	"strings"

	"modelgateway/controlplane/adminclient"
	"modelgateway/controlplane/internal/console/kit"
)

// parseKeys reads keys to import: one in a line, with name, hash, hint and pepper.
func parseKeys(account, text string) ([]adminclient.ImportedKey, error) {
	var keys []adminclient.ImportedKey
	n := 0
	for line := range strings.Lines(text) {
		n++
		if strings.TrimSpace(line) == "" {
			continue
		}

		parts := strings.Split(line, ",")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}

		if len(parts) < 2 || len(parts) > 4 || parts[0] == "" || parts[1] == "" {
			return nil, kit.Invalid("keys", fmt.Sprintf("line %d must have a name and a hash", n))
		}

		k := adminclient.ImportedKey{AccountID: account, Name: parts[0], Hash: parts[1]}
		if len(parts) > 2 {
			k.Hint = kit.Optional(parts[2])
		}
		if len(parts) > 3 {
			k.Pepper = kit.Optional(parts[3])
		}

		keys = append(keys, k)
	}

	if len(keys) == 0 {
		return nil, kit.Invalid("keys", "must have at least one line")
	}

	return keys, nil
}
