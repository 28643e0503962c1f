// Package wiresample holds samples of the answers of model providers, byte for byte, for
// tests of the gateway, of the provider simulator and of both together. The README
// beside this file describes the samples.
package wiresample

import (
	"embed"
	"encoding/json"
	"io/fs"
	"testing"
)

//go:embed chat images messages responses videos
var files embed.FS

//go:embed expected-usage.json
var expectedUsage []byte

// Expected says how the gateway must bill a sample.
type Expected struct {
	// Billing is "final" if the sample reports its whole usage, "estimate" if it
	// reports none or a part, "pending" for a job that has not finished, or "none"
	// if nothing is billed.
	Billing string `json:"billing"`
	// Usage is the reported usage, normalised: a JSON object of quantities. A
	// quantity that is missing is zero.
	Usage json.RawMessage `json:"usage"`
}

// Files returns the samples. The folder of a sample is its wire format; the extension
// is "json" for a whole answer and "sse" for an event stream.
func Files() fs.FS { return files }

// Read returns the sample with a name such as "chat/response.json".
func Read(tb testing.TB, name string) []byte {
	tb.Helper()
	text, err := files.ReadFile(name)
	if err != nil {
		tb.Fatalf("wiresample: %v", err)
	}
	return text
}

// ExpectedUsage returns how each sample is billed, by the sample's name.
func ExpectedUsage(tb testing.TB) map[string]Expected {
	tb.Helper()
	var file struct {
		Samples map[string]Expected `json:"samples"`
	}
	if err := json.Unmarshal(expectedUsage, &file); err != nil {
		tb.Fatalf("wiresample: expected-usage.json: %v", err)
	}
	return file.Samples
}
