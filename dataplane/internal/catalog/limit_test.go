package catalog

import (
	"math"
	"testing"

	"modelgateway/shared/catalogkv"
)

func TestLimitsOfARequest(t *testing.T) {
	t.Parallel()
	model := func(kind catalogkv.Type, window, output int64) *Model {
		return &Model{Model: catalogkv.Model{Type: kind, ContextWindow: window, MaxOutputTokens: output}}
	}
	for name, tt := range map[string]struct{ got, want int64 }{
		"window":                    {model(catalogkv.Text, 8000, 0).InputLimit(10), 8000},
		"body beyond the window":    {model(catalogkv.Text, 8000, 0).InputLimit(9000), 9000},
		"unknown window":            {model(catalogkv.Text, 0, 0).InputLimit(9000), 0},
		"limit of the request":      {model(catalogkv.Text, 8000, 500).OutputLimit(100, 3), 300},
		"limit of the model":        {model(catalogkv.Text, 8000, 500).OutputLimit(0, 0), 500},
		"limit above the model's":   {model(catalogkv.Text, 8000, 500).OutputLimit(math.MaxInt64, 2), 1000},
		"window as limit of output": {model(catalogkv.Text, 8000, 0).OutputLimit(0, 1), 8000},
		"unknown limit":             {model(catalogkv.Text, 0, 0).OutputLimit(0, 1), 0},
		"limit beyond every number": {model(catalogkv.Text, 0, 0).OutputLimit(math.MaxInt64, 2), 0},
		"image":                     {model(catalogkv.Image, 8000, 500).OutputLimit(100, 1), 0},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %d; want %d", name, tt.got, tt.want)
		}
	}
}
