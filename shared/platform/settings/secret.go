package settings

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
)

// hidden is printed in place of a secret.
const hidden = "[hidden]"

// Secret is a setting whose value is never printed, logged or encoded.
type Secret string

// String returns a placeholder.
func (Secret) String() string { return hidden }

// GoString returns a placeholder.
func (Secret) GoString() string { return hidden }

// LogValue returns a placeholder.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText returns a placeholder.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Lines returns the lines of the secret that are not empty.
func (s Secret) Lines() []string {
	var lines []string
	for line := range strings.SplitSeq(string(s), "\n") {
		if line = strings.TrimRight(line, "\r"); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// Key returns the 32 bytes that the secret holds in base64.
func (s Secret) Key() ([]byte, error) {
	if s == "" {
		return nil, errors.New("is not set")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(s)))
	if err != nil || len(key) != 32 {
		return nil, errors.New("is not 32 bytes in base64")
	}
	return key, nil
}
